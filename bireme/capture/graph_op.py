"""A whole graph as one op.

Calling a captured function records one entry whose lowering interprets the graph. Its gradient
is another such op, made from the gradient rules of the ops inside when the graph was captured.
A graph with symbolic dimensions is typed once per set of sizes that it meets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bireme import backends
from bireme.capture import symbols
from bireme.capture.rewrite import GraphBuilder, specialize
from bireme.core import eviction
from bireme.core.aval import INT, Aval
from bireme.core.grad_op import zeros
from bireme.core.graph import Graph, Node, Number
from bireme.core.op import Call, Op
from bireme.host.arrays import Namespace


class TypedGraph:
    """A graph without symbols, ready to be interpreted."""

    __slots__ = ("graph", "nodes", "steps")

    def __init__(self, graph: Graph):
        self.graph = graph
        self.steps = graph.schedule()
        self.nodes: list[Node] = [node for node, _, _ in self.steps]

    def __repr__(self) -> str:
        return f"<{len(self.nodes)} ops>"


class GraphOp(Op):
    """Inputs: the graph's inputs that are not constants, then the parts of random keys that it
    takes (`parts`, numbered as in `Graph.keys`). Results: the graph's outputs."""

    def __init__(self, graph: Graph, name: str, parts: Iterable[int] = ()):
        super().__init__(name, ("*inputs", "*keys"), {"graph": None}, None, register=False)
        self.graph = graph
        self.parts = sorted({*graph.keys.values(), *parts})
        self.given = [i for i in range(len(graph.inputs)) if i not in graph.constants]
        self.declared = [graph.inputs[i] for i in self.given]
        self.names = [graph.names.get(-1 - i, f"input {i}") for i in self.given]
        self.size = len(graph.nodes)
        self.backward: Backward | None = None

    def call_for(self, types: tuple[Aval, ...]) -> Call:
        """The Call on inputs of these types; raises InvalidArgument where they do not fit."""
        call = self.interned("sizes", types, lambda: self.typed_call(types))
        eviction.use(call)
        return call

    def typed_call(self, types: tuple[Aval, ...]) -> Call:
        """A new Call on inputs of these types, with a graph of its own."""
        sizes = symbols.solve(self.declared, list(types), self.names)
        return self.call_on_graph(types, specialize(self.graph, sizes), sizes)

    def call_on_graph(self, types: tuple[Aval, ...], graph: Graph, sizes: dict[str, int]) -> Call:
        flat = (*types, *[INT] * len(self.parts))
        layout = (len(types), len(self.parts))
        attrs = {"graph": TypedGraph(graph), "sizes": sizes}
        call = Call(self, flat, layout, attrs, (None,) * len(flat))
        if self.backward is not None:
            call.saved_at = self.backward.saved_at
        return call

    def infer_types(self, call: Call) -> tuple[bool, tuple[Aval, ...]]:
        graph: Graph = call.attrs["graph"].graph
        types = graph.value_types()
        return False, tuple([types[o] if o >= 0 else graph.inputs[-1 - o] for o in graph.outputs])

    def passed_on(self, call: Call, args: Sequence[Any], inputs: int) -> Iterable[tuple[int, Any]]:
        return zip(self.given, args, strict=False)  # keys come after them

    def arguments(self, call: Call, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """What the graph is given (None: zeros) and its parts of keys, from the call's inputs."""
        count = len(self.given)
        return list(values[:count]), list(values[count:])

    def results(self, call: Call, outs: list[Any]) -> list[Any]:
        """The call's results (None: zeros) from the graph's."""
        return outs

    def lower(self, xp: Namespace, call: Call, arrays: list[Any]) -> Any:
        typed: TypedGraph = call.attrs["graph"]
        given, keys = self.arguments(call, arrays)
        for at, i in enumerate(self.given):
            if given[at] is None:
                given[at] = zeros(xp, typed.graph.inputs[i])
        outs = self.results(call, self.interpret(xp, typed, given, keys))
        return [zeros(xp, t) if o is None else o for o, t in zip(outs, call.outs, strict=True)]

    def interpret(
        self, xp: Namespace, typed: TypedGraph, given: list[Any], keys: list[Any]
    ) -> list[Any]:
        graph = typed.graph
        leaves: list[Any] = [None] * len(graph.inputs)
        for i, array in zip(self.given, given, strict=True):
            leaves[i] = array
        for i, array in graph.constants.items():
            leaves[i] = xp.asarray(array)
        floats, ints = graph.vectors()
        drawn = dict(zip(self.parts, keys, strict=True))
        for number, part in graph.keys.items():
            ints[number.index] = drawn[part]
        if xp is np:
            run = backends.reference().run_call
        else:

            def run(call: Call, arrays: list[Any]) -> Any:
                return call.run(xp, arrays)

        return graph.evaluate(leaves, floats, ints, run, typed.steps)

    @property
    def grad_op(self) -> Op:
        if self.backward is not None:
            return self.backward.op
        return super().grad_op


@dataclass
class Backward:
    """How to differentiate a captured graph.

    `graph` takes the gradients of the outputs numbered `roots`, then what the forward call
    saved; its results are the gradients of the forward inputs numbered `targets` (a forward
    input that is not among them has none).
    """

    graph: Graph
    roots: tuple[int, ...]
    targets: tuple[int, ...]
    saved_at: tuple[int, ...]
    op: GraphGradOp = field(init=False)
    forward: GraphOp = field(init=False)
    again: Backward | None = None  # also takes gradients of the saved values: higher derivatives

    def attach(self, forward: GraphOp, again: Backward) -> None:
        """Make this the gradient of `forward`."""
        for backward in (self, again):
            backward.forward = forward
            backward.op = GraphGradOp(forward, backward)
        self.again = again
        forward.backward = self


class GraphGradOp(GraphOp):
    """Inputs: one gradient per forward result (None where there is none), then the saved values."""

    def __init__(self, forward: GraphOp, backward: Backward):
        super().__init__(backward.graph, forward.name + "_grad")
        self.inputs = ("*grads", "*saved")
        self.saves = ("grads", "saved")
        self.plan = backward
        self.roots = frozenset(backward.roots)

    def gradient_call(
        self, forward: Call, needs: tuple[int, ...], present: tuple[bool, ...]
    ) -> Call:
        again = self.plan.again
        if again is not None and any(
            present[i] for i in range(len(present)) if i not in self.roots
        ):
            return again.op.gradient_call(forward, needs, present)
        grads = [o if p else None for o, p in zip(forward.outs, present, strict=True)]
        saved = [forward.types[i] if i >= 0 else forward.outs[-1 - i] for i in forward.saved_at]
        types = (*grads, *saved)
        typed = TypedGraph(specialize(self.graph, forward.attrs["sizes"]))
        attrs = {"graph": typed, "forward": forward, "needs": needs}
        return Call(self, types, (len(grads), len(saved)), attrs, (None,) * len(types))

    def infer_types(self, call: Call) -> tuple[bool, tuple[Aval, ...]]:
        forward: Call = call.attrs["forward"]
        return False, tuple([forward.types[i] for i in call.attrs["needs"]])  # type: ignore[misc]

    def passed_on(self, call: Call, args: Sequence[Any], inputs: int) -> Iterable[tuple[int, Any]]:
        return ()  # gradients and saved values are in an order of their own

    def arguments(self, call: Call, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        plan = self.plan
        grads, saved = values[: call.layout[0]], values[call.layout[0] :]
        given = [grads[r] for r in plan.roots]
        keys = {}
        first_key = call.attrs["forward"].layout[0]
        for i, value in zip(plan.saved_at, saved, strict=True):
            if i >= first_key:
                keys[plan.forward.parts[i - first_key]] = value
            else:
                given.append(value)
        return given, [keys[p] for p in self.parts]

    def results(self, call: Call, outs: list[Any]) -> list[Any]:
        by_target = dict(zip(self.plan.targets, outs, strict=True))
        return [by_target.get(i) for i in call.attrs["needs"]]


_zeros = Op(
    "zeros",
    (),
    {"type": None},
    lambda xp, type: zeros(xp, type),
    infer=lambda type: type,
    differentiable=False,
    register=False,
)


class _Inliner:
    """Writes a graph with the nodes of the graphs that it calls in the place of the calls."""

    def __init__(self, graph: Graph):
        self.source = graph
        self.builder = GraphBuilder(graph)
        self.builder.copy_inputs()
        self.whole = self.builder.graph
        self.whole.n_floats, self.whole.n_ints = graph.n_floats, graph.n_ints
        self.whole.numbers.update(graph.numbers)
        self.constants: dict[int, int] = {}  # references by the identity of their contents

    def run(self) -> Graph:
        refs: dict[Any, Any] = {r: r for r in range(-len(self.source.inputs), 0)}
        self.follow(self.source.needed(), refs)
        self.whole.outputs = [refs[o] for o in self.source.outputs]
        return self.whole

    def follow(self, nodes: Iterable[Node], refs: dict[Any, Any]) -> None:
        """Append nodes whose arguments are in `refs`; numbers of the source keep their places."""
        for node in nodes:
            args = tuple(
                [
                    refs.get(a, a) if isinstance(a, Number) else refs[a] if a is not None else None
                    for a in node.args
                ]
            )
            call = node.call
            inner = isinstance(call.op, GraphOp)
            made = self.enter(call, args) if inner else self.builder.add(call, args, node.tape)
            refs.update(zip(node.results, made, strict=True))

    def enter(self, call: Call, args: tuple[Any, ...]) -> list[Any]:
        op: Any = call.op
        typed: TypedGraph = call.attrs["graph"]
        graph = typed.graph
        given, keys = op.arguments(call, args)
        refs: dict[Any, Any] = {-1 - i: ref for i, ref in zip(op.given, given, strict=True)}
        for i, array in graph.constants.items():
            known = self.constants.get(id(array))
            refs[-1 - i] = known or self.builder.input(graph.inputs[i], constant=array)
            self.constants[id(array)] = refs[-1 - i]
        for ref, known in refs.items():
            if known is None:
                refs[ref] = self.zeros(graph.inputs[-1 - ref])
        for kind, values in zip(("float", "int"), graph.vectors(), strict=True):
            for i, value in enumerate(values):
                number = refs[Number(kind, i)] = self.whole.new_number(kind)
                self.whole.numbers[number] = value
        parts = dict(zip(op.parts, keys, strict=True))
        refs.update({number: parts[part] for number, part in graph.keys.items()})
        self.follow(typed.nodes, refs)
        outs = op.results(call, [refs[o] for o in graph.outputs])
        return [self.zeros(t) if o is None else o for o, t in zip(outs, call.outs, strict=True)]

    def zeros(self, t: Aval) -> int:
        return self.builder.add(_zeros.call_with((), (), {"type": t}, ()), ())[0]


def inlined(graph: Graph) -> Graph:
    """The needed nodes of the graph, with those of the graphs that it calls in the place of calls.
    Contents of those follow its own inputs, as constants, and their numbers its own."""
    return _Inliner(graph).run()
