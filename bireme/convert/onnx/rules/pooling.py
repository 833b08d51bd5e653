"""Pooling over windows that all have one size; adaptive pooling where it comes out even."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from bireme.capture import symbols
from bireme.convert.onnx.rules import rule
from bireme.convert.onnx.writer import UnsupportedForm, Writer
from bireme.core.op import Call


def _windows(
    call: Call, axes: Sequence[Any], plans: Sequence[Any], pads: Sequence[Any]
) -> dict[str, list[int]]:
    """ONNX's attributes; its number of windows must come out as ours."""
    kernel, stride, before, after = [], [], [], []
    for axis, plan, (low, high) in zip(axes, plans, pads, strict=True):
        if isinstance(plan[0], tuple):
            raise UnsupportedForm(f"[{call.op.name}] windows of different sizes have no ONNX form")
        size, step, count = plan
        n = call.types[0].shape[axis]  # pyright: ignore[reportOptionalMemberAccess]
        if type(high) is not int:
            high = _for_large(call, high)
        if type(n) is int and (n + low + high - size) // step + 1 != count:
            high = (count - 1) * step + size - n - low
        kernel.append(size)
        stride.append(step)
        before.append(low)
        after.append(high)
    return {"kernel_shape": kernel, "strides": stride, "pads": before + after}


def _for_large(call: Call, high: Any) -> int:
    """The padding at the end, of an open size that the window fits into."""
    names = set(re.findall(r"\b(?!max\b|min\b|floordiv\b|mod\b)[A-Za-z_]\w*", str(high)))
    found = {symbols.evaluate(str(high), dict.fromkeys(names, n)) for n in (840, 851, 2519)}
    if len(found) > 1:
        raise UnsupportedForm(f"[{call.op.name}] padding of {high} elements has no ONNX form")
    return found.pop()


def _pooled(w: Writer, call: Call, x: str, axes: Sequence[Any], kind: str, **attrs: Any) -> str:
    rank = call.outs[0].ndim
    if axes[-1] == rank - 1:
        return w.emit(kind, x, **attrs)
    first = w.emit("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])
    out = w.emit(kind, first, **attrs)
    return w.emit("Transpose", out, perm=[0, *range(2, rank), 1])


@rule("max_pool")
def max_pool(
    w: Writer, call: Call, x: str, axes: Sequence[Any], plans: Sequence[Any], pads: Sequence[Any]
) -> str:
    return _pooled(w, call, x, axes, "MaxPool", **_windows(call, axes, plans, pads))


@rule("avg_pool")
def avg_pool(
    w: Writer,
    call: Call,
    x: str,
    axes: Sequence[Any],
    plans: Sequence[Any],
    pads: Sequence[Any],
    divisor: int | tuple[Any, ...],
) -> str:
    windows = _windows(call, axes, plans, pads)
    if not isinstance(divisor, tuple):
        out = _pooled(w, call, x, axes, "AveragePool", count_include_pad=1, **windows)
        factor = math.prod(windows["kernel_shape"]) / divisor
        return w.emit("Mul", out, w.constant(factor, call.outs[0].dtype))
    if tuple(divisor) == tuple(pads):
        return _pooled(w, call, x, axes, "AveragePool", count_include_pad=1, **windows)
    if all(tuple(d) == (0, 0) for d in divisor):
        return _pooled(w, call, x, axes, "AveragePool", count_include_pad=0, **windows)
    raise UnsupportedForm("[avg_pool] padding that counts in part has no ONNX form")
