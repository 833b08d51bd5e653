"""Arithmetic, comparisons, logic, and functions of one number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bireme as paddle
from bireme.convert.torch.aten import aten
from bireme.convert.torch.aten.types import (
    Number,
    Operand,
    cast,
    floating,
    kind_of,
    tensor,
    together,
)
from bireme.convert.torch.program import TorchFileError
from bireme.core.tensor import Tensor


@aten("add")
def add(self: Operand, other: Operand, alpha: Number = 1) -> Tensor:
    a, b = together(self, other)
    return (a | b) if a.dtype.name == "bool" else a + (b if alpha == 1 else b * alpha)


@aten("sub", "subtract")
def sub(self: Operand, other: Operand, alpha: Number = 1) -> Tensor:
    a, b = together(self, other)
    return a - (b if alpha == 1 else b * alpha)


@aten("rsub")
def rsub(self: Operand, other: Operand, alpha: Number = 1) -> Tensor:
    return sub(other, self, alpha)


@aten("mul", "multiply")
def mul(self: Operand, other: Operand) -> Tensor:
    a, b = together(self, other)
    return (a & b) if a.dtype.name == "bool" else a * b


@aten("div", "divide", "true_divide")
def div(self: Operand, other: Operand, rounding_mode: str | None = None) -> Tensor:
    a, b = together(self, other)
    if rounding_mode is None:
        return floating(a) / floating(b)
    if rounding_mode == "floor":
        return paddle.floor_divide(a, b)
    if kind_of(a.dtype) == 1:
        quotient = paddle.floor_divide(a.abs(), b.abs())
        return quotient * cast(a.sign() * b.sign(), a.dtype)
    return paddle.trunc(a / b)


@aten("floor_divide")
def floor_divide(self: Operand, other: Operand) -> Tensor:
    return div(self, other, "floor")


@aten("remainder")
def remainder(self: Operand, other: Operand) -> Tensor:
    a, b = together(self, other)
    return paddle.remainder(a, b)


@aten("fmod")
def fmod(self: Operand, other: Operand) -> Tensor:
    a, b = together(self, other)
    return a - div(a, b, "trunc") * b


@aten("pow")
def pow_(self: Operand, exponent: Operand) -> Tensor:
    a, b = together(self, exponent)
    if not isinstance(exponent, Tensor) and kind_of(a.dtype) == 2:
        return paddle.pow(a, exponent)
    return paddle.pow(a, b)


@aten("square")
def square(self: Tensor) -> Tensor:
    return self * self


@aten("addcmul")
def addcmul(self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Number = 1) -> Tensor:
    return self + tensor1 * tensor2 * value


@aten("addcdiv")
def addcdiv(self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Number = 1) -> Tensor:
    return self + tensor1 / tensor2 * value


@aten("lerp")
def lerp(self: Tensor, end: Tensor, weight: Operand) -> Tensor:
    return self + weight * (end - self)


RULES_OF_PAIRS: dict[str, Callable[..., Tensor]] = {}


def _binary(name: str, function: Callable[..., Tensor]) -> None:
    def rule(self: Operand, other: Operand) -> Tensor:
        return function(*together(self, other))

    RULES_OF_PAIRS[name.split()[0]] = aten(*name.split())(rule)


for _names, _function in {
    "maximum": paddle.maximum,
    "minimum": paddle.minimum,
    "fmax": paddle.fmax,
    "fmin": paddle.fmin,
    "atan2 arctan2": lambda a, b: paddle.atan2(floating(a), floating(b)),
    "eq": paddle.equal,
    "ne not_equal": paddle.not_equal,
    "lt less": paddle.less_than,
    "le less_equal": paddle.less_equal,
    "gt greater": paddle.greater_than,
    "ge greater_equal": paddle.greater_equal,
    "bitwise_and __and__": paddle.bitwise_and,
    "bitwise_or __or__": paddle.bitwise_or,
    "bitwise_xor __xor__": paddle.bitwise_xor,
    "bitwise_left_shift __lshift__": paddle.bitwise_left_shift,
    "bitwise_right_shift __rshift__": paddle.bitwise_right_shift,
    "hypot": paddle.hypot,
    "gcd": paddle.gcd,
    "lcm": paddle.lcm,
    "logaddexp": paddle.logaddexp,
    "copysign": paddle.copysign,
}.items():
    _binary(_names, _function)


def _logical(name: str, function: Callable[..., Tensor]) -> None:
    def rule(self: Tensor, other: Tensor) -> Tensor:
        return function(cast(self, "bool"), cast(other, "bool"))

    aten(name)(rule)


for _names, _function in {
    "logical_and": paddle.logical_and,
    "logical_or": paddle.logical_or,
    "logical_xor": paddle.logical_xor,
}.items():
    _logical(_names, _function)


@aten("logical_not")
def logical_not(self: Tensor) -> Tensor:
    return paddle.logical_not(cast(self, "bool"))


@aten("bitwise_not")
def bitwise_not(self: Tensor) -> Tensor:
    return paddle.logical_not(self) if self.dtype.name == "bool" else paddle.bitwise_not(self)


def _of_reals(names: str, function: Callable[..., Tensor]) -> None:
    def rule(self: Tensor) -> Tensor:
        return function(floating(self))

    aten(*names.split())(rule)


for _names in (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan",
    "asin arcsin", "acos arccos", "atan arctan", "sinh", "cosh", "tanh", "asinh arcsinh",
    "acosh arccosh", "atanh arctanh", "erf", "erfinv", "lgamma", "digamma", "sigmoid", "reciprocal",
    "rad2deg", "deg2rad", "i0", "sinc",
):  # fmt: skip
    _name = _names.split()[0]
    if _name == "exp2":
        _of_reals(_names, lambda x: paddle.pow(paddle.full([], 2.0, x.dtype), x))
    elif _name == "sigmoid":
        _of_reals(_names, paddle.nn.functional.sigmoid)
    else:
        _of_reals(_names, getattr(paddle, _name))

_of_reals("erfc", lambda x: 1 - paddle.erf(x))


def _of_numbers(names: str, function: Callable[..., Tensor]) -> None:
    def rule(self: Tensor) -> Tensor:
        return function(self)

    aten(*names.split())(rule)


def _kept_integers(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x: function(x) if kind_of(x.dtype) >= 2 else x


for _names, _function in {
    "abs absolute": paddle.abs,
    "neg negative": paddle.neg,
    "sign sgn": paddle.sign,
    "ceil": _kept_integers(paddle.ceil),
    "floor": _kept_integers(paddle.floor),
    "trunc fix": _kept_integers(paddle.trunc),
    "frac": paddle.frac,
    "isnan": paddle.isnan,
    "isinf": paddle.isinf,
    "isfinite": paddle.isfinite,
    "isposinf": lambda x: x == float("inf"),
    "isneginf": lambda x: x == float("-inf"),
    "real": lambda x: paddle.real(x) if kind_of(x.dtype) == 3 else x,
    "imag": paddle.imag,
    "angle": paddle.angle,
    "conj conj_physical resolve_conj": lambda x: paddle.conj(x) if kind_of(x.dtype) == 3 else x,
    "positive resolve_neg": lambda x: x,
    "view_as_real": paddle.as_real,
    "view_as_complex": paddle.as_complex,
}.items():
    _of_numbers(_names, _function)


@aten("complex")
def complex_(real: Tensor, imag: Tensor) -> Tensor:
    return paddle.complex(real, imag)


@aten("polar")
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    return paddle.complex(abs * paddle.cos(angle), abs * paddle.sin(angle))


@aten("round")
def round_(self: Tensor, decimals: int = 0) -> Tensor:
    if kind_of(self.dtype) < 2:
        return self
    return paddle.round(self) if not decimals else paddle.round(self, decimals)


@aten("logit")
def logit(self: Tensor, eps: float | None = None) -> Tensor:
    self = floating(self)
    x = self if eps is None else paddle.clip(self, eps, 1 - eps)
    return paddle.log(x / (1 - x))


@aten("nan_to_num")
def nan_to_num(
    self: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    return paddle.nan_to_num(self, nan or 0.0, posinf, neginf)


@aten("clamp", "clip")
def clamp(self: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    given = [v for v in (min, max) if v is not None]
    self = together(self, *given)[0]
    if min is not None:
        self = paddle.maximum(self, tensor(min, self.dtype))
    return self if max is None else paddle.minimum(self, tensor(max, self.dtype))


@aten("clamp_min")
def clamp_min(self: Tensor, min: Operand) -> Tensor:
    return clamp(self, min)


@aten("clamp_max")
def clamp_max(self: Tensor, max: Operand) -> Tensor:
    return clamp(self, None, max)


@aten("where")
def where(
    condition: Tensor, self: Operand | None = None, other: Operand | None = None
) -> Tensor | list[Tensor]:
    if self is None or other is None:
        return list(paddle.nonzero(condition, as_tuple=True))
    a, b = together(self, other)
    return paddle.where(cast(condition, "bool"), a, b)


@aten("isclose")
def isclose(
    self: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    return paddle.isclose(self, other, rtol, atol, equal_nan)


@aten("to", "_to_copy", "type_as", "to_dtype")
def to(
    self: Tensor, *args: Any, dtype: Any = None, other: Tensor | None = None, **_: Any
) -> Tensor:
    """Devices, layouts and copies are the engine's own business."""
    if other is not None:
        return cast(self, other.dtype)
    for argument in args:
        if isinstance(argument, Tensor):
            return cast(self, argument.dtype)
        if dtype is None and hasattr(argument, "name"):
            dtype = argument
    return cast(self, dtype)


@aten("clone", "lift_fresh_copy", "detach_copy", "alias_copy")
def clone(self: Tensor, memory_format: object = None) -> Tensor:
    return paddle.assign(self)


@aten("contiguous", "alias", "lift_fresh", "requires_grad_")
def same(self: Tensor, *_: object, **__: object) -> Tensor:
    return self


@aten("detach")
def detach(self: Tensor) -> Tensor:
    return self.detach()


@aten("copy")
def copy(self: Tensor, src: Operand, non_blocking: bool = False) -> Tensor:
    return paddle.broadcast_to(tensor(src, self.dtype), self.shape)


@aten("_assert_tensor_metadata", "_assert_async", "sym_constrain_range_for_size", "_assert_scalar",
      "sym_constrain_range", "record_stream")  # fmt: skip
def assertion(self: Any = None, *args: Any, assert_msg: str = "", **_: Any) -> None:
    """What an export has noted of its inputs; a condition on sizes is checked."""
    if self is False:
        raise TorchFileError(
            f"the sizes of the inputs are not what the export allows: {assert_msg}"
        )
