"""Element by element: arithmetic, comparison, logic."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import bireme as paddle
from bireme.convert.onnx.imports import onnx_op
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.ops.math import _divide_trunc

if TYPE_CHECKING:
    from bireme.convert.onnx.interpreter import NodeView, Value, Values


def dtype_of(x: Value) -> np.dtype:
    """The NumPy dtype of a tensor or known value."""
    return np.dtype(x._value.aval.dtype.numpy) if isinstance(x, Tensor) else x.dtype


def is_integer(x: Value) -> bool:
    return dtype_of(x).kind in "iu"


def like(x: Tensor, reference: Tensor) -> Tensor:
    """x in the dtype of another tensor."""
    return x if x.dtype == reference.dtype else x.astype(reference.dtype)


def number(value: float | np.ndarray, x: Tensor) -> Tensor:
    """A number as a tensor of x's dtype."""
    return paddle.to_tensor(np.asarray(value, dtype_of(x)))


_UNARY: dict[str, Callable[..., Any]] = {
    "Abs": paddle.abs, "Neg": paddle.neg, "Exp": paddle.exp, "Log": paddle.log,
    "Sqrt": paddle.sqrt, "Reciprocal": paddle.reciprocal, "Floor": paddle.floor,
    "Ceil": paddle.ceil, "Round": paddle.round, "Sign": paddle.sign, "Sin": paddle.sin,
    "Cos": paddle.cos, "Tan": paddle.tan, "Asin": paddle.asin, "Acos": paddle.acos,
    "Atan": paddle.atan, "Sinh": paddle.sinh, "Cosh": paddle.cosh, "Asinh": paddle.asinh,
    "Acosh": paddle.acosh, "Atanh": paddle.atanh, "Tanh": paddle.tanh, "Erf": paddle.erf,
    "Sigmoid": F.sigmoid, "Relu": F.relu, "Not": paddle.logical_not, "IsNaN": paddle.isnan,
    "BitwiseNot": paddle.bitwise_not,
}  # fmt: skip

_BINARY: dict[str, Callable[..., Any]] = {
    "Add": paddle.add, "Sub": paddle.subtract, "Mul": paddle.multiply, "And": paddle.logical_and,
    "Or": paddle.logical_or, "Xor": paddle.logical_xor, "Equal": paddle.equal,
    "Greater": paddle.greater_than, "GreaterOrEqual": paddle.greater_equal,
    "Less": paddle.less_than, "LessOrEqual": paddle.less_equal,
    "BitwiseAnd": paddle.bitwise_and, "BitwiseOr": paddle.bitwise_or,
    "BitwiseXor": paddle.bitwise_xor,
}  # fmt: skip


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda n, *xs: function(*xs)


def aligned(n: NodeView, x: Tensor, y: Tensor) -> Tensor:
    """Before opset 7 the attribute `axis` says where y's dimensions lie in x."""
    axis = n.attr("axis")
    if n.opset >= 7 or axis is None or not n.attr("broadcast", 0):
        return y
    return y.reshape([*y.shape, *[1] * (x.ndim - axis % x.ndim - y.ndim)])


def _pair(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda n, x, y: function(x, aligned(n, x, y))


for _name, _function in _UNARY.items():
    onnx_op(_name)(_plain(_function))
for _name, _function in _BINARY.items():
    onnx_op(_name)(_pair(_function))


@onnx_op("Identity", host=True)
def identity(n: NodeView, x: Value) -> Values:
    return x


@onnx_op("Div")
def div(n: NodeView, x: Tensor, y: Tensor) -> Tensor:
    y = aligned(n, x, y)
    return _divide_trunc(x, y) if is_integer(x) else paddle.divide(x, y)


@onnx_op("Pow")
def power(n: NodeView, x: Tensor, y: Tensor) -> Tensor:
    if dtype_of(x).kind in "iu" and dtype_of(y).kind == "f":
        return paddle.pow(x.astype("float64"), y.astype("float64")).astype(x.dtype)
    y = aligned(n, x, y)
    return paddle.pow(x, like(y, x))


@onnx_op("Mod")
def mod(n: NodeView, x: Tensor, y: Tensor) -> Tensor:
    if not n.attr("fmod", 0):
        return paddle.remainder(x, y)
    # The sign of the dividend, as in C.
    rest = paddle.remainder(paddle.abs(x), paddle.abs(y))
    return paddle.where(x < number(0, x), paddle.neg(rest), rest)


@onnx_op("BitShift")
def bit_shift(n: NodeView, x: Tensor, y: Tensor) -> Tensor:
    shift = (
        paddle.bitwise_left_shift if n.attr("direction") == "LEFT" else paddle.bitwise_right_shift
    )
    return shift(x, y, is_arithmetic=False)


@onnx_op("IsInf")
def isinf(n: NodeView, x: Tensor) -> Tensor:
    up, down = n.attr("detect_positive", 1), n.attr("detect_negative", 1)
    if up and down:
        return paddle.isinf(x)
    if up:
        return paddle.isposinf(x)
    return paddle.isneginf(x) if down else paddle.zeros_like(x).astype("bool")


def _folded(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda n, *xs: functools.reduce(function, xs)


onnx_op("Max")(_folded(paddle.maximum))
onnx_op("Min")(_folded(paddle.minimum))
onnx_op("Sum")(_folded(paddle.add))


@onnx_op("Mean")
def mean(n: NodeView, *xs: Tensor) -> Tensor:
    return functools.reduce(paddle.add, xs) / len(xs)


@onnx_op("Clip")
def clip(n: NodeView, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    if n.opset < 11:
        low = number(n.attr("min"), x) if n.attr("min") is not None else None
        high = number(n.attr("max"), x) if n.attr("max") is not None else None
    if low is not None:
        x = paddle.maximum(x, low.reshape([]))
    return x if high is None else paddle.minimum(x, high.reshape([]))


@onnx_op("Where")
def where(n: NodeView, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return paddle.where(condition, x, y)


def cast_to(x: Value, dtype: np.dtype, saturate: bool = True) -> Value:
    """A cast; known values may hold types that tensors cannot."""
    from bireme.convert.onnx.imports.known import cast_known, has_tensors

    if isinstance(x, Tensor) and has_tensors(dtype) and "float8" not in str(dtype):
        return x if dtype_of(x) == dtype else x.astype(np.dtype(dtype).name)
    return cast_known(x.numpy() if isinstance(x, Tensor) else x, dtype, saturate)


@onnx_op("Cast", host=True)
def cast(n: NodeView, x: Value) -> Values:
    return cast_to(x, n.dtype("to"), bool(n.attr("saturate", 1)))


@onnx_op("CastLike", host=True)
def cast_like(n: NodeView, x: Value, target: Value) -> Values:
    return cast_to(x, dtype_of(target), bool(n.attr("saturate", 1)))


@onnx_op("BitCast", host=True)
def bit_cast(n: NodeView, x: Value) -> Values:
    return n.known(x).view(n.dtype("to"))
