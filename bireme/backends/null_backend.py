"""The backend that computes nothing: every result is zeros of its type.

It serves tests of recording, look-up, donation and delivery, and the timing of these alone.
`set_device("null")` selects it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.backends.base import Backend, Executable, WithFixed
from bireme.core.graph import Graph
from bireme.host.arrays import Array

if TYPE_CHECKING:
    from bireme.core.place import Place


class NullExecutable(Executable):
    """Returns fresh zeros, and counts its runs."""

    def __init__(self, graph: Graph):
        self._types = [graph.type_of(o) for o in graph.outputs]
        self.runs = 0
        self.call = self._call

    def _call(self, floats: Any, ints: Any, *inputs: Any) -> list[Any]:
        self.runs += 1
        return [np.zeros(t.shape, t.dtype.numpy) for t in self._types]

    def put(self, array: np.ndarray) -> Array:
        return np.asarray(array)


class NullBackend(Backend):
    name = "null"
    raises = True  # never: nothing is looked at

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
        whole = NullExecutable(graph)
        return whole if fixed is None else WithFixed(whole, graph, fixed)

    def put(self, array: Array, place: Place) -> Array:
        return np.asarray(array)
