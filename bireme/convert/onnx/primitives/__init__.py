"""One function per JAX primitive that writes it as ONNX nodes.

    @primitive("clamp")
    def clamp(w, eqn, low, x, high):
        return w.emit("Min", w.emit("Max", x, low), high)

A rule gets the writer, the equation (types of its inputs and results, parameters) and the names of
its inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol


class Equation(Protocol):
    """What a rule reads of JAX's equations."""

    primitive: Any
    invars: list[Any]
    outvars: list[Any]
    params: dict[str, Any]


Rule = Callable[..., Any]
PRIMITIVES: dict[str, Rule] = {}


def primitive(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for these primitives."""

    def add(function: Rule) -> Rule:
        PRIMITIVES.update(dict.fromkeys(names, function))
        return function

    return add


for _family in ("numbers", "layout", "reducing", "spots", "control"):
    import_module(f"bireme.convert.onnx.primitives.{_family}")
