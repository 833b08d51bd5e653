"""A program, pruned to one run, as one op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bireme.capture import symbols
from bireme.capture.graph_op import GraphOp
from bireme.capture.rewrite import specialize
from bireme.core import eviction
from bireme.core.aval import Aval
from bireme.core.cache import BoundedCache
from bireme.core.errors import InvalidArgument
from bireme.core.grad_op import GradOp
from bireme.core.graph import Graph
from bireme.core.op import Call

_MAX_SIGNATURES = 64  # sets of input types remembered, each with a graph of its own


class ProgramOp(GraphOp):
    """A graph op that remembers a bounded number of signatures, and lets inputs that were
    declared with one unknown size come in several."""

    def __init__(self, graph: Graph, unchecked: Sequence[bool] = ()):
        super().__init__(graph, "program")
        # Of each given input, whether it may come in other types than it was declared with.
        self.unchecked = unchecked or [False] * len(self.given)
        self.calls: BoundedCache[tuple[Aval, ...], Call] = BoundedCache(_MAX_SIGNATURES)

    def call_for(self, types: tuple[Aval, ...]) -> Call:
        call = self.calls.get(types)
        if call is None:
            call = self.calls.add(types, self.typed_call(types))
        eviction.use(call)
        return call

    def call_with_sizes(self, types: tuple[Aval, ...], sizes: dict[str, int]) -> Call:
        """The Call where some sizes do not show in the inputs' types."""
        key: Any = (types, tuple(sorted(sizes.items())))
        call = self.calls.get(key)
        if call is None:
            inputs = self._spread(types)
            try:
                graph = specialize(self.graph, sizes)
            except InvalidArgument:
                graph = self.graph
            if graph.inputs != inputs:
                graph = specialize_by_types(self.graph, inputs, sizes)
            call = self.calls.add(key, self.call_on_graph(types, graph, sizes))
        eviction.use(call)
        return call

    def typed_call(self, types: tuple[Aval, ...]) -> Call:
        try:
            return super().typed_call(types)
        except InvalidArgument:
            graph = specialize_by_types(self.graph, self._spread(types))
            return self.call_on_graph(types, graph, {})

    def _spread(self, types: tuple[Aval, ...]) -> list[Aval]:
        """The types of all inputs, constants among them."""
        spread = list(self.graph.inputs)
        for i, declared, t, free in zip(
            self.given, self.declared, types, self.unchecked, strict=True
        ):
            if free:
                pass
            elif declared.dtype is not t.dtype or not fits(declared.shape, t.shape):
                raise InvalidArgument(
                    f"{self.graph.names.get(-1 - i, f'input {i}')} must be {declared}. "
                    f"Received: {t}"
                )
            spread[i] = t
        return spread


def fits(declared: Sequence[Any], sizes: Sequence[Any]) -> bool:
    """Whether an input may have these sizes: first dimensions that are declared open may be left
    out, and the others have the declared sizes or are open."""
    left_out = len(declared) - len(sizes)
    if left_out < 0 or any(type(d) is int for d in declared[:left_out]):
        return False
    rest = declared[left_out:]
    return all(type(d) is not int or d == have for d, have in zip(rest, sizes, strict=True))


def specialize_by_types(
    graph: Graph, inputs: list[Aval], known: dict[str, int] | None = None
) -> Graph:
    """The graph with the types that follow from `inputs`, op by op, where one symbol stands for
    several sizes (source and target length, both declared as None)."""
    sizes: dict[str, int] = dict(known or {})
    unclear: set[str] = set()
    for declared, t in zip(graph.inputs, inputs, strict=True):
        if t.ndim > declared.ndim:
            continue  # an unchecked input
        for d, have in zip(declared.shape[declared.ndim - t.ndim :], t.shape, strict=True):
            if type(d) is not int and sizes.setdefault(str(d), have) != have:
                unclear.add(str(d))
    for name in unclear:
        del sizes[name]
    types: dict[int, Aval] = {-1 - i: t for i, t in enumerate(inputs)}
    made: dict[int, list[Call]] = {}  # the new Calls of each old one
    nodes = []
    for node in graph.nodes:
        given = tuple(
            [
                types[a] if isinstance(a, int) else t  # type: ignore[index]
                for a, t in zip(node.args, node.call.types, strict=True)
            ]
        )
        call = _retyped(node.call, given, sizes, made)
        nodes.append(replace(node, call=call))
        types.update(zip(node.results, call.outs, strict=True))
    return graph.copy(inputs=list(inputs), nodes=nodes)


def _retyped(
    call: Call, given: tuple[Any, ...], sizes: dict[str, int], made: dict[int, list[Call]]
) -> Call:
    if isinstance(call.op, GradOp):
        forward: Call = call.attrs["forward"]
        present = tuple([t is not None for t in call.types[: call.layout[0]]])
        for candidate in made.get(forward.id, ()):
            found = candidate.gradient(call.attrs["needs"], present)
            if found.types == given:
                made.setdefault(call.id, []).append(found)
                return found
        raise InvalidArgument(
            f"[{forward.op.name}] inputs of different sizes were declared with the same unknown "
            "size; give their dimensions different names in static.data, as in ['src', 8]"
        )
    attrs = {k: symbols.substitute(v, sizes) for k, v in call.attrs.items()}
    found = call.op.call_with(given, call.layout, attrs, call.casts)
    known = made.setdefault(call.id, [])
    if found not in known:
        known.append(found)
    return found
