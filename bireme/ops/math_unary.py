"""Elementwise functions of one tensor."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.api.public import another_name, public
from bireme.api.types import DTypeLike, TensorLike
from bireme.core import dtype as dt
from bireme.core import views
from bireme.core.aval import Aval, aval
from bireme.core.errors import TypeMismatch, not_a_tensor
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.host import jax_door
from bireme.host.arrays import Array, Namespace

Body = Callable[..., Any]


def conj_of(xp: Namespace, x: Array) -> Array:
    """The conjugate, and no work for real numbers."""
    return xp.conj(x) if x.dtype.kind == "c" else x


def _smooth(
    *,
    by_x: Body | None = None,
    by_out: Body | None = None,
    amp: str | None = None,
    numpy: Any = True,
) -> Callable[[Body], Any]:
    """An analytic function of floats; integers become floats. `by_x(xp, x)` or
    `by_out(xp, out)` is its derivative."""

    def from_x(xp: Any, grad: Any, x: Any) -> tuple[Any]:
        assert by_x is not None  # noqa: S101 (chosen below)
        return (grad * conj_of(xp, by_x(xp, x)),)

    def from_out(xp: Any, grad: Any, out: Any) -> tuple[Any]:
        assert by_out is not None  # noqa: S101 (chosen below)
        return (grad * conj_of(xp, by_out(xp, out)),)

    rule = from_out if by_x is None else from_x
    return op(vjp=rule, promote="float", infer="elementwise", amp=amp, numpy=numpy)


@public(also={"input": "x"}, out=True, inplace="method", sample=[((3, 4),)])
@_smooth(by_out=lambda xp, y: y, amp="black")
def exp(xp, x):
    """e to the power x."""
    return xp.exp(x)


@public(also={"input": "x"}, out=True, inplace="function", sample=[((3, 4),)])
@_smooth(by_out=lambda xp, y: y + 1, amp="black")
def expm1(xp, x):
    """exp(x) - 1, exact near zero."""
    return xp.expm1(x)


@public(also={"input": "x"}, out=True, inplace=True)
@_smooth(by_x=lambda xp, x: 1 / x, amp="black")
def log(xp, x):
    """Natural logarithm."""
    return xp.log(x)


@public(also={"input": "x"}, out=True, inplace=True)
@_smooth(by_x=lambda xp, x: 1 / (x * math.log(2)), amp="black")
def log2(xp, x):
    """Logarithm to base 2."""
    return xp.log2(x)


@public(also={"input": "x"}, out=True, inplace=True)
@_smooth(by_x=lambda xp, x: 1 / (x * math.log(10)), amp="black")
def log10(xp, x):
    """Logarithm to base 10."""
    return xp.log10(x)


@public(also={"input": "x"}, out=True, inplace=True)
@_smooth(by_x=lambda xp, x: 1 / (x + 1), amp="black")
def log1p(xp, x):
    """log(1 + x), exact near zero."""
    return xp.log1p(x)


@public(also={"input": "x"}, out=True, inplace="method")
@_smooth(by_out=lambda xp, y: 0.5 / y)
def sqrt(xp, x):
    """Square root."""
    return xp.sqrt(x)


@public(also={"input": "x"}, out=True, inplace="method")
@_smooth(by_out=lambda xp, y: -0.5 * y * y * y, amp="black")
def rsqrt(xp, x):
    """1 / sqrt(x)."""
    return 1 / xp.sqrt(x)


@public(inplace="method")
@_smooth(by_out=lambda xp, y: -y * y, amp="black")
def reciprocal(xp, x):
    """1 / x."""
    return 1 / x


@public(also={"input": "x"}, out=True, inplace=True, sample=[((3, 4),)])
@_smooth(by_x=lambda xp, x: xp.cos(x))
def sin(xp, x):
    """Sine."""
    return xp.sin(x)


@public(also={"input": "x"}, out=True, inplace=True, sample=[((3, 4),)])
@_smooth(by_x=lambda xp, x: -xp.sin(x))
def cos(xp, x):
    """Cosine."""
    return xp.cos(x)


@public(inplace=True)
@_smooth(by_out=lambda xp, y: 1 + y * y, amp="black")
def tan(xp, x):
    """Tangent."""
    return xp.tan(x)


@public(also={"input": "x"}, inplace=True)
@_smooth(by_x=lambda xp, x: 1 / xp.sqrt(1 - x * x), amp="black")
def asin(xp, x):
    """Inverse sine."""
    return xp.arcsin(x)


@public(also={"input": "x"}, out=True, inplace=True)
@_smooth(by_x=lambda xp, x: -1 / xp.sqrt(1 - x * x), amp="black")
def acos(xp, x):
    """Inverse cosine."""
    return xp.arccos(x)


@public(inplace=True, sample=[((3, 4),)])
@_smooth(by_x=lambda xp, x: 1 / (1 + x * x))
def atan(xp, x):
    """Inverse tangent."""
    return xp.arctan(x)


@public(also={"input": "x"}, out=True, inplace=True, sample=[((3, 4),)])
@_smooth(by_x=lambda xp, x: xp.cosh(x), amp="black")
def sinh(xp, x):
    """Hyperbolic sine."""
    return xp.sinh(x)


@public(also={"input": "x"}, out=True, inplace=True, sample=[((3, 4),)])
@_smooth(by_x=lambda xp, x: xp.sinh(x), amp="black")
def cosh(xp, x):
    """Hyperbolic cosine."""
    return xp.cosh(x)


@public(
    spaces=("paddle", "paddle.nn.functional"),
    also={"input": "x"},
    out=True,
    inplace=True,
    sample=[((3, 4),)],
)
@_smooth(by_out=lambda xp, y: 1 - y * y)
def tanh(xp, x):
    """Hyperbolic tangent."""
    return xp.tanh(x)


@public(inplace=True, sample=[((3, 4),)])
@_smooth(by_x=lambda xp, x: 1 / xp.sqrt(x * x + 1))
def asinh(xp, x):
    """Inverse hyperbolic sine."""
    return xp.arcsinh(x)


@public(also={"input": "x"}, out=True, inplace=True)
@_smooth(by_x=lambda xp, x: 1 / (xp.sqrt(x - 1) * xp.sqrt(x + 1)))
def acosh(xp, x):
    """Inverse hyperbolic cosine."""
    return xp.arccosh(x)


@public(also={"input": "x"}, out=True, inplace=True)
@_smooth(by_x=lambda xp, x: 1 / (1 - x * x), amp="black")
def atanh(xp, x):
    """Inverse hyperbolic tangent."""
    return xp.arctanh(x)


def _sigmoid(xp: Any, x: Any) -> Any:
    return 1 / (1 + xp.exp(-x))


@public(spaces=("paddle", "paddle.nn.functional"), also={"input": "x"}, out=True, inplace="method")
@_smooth(by_out=lambda xp, y: y * (1 - y), numpy=_sigmoid)
def sigmoid(xp, x):
    """1 / (1 + exp(-x))."""
    return jax_door.jax().nn.sigmoid(x)


def _square_vjp(xp: Any, grad: Any, x: Any) -> tuple[Any]:
    return (grad * conj_of(xp, 2 * x),)


@public(inplace=True, sample=[((3, 4),)])
@op(vjp=_square_vjp, infer="elementwise", amp="black", takes="ifc")
def square(xp, x):
    """x * x."""
    return x * x


def _real_dtype(d: dt.DType) -> dt.DType:
    if not d.is_complex:
        return d
    return dt.float64 if d is dt.complex128 else dt.float32


def real_of(x: Aval) -> Aval:
    return aval(x.shape, _real_dtype(x.dtype))


def direction(xp: Namespace, x: Array) -> Array:
    """x / |x|, and 0 at 0."""
    if x.dtype.kind != "c":
        return xp.sign(x)
    size = xp.abs(x)
    return xp.where(size == 0, 0, x / xp.where(size == 0, 1, size)).astype(x.dtype)


def _abs_vjp(xp: Any, grad: Any, x: Any) -> tuple[Any]:
    return (grad * direction(xp, x),)


@public(also={"input": "x"}, out=True, inplace=True, sample=[((3, 4),)])
@op(name="abs", vjp=_abs_vjp, infer=real_of)
def abs(xp, x):
    """Absolute value; of a complex number its distance from zero."""
    return xp.abs(x)


def _zero_slope(xp: Any, grad: Any) -> tuple[Any]:
    return (xp.zeros_like(grad),)


@public(also={"input": "x"}, out=True, sample=[((3, 4),)])
@op(vjp=_zero_slope, infer="elementwise", takes="ifc")
def sign(xp, x):
    """-1, 0 or 1 by the sign of x; a unit number for complex x."""
    return direction(xp, x)


def _sgn_vjp(xp: Any, grad: Any, x: Any) -> tuple[Any]:
    if x.dtype.kind != "c":
        return (xp.zeros_like(grad),)
    size = xp.abs(x)
    safe = xp.where(size == 0, 1, size)
    unit = x / safe
    slope = (grad - unit * xp.real(grad * xp.conj(unit))) / safe
    return (xp.where(size == 0, 0, slope).astype(x.dtype),)


@public(sample=[((3, 4),)])
@op(name="sgn", vjp=_sgn_vjp, infer="elementwise", takes="ifc")
def sgn(xp, x):
    """x / |x|, and 0 where x is 0."""
    return direction(xp, x)


# Constant between jumps: integers pass, the gradient is zero.
_stepwise = op(vjp=_zero_slope, infer="elementwise", takes="bif")


@public(also={"input": "x"}, out=True, inplace="method", sample=[((3, 4),)])
@_stepwise
def floor(xp, x):
    """The largest integer not above x."""
    return x if x.dtype.kind in "iub" else xp.floor(x)


@public(also={"input": "x"}, out=True, inplace="method", sample=[((3, 4),)])
@_stepwise
def ceil(xp, x):
    """The smallest integer not below x."""
    return x if x.dtype.kind in "iub" else xp.ceil(x)


@op(name="trunc", vjp=_zero_slope, infer="elementwise", takes="bif")
def _trunc(xp, x):
    """x without its fraction."""
    return x if x.dtype.kind in "iub" else xp.trunc(x)


@public(inplace=True, sample=[((3, 4),)], takes="ifc")
def trunc(input: Tensor, name: str | None = None) -> Tensor:
    """x without its fraction."""
    return _trunc(input)


@op(name="round", vjp=_zero_slope, infer="elementwise")
def _round(xp, x, decimals=0):
    """The nearest number with `decimals` digits after the point; halves go to the even one."""
    if x.dtype.kind in "iub":
        return x
    if decimals == 0:
        return xp.round(x)
    factor = 10.0 ** math.fabs(decimals)
    if decimals > 0:
        return xp.round(x * factor) / factor
    return xp.round(x / factor) * factor


@public(also={"input": "x"}, out=True, inplace="method", sample=[((3, 4),)], takes="ifc")
def round(x: Tensor, decimals: int = 0, name: str | None = None) -> Tensor:
    """The nearest number with `decimals` digits after the point; halves go to the even one."""
    return _round(x, decimals)


def _same_slope(xp: Any, grad: Any) -> tuple[Any]:
    return (grad,)


@public(also={"input": "x"}, out=True, inplace=True, sample=[((3, 4),)])
@op(vjp=_same_slope, infer="elementwise", takes="if")
def frac(xp, x):
    """The fraction of x, with the sign of x."""
    return x - x if x.dtype.kind in "iub" else x - xp.trunc(x)


def _neg_vjp(xp: Any, grad: Any) -> tuple[Any]:
    return (-grad,)


@public(inplace=True, sample=[((3, 4),)])
@op(vjp=_neg_vjp, infer="elementwise")
def neg(xp, x):
    """-x."""
    return x if x.dtype.kind == "b" else -x


negative = another_name("negative", neg, inplace=False, sample=[((3, 4),)])


@op(vjp=_same_slope, infer="elementwise", exact=True)
def assign_value(xp, x):
    """x itself, as a new tensor."""
    return x


@public(method=False, sample=[((3, 4),)])
def positive(x: Tensor, name: str | None = None) -> Tensor:
    """x itself, as a new tensor; bool has no sign and is refused."""
    if x.dtype is dt.bool_:
        raise TypeMismatch(
            "[positive] a bool has no sign; write x.astype('int64'). Received: a bool tensor"
        )
    return assign_value(x)


def _factor_vjp(xp: Any, grad: Any, factor: Any) -> tuple[Any, None]:
    return grad * factor, None


@op(vjp=_factor_vjp, promote="float", infer="elementwise")
def _times(xp, x, factor):
    """x times a number."""
    return x * factor


@public(sample=[((3, 4),)])
def deg2rad(x: Tensor, name: str | None = None) -> Tensor:
    """Degrees to radians."""
    return _times(x, math.pi / 180)


@public(sample=[((3, 4),)])
def rad2deg(x: Tensor, name: str | None = None) -> Tensor:
    """Radians to degrees."""
    return _times(x, 180 / math.pi)


def _sinc_slope(xp: Any, x: Any) -> Any:
    at = math.pi * x
    safe = xp.where(x == 0, 1, at)
    slope = math.pi * (safe * xp.cos(safe) - xp.sin(safe)) / (safe * safe)
    return xp.where(x == 0, 0, slope).astype(x.dtype)


@public(inplace=True, sample=[((3, 4),)])
@_smooth(by_x=_sinc_slope)
def sinc(xp, x):
    """sin(pi x) / (pi x), 1 at 0."""
    return xp.sinc(x)


# --- tests of each element --------------------------------------------------------------------


@public(also={"input": "x"})
@op(infer="bool", differentiable=False)
def isnan(xp, x):
    """Where x is not a number."""
    return xp.isnan(x)


@public(also={"input": "x"})
@op(infer="bool", differentiable=False)
def isinf(xp, x):
    """Where x is infinite."""
    return xp.isinf(x)


@public(also={"input": "x"})
@op(infer="bool", differentiable=False)
def isfinite(xp, x):
    """Where x is neither infinite nor NaN."""
    return xp.isfinite(x)


@public
@op(infer="bool", differentiable=False, takes="if")
def isposinf(xp, x):
    """Where x is +inf."""
    return xp.isposinf(x)


@public
@op(infer="bool", differentiable=False, takes="if")
def isneginf(xp, x):
    """Where x is -inf."""
    return xp.isneginf(x)


@public
@op(infer="bool", differentiable=False)
def isreal(xp, x):
    """Where x has no imaginary part."""
    return xp.isreal(x)


@public
@op(infer="bool", differentiable=False, takes="if")
def signbit(xp, x):
    """Where the sign of x is set (also for -0.0)."""
    return x < 0 if x.dtype.kind in "iub" else xp.signbit(x)


# --- complex numbers --------------------------------------------------------------------------


def from_parts(xp: Namespace, real: Array, imag: Array) -> Array:
    """real + i * imag; unlike that sum, exact for infinities."""
    if xp is not np:
        real, imag = xp.broadcast_arrays(real, imag)
        return jax_door.jax().lax.complex(real, imag)
    shape = np.broadcast_shapes(real.shape, imag.shape)
    out = np.empty(shape, np.complex128 if real.dtype == np.float64 else np.complex64)
    out.real, out.imag = real, imag
    return out


def _angle_vjp(xp: Any, grad: Any, x: Any) -> tuple[Any]:
    if x.dtype.kind != "c":
        return (xp.zeros_like(grad),)
    square = xp.real(x) ** 2 + xp.imag(x) ** 2
    slope = 1j * x / xp.where(square == 0, 1, square)
    return (grad * slope.astype(x.dtype),)


@public(sample=[((3, 4),)])
@op(vjp=_angle_vjp, infer=real_of, takes="fc")
def angle(xp, x):
    """The argument of a complex number; 0 or pi for real ones."""
    return xp.angle(x).astype(_real_dtype(dt.as_dtype(x.dtype)).numpy)


def _conj_vjp(xp: Any, grad: Any) -> tuple[Any]:
    return (conj_of(xp, grad),)


@public(sample=[((3, 4),)])
@op(vjp=_conj_vjp, infer="elementwise", takes="ifc")
def conj(xp, x):
    """The complex conjugate."""
    return conj_of(xp, x)


# --- with run-time parameters -----------------------------------------------------------------


def _stanh_vjp(xp: Any, grad: Any, x: Any, scale_a: Any, scale_b: Any) -> tuple[Any, None, None]:
    t = xp.tanh(scale_a * x)
    return grad * conj_of(xp, scale_a * scale_b * (1 - t * t)), None, None


@public(sample=[((3, 4),)])
@op(
    inputs=("x", "scale_a", "scale_b"),
    vjp=_stanh_vjp,
    promote="float",
    infer="elementwise",
    takes="ifc",
)
def stanh(xp, x, scale_a=0.67, scale_b=1.7159):
    """scale_b * tanh(scale_a * x)."""
    return scale_b * xp.tanh(scale_a * x)


def _logit_vjp(xp: Any, grad: Any, x: Any, eps: Any) -> tuple[Any, None]:
    slope = grad / (x * (1 - x))
    if eps is None:
        return xp.where((x < 0) | (x > 1), xp.asarray(np.nan, x.dtype), slope), None
    return xp.where((x < eps) | (x > 1 - eps), xp.zeros_like(slope), slope), None


@public(inplace=True)
@op(inputs=("x", "eps"), vjp=_logit_vjp, promote="float", infer="elementwise", takes="ifc")
def logit(xp, x, eps=None):
    """log(x / (1 - x)); with `eps`, x is first clipped to [eps, 1 - eps]."""
    if eps is not None:
        x = xp.minimum(xp.maximum(x, eps), 1 - eps)
    return xp.log(x / (1 - x))


def _nan_to_num_vjp(xp: Any, grad: Any, x: Any) -> tuple[Any, None, None, None]:
    return xp.where(xp.isfinite(x), grad, xp.zeros_like(grad)), None, None, None


@public(inplace=True)
@op(
    inputs=("x", "nan", "posinf", "neginf"), vjp=_nan_to_num_vjp, infer=lambda x, *_: x,
    takes={"x": "f"}, exact=True,
)  # fmt: skip
def nan_to_num(xp, x, nan=0.0, posinf=None, neginf=None):
    """Replace NaN and infinities by numbers; by default 0 and the type's largest."""
    import ml_dtypes

    top = float(ml_dtypes.finfo(x.dtype).max)
    high = top if posinf is None else posinf
    low = -top if neginf is None else neginf
    y = xp.where(xp.isnan(x), xp.asarray(nan).astype(x.dtype), x)
    y = xp.where(x == np.inf, xp.asarray(high).astype(x.dtype), y)
    return xp.where(x == -np.inf, xp.asarray(low).astype(x.dtype), y)


