"""One function per op that writes it as ONNX nodes.

    @rule("leaky_relu")
    def leaky_relu(w, call, x, negative_slope):
        return w.emit("PRelu", x, negative_slope)

A rule gets the writer, the Call (types and attributes) and the names of the op's inputs, grouped
as the op takes them (None for a missing one, a list for a list), and returns the name of the
result or a list of names. Attributes come as keywords.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for these ops."""

    def add(function: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"there are two ONNX rules for {name!r}")
            RULES[name] = function
        return function

    return add


for _family in (
    "elementwise",
    "shapes",
    "reductions",
    "layers",
    "norms",
    "pooling",
    "attention",
    "recurrent",
    "activations",
    "picking",
    "resizing",
):
    import_module(f"bireme.convert.onnx.rules.{_family}")
