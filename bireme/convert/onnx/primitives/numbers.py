"""Arithmetic, comparison, casts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.convert.onnx.primitives import primitive
from bireme.convert.onnx.writer import UnsupportedForm, Writer
from bireme.core.dtype import as_dtype

if TYPE_CHECKING:
    from bireme.convert.onnx.primitives import Equation


_SAME = {
    "add": "Add", "add_any": "Add", "sub": "Sub", "mul": "Mul", "neg": "Neg", "abs": "Abs",
    "floor": "Floor", "ceil": "Ceil", "exp": "Exp", "log": "Log", "tanh": "Tanh", "sin": "Sin",
    "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh",
    "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "sqrt": "Sqrt",
    "logistic": "Sigmoid", "erf": "Erf", "sign": "Sign", "eq": "Equal", "lt": "Less",
    "le": "LessOrEqual", "le_to": "LessOrEqual", "lt_to": "Less",
    "gt": "Greater", "ge": "GreaterOrEqual", "pow": "Pow", "copy": "Identity",
    "copy_p": "Identity", "stop_gradient": "Identity", "reduce_precision": "Identity",
    "optimization_barrier": "Identity",
}  # fmt: skip
_LOGIC = {"and": ("And", "BitwiseAnd"), "or": ("Or", "BitwiseOr"), "xor": ("Xor", "BitwiseXor")}


def type_of(eqn: Equation, i: int = 0) -> np.dtype:
    return np.dtype(eqn.invars[i].aval.dtype)


def like(w: Writer, eqn: Equation, value: float) -> str:
    """A number of the first input's type."""
    return w.constant(value, type_of(eqn))


def _plain(name: str) -> Any:
    def write(w: Writer, eqn: Equation, *xs: str) -> Any:
        made = [w.emit(name, *xs)] if name != "Identity" else [w.emit(name, x) for x in xs]
        return made[0] if len(made) == 1 else made

    return write


for _ours, _theirs in _SAME.items():
    primitive(_ours)(_plain(_theirs))


@primitive("and", "or", "xor")
def logic(w: Writer, eqn: Equation, x: str, y: str) -> str:
    plain, bits = _LOGIC[eqn.primitive.name]
    return w.emit(plain if type_of(eqn) == np.bool_ else bits, x, y)


@primitive("not")
def not_(w: Writer, eqn: Equation, x: str) -> str:
    return w.emit("Not" if type_of(eqn) == np.bool_ else "BitwiseNot", x)


@primitive("ne")
def ne(w: Writer, eqn: Equation, x: str, y: str) -> str:
    return w.emit("Not", w.emit("Equal", x, y))


@primitive("max", "min")
def extreme(w: Writer, eqn: Equation, x: str, y: str) -> str:
    name = "Max" if eqn.primitive.name == "max" else "Min"
    if type_of(eqn) == np.bool_:
        return w.emit("Or" if name == "Max" else "And", x, y)
    return w.emit(name, x, y)


@primitive("div")
def div(w: Writer, eqn: Equation, x: str, y: str) -> str:
    return w.emit("Div", x, y)


@primitive("rem")
def rem(w: Writer, eqn: Equation, x: str, y: str) -> str:
    return w.emit("Mod", x, y, fmod=1)


@primitive("clamp")
def clamp(w: Writer, eqn: Equation, low: str, x: str, high: str) -> str:
    return w.emit("Min", w.emit("Max", x, low), high)


@primitive("select_n")
def select_n(w: Writer, eqn: Equation, which: str, *cases: str) -> str:
    if type_of(eqn) == np.bool_:
        return w.emit("Where", which, cases[1], cases[0])
    out = cases[0]
    for i, case in enumerate(cases[1:], 1):
        out = w.emit("Where", w.emit("Equal", which, like(w, eqn, i)), case, out)
    return out


@primitive("square")
def square(w: Writer, eqn: Equation, x: str) -> str:
    return w.emit("Mul", x, x)


@primitive("integer_pow")
def integer_pow(w: Writer, eqn: Equation, x: str) -> str:
    return w.emit("Pow", x, like(w, eqn, eqn.params["y"]))


@primitive("rsqrt")
def rsqrt(w: Writer, eqn: Equation, x: str) -> str:
    return w.emit("Reciprocal", w.emit("Sqrt", x))


