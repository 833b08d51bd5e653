"""Remove redundant transposes and reshapes."""

from __future__ import annotations

from typing import Any

from bireme.core.graph import Graph, Node, Number, Ref
from bireme.passes.manager import register
from bireme.passes.matching import SAME, Matcher, Put, rewrite

# Element-wise ops: they commute with transposes and reshapes.
_POINTWISE = {
    "relu", "relu6", "sigmoid", "tanh", "gelu", "silu", "hardswish", "hardsigmoid", "exp", "abs",
    "square", "sqrt", "rsqrt", "erf", "neg", "leaky_relu", "hardtanh", "softplus", "mish", "elu",
    "add", "subtract", "multiply", "divide", "scale",
}  # fmt: skip
_ROUNDS = 4


@register("layout", order=30)
def layout(graph: Graph) -> Graph:
    """Merge chains of transposes and reshapes, drop those that change nothing, let products
    read transposed matrices as they lie, and take a transpose and its inverse away from around
    elementwise calls and channels-last convolutions."""
    for _ in range(_ROUNDS):
        after = rewrite(graph, _find)
        if after is graph:
            break
        graph = after
    return graph


def _find(m: Matcher, node: Node) -> Put | None:
    return _RULES[node.call.op.name](m, node) if node.call.op.name in _RULES else None


def _transpose(m: Matcher, node: Node) -> Put | None:
    perm = _perm(node)
    if perm == tuple(range(len(perm))):
        return Put(SAME, (node.args[0],), {})
    inner = m.made_by(node.args[0], "transpose")
    if inner is not None:
        first = _perm(inner)
        both = tuple([first[p] for p in perm])
        if both == tuple(range(len(both))):
            return Put(SAME, (inner.args[0],), {})
        return Put("transpose", (inner.args[0],), {"perm": both})
    return _between(m, node.args[0], perm)


def _between(m: Matcher, ref: Ref, perm: tuple[int, ...]) -> Put | None:
    """A chain without the transpose at its start, if the one after it (`perm`) undoes that."""
    made = _moved(m, ref, perm)
    return made if isinstance(made, Put) else None


def _moved(m: Matcher, ref: Ref, perm: tuple[int, ...]) -> Any:
    """transpose(ref, perm) without a transpose; None if that cannot be."""
    start = m.made_by(ref, "transpose")
    if start is not None:
        first = _perm(start)
        undone = [first[p] for p in perm] == list(range(len(perm)))
        return start.args[0] if undone else None
    node = m.made_by(ref, "conv", *_POINTWISE)
    if node is None or len(m.users[node.first]) != 1:
        return None
    call = node.call
    if call.op.name == "conv":
        ndim = len(perm)
        if not call.attrs.get("last") or perm != (0, ndim - 1, *range(1, ndim - 1)):
            return None
        attrs = {**call.attrs, "last": False}
    elif all(a is None or isinstance(a, Number) for a in node.args[1:]):
        attrs = call.attrs
    else:
        return None
    moved = _moved(m, node.args[0], perm)
    return None if moved is None else Put(call.op.name, (moved, *node.args[1:]), attrs)


def _reshape(m: Matcher, node: Node) -> Put | None:
    source, made = m.type_of(node.args[0]), node.call.outs[0]
    if source is made:
        return Put(SAME, (node.args[0],), {})
    inner = m.made_by(node.args[0], "reshape")
    if inner is None or not made.is_static or len(node.args) != 1:
        return None
    return Put("reshape", (inner.args[0],), {"shape": made.shape})


def _cast(m: Matcher, node: Node) -> Put | None:
    if m.type_of(node.args[0]) is node.call.outs[0]:
        return Put(SAME, (node.args[0],), {})
    return None


def _matmul(m: Matcher, node: Node) -> Put | None:
    if m.made_by(node.first, "matmul") is None:
        return None
    args, attrs = list(node.args), dict(node.call.attrs)
    for i, flag in enumerate(("transpose_x", "transpose_y")):
        inner = m.made_by(args[i], "transpose")
        if inner is None or len(m.users[inner.first]) != 1:
            continue
        perm = _perm(inner)
        n = len(perm)
        if n >= 2 and perm == (*range(n - 2), n - 1, n - 2):
            args[i] = inner.args[0]
            attrs[flag] = not attrs[flag]
    return None if tuple(args) == node.args else Put("matmul", tuple(args), attrs)


def _perm(node: Node) -> tuple[int, ...]:
    perm = node.call.attrs["perm"]
    return tuple([p + len(perm) if p < 0 else p for p in perm])


_RULES = {"transpose": _transpose, "reshape": _reshape, "cast": _cast, "matmul": _matmul}
