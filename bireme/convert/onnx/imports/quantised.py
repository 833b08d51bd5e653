"""Whole numbers that stand for real ones: scales, zero points, integer products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import bireme as paddle
from bireme.convert.onnx.imports import onnx_op
from bireme.convert.onnx.imports.elementwise import dtype_of
from bireme.convert.onnx.imports.known import cast_known, has_tensors
from bireme.convert.onnx.imports.shapes import shape_of
from bireme.convert.onnx.imports.windows import conv
from bireme.core.tensor import Tensor

if TYPE_CHECKING:
    from bireme.convert.onnx.interpreter import NodeView, Value, Values


def dequantised(q: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """(q - zero) * scale in the scale's type."""
    real = q.astype("int32") if dtype_of(q).kind in "iu" else q.astype(scale.dtype)
    if zero is not None:
        real = real - zero.astype(real.dtype)
    return real.astype(scale.dtype) * scale


def quantised(x: Tensor, scale: Tensor, zero: Tensor | None, dtype: np.dtype) -> Tensor:
    """round(x / scale) + zero, kept within the type."""
    steps = paddle.round(x / scale.astype(x.dtype))
    if zero is not None:
        steps = steps + zero.astype(x.dtype)
    edge = np.iinfo(dtype)
    return paddle.clip(steps, float(edge.min), float(edge.max)).astype(np.dtype(dtype).name)


def _spread(n: NodeView, v: Any, x: Any, np_like: bool = False) -> Any:
    """A scale or zero point in a shape that fits x: per tensor, per axis or per block."""
    if v is None:
        return None
    shape = shape_of(v)
    rank = len(shape_of(x))
    if len(shape) == 0 or (len(shape) == 1 and shape[0] == 1 and rank != 1):
        return v.reshape([])
    axis = n.attr("axis", 1)
    axis += rank if axis < 0 else 0
    block = n.attr("block_size", 0)
    if block and len(shape) == rank:
        size = shape_of(x)[axis]
        if np_like:
            return np.repeat(v, block, axis).take(np.arange(size), axis)
        grown = paddle.repeat_interleave(v, block, axis)
        return grown[(*[slice(None)] * axis, slice(0, size))]
    if len(shape) == 1:
        return v.reshape([-1 if i == axis else 1 for i in range(rank)])
    return v


def _any_host(*values: Any) -> bool:
    """Whether some value has a type that tensors cannot hold."""
    return any(isinstance(v, np.ndarray) and not has_tensors(v.dtype) for v in values)


def _tensor(v: Any) -> Any:
    from bireme.convert.onnx.interpreter import to_value

    return None if v is None else to_value(v)


@onnx_op("QuantizeLinear", host=True)
def quantize_linear(n: NodeView, x: Value, scale: Value, zero: Value | None = None) -> Values:
    dtype = dtype_of(zero) if zero is not None else n.dtype("output_dtype", np.dtype(np.uint8))
    if _any_host(zero) or not has_tensors(dtype) or (dtype.kind != "u" and dtype.kind != "i"):
        return _quantise_known(n, n.known(x), n.known(scale), zero, dtype)
    given, step, shift = _tensor(x), _tensor(scale), _tensor(zero)
    if dtype_of(given).kind != "f":
        given = given.astype(step.dtype)
    return quantised(given, _spread(n, step, given), _spread(n, shift, given), dtype)


def _quantise_known(
    n: NodeView, x: np.ndarray, scale: np.ndarray, zero: Any, dtype: Any
) -> np.ndarray:
    zero = None if zero is None else n.known(zero)
    steps = x.astype(np.float32) / _spread(n, scale, x, True).astype(np.float32)
    if dtype.kind in "iu" or "int" in dtype.name:
        info = _edges(dtype)
        steps = np.round(steps)
        if zero is not None:
            steps = steps + _spread(n, zero, x, True).astype(np.float32)
        return np.clip(steps, *info).astype(np.int8 if info[0] < 0 else np.uint8).astype(dtype)
    return cast_known(steps, dtype, bool(n.attr("saturate", 1)))


def _edges(dtype: Any) -> tuple[int, int]:
    bits = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}
    if dtype.name in bits:
        return bits[dtype.name]
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


