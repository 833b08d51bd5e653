"""Values out of nothing: constants, ranges, random numbers, windows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

import bireme as paddle
from bireme.convert.onnx.imports import onnx_op
from bireme.convert.onnx.imports.elementwise import dtype_of
from bireme.convert.onnx.imports.shapes import in_tensors, shape_of, sizes
from bireme.convert.onnx.reader import OnnxError, check_known, check_size
from bireme.core.tensor import Tensor

if TYPE_CHECKING:
    from bireme.convert.onnx.interpreter import NodeView, Value, Values


@onnx_op("Constant", host=True)
def constant(n: NodeView) -> np.ndarray:
    for name, dtype in (
        ("value", None),
        ("sparse_value", None),
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
        ("value_string", object),
        ("value_strings", object),
    ):
        value = n.attr(name)
        if value is not None:
            return value if dtype is None else np.asarray(value, dtype)
    raise OnnxError("a Constant without a value")


@onnx_op("ConstantOfShape", static=(0,))
def constant_of_shape(n: NodeView, shape: Value) -> Values:
    value = n.attr("value")
    fill = np.zeros(1, np.float32) if value is None else value
    wanted = sizes(shape)
    check_size(wanted, fill.dtype.itemsize, "the result")
    if all(type(d) is int for d in wanted) and math.prod(wanted) <= 1 << 16:
        return np.full(wanted, fill.ravel()[0], fill.dtype)  # known: it may be part of a shape
    return paddle.full(wanted, fill.ravel()[0].item(), fill.dtype.name)


@onnx_op("Range", static=(0, 1, 2))
def range_(n: NodeView, start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> Values:
    first, last, by = (np.ravel(v).tolist()[0] for v in (start, limit, delta))
    if by == 0:
        raise OnnxError("a range with step 0 has no end")
    if all(isinstance(v, int | float) for v in (first, last, by)):
        count = max(0, math.ceil((last - first) / by))
        check_known([count], 8)
        if np.asarray(start).dtype.kind == "f":
            return (first + by * np.arange(count)).astype(start.dtype)
        return np.arange(count, dtype=np.int64).astype(start.dtype) * start.dtype.type(
            by
        ) + start.dtype.type(first)
    return paddle.arange(0, last - first, by, "int64") + in_tensors(first)


@onnx_op("EyeLike")
def eye_like(n: NodeView, x: Tensor) -> np.ndarray:
    rows, columns = shape_of(x)
    check_known([rows, columns], 8)
    return np.eye(rows, columns, n.attr("k", 0), n.dtype("dtype", dtype_of(x)))


def _shape_and_dtype(n: NodeView, x: Any) -> tuple[list[Any], Any]:
    if x is None:
        return n.attr("shape"), n.dtype("dtype", np.dtype(np.float32))
    return list(shape_of(x)), n.dtype("dtype", dtype_of(x))


@onnx_op("RandomNormal", "RandomNormalLike", host=True)
def random_normal(n: NodeView, x: Value | None = None) -> Tensor:
    shape, dtype = _shape_and_dtype(n, x)
    drawn = paddle.randn(shape) * n.attr("scale", 1.0) + n.attr("mean", 0.0)
    return drawn.astype(dtype.name)


@onnx_op("RandomUniform", "RandomUniformLike", host=True)
def random_uniform(n: NodeView, x: Value | None = None) -> Tensor:
    shape, dtype = _shape_and_dtype(n, x)
    low, high = n.attr("low", 0.0), n.attr("high", 1.0)
    return (paddle.rand(shape) * (high - low) + low).astype(dtype.name)


@onnx_op("Bernoulli")
def bernoulli(n: NodeView, x: Tensor) -> Tensor:
    drawn = paddle.rand(x.shape).astype("float64") < x.astype("float64")
    return drawn.astype(n.dtype("dtype", dtype_of(x)).name)


@onnx_op("Multinomial")
def multinomial(n: NodeView, x: Tensor) -> Tensor:
    chances = paddle.exp(x - paddle.max(x, -1, keepdim=True))
    drawn = paddle.multinomial(chances, n.attr("sample_size", 1), replacement=True)
    return drawn.astype(n.dtype("dtype", np.dtype(np.int32)).name)


@onnx_op("HannWindow", "HammingWindow", "BlackmanWindow", static=(0,))
def window(n: NodeView, size: Value) -> np.ndarray:
    count = int(np.ravel(size)[0])
    check_known([count], 4)
    across = count if n.attr("periodic", 1) else count - 1
    angle = 2 * np.pi * np.arange(count, dtype=np.float32) / max(across, 1)
    if n.kind == "HannWindow":
        made = 0.5 - 0.5 * np.cos(angle)
    elif n.kind == "HammingWindow":
        made = 25 / 46 - 21 / 46 * np.cos(angle)
    else:
        made = 0.42 - 0.5 * np.cos(angle) + 0.08 * np.cos(2 * angle)
    return made.astype(n.dtype("output_datatype", np.dtype(np.float32)))


@onnx_op("MelWeightMatrix", static=(0, 1, 2, 3, 4))
def mel_weights(
    n: NodeView,
    bins: np.ndarray,
    length: Value,
    rate: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> np.ndarray:
    count, points, rate_ = (int(np.ravel(v)[0]) for v in (bins, length, rate))
    low_, high_ = float(np.ravel(low)[0]), float(np.ravel(high)[0])
    spectrum = points // 2 + 1
    check_known([spectrum, count], 8)

    def mel(f: float) -> float:
        return 2595 * np.log10(1 + f / 700)

    step = (mel(high_) - mel(low_)) / (count + 2)
    edges = 700 * (10 ** ((np.arange(count + 2) * step + mel(low_)) / 2595) - 1)
    places = ((points + 1) * edges // rate_).astype(np.int64)
    made = np.zeros((spectrum, count))
    for i in range(count):
        left, centre, right = places[i : i + 3]
        if centre == left:
            made[centre, i] = 1
        else:
            at = np.arange(left, centre + 1)
            made[at, i] = (at - left) / (centre - left)
        if right > centre:
            at = np.arange(centre, right)
            made[at, i] = (right - at) / (right - centre)
    return made.astype(n.dtype("output_datatype", np.dtype(np.float32)))
