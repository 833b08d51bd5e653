"""Normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.convert.onnx.rules import rule
from bireme.convert.onnx.writer import Writer
from bireme.core.op import Call


@rule("batch_norm")
def batch_norm(
    w: Writer,
    call: Call,
    x: str,
    weight: str | None,
    bias: str | None,
    mean: str,
    variance: str,
    axis: int,
    epsilon: float,
) -> str:
    t: Any = call.types[0]
    axis %= t.ndim
    order = [0, axis, *[i for i in range(1, t.ndim) if i != axis]]
    moved = w.emit("Transpose", x, perm=order) if axis != 1 else x
    channels = (t.shape[axis],)
    out = w.emit(
        "BatchNormalization",
        moved,
        weight or w.constant(np.ones(channels), t.dtype),
        bias or w.constant(np.zeros(channels), t.dtype),
        mean,
        variance,
        epsilon=epsilon,
    )
    return w.emit("Transpose", out, perm=list(np.argsort(order))) if axis != 1 else out


def _spread(w: Writer, name: str | None, shape: Sequence[Any], call: Call, fill: float) -> str:
    if name is None:
        return w.constant(np.full(shape, fill), call.outs[0].dtype)
    return w.reshape(name, shape)


@rule("layer_norm")
def layer_norm(
    w: Writer, call: Call, x: str, weight: str | None, bias: str | None, dims: int, epsilon: float
) -> str:
    t: Any = call.types[0]
    shape = t.shape[t.ndim - dims :]
    if w.opset >= 17:
        return w.emit(
            "LayerNormalization",
            x,
            _spread(w, weight, shape, call, 1),
            None if bias is None else w.reshape(bias, shape),
            axis=t.ndim - dims,
            epsilon=epsilon,
        )
    centred = w.emit("Sub", x, _mean(w, call, x, dims))
    variance = _mean(w, call, w.emit("Mul", centred, centred), dims)
    return _scaled(w, call, centred, variance, weight, bias, shape, epsilon)


@rule("rms_norm")
def rms_norm(w: Writer, call: Call, x: str, weight: str | None, dims: int, epsilon: float) -> str:
    t: Any = call.types[0]
    power = _mean(w, call, w.emit("Mul", x, x), dims)
    return _scaled(w, call, x, power, weight, None, t.shape[t.ndim - dims :], epsilon)


def _mean(w: Writer, call: Call, x: str, dims: int) -> str:
    rank = call.outs[0].ndim
    return w.reduce("ReduceMean", x, list(range(rank - dims, rank)), True)


def _scaled(
    w: Writer,
    call: Call,
    x: str,
    variance: str,
    weight: str | None,
    bias: str | None,
    shape: Sequence[Any],
    epsilon: float,
) -> str:
    safe = w.emit("Add", variance, w.constant(epsilon, call.outs[0].dtype))
    out = w.emit("Div", x, w.emit("Sqrt", safe))
    if weight is not None:
        out = w.emit("Mul", out, w.reshape(weight, shape))
    return out if bias is None else w.emit("Add", out, w.reshape(bias, shape))
