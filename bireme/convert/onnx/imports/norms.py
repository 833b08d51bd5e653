"""Normalisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import bireme as paddle
from bireme.convert.onnx.imports import onnx_op
from bireme.convert.onnx.imports.elementwise import dtype_of, like, number
from bireme.convert.onnx.imports.shapes import shape_of
from bireme.core.tensor import Tensor
from bireme.ops.padding import _pad_constant

if TYPE_CHECKING:
    from bireme.convert.onnx.interpreter import NodeView, Values


def _per_channel(v: Tensor, rank: int) -> Tensor:
    return v.reshape([1, -1, *[1] * (rank - 2)]) if rank > 1 else v


@onnx_op("BatchNormalization")
def batch_norm(
    n: NodeView, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor
) -> Values:
    epsilon = n.attr("epsilon", 1e-5)
    running = (mean, var)
    if n.attr("training_mode", 0):
        axes = [i for i in range(x.ndim) if i != 1]
        keep = n.attr("momentum", 0.9)
        here = x.mean(axes)
        spread = ((x - _per_channel(here, x.ndim)) ** 2).mean(axes)
        running = (mean * keep + here * (1 - keep), var * keep + spread * (1 - keep))
        mean, var = here, spread
    # One factor and one offset per channel: two operations on the large tensor.
    factor = scale.astype(var.dtype) / paddle.sqrt(var + number(epsilon, var))
    offset = bias.astype(var.dtype) - mean * factor
    factor, offset = _per_channel(factor, x.ndim), _per_channel(offset, x.ndim)
    out = (x.astype(var.dtype) * factor + offset).astype(x.dtype)
    return (out, *running)


def _centred(x: Tensor, axes: list[int], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """(normalised x, mean, 1 / standard deviation), at least in float32."""
    wide = x.astype("float32") if dtype_of(x).itemsize < 4 else x
    mean = wide.mean(axes, keepdim=True)
    away = wide - mean
    inverse = paddle.rsqrt((away * away).mean(axes, keepdim=True) + number(epsilon, wide))
    return away * inverse, mean, inverse


@onnx_op("InstanceNormalization")
def instance_norm(n: NodeView, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    made, _, _ = _centred(x, list(range(2, x.ndim)), n.attr("epsilon", 1e-5))
    return like(made, x) * _per_channel(scale, x.ndim) + _per_channel(bias, x.ndim)


@onnx_op("LayerNormalization")
def layer_norm(n: NodeView, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Values:
    first = n.attr("axis", -1) % x.ndim
    made, mean, inverse = _centred(x, list(range(first, x.ndim)), n.attr("epsilon", 1e-5))
    out = like(made, x) * scale
    return out if bias is None else out + bias, mean, inverse


@onnx_op("RMSNormalization")
def rms_norm(n: NodeView, x: Tensor, scale: Tensor) -> Tensor:
    axes = list(range(n.attr("axis", -1) % x.ndim, x.ndim))
    wide = x.astype("float32") if dtype_of(x).itemsize < 4 else x
    power = (wide * wide).mean(axes, keepdim=True) + number(n.attr("epsilon", 1e-5), wide)
    return like(wide * paddle.rsqrt(power), x) * scale


@onnx_op("GroupNormalization")
def group_norm(n: NodeView, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    groups, shape = n.attr("num_groups"), list(shape_of(x))
    parts = x.reshape([shape[0], groups, -1])
    made, _, _ = _centred(parts, [2], n.attr("epsilon", 1e-5))
    out = like(made, x)
    if n.opset < 21:  # one scale per group
        out = out * scale.reshape([1, -1, 1]) + bias.reshape([1, -1, 1])
        return out.reshape(shape)
    return out.reshape(shape) * _per_channel(scale, x.ndim) + _per_channel(bias, x.ndim)


@onnx_op("LRN")
def lrn(n: NodeView, x: Tensor) -> Tensor:
    size = n.attr("size")
    alpha, beta, bias = n.attr("alpha", 1e-4), n.attr("beta", 0.75), n.attr("bias", 1.0)
    before, channels = (size - 1) // 2, shape_of(x)[1]
    pairs = [(0, 0)] * x.ndim
    pairs[1] = (before, size - 1 - before)
    squares = _pad_constant(x * x, number(0, x), tuple(pairs))
    total = squares[:, 0:channels]
    for i in range(1, size):
        total = total + squares[:, i : i + channels]
    return x / paddle.pow(total * (alpha / size) + bias, number(beta, x))


@onnx_op("LpNormalization")
def lp_norm(n: NodeView, x: Tensor) -> Tensor:
    axis = n.attr("axis", -1)
    if n.attr("p", 2) == 1:
        length = paddle.sum(paddle.abs(x), axis, keepdim=True)
    else:
        length = paddle.sqrt(paddle.sum(x * x, axis, keepdim=True))
    return paddle.where(length == 0, paddle.zeros_like(x), x / length)


@onnx_op("MeanVarianceNormalization")
def mvn(n: NodeView, x: Tensor) -> Tensor:
    axes = n.attr("axes") or [0, 2, 3]
    away = x - x.mean(axes, keepdim=True)
    return away / (paddle.sqrt((away * away).mean(axes, keepdim=True)) + number(1e-9, x))