@onnx_op("DequantizeLinear", host=True)
def dequantize_linear(n: NodeView, q: Value, scale: Value, zero: Value | None = None) -> Values:
    out = n.dtype("output_dtype", dtype_of(scale))
    if _any_host(q, scale, zero):
        q, scale = n.known(q), n.known(scale)
        real = q.astype(np.float32)
        if zero is not None:
            real = real - _spread(n, n.known(zero), q, True).astype(np.float32)
        return (real * _spread(n, scale, q, True).astype(np.float32)).astype(out)
    given, step, shift = _tensor(q), _tensor(scale), _tensor(zero)
    made = dequantised(given, _spread(n, step, given), _spread(n, shift, given))
    return made.astype(out.name) if dtype_of(made) != out else made


def rounded(x: Tensor) -> Tensor:
    """What is left of x after 8-bit quantisation by its own range."""
    steps, scale, point = dynamic_quantize(None, x)
    return dequantised(steps, scale, point)


@onnx_op("DynamicQuantizeLinear")
def dynamic_quantize(n: NodeView, x: Tensor) -> Values:
    zero = paddle.zeros([], x.dtype)
    low, high = paddle.minimum(x.min(), zero), paddle.maximum(x.max(), zero)
    scale = (high - low) / 255.0
    safe = paddle.where(scale == 0, paddle.ones_like(scale), scale)
    point = paddle.clip(paddle.round(-low / safe), 0.0, 255.0)
    steps = paddle.clip(paddle.round(x / safe) + point, 0.0, 255.0)
    return steps.astype("uint8"), scale, point.astype("uint8")


def _without(q: Tensor, zero: Tensor | None, shape: list[int] | None = None) -> Tensor:
    """The integers less their zero point, as float32: 8-bit products are exact in it, and XLA's
    float products are far faster than its integer ones."""
    real = q.astype("float32")
    if zero is None:
        return real
    point = zero.astype("float32")
    if point.ndim == 1:
        several = shape_of(point)[0] > 1
        point = point.reshape(shape if shape and several else [-1] if several else [])
    return real - point


def _integer_product(a: Tensor, b: Tensor) -> Tensor:
    """An exact product of small integers held in floats; long sums go through float64."""
    length = shape_of(a)[-1]
    if type(length) is int and length * 255 * 255 < 1 << 24:
        return paddle.matmul(a, b)
    return paddle.matmul(a.astype("float64"), b.astype("float64"))


@onnx_op("MatMulInteger")
def matmul_integer(
    n: NodeView, a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    rows = [-1, 1]
    left, right = _without(a, a_zero, rows), _without(b, b_zero)
    return _integer_product(left, right).astype("int32")


@onnx_op("QLinearMatMul")
def qlinear_matmul(
    n: NodeView,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:
    rows = [-1, 1]
    total = _integer_product(_without(a, a_zero, rows), _without(b, b_zero))
    sa = a_scale.reshape(rows) if a_scale.ndim == 1 and a_scale.shape[0] > 1 else a_scale
    factor = sa.astype("float32") * b_scale.astype("float32")
    real = total.astype("float32") * factor
    return quantised(real, y_scale.astype("float32"), y_zero, dtype_of(y_zero))


def _integer_conv(n: NodeView, x: Tensor, w: Tensor, x_zero: Any, w_zero: Any) -> Tensor:
    left = _without(x, x_zero)
    right = _without(w, w_zero, [-1, *[1] * (w.ndim - 1)])
    terms = 1
    for d in shape_of(w)[1:]:
        terms *= d
    if terms * 255 * 255 >= 1 << 24:
        left, right = left.astype("float64"), right.astype("float64")
    return conv(n, left, right)


@onnx_op("ConvInteger")
def conv_integer(
    n: NodeView, x: Tensor, w: Tensor, x_zero: Value | None = None, w_zero: Value | None = None
) -> Tensor:
    return _integer_conv(n, x, w, x_zero, w_zero).astype("int32")


@onnx_op("QLinearConv")
def qlinear_conv(
    n: NodeView,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    total = _integer_conv(n, x, w, x_zero, w_zero)
    channels = [1, -1, *[1] * (x.ndim - 2)]
    if bias is not None:
        total = total + bias.astype(total.dtype).reshape(channels)
    factor = w_scale.reshape(channels) if w_scale.ndim == 1 else w_scale
    real = total.astype("float32") * (x_scale * factor)
    return quantised(real, y_scale, y_zero, dtype_of(y_zero))
