"""Activations that ONNX writes with numbers of their own."""

from __future__ import annotations

from typing import Any

from bireme.convert.onnx.rules import rule
from bireme.convert.onnx.writer import Writer
from bireme.core.op import Call


def _typed(w: Writer, call: Call, *numbers: str) -> list[str]:
    """Numbers in the type of the result."""
    return [w.cast(n, call.outs[0].dtype) for n in numbers]


@rule("hardsigmoid")
def hardsigmoid(w: Writer, call: Call, x: str, slope: str, offset: str) -> str:
    factor, shift = _typed(w, call, slope, offset)
    line = w.emit("Add", w.emit("Mul", x, factor), shift)
    dtype = call.outs[0].dtype
    return w.emit("Clip", line, w.constant(0.0, dtype), w.constant(1.0, dtype))


@rule("elu", "celu")
def elu(w: Writer, call: Call, x: str, alpha: str) -> str:
    (a,) = _typed(w, call, alpha)
    zero, one = w.constant(0.0, call.outs[0].dtype), w.constant(1.0, call.outs[0].dtype)
    below = w.emit("Min", x, zero)
    inner = w.emit("Div", below, a) if call.op.name == "celu" else below
    return w.emit(
        "Where",
        w.emit("Greater", x, zero),
        x,
        w.emit("Mul", a, w.emit("Sub", w.emit("Exp", inner), one)),
    )


@rule("softplus")
def softplus(w: Writer, call: Call, x: str, beta: str, threshold: str) -> str:
    b, limit = _typed(w, call, beta, threshold)
    scaled = w.emit("Mul", x, b)
    soft = w.emit("Div", w.emit("Softplus", scaled), b)
    return w.emit("Where", w.emit("Greater", scaled, limit), x, soft)


@rule("prelu")
def prelu(w: Writer, call: Call, x: str, weight: str, axis: int = 1) -> str:
    rank, count = call.types[0].ndim, call.types[1].shape[0]  # type: ignore[union-attr]
    if count == 1:
        return w.emit("PRelu", x, weight)
    shape: list[Any] = [1] * rank
    shape[axis] = count
    return w.emit("PRelu", x, w.reshape(weight, shape[axis:]))