# --- types and copies -------------------------------------------------------------------------


@op(
    name="cast",
    vjp=_same_slope,
    infer=lambda x, dtype: aval(x.shape, dt.as_dtype(dtype)),
    exact=True,
)
def _cast(xp, x, dtype="float32"):
    """x with elements of another type."""
    to = dt.as_dtype(dtype).numpy
    if x.dtype.kind == "c" and to.kind != "c":
        x = xp.real(x)
    if xp is not np and to.kind in "iu" and dt.as_dtype(x.dtype).is_floating:
        return _as_integers(xp, x.astype(np.float32) if x.dtype.itemsize < 4 else x, to)
    return x.astype(to)


def _as_integers(xp: Any, x: Any, to: np.dtype) -> Any:
    """Floats as integers: like NumPy and Paddle on x86 where they do not fit. XLA would saturate,
    so that a program's numbers would change when it is compiled."""
    if to.itemsize < 4:  # the last bits of 32
        return _as_integers(xp, x, np.dtype(np.int32)).astype(to)
    if to.kind == "u":  # the last bits of 64
        small = _as_integers(xp, x, np.dtype(np.int64)).astype(to)
        return small if to.itemsize == 4 else xp.where(x < 2.0**63, small, x.astype(to))
    bits = 8 * to.itemsize - 1
    whole = xp.trunc(x)
    fits = (whole >= -(2.0**bits)) & (whole < 2.0**bits)
    return xp.where(fits, x.astype(to), np.iinfo(to).min)


