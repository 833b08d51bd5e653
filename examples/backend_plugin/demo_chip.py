"""A backend for Bireme in one file: a chip that computes with NumPy, in memory of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from bireme.backends import Backend, Executable, WithFixed, reference
from bireme.core.errors import InvalidArgument
from bireme.core.graph import Graph
from bireme.core.op import Call
from bireme.core.place import CustomPlace, Place

ran: Counter[str] = Counter()  # how often the chip ran each op


class Buffer:
    """An array in the chip's memory. The host sees a copy of it, by `np.asarray(buffer)`."""

    def __init__(self, cells: np.ndarray, place: Place):
        self.cells: np.ndarray | None = cells
        self.place = place  # says where a tensor with this buffer is

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self.cells is None:
            raise RuntimeError("this buffer was donated to a program that has overwritten it")
        return np.array(self.cells, dtype)

    @property
    def nbytes(self) -> int:
        return 0 if self.cells is None else self.cells.nbytes


class ChipProgram(Executable):
    """The graph, run node by node. A real chip would get compiled code here."""

    def __init__(self, graph: Graph, place: Place, donated: tuple[int, ...]):
        self._graph, self._steps = graph, graph.schedule()
        self._place, self._donated = place, donated
        self.call = self._call

    def _call(self, floats: Any, ints: Any, *inputs: Any) -> list[Buffer]:
        # Small arrays come as they are, others in buffers: `put` has moved them once, for good.
        cells = [i.cells if isinstance(i, Buffer) else i for i in inputs]
        with np.errstate(all="ignore"):
            results = self._graph.evaluate(cells, floats, ints, self._run, self._steps)
        for i in self._donated:  # nobody may read these again
            if isinstance(inputs[i], Buffer):
                inputs[i].cells = None
        return [Buffer(r, self._place) for r in results]

    def _run(self, call: Call, arrays: list[Any]) -> Any:
        ran[call.op.name] += 1
        return reference().run_call(call, arrays)

    def put(self, array: Any) -> Buffer:
        return Buffer(np.array(array), self._place)

    def takes(self, buffer: Any) -> bool:
        if isinstance(buffer, Buffer):
            return buffer.place == self._place
        return isinstance(buffer, np.ndarray)


class DemoChip(Backend):
    """Two devices: demo_chip:0 and demo_chip:1."""

    name = "demo_chip"
    raises = True  # an op that meets a wrong label raises where it runs

    def compile(
        self,
        graph: Graph,
        *,
        place: Place | None = None,
        fixed: Mapping[int, Any] | None = None,
        donated: tuple[int, ...] = (),
        shardings: tuple[Any, ...] | None = None,
        watched: tuple[int, ...] = (),
    ) -> Executable:
        if shardings is not None:
            raise InvalidArgument("[demo_chip] a program runs on one chip; replicate its inputs")
        program = ChipProgram(graph, place or CustomPlace(self.name), donated)
        return program if fixed is None else WithFixed(program, graph, fixed)

    def put(self, array: Any, place: Place) -> Buffer:
        return Buffer(np.array(array), place)

    def device_count(self, kind: str) -> int:
        return 2
