"""The rules of TFLite's ops. What an op makes is rounded to the grid of its result, if it has one.

@op("LEAKY_RELU")
def leaky_relu(n, x):
    return F.leaky_relu(x, n.attr("alpha"))
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import bireme as paddle
from bireme.convert.errors import UnsupportedModel
from bireme.convert.imported import View
from bireme.convert.program import Rule, Rules
from bireme.convert.tflite.reader import Grid
from bireme.core.tensor import Tensor
from bireme.nn import functional as F

rule = Rules("TFLite", "bireme.convert.tflite")


def op(*names: str, static: tuple[int, ...] = ()) -> Callable[[Rule], Rule]:
    """Register a rule for these ops."""

    def add(function: Rule) -> Rule:
        def run(n: View, *values: Any) -> Any:
            made = function(n, *values)
            several = made if isinstance(made, list) else [made]
            done = [
                on_grid(_activated(n, v), grid, n.node.op in _RAW) if isinstance(v, Tensor) else v
                for v, grid in zip(several, n.attr("grids") or [None] * len(several), strict=False)
            ]
            return done if isinstance(made, list) else done[0]

        rule(*names, static=static)(run)
        return function

    return add


def _activated(n: View, x: Tensor) -> Tensor:
    kind = n.attr("activation", "")
    if not kind:
        return x
    if kind == "RELU":
        return F.relu(x)
    if kind == "RELU6":
        return F.relu6(x)
    if kind == "RELU_N1_TO_1":
        return paddle.clip(x, -1.0, 1.0)
    if kind == "TANH":
        return paddle.tanh(x)
    raise UnsupportedModel(f"the activation {kind} has no rule")


_RAW = {"AVERAGE_POOL_2D"}  # TFLite averages the integers as they are, zero point included


def _steps(x: Tensor, grid: Grid, raw: bool = False) -> Tensor:
    """The integer for x: halves go away from zero, that of the reals or (raw) of the integers."""
    far, zero = x / paddle.to_tensor(grid.scale), paddle.to_tensor(grid.zero)
    far = far + zero if raw else far
    # A mean that should be a half is one but for the last bits.
    far = paddle.round(far * 4096.0) / 4096.0 if raw else far
    whole = paddle.sign(far) * paddle.floor(paddle.abs(far) + 0.5)
    whole = whole if raw else whole + zero
    return paddle.clip(whole, float(grid.low), float(grid.high))


def on_grid(x: Tensor, grid: Grid | None, raw: bool = False) -> Tensor:
    """The nearest real numbers that integers stand for. Gradients go through inside its range."""
    if grid is None or not x.dtype.is_floating:
        return x
    scale, zero = paddle.to_tensor(grid.scale), paddle.to_tensor(grid.zero)
    inside = paddle.minimum(
        paddle.maximum(x, (grid.low - zero) * scale), (grid.high - zero) * scale
    )
    rounded = (_steps(x, grid, raw) - zero) * scale
    return inside + (rounded - inside).detach()


@rule("read_grid")
def read_grid(n: View, x: Tensor) -> Tensor:
    grid = n.attr("grid")
    return (x.astype("float32") - paddle.to_tensor(grid.zero)) * paddle.to_tensor(grid.scale)


@rule("write_grid")
def write_grid(n: View, x: Tensor) -> Tensor:
    return _steps(x, n.attr("grid")).astype(n.attr("dtype"))


for _family in ("elementwise", "windows", "shapes"):
    import_module(f"bireme.convert.tflite.{_family}")
