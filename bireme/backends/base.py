"""The interface of a backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from bireme.core.graph import Graph, Node


class Executable(ABC):
    """A compiled graph."""

    # `call(floats, ints, *inputs)` returns the outputs as buffers. An attribute, so that it
    # can be a native function.
    call: Callable[..., list[Any]]

    # Fast kernels inside, counted by op and kernel (core/kernels.py).
    kernels: Counter[tuple[str, str]]

    @abstractmethod
    def put(self, array: Any) -> Any:
        """A host array as this executable's kind of buffer."""

    def wait_for(self, inputs: Sequence[Any]) -> None:
        """Return when it is time to call: a backend may wait until the inputs are computed where a
        run that starts earlier would cost memory."""
        return


class Backend(ABC):
    """Turns graphs into executables."""

    name: str

    @abstractmethod
    def compile(
        self,
        graph: Graph,
        nodes: list[Node],
        donated: tuple[int, ...],
        shardings: tuple[Any, ...] | None = None,
    ) -> Executable:
        """Compile `nodes` of `graph`; the inputs numbered `donated` may be overwritten.

        `shardings` says how each input is spread over devices, if any is.
        """
