"""Pattern matching: find subgraphs and replace each by one call.

A finder inspects one node (the last of a pattern) through a `Matcher` and proposes a replacement.
The nodes between that one and the arguments of its replacement are the pattern: it is replaced only
if the inner values have no other readers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bireme.capture.rewrite import GraphBuilder
from bireme.core.aval import FLOAT, INT, Aval
from bireme.core.graph import Graph, Node, Number, Ref
from bireme.core.op import OPS, promotion

SAME = "="  # in a `Put`: no call at all, the argument itself


@dataclass(frozen=True)
class Literal:
    """A Python number as an argument of a new call."""

    value: float | int


@dataclass(frozen=True)
class Put:
    """A new call: an op's name, its arguments (references into the old graph, literals, other
    calls, None) and its attributes."""

    op: str
    args: tuple[Any, ...]
    attrs: dict[str, Any]

    def leaves(self) -> Iterator[Ref]:
        """The references into the old graph."""
        for a in self.args:
            if isinstance(a, Put):
                yield from a.leaves()
            elif not isinstance(a, Literal):
                yield a


class Matcher:
    """A graph as pattern finders look at it."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.makers: dict[int, Node] = {r: n for n in graph.nodes for r in n.results}
        self.users: dict[int, list[Node | None]] = {}
        for node in graph.nodes:
            for a in node.args:
                if a.__class__ is int:
                    self.users.setdefault(a, []).append(node)  # type: ignore[arg-type]
        for o in graph.outputs:
            self.users.setdefault(o, []).append(None)
        self.types = graph.value_types()
        self.taped = any(n.tape for n in graph.nodes)

    def type_of(self, ref: Ref) -> Aval | None:
        if not is_value(ref):
            return None
        return self.graph.inputs[-1 - ref] if ref < 0 else self.types[ref]  # type: ignore

    def made_by(self, ref: Ref, *names: str) -> Node | None:
        """The call of one of these ops that made `ref`, if it computes in its inputs' type."""
        node = self.makers.get(ref) if is_value(ref) else None  # type: ignore[arg-type]
        if node is None or node.call.op.name not in names or not node.call.single:
            return None
        call = node.call
        for t, c in zip(call.types, call.casts, strict=True):
            if isinstance(t, Aval) and c is not None:
                return None
        return node

    def number(self, ref: Ref) -> float | None:
        """A constant that is one number."""
        if isinstance(ref, Number):
            return None if ref not in self.graph.numbers else float(self.graph.numbers[ref])
        if ref is None or ref >= 0 or -1 - ref not in self.graph.constants:
            return None
        array = np.asarray(self.graph.constants[-1 - ref])
        return (
            float(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind in "fiV" else None
        )

    def is_number(self, ref: Ref, value: float) -> bool:
        found = self.number(ref)
        return found is not None and math.isclose(found, value, rel_tol=1e-5)

    def may_vanish(self, node: Node, ref: Ref) -> bool:
        """Whether `ref` can stand for the node's result. Not if the node was recorded under
        no_grad and a gradient would then find its way through."""
        if node.tape or not self.taped:
            return True
        maker = self.makers.get(ref)  # type: ignore[arg-type]
        return maker is not None and not maker.tape

    def inside(self, root: Node, put: Put) -> dict[int, Node] | None:
        """The nodes that `put` makes superfluous, by their result; None if one of them has users
        elsewhere, or was recorded with a gradient where the last was not (or without)."""
        found = {root.first: root}
        leaves = set(put.leaves())
        todo = [a for a in root.args if a not in leaves]
        while todo:
            node = self.makers.get(todo.pop())  # type: ignore[arg-type]
            if node is None or node.first in found:
                continue
            if not node.call.single or node.tape != root.tape:
                return None
            found[node.first] = node
            todo += [a for a in node.args if a not in leaves]
        own = {id(n) for n in found.values()}
        for r in found.keys() - {root.first}:
            if any(user is None or id(user) not in own for user in self.users[r]):
                return None
        return found


def is_value(ref: Ref) -> bool:
    return ref.__class__ is int


def operands(node: Node) -> Iterator[tuple[Any, Any]]:
    """The two arguments of a commutative call, in both orders."""
    a, b = node.args
    yield a, b
    yield b, a


def rewrite(graph: Graph, find: Callable[[Matcher, Node], Put | None]) -> Graph:
    """Replace patterns by the proposals of `find`, which is called with the last node of the graph
    first, so that the largest pattern wins."""
    matcher = Matcher(graph)
    found: dict[int, Put] = {}
    gone: set[int] = set()
    for node in reversed(graph.nodes):
        if node.first in gone or not node.call.single:
            continue
        put = find(matcher, node)
        inside = None if put is None else matcher.inside(node, put)
        if put is None or inside is None or gone & inside.keys():
            continue
        if put.op == SAME and not matcher.may_vanish(node, put.args[0]):
            continue
        found[node.first] = put
        gone |= inside.keys()
    if not found:
        return graph
    builder = GraphBuilder(graph)
    builder.copy_inputs()
    for node in graph.nodes:
        put = found.get(node.first)
        if put is not None:
            builder.refs[node.first] = emit(builder, put, node.tape)
        elif node.first not in gone:
            builder.copy(node)
    return builder.finish(graph.outputs)


def emit(builder: GraphBuilder, put: Put, tape: bool) -> int:
    """Append a proposed call, and those that it is made of; returns its first result."""
    if put.op == SAME:
        return builder.ref(put.args[0])  # type: ignore[return-value]
    args: list[Ref] = []
    types: list[Any] = []
    for a in put.args:
        if isinstance(a, Literal):
            kind = "float" if isinstance(a.value, float) else "int"
            number = builder.graph.new_number(kind)
            builder.graph.numbers[number] = a.value
            args.append(number)
        else:
            args.append(emit(builder, a, tape) if isinstance(a, Put) else builder.ref(a))
        last = args[-1]
        if isinstance(last, Number):
            types.append(FLOAT if last.kind == "float" else INT)
        else:
            types.append(None if last is None else _type_in(builder, last))
    op = OPS[put.op]
    attrs = {**op.attr_defaults, **put.attrs}
    call = op.call_with(tuple(types), (-1,) * len(types), attrs, promotion(op, tuple(types), None))
    return builder.add(call, tuple(args), tape)[0]


def _type_in(builder: GraphBuilder, ref: int) -> Aval:
    if ref < 0:
        return builder.graph.inputs[-1 - ref]
    # Most queries are about recently added nodes.
    for node in reversed(builder.graph.nodes):
        if node.first <= ref:
            return node.call.outs[ref - node.first]
    raise KeyError(ref)


def same(a: float | None, b: float) -> bool:
    return a is not None and math.isclose(a, b, rel_tol=1e-5)


def last_axes(axis: Any, ndim: int) -> int | None:
    """How many of the last dimensions an `axis` attribute names; None for any others."""
    if axis is None:
        return ndim
    given: Sequence[int] = axis if isinstance(axis, tuple) else (axis,)
    axes = sorted({a + ndim if a < 0 else a for a in given})
    return len(axes) if axes == list(range(ndim - len(axes), ndim)) and axes else None
