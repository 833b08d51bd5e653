"""The interface of a backend. How to write one: docs/backends.md."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.graph import Graph
from bireme.host.arrays import Array

if TYPE_CHECKING:
    from bireme.core.place import Place


class Executable(ABC):
    """A compiled graph."""

    # `call(floats, ints, *inputs)` returns the outputs as buffers. It takes NumPy arrays and the
    # backend's own buffers, and may overwrite those that are donated. Where inputs were fixed, it
    # is `call(*inputs)` with the others. An attribute, so that it can be a native function.
    call: Callable[..., list[Any]]

    # Fast kernels inside, counted by op and kernel (core/kernels.py).
    kernels: Mapping[tuple[str, str], int] = MappingProxyType({})

    @abstractmethod
    def put(self, array: np.ndarray) -> Array:
        """A host array as this executable's kind of buffer."""

    def takes(self, buffer: Array) -> bool:
        """Whether `call` takes this buffer. Others, of another backend, come through NumPy."""
        return True

    def reserve(self) -> None:
        """Raise MemoryError where a run would not find the memory that it takes besides its
        inputs: once it has begun, the inputs that it may overwrite are lost."""
        return

    def call_and_wait(self, arguments: Sequence[Any]) -> list[Any]:
        """`call`, and return when the results are there: raise if the run fails."""
        return self.call(*arguments)

    def wait_for(self, inputs: Sequence[Any]) -> None:
        """Return when it is time to call: a backend may wait until the inputs are computed where a
        run that starts earlier would cost memory."""
        return

    def improve(self, wait: bool = False) -> bool:
        """Take over a faster program if one was made meanwhile (True), which is called before each
        run; with `wait`, make it now."""
        return False

    def adds_on(self, place: Place) -> int:
        """Bytes on a device that a run needs besides its inputs: results and scratch memory."""
        return 0


class Backend(ABC):
    """Turns graphs into executables, and arrays into buffers, for the devices of a kind."""

    name: str

    # Its programs raise by themselves where a requirement is not met, as an interpreter can. They
    # are waited for, and no evidence is asked of them.
    raises = False

    # `compile` takes `pad`, which makes a program for many sizes of one for a symbol
    # (capture/varying.py).
    pads = False

    @abstractmethod
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
        """Compile the nodes of `graph` that its outputs need, for the device `place` (None: the
        current one).

        With `fixed`, for inference, these inputs and all numbers are constants. The inputs numbered
        `donated` may be overwritten. `shardings` says how each input is spread over devices, if any
        is. With `watched` the last result is the evidence of these requirements
        (core/requirements.py), a row for each.
        """

    @abstractmethod
    def put(self, array: Array, place: Place) -> Array:
        """A host array, or a buffer of any backend, as a buffer on this device."""

    def device_count(self, kind: str) -> int:
        """How many devices of this kind there are."""
        return 1

    def memory_stats(self, place: Place) -> dict[str, int]:
        """The allocator's figures by XLA's names (`bytes_in_use` ...); empty if it keeps none."""
        return {}

    def unfinished(self, place: Place) -> list[Any]:
        """Buffers that are still being computed, with JAX's `is_ready()`, `is_deleted()` and
        `block_until_ready()`."""
        return []

    def synchronize(self, place: Place) -> None:
        """Wait until the device has done all that it was given."""
        return


class WithFixed(Executable):
    """An executable some of whose inputs are constants, for a backend that folds none."""

    def __init__(self, whole: Executable, graph: Graph, fixed: Mapping[int, Any]):
        floats, ints = graph.vectors()
        self._numbers = np.array(floats, np.float64), np.array(ints, np.int64)
        self._whole = whole
        self._inputs = [
            whole.put(fixed[i]) if i in fixed else None for i in range(len(graph.inputs))
        ]
        self._free = [i for i in range(len(graph.inputs)) if i not in fixed]
        self.call = self._call

    def _call(self, *arguments: Any) -> list[Any]:
        inputs = list(self._inputs)
        for i, argument in zip(self._free, arguments, strict=True):
            inputs[i] = argument
        return self._whole.call(*self._numbers, *inputs)

    def put(self, array: np.ndarray) -> Array:
        return self._whole.put(array)

    def takes(self, buffer: Array) -> bool:
        return self._whole.takes(buffer)
