"""One function per ONNX op that says it in ours.

    @onnx_op("LeakyRelu")
    def leaky_relu(n, x):
        return F.leaky_relu(x, n.attr("alpha", 0.01))

A rule gets the node (attributes, opset, how many results are wanted) and its inputs: tensors,
None for one that was left out, and NumPy arrays at the positions in `static`, whose *contents*
decide shapes. It returns one result or a list. Results may be tensors, lists (sequences), None
(an empty optional) or NumPy arrays: known values, which later shape computations can use.

`folds` are the same ops over known values only. They see what tensors cannot hold too: strings,
4-bit integers, and symbolic sizes (in arrays of objects).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

Rule = Callable[..., Any]


@dataclass(frozen=True)
class Entry:
    """A rule, and the inputs that it takes as known values (all of them if `host`)."""

    rule: Rule
    static: tuple[int, ...] = ()
    host: bool = False


RULES: dict[tuple[str, str], Entry] = {}
FOLDS: dict[str, Rule] = {}


def onnx_op(
    *names: str, static: tuple[int, ...] = (), host: bool = False, domain: str = ""
) -> Callable[[Rule], Rule]:
    """Register a rule for these ONNX ops."""

    def add(function: Rule) -> Rule:
        for name in names:
            if (domain, name) in RULES:
                raise ValueError(f"there are two import rules for {name!r}")
            RULES[domain, name] = Entry(function, static, host)
        return function

    return add


def folds(*names: str) -> Callable[[Rule], Rule]:
    """Register how these ONNX ops work on known values."""

    def add(function: Rule) -> Rule:
        FOLDS.update(dict.fromkeys(names, function))
        return function

    return add


for _family in (
    "elementwise", "activations", "reductions", "shapes", "picking", "making", "products",
    "windows", "norms", "resizing", "sampling", "recurrent", "quantised", "detection", "signal",
    "containers", "control", "text", "known", "fused", "attention",
):  # fmt: skip
    import_module(f"bireme.convert.onnx.imports.{_family}")
