"""One function per op of PyTorch that says it in ours.

    @aten("leaky_relu")
    def leaky_relu(self: Tensor, negative_slope: float = 0.01) -> Tensor:
        return F.leaky_relu(self, negative_slope)

A rule has the parameters of PyTorch's schema, under its names and in its order, so that arguments
by name (`.pt2`) and by position both fit; the overloads of an op share one rule. Arguments are
tensors, numbers, lists, sizes (integers or, in a capture, expressions), dtype names and None.
An op that ends in `_` is the rule of the op without it, and a write to its first argument.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

Rule = Callable[..., Any]

RULES: dict[str, Rule] = {}


def aten(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for these ops of PyTorch."""

    def add(function: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"there are two rules for {name!r}")
            RULES[name] = function
        return function

    return add


def rule_of(op: str) -> tuple[Rule, bool] | None:
    """(the rule of an op, whether it writes to its first argument), None if there is none."""
    if op in RULES:
        return RULES[op], False
    if op.endswith("_") and not op.endswith("__") and op[:-1] in RULES:
        return RULES[op[:-1]], True
    return None


for _family in (
    "elementwise",
    "activations",
    "reductions",
    "shapes",
    "picking",
    "making",
    "products",
    "windows",
    "norms",
    "losses",
    "recurrent",
    "fused",
    "symbolic",
    "control",
):
    import_module(f"bireme.convert.torch.aten.{_family}")
