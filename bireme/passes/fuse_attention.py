"""Replace attention that is written out with products and a softmax by the fused op."""

from __future__ import annotations

from dataclasses import dataclass

from bireme.core.aval import Aval
from bireme.core.graph import Graph, Node, Number, Ref
from bireme.passes.manager import register
from bireme.passes.matching import Literal, Matcher, Put, is_value, operands, rewrite

_SWAP = (0, 2, 1, 3)  # [batch, heads, length, width] and [batch, length, heads, width]
_TURN = (0, 1, 3, 2)


@dataclass
class _Scores:
    query: Ref
    key: Ref
    scale: float
    key_heads_last: bool = False  # the key was turned straight from [batch, length, heads, width]
    mask: Ref = None


@register("fuse_attention", order=40)
def fuse_attention(graph: Graph) -> Graph:
    """softmax(q k^T * scale + mask) v as `attention`, dropout included, with the transposes of
    the heads around it where there are any."""
    return rewrite(graph, _find)


def _find(m: Matcher, node: Node) -> Put | None:
    turned = m.made_by(node.first, "transpose")
    if turned is not None:
        if turned.call.attrs["perm"] != _SWAP:
            return None
        return _attention(m, turned.args[0])
    made = _attention(m, node.first)
    return None if made is None else Put("transpose", (made,), {"perm": _SWAP})


def _attention(m: Matcher, ref: Ref) -> Put | None:
    node = m.made_by(ref, "matmul")
    if node is None or any(node.call.attrs.values()):
        return None
    weights, value = node.args
    drop: tuple[Ref, ...] = (None,) * 4
    dropped = m.made_by(weights, "dropout")
    if dropped is not None:
        if dropped.call.attrs["axis"] is not None:
            return None
        weights, *rest = dropped.args
        drop = tuple(rest)
        if not all(isinstance(a, Number) for a in drop):
            return None
    soft = m.made_by(weights, "softmax")
    if soft is None or soft.call.attrs["axis"] not in (-1, 3):
        return None
    scores = _scores(m, soft.args[0])
    if scores is None or not _fits(m, scores, value):
        return None
    key = scores.key if scores.key_heads_last else _heads_last(m, scores.key)
    heads = (_heads_last(m, scores.query), key, _heads_last(m, value))
    args = (*heads, scores.mask, Literal(float(scores.scale)), *drop)
    return Put("attention", args, {"causal": False})


def _scores(m: Matcher, ref: Ref) -> _Scores | None:
    masked = m.made_by(ref, "add")
    if masked is not None:
        for a, mask in operands(masked):
            found = _scaled(m, a)
            if found is not None and is_value(mask) and m.type_of(a) is m.type_of(ref):
                found.mask = mask
                return found
    return _scaled(m, ref)


def _scaled(m: Matcher, ref: Ref) -> _Scores | None:
    ref, scale = _without_factor(m, ref)
    product = m.made_by(ref, "matmul")
    if product is None or product.call.attrs["transpose_x"]:
        return None
    query, key = product.args
    query, factor = _without_factor(m, query)
    scale *= factor
    if not product.call.attrs["transpose_y"]:
        key, factor = _without_factor(m, key)
        scale *= factor
        turned = m.made_by(key, "transpose")
        if turned is None or turned.call.attrs["perm"] not in (_TURN, (0, 2, 3, 1)):
            return None
        key = turned.args[0]
        if turned.call.attrs["perm"] != _TURN:
            return _Scores(query, key, scale, key_heads_last=True)
    key, factor = _without_factor(m, key)
    return _Scores(query, key, scale * factor)


def _without_factor(m: Matcher, ref: Ref) -> tuple[Ref, float]:
    """A value and the number that it is multiplied by."""
    node = m.made_by(ref, "multiply", "divide", "scale")
    if node is None:
        return ref, 1.0
    if node.call.op.name == "scale":
        number, shift = m.number(node.args[1]), m.number(node.args[2])
        return (node.args[0], number) if number is not None and shift == 0.0 else (ref, 1.0)
    if node.call.op.name == "divide":
        number = m.number(node.args[1])
        return (node.args[0], 1.0 / number) if number else (ref, 1.0)
    for a, other in operands(node):
        number = m.number(other)
        if number is not None and m.type_of(a) is m.type_of(ref):
            return a, number
    return ref, 1.0


def _fits(m: Matcher, scores: _Scores, value: Ref) -> bool:
    """Four dimensions each, one type, and no broadcasting of batches and heads."""
    types = [m.type_of(r) for r in (scores.query, scores.key, value)]
    known = [t for t in types if isinstance(t, Aval) and t.ndim == 4 and t.dtype.is_floating]
    if len(known) != 3 or len({t.dtype for t in known}) != 1:
        return False
    outer = [t.shape[:2] for t in known]
    if scores.key_heads_last:
        outer[1] = known[1].shape[:3:2]
    return outer[0] == outer[1] == outer[2]


def _heads_last(m: Matcher, ref: Ref) -> Ref | Put:
    """[batch, heads, length, width] as [batch, length, heads, width]."""
    node = m.made_by(ref, "transpose")
    alone = node is not None and len(m.users[node.first]) == 1
    if node is not None and alone and node.call.attrs["perm"] == _SWAP:
        return node.args[0]
    return Put("transpose", (ref,), {"perm": _SWAP})