@public
def cast(x: Tensor, dtype: DTypeLike) -> Tensor:
    """x with elements of another type; gradients come back in the old one."""
    return _cast(x, dt.as_dtype(dtype).name)


@public
def assign(x: TensorLike, output: Tensor | None = None) -> Tensor:
    """A copy of a tensor, array, list or number, put into `output` if that is given."""
    if isinstance(x, Tensor):
        made = assign_value(x)
    else:
        from bireme.ops.creation import to_tensor

        if not isinstance(x, np.ndarray | np.generic | list | tuple | numbers.Number):
            raise not_a_tensor("assign", "x", x)
        # As in Paddle: a number becomes a vector of one, and numbers have NumPy's types.
        given: Any = [x] if isinstance(x, numbers.Number) else x
        made = to_tensor(given if _holds_tensors(given) else np.asarray(given))
    if output is None:
        return made
    if made._value.aval.shape != output._value.aval.shape:  # as in Paddle, whatever it was before
        views.check_inplace(output, "assign")
        return views.replace(output, made, None)
    return views.assign(output, made, "assign")


def _holds_tensors(x: Any) -> bool:
    return isinstance(x, Tensor) or (isinstance(x, list | tuple) and any(map(_holds_tensors, x)))


@public
def clone(x: Tensor, name: str | None = None) -> Tensor:
    """A copy that keeps its place in the gradient's graph."""
    return assign_value(x)
