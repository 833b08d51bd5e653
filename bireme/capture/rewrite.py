"""Making graphs from graphs: copying with changes, and putting sizes in place of symbols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bireme.capture import symbols
from bireme.core.aval import Aval, aval_of
from bireme.core.grad_op import GradOp
from bireme.core.graph import Graph, Node, Number, Ref
from bireme.core.op import Call


class GraphBuilder:
    """Copies parts of a `source` graph into a new one. References into the source are looked up
    in `refs`; whatever the copy should see elsewhere is put there first."""

    def __init__(self, source: Graph):
        self.source = source
        self.graph = Graph([])
        self.refs: dict[Ref, Ref] = {None: None}
        self._next = 0

    def input(self, t: Aval, name: str | None = None, constant: object = None) -> int:
        """A new input of the copy."""
        ref = -1 - len(self.graph.inputs)
        self.graph.inputs.append(t)
        if name is not None:
            self.graph.names[ref] = name
        if constant is not None:
            self.graph.constants[-1 - ref] = constant
        return ref

    def constant(self, array: np.ndarray) -> int:
        return self.input(aval_of(array), constant=array)

    def copy_input(self, ref: int) -> int:
        """The source's input `ref` as an input of the copy (once)."""
        have = self.refs.get(ref)
        if have is None:
            source = self.source
            have = self.refs[ref] = self.input(
                source.inputs[-1 - ref], source.names.get(ref), source.constants.get(-1 - ref)
            )
        return have  # type: ignore[return-value]

    def copy_inputs(self, count: int | None = None) -> None:
        """The source's inputs (the first `count`) in their order."""
        for i in range(len(self.source.inputs) if count is None else count):
            self.copy_input(-1 - i)

    def ref(self, ref: Ref) -> Ref:
        """A source reference in the copy's terms; numbers come along as they are needed."""
        have = self.refs.get(ref)
        if have is not None or ref is None:
            return have
        if isinstance(ref, Number):
            have = self.refs[ref] = self.number(ref)
            return have
        if ref >= 0:
            raise KeyError(f"value {ref} was not copied")
        return self.copy_input(ref)

    def number(self, old: Number) -> Number:
        new = self.graph.new_number(old.kind)
        if old in self.source.numbers:
            self.graph.numbers[new] = self.source.numbers[old]
        if old in self.source.keys:
            self.graph.keys[new] = self.source.keys[old]
        return new

    def add(self, call: Call, args: tuple[Ref, ...], tape: bool = True) -> range:
        """Append a call on the copy's own references; returns its results."""
        node = Node(call, args, self._next, tape)
        self.graph.nodes.append(node)
        self._next += len(call.outs)
        return node.results

    def copy(self, node: Node) -> range:
        """The source's node in the copy."""
        results = self.add(node.call, tuple([self.ref(a) for a in node.args]), node.tape)
        self.refs.update(zip(node.results, results, strict=True))
        return results

    def finish(self, outputs: list[int]) -> Graph:
        """Name the results (source references) and return the copy."""
        self.graph.outputs = [self.ref(o) for o in outputs]  # type: ignore[misc]
        return self.graph


def specialize(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph with every symbolic dimension replaced by its size."""
    if not sizes:
        return graph
    return graph.copy(
        inputs=[symbols.substitute_type(t, sizes) for t in graph.inputs],
        nodes=[replace(n, call=specialize_call(n.call, sizes)) for n in graph.nodes],
    )


def specialize_call(call: Call, sizes: Mapping[str, int]) -> Call:
    if isinstance(call.op, GradOp):
        forward = specialize_call(call.attrs["forward"], sizes)
        present = tuple([t is not None for t in call.types[: call.layout[0]]])
        return forward.gradient(call.attrs["needs"], present)
    types = tuple(
        [symbols.substitute_type(t, sizes) if isinstance(t, Aval) else t for t in call.types]
    )
    attrs = {k: symbols.substitute(v, sizes) for k, v in call.attrs.items()}
    if types == call.types and attrs == call.attrs:
        return call
    return call.op.call_with(types, call.layout, attrs, call.casts)
