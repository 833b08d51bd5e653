"""Merge consecutive decoder layers into one call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bireme.capture.rewrite import GraphBuilder
from bireme.core import kernels
from bireme.core.graph import Graph, Node, Ref
from bireme.core.op import OPS, Call
from bireme.passes.manager import register
from bireme.passes.matching import Matcher, operands


@dataclass(frozen=True)
class _Layer:
    """A decoder layer in a graph: its inputs, its results and its nodes."""

    x: Ref
    turns: tuple[Ref, Ref, Ref]  # cosines, sines, place
    arrays: tuple[Ref, ...]  # as nn/generation/stack.py names them
    epsilon: float
    out: int
    caches: tuple[int, int]
    nodes: frozenset[int]  # by their first result


@dataclass(frozen=True)
class _Stack:
    """Layers of which each reads the result of the one before, and perhaps a norm and an output."""

    layers: tuple[_Layer, ...]
    after: tuple[Ref, ...]
    out: int
    nodes: frozenset[int]

    @property
    def results(self) -> list[int]:
        return [self.out, *[c for layer in self.layers for c in layer.caches]]

    @property
    def args(self) -> tuple[Ref, ...]:
        first = self.layers[0]
        return (first.x, *first.turns, *[a for n in self.layers for a in n.arrays], *self.after)


@register("stack_layers", order=74, on=False)
def stack_layers(graph: Graph) -> Graph:
    """Merge decoder layers with rotary embeddings, gated units and a cache, and the norm and output
    layer after them, into one call where a GPU's kernel accepts it."""
    matcher = Matcher(graph)
    found = [s for s in _stacks(matcher, list(_layers(matcher))) if _taken(matcher, s)]
    if not found:
        return graph
    gone = frozenset[int]().union(*[s.nodes for s in found])
    # A stack stands where the last of its nodes stood: by then all that it reads is there.
    last = {max(s.nodes): s for s in found}
    builder = GraphBuilder(graph)
    builder.copy_inputs()
    for node in graph.nodes:
        stack = last.get(node.first)
        if stack is not None:
            results = builder.add(
                _call(matcher, stack), tuple([builder.ref(a) for a in stack.args]), False
            )
            builder.refs.update(zip(stack.results, results, strict=True))
        elif node.first not in gone:
            builder.copy(node)
    return builder.finish(graph.outputs)


def _call(m: Matcher, stack: _Stack) -> Call:
    types = tuple([m.type_of(a) for a in stack.args])
    count = len(stack.layers)
    attrs = {"layers": count, "head": bool(stack.after), "epsilon": stack.layers[0].epsilon}
    return OPS["decoder_stack"].call_with(
        types, (-1,) * 4 + (len(types) - 4,), attrs, (None,) * len(types)
    )


def _taken(m: Matcher, stack: _Stack) -> bool:
    """Whether the kernel accepts the stack, and no node outside reads its inner values."""
    seen = set(stack.results)
    for first in stack.nodes:
        for result in m.makers[first].results:
            if result in seen:
                continue
            if any(u is None or u.first not in stack.nodes for u in m.users.get(result, ())):
                return False
    # The call stands where the last node stood, so that nothing before may wait for it.
    end = max(stack.nodes)
    for node in m.graph.nodes:
        outside = node.first < end and node.first not in stack.nodes
        if outside and any(a in seen for a in node.args if a.__class__ is int):
            return False
    return kernels.choose(_call(m, stack), "gpu") is not None


def _stacks(m: Matcher, layers: list[_Layer]) -> Iterator[_Stack]:
    by_input = {layer.x: layer for layer in layers}
    outs = {layer.out for layer in layers}
    for first in layers:
        if first.x in outs:
            continue
        chain = [first]
        while (after := by_input.get(chain[-1].out)) is not None:
            if (after.turns, after.epsilon) != (first.turns, first.epsilon):
                break
            chain.append(after)
        nodes = frozenset[int]().union(*[n.nodes for n in chain])
        yield _with_output(m, _Stack(tuple(chain), (), chain[-1].out, nodes))


def _with_output(m: Matcher, stack: _Stack) -> _Stack:
    """With the norm and the output layer that alone read the last layer's result."""
    norm = _only_user(m, stack.out, "rms_norm")
    if norm is None or norm.args[0] != stack.out or not _is_norm(norm):
        return stack
    head = _only_user(m, norm.first, "linear")
    same = norm.call.attrs["epsilon"] == stack.layers[0].epsilon
    if head is None or head.args[2] is not None or not same:
        return stack
    nodes = stack.nodes | {norm.first, head.first}
    return _Stack(stack.layers, (norm.args[1], head.args[1]), head.first, nodes)


def _only_user(m: Matcher, ref: int, name: str) -> Node | None:
    users = m.users.get(ref, [])
    node = users[0] if len(users) == 1 else None
    return node if node is not None and m.made_by(node.first, name) is node else None


def _is_norm(node: Node) -> bool:
    return node.args[1] is not None and node.call.attrs["dims"] == 1


