"""The interface of a backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from bireme.core.graph import Graph, Node


class Executable(ABC):
    """A compiled graph. `call(floats, ints, *inputs)` returns the outputs as buffers."""

    @abstractmethod
    def call(self, floats: Any, ints: Any, *inputs: Any) -> list[Any]: ...

    @abstractmethod
    def put(self, array: Any) -> Any:
        """A host array as this executable's kind of buffer."""


class Backend(ABC):
    """Turns graphs into executables."""

    name: str

    @abstractmethod
    def compile(self, graph: Graph, nodes: list[Node], donated: tuple[int, ...]) -> Executable:
        """Compile `nodes` of `graph`; the inputs numbered `donated` may be overwritten."""
