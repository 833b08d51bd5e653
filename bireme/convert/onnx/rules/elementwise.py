"""Elementwise arithmetic, activations, comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bireme.convert.onnx.rules import rule
from bireme.convert.onnx.writer import Writer
from bireme.core.dtype import as_dtype
from bireme.core.op import Call

if TYPE_CHECKING:
    from bireme.core.dtype import DType


_SAME = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh",
    "atan": "Atan", "atanh": "Atanh", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh",
    "detach": "Identity", "assign_value": "Identity", "erf": "Erf", "exp": "Exp",
    "floor": "Floor", "isnan": "IsNaN", "log": "Log",
    "logical_not": "Not", "neg": "Neg", "reciprocal": "Reciprocal",
    "relu": "Relu", "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin", "sinh": "Sinh",
    "softsign": "Softsign", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh",
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "pow": "Pow",
    "maximum": "Max", "minimum": "Min", "equal": "Equal", "greater_than": "Greater",
    "greater_equal": "GreaterOrEqual", "less_than": "Less", "less_equal": "LessOrEqual",
    "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor", "where": "Where",
    "_times": "Mul", "_dropout_scaled": "Mul",
}  # fmt: skip


def _same(onnx_name: str) -> Any:
    def write(w: Writer, call: Call, *inputs: str) -> str:
        return w.emit(onnx_name, *inputs)

    return write


for _ours, _theirs in _SAME.items():
    rule(_ours)(_same(_theirs))


def _like(w: Writer, call: Call, value: float) -> str:
    return w.constant(value, call.outs[0].dtype)


@rule("square")
def square(w: Writer, call: Call, x: str) -> str:
    return w.emit("Mul", x, x)


@rule("small_power")
def small_power(w: Writer, call: Call, x: str, n: int) -> str:
    return w.emit("Pow", x, _like(w, call, n))


@rule("rsqrt")
def rsqrt(w: Writer, call: Call, x: str) -> str:
    return w.emit("Reciprocal", w.emit("Sqrt", x))


@rule("not_equal")
def not_equal(w: Writer, call: Call, x: str, y: str) -> str:
    return w.emit("Not", w.emit("Equal", x, y))


@rule("relu6")
def relu6(w: Writer, call: Call, x: str) -> str:
    return w.emit("Clip", x, _like(w, call, 0), _like(w, call, 6))


@rule("clip", "hardtanh")
def clip(w: Writer, call: Call, x: str, low: str | None, high: str | None) -> str:
    return w.emit("Clip", x, low, high)


@rule("leaky_relu")
def leaky_relu(w: Writer, call: Call, x: str, negative_slope: str) -> str:
    return w.emit("PRelu", x, negative_slope)


@rule("silu")
def silu(w: Writer, call: Call, x: str) -> str:
    return w.emit("Mul", x, w.emit("Sigmoid", x))


@rule("hardswish")
def hardswish(w: Writer, call: Call, x: str) -> str:
    if w.opset >= 14:
        return w.emit("HardSwish", x)
    return w.emit("Mul", x, w.emit("HardSigmoid", x, alpha=1 / 6, beta=0.5))


@rule("mish")
def mish(w: Writer, call: Call, x: str) -> str:
    return w.emit("Mul", x, w.emit("Tanh", w.emit("Softplus", x)))


@rule("gelu")
def gelu(w: Writer, call: Call, x: str, approximate: bool) -> str:
    half = w.emit("Mul", x, _like(w, call, 0.5))
    if approximate:
        cube = w.emit("Mul", w.emit("Mul", x, x), x)
        inner = w.emit("Add", x, w.emit("Mul", cube, _like(w, call, 0.044715)))
        bend = w.emit("Tanh", w.emit("Mul", inner, _like(w, call, 0.7978845608028654)))
    else:
        bend = w.emit("Erf", w.emit("Mul", x, _like(w, call, 0.7071067811865476)))
    return w.emit("Mul", half, w.emit("Add", bend, _like(w, call, 1)))


@rule("scale")
def scale(w: Writer, call: Call, x: str, scale: str, bias: str, bias_after_scale: bool) -> str:
    scale, bias = (w.cast(v, call.outs[0].dtype) for v in (scale, bias))
    if bias_after_scale:
        return w.emit("Add", w.emit("Mul", x, scale), bias)
    return w.emit("Mul", w.emit("Add", x, bias), scale)


@rule("cast")
def cast(w: Writer, call: Call, x: str, dtype: DType) -> str:
    return w.cast(x, as_dtype(dtype))