class _Walk:
    """Goes backwards from a layer's last sum, and remembers the nodes that it went through."""

    def __init__(self, m: Matcher):
        self.m = m
        self.nodes: set[int] = set()

    def to(self, ref: Ref, *names: str) -> Node | None:
        node = self.m.made_by(ref, *names)
        if node is not None and not node.tape:
            self.nodes.add(node.first)
            return node
        return None

    def linear(self, ref: Ref) -> tuple[Ref, Ref] | None:
        node = self.to(ref, "linear")
        return None if node is None or node.args[2] is not None else node.args[:2]  # type: ignore

    def norm(self, ref: Ref) -> Node | None:
        node = self.to(ref, "rms_norm")
        return node if node is not None and _is_norm(node) else None

    def heads(self, ref: Ref) -> tuple[Ref, Ref] | None:
        node = self.to(ref, "reshape")
        return None if node is None else self.linear(node.args[0])

    def turned(self, ref: Ref) -> tuple[Ref, Ref, Ref] | None:
        """(x, cosines, sines) of x * cos + concat(-x2, x1) * sin."""
        total = self.to(ref, "add")
        if total is None:
            return None
        for plain, other in operands(total):
            straight, crossed = self.to(plain, "multiply"), self.to(other, "multiply")
            if straight is None or crossed is None:
                continue
            for joined_ref, sin in operands(crossed):
                joined = self.to(joined_ref, "concat")
                if joined is None or len(joined.args) != 2:
                    continue
                x = self._halves(joined)
                for a, cos in operands(straight):
                    if x is not None and a == x:
                        return x, cos, sin
        return None

    def _halves(self, joined: Node) -> Ref:
        """x of concat(-x2, x1) over the last dimension."""
        negated = self.to(joined.args[0], "neg")
        cut = self.m.makers.get(joined.args[1])  # type: ignore[arg-type]
        if negated is None or cut is None or cut.call.op.name != "split" or cut.tape:
            return None
        rank = len(cut.call.outs[0].shape)
        axes = {a % rank for a in (joined.call.attrs["axis"], cut.call.attrs["axis"])}
        sections = cut.call.attrs["sections"]
        ends = (negated.args[0], joined.args[1]) == (cut.first + 1, cut.first)
        if len(sections) != 2 or sections[0] != sections[1] or axes != {rank - 1} or not ends:
            return None
        self.nodes.add(cut.first)
        return cut.args[0]

    def gated(self, ref: Ref) -> tuple[Ref, Ref, Ref] | None:
        """(x, gate, up) of silu(x @ gate) * (x @ up)."""
        node = self.to(ref, "multiply", "swiglu")
        if node is None:
            return None
        for a, b in operands(node) if node.call.op.name == "multiply" else (node.args,):
            opened = self.to(a, "silu") if node.call.op.name == "multiply" else None
            if node.call.op.name == "multiply" and opened is None:
                continue
            gate = self.linear(a if opened is None else opened.args[0])
            up = self.linear(b)
            if gate is not None and up is not None and gate[0] == up[0]:
                return gate[0], gate[1], up[1]
        return None


def _layers(m: Matcher) -> Iterator[_Layer]:
    for node in m.graph.nodes:
        if node.call.op.name == "add":
            layer = _layer_ending(m, node)
            if layer is not None:
                yield layer


def _layer_ending(m: Matcher, node: Node) -> _Layer | None:
    for middle, fed in operands(node):
        walk = _Walk(m)
        if walk.to(node.first, "add") is None:
            return None
        down = walk.linear(fed)
        gated = None if down is None else walk.gated(down[0])
        norm2 = None if gated is None else walk.norm(gated[0])
        total = walk.to(middle, "add")
        if down is None or gated is None or norm2 is None or norm2.args[0] != middle:
            continue
        if total is None:
            continue
        for x, mixed in operands(total):
            found = _attention(m, walk, x, mixed)
            if found is None:
                continue
            norm1, q, k, v, mix, turns, attend = found
            if norm1.call.attrs["epsilon"] != norm2.call.attrs["epsilon"]:
                return None
            keys, values, place = attend.args[3:]
            return _Layer(
                x, (*turns, place),
                (norm1.args[1], q, k, v, mix, norm2.args[1], gated[1], gated[2], down[1], keys,
                 values),
                norm1.call.attrs["epsilon"], node.first, (attend.first + 1, attend.first + 2),
                frozenset(walk.nodes),
            )  # fmt: skip
    return None


def _is_plain(attend: Node) -> bool:
    """Whether its scores are divided by the root of a head's size, and nothing else happens."""
    query, attrs = attend.call.types[0], attend.call.attrs
    usual = attrs["scale"] in (0.0, query.shape[3] ** -0.5)  # type: ignore[union-attr]
    return usual and not any(attrs[name] for name in ("window", "cap", "slopes"))


def _attention(
    m: Matcher, walk: _Walk, x: Ref, mixed: Ref
) -> tuple[Node, Ref, Ref, Ref, Ref, tuple[Ref, Ref], Node] | None:
    mix = walk.linear(mixed)
    flat = None if mix is None else walk.to(mix[0], "reshape")
    attend = None if flat is None else m.makers.get(flat.args[0])  # type: ignore[arg-type]
    if mix is None or flat is None or attend is None or attend.tape:
        return None
    if attend.call.op.name != "cache_attend" or flat.args[0] != attend.first:
        return None
    if any(attend.call.casts) or not _is_plain(attend):
        return None
    walk.nodes.add(attend.first)
    query, key, value = attend.args[:3]
    turned_query, turned_key = walk.turned(query), walk.turned(key)
    v = walk.heads(value)
    if turned_query is None or turned_key is None or turned_query[1:] != turned_key[1:]:
        return None
    q, k = walk.heads(turned_query[0]), walk.heads(turned_key[0])
    if q is None or k is None or v is None or not q[0] == k[0] == v[0]:
        return None
    norm1 = walk.norm(q[0])
    if norm1 is None or norm1.args[0] != x:
        return None
    cos, sin = turned_query[1:]
    return norm1, q[1], k[1], v[1], mix[1], (cos, sin), attend
