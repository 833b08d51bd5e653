"""A captured function as one program that is called directly, many times a second.

An eager call records, looks its trace up and hands its results to tensors. A loop whose results
go straight back in (generating text, simulating) needs none of that: it keeps arrays on the device
and calls the executable itself. Compilations are counted like all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bireme.capture.capture import capture
from bireme.core.aval import Aval
from bireme.core.errors import InvalidArgument
from bireme.core.graph import Graph
from bireme.core.place import default_place
from bireme.core.program import Program
from bireme.core.tensor import Tensor
from bireme.core.trace import materialize, state
from bireme.host.arrays import Array


class DirectProgram:
    """`function`, which takes a list of tensors of these `types`, compiled at once.

    The arguments numbered `donated` are overwritten by results of their types. Tensors from
    outside (weights) are read when `bind` is called. `rewrite`, which must keep the inputs,
    is applied before compilation.
    """

    def __init__(
        self,
        function: Callable[[list[Tensor]], Any],
        types: Sequence[Aval],
        donated: Sequence[int],
        label: str,
        rewrite: Callable[[Graph], Graph] | None = None,
    ):
        captured = capture(function, types, label=label, tape=False, amp=state.trace.amp)
        graph = captured.graph
        if graph.keys or captured.generators:
            raise InvalidArgument(
                f"[{label}] the function draws random numbers itself. If it is dropout: call "
                "model.eval()"
            )
        if captured.writes or captured.guards or captured.checks:
            raise InvalidArgument(
                f"[{label}] the function changes tensors from outside or looks at their values, "
                "which one program cannot do; make them arguments and results"
            )
        graph.outputs = graph.outputs[: len(captured.tracked)]
        if rewrite is not None:
            graph = rewrite(graph)
        given = captured.op.given
        self.outer = captured.outer
        self.order = given[: len(types)], given[len(types) :]
        self.outs = _output_types(graph)
        self.constants = dict(graph.constants)
        self.count = len(graph.inputs)
        overwritten = tuple([self.order[0][i] for i in donated])
        # Nothing is trained here, so kernels for inference apply and numbers are constants.
        self.program = Program(graph, default_place(), overwritten, fixed={}, guarded=False)
        self.program.compile()

    def put(self, array: np.ndarray) -> Array:
        """A host array as an argument."""
        return self.program.executable.put(array)

    def bind(self) -> Callable[..., list[Any]]:
        """The program as a function of its own arguments, with the weights as they are now."""
        put = self.put
        arrays: list[Any] = [None] * self.count
        for i, contents in self.constants.items():
            arrays[i] = put(contents)
        for i, tensor in zip(self.order[1], self.outer, strict=True):
            arrays[i] = _on_device(tensor, put)
        call, order = self.program.results, self.order[0]

        def run(*arguments: Any) -> list[Any]:
            every = list(arrays)
            for i, a in zip(order, arguments, strict=True):
                every[i] = a
            return call(*every)

        return run


def _output_types(graph: Graph) -> list[Aval]:
    types = graph.value_types()
    return [types[o] if o >= 0 else graph.inputs[-1 - o] for o in graph.outputs]


def _on_device(tensor: Tensor, put: Callable[[Any], Any]) -> Any:
    value = tensor._value
    materialize(value)
    if isinstance(value.buf, np.ndarray):
        value.buf = put(value.buf)
    return value.buf
