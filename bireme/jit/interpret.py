"""Running a graph's calls one by one through the eager recorder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bireme.capture import symbols
from bireme.capture.rewrite import specialize
from bireme.core.autograd import attach
from bireme.core.graph import Graph, Number
from bireme.core.random import default_generator
from bireme.core.tensor import Tensor, constant
from bireme.core.trace import state


def run_graph(graph: Graph, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Record every call of `graph` on `inputs` (one per input that is no constant).

    Under a capture this puts the graph into the captured one, and with the tape on its results
    can be differentiated like any others.
    """
    given = [i for i in range(len(graph.inputs)) if i not in graph.constants]
    names = [graph.names.get(-1 - i, f"input {i}") for i in given]
    types = [t._value.aval for t in inputs]
    graph = specialize(graph, symbols.solve([graph.inputs[i] for i in given], types, names))
    env: dict[int, Any] = {-1 - i: t for i, t in zip(given, inputs, strict=True)}
    env.update((-1 - i, constant(array)) for i, array in graph.constants.items())
    drawn: dict[int, int] = {}
    for part in sorted(set(graph.keys.values())):
        if part not in drawn:
            drawn[part - part % 2], drawn[part - part % 2 + 1] = default_generator.next_key()
    tape = state.trace.tape
    try:
        for node in graph.nodes:
            flat: list[Any] = []
            for a in node.args:
                if isinstance(a, Number):
                    flat.append(drawn[graph.keys[a]] if a in graph.keys else graph.numbers[a])
                else:
                    flat.append(None if a is None else env[a])
            state.trace.tape = tape and node.tape
            made = attach(node.call, state.trace, flat)
            outs = [made] if node.call.single else made
            env.update(zip(node.results, outs, strict=True))
    finally:
        state.trace.tape = tape
    return [env[o] for o in graph.outputs]