@primitive("exp2")
def exp2(w: Writer, eqn: Equation, x: str) -> str:
    return w.emit("Exp", w.emit("Mul", x, like(w, eqn, np.log(2))))


@primitive("expm1")
def expm1(w: Writer, eqn: Equation, x: str) -> str:
    """Near zero tanh keeps the digits: e^x - 1 = 2 tanh(x / 2) / (1 - tanh(x / 2))."""
    half = w.emit("Tanh", w.emit("Mul", x, like(w, eqn, 0.5)))
    small = w.emit("Div", w.emit("Add", half, half), w.emit("Sub", like(w, eqn, 1), half))
    plain = w.emit("Sub", w.emit("Exp", x), like(w, eqn, 1))
    return w.emit("Where", w.emit("Less", w.emit("Abs", x), like(w, eqn, 1)), small, plain)


@primitive("log1p")
def log1p(w: Writer, eqn: Equation, x: str) -> str:
    """Near zero as 2 atanh(x / (2 + x))."""
    small = w.emit("Atanh", w.emit("Div", x, w.emit("Add", x, like(w, eqn, 2))))
    plain = w.emit("Log", w.emit("Add", x, like(w, eqn, 1)))
    near = w.emit("Less", w.emit("Abs", x), like(w, eqn, 0.5))
    return w.emit("Where", near, w.emit("Add", small, small), plain)


@primitive("erfc")
def erfc(w: Writer, eqn: Equation, x: str) -> str:
    return w.emit("Sub", like(w, eqn, 1), w.emit("Erf", x))


@primitive("cbrt")
def cbrt(w: Writer, eqn: Equation, x: str) -> str:
    root = w.emit("Pow", w.emit("Abs", x), like(w, eqn, 1 / 3))
    return w.emit("Mul", w.emit("Sign", x), root)


@primitive("is_finite")
def is_finite(w: Writer, eqn: Equation, x: str) -> str:
    return w.emit("Not", w.emit("Or", w.emit("IsInf", x), w.emit("IsNaN", x)))


@primitive("round")
def round_(w: Writer, eqn: Equation, x: str) -> str:
    if int(eqn.params["rounding_method"]) == 1:
        return w.emit("Round", x)  # half to even
    size = w.emit("Floor", w.emit("Add", w.emit("Abs", x), like(w, eqn, 0.5)))
    return w.emit("Mul", w.emit("Sign", x), size)


@primitive("atan2")
def atan2(w: Writer, eqn: Equation, y: str, x: str) -> str:
    zero = like(w, eqn, 0)
    ratio = w.emit("Atan", w.emit("Div", y, x))
    turn = w.emit("Where", w.emit("Less", y, zero), like(w, eqn, -np.pi), like(w, eqn, np.pi))
    side = w.emit("Where", w.emit("Less", x, zero), w.emit("Add", ratio, turn), ratio)
    up = w.emit("Mul", w.emit("Sign", y), like(w, eqn, np.pi / 2))
    return w.emit("Where", w.emit("Equal", x, zero), up, side)


@primitive("shift_left", "shift_right_logical")
def shift(w: Writer, eqn: Equation, x: str, y: str) -> str:
    dtype = type_of(eqn)
    wide = as_dtype(f"uint{8 * dtype.itemsize}")
    left = eqn.primitive.name == "shift_left"
    moved = w.emit(
        "BitShift", w.cast(x, wide), w.cast(y, wide), direction="LEFT" if left else "RIGHT"
    )
    return w.cast(moved, as_dtype(dtype))


@primitive("convert_element_type")
def convert(w: Writer, eqn: Equation, x: str) -> str:
    to = np.dtype(eqn.params["new_dtype"])
    if to.kind == "c":
        raise UnsupportedForm("complex numbers have no ONNX form")
    return w.cast(x, as_dtype(to))


@primitive("platform_index")
def platform_index(w: Writer, eqn: Equation) -> str:
    """Which of several lowerings to use: the one for any platform, else the first."""
    platforms = list(eqn.params["platforms"])
    return w.constant(platforms.index(None) if None in platforms else 0, "int32")


@primitive("dim_as_value")
def dim_as_value(w: Writer, eqn: Equation) -> str:
    return w.cast(
        w.reshape(w.dimension(eqn.params["dim"]), ()), as_dtype(eqn.outvars[0].aval.dtype)
    )
