"""Arithmetic and elementwise functions of several tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bireme.api.public import another_name, public
from bireme.api.types import Operand, Scalar
from bireme.core import dtype as dt
from bireme.core import views
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import broadcast_shapes, op
from bireme.core.requirements import InRange, NonZero
from bireme.core.tensor import Tensor
from bireme.ops.math_unary import conj_of, from_parts, reciprocal, rsqrt, sqrt, square

# --- the four operations ----------------------------------------------------------------------


def _add_vjp(xp: Any, grad: Any) -> tuple[Any, Any]:
    return grad, grad


@op(name="add", vjp=_add_vjp, promote="binary", infer="elementwise")
def plus(xp, x, y):
    """x + y."""
    return xp.add(x, y)


def _subtract_vjp(xp: Any, grad: Any, needs: Any) -> tuple[Any, Any]:
    return grad, -grad if needs[1] else None


@op(name="subtract", vjp=_subtract_vjp, promote="binary", infer="elementwise", takes="ifc")
def minus(xp, x, y):
    """x - y."""
    return xp.subtract(x, y)


def _multiply_vjp(xp: Any, grad: Any, x: Any, y: Any, needs: Any) -> tuple[Any, Any]:
    return (
        grad * conj_of(xp, y) if needs[0] else None,
        grad * conj_of(xp, x) if needs[1] else None,
    )


@public(also={"input": "x", "other": "y"}, out=True, inplace=True, inplace_also=True)
@op(
    name="multiply",
    vjp=_multiply_vjp,
    promote="binary",
    infer="elementwise",
    used_by={"x": ("y",), "y": ("x",)},
)
def multiply(xp, x, y):
    """x * y."""
    return xp.multiply(x, y)


def _divide_vjp(xp: Any, grad: Any, y: Any, out: Any, needs: Any) -> tuple[Any, Any]:
    share = grad / conj_of(xp, y)
    return share, -share * conj_of(xp, out) if needs[1] else None


@op(
    name="divide",
    vjp=_divide_vjp,
    promote="float_binary",
    infer="elementwise",
    used_by={"out": ("y",)},
)
def over(xp, x, y):
    """x / y; integers are divided as floats."""
    return xp.divide(x, y)


def _divisor(x: Any, y: Any) -> list[NonZero]:
    """Integers cannot be divided by zero; other numbers give infinity or NaN."""
    return [] if x.dtype.differentiable or y.dtype.differentiable else [NonZero("y")]


@public(also={"input": "x", "other": "y"}, out=True, inplace=True)
@op(promote="binary", infer="elementwise", differentiable=False, takes="if", requires=_divisor)
def floor_divide(xp, x, y):
    """The largest integer not above x / y."""
    if x.dtype.kind in "iub":
        return xp.floor_divide(x, y)
    return xp.floor(x / y)


def _remainder_vjp(xp: Any, grad: Any, x: Any, y: Any, needs: Any) -> tuple[Any, Any]:
    if not needs[1]:
        return grad, None
    times = _nearest(xp, x / y) if x.dtype.kind == "c" else xp.floor(x / y)
    return grad, -grad * conj_of(xp, times)


def _nearest(xp: Any, z: Any) -> Any:
    """Both parts of z rounded to an integer, halves away from zero."""
    whole = [xp.sign(part) * xp.floor(xp.abs(part) + 0.5) for part in (xp.real(z), xp.imag(z))]
    return from_parts(xp, *whole)


@public(also={"input": "x", "other": "y"}, out=True, inplace=True)
@op(vjp=_remainder_vjp, promote="binary", infer="elementwise", takes="ifc", requires=_divisor)
def remainder(xp, x, y):
    """What is left of x after division by y; it has the sign of y (complex: the nearest)."""
    return x - y * _nearest(xp, x / y) if x.dtype.kind == "c" else xp.remainder(x, y)


mod = another_name("mod", remainder)
floor_mod = another_name("floor_mod", remainder)


@public(also={"input": "x", "other": "y"}, out=True, inplace="method", inplace_also=True)
def add(x: Tensor, y: Operand, name: str | None = None, *, alpha: Scalar = 1) -> Tensor:
    """x + alpha * y."""
    return plus(x, y) if alpha == 1 else plus(x, multiply(y, alpha))


@public(also={"input": "x", "other": "y"}, out=True, inplace=True, inplace_also=True)
def subtract(x: Tensor, y: Operand, name: str | None = None, *, alpha: Scalar = 1) -> Tensor:
    """x - alpha * y."""
    return minus(x, y) if alpha == 1 else minus(x, multiply(y, alpha))


@public(also={"input": "x", "other": "y"}, out=True, inplace=True, inplace_also=True)
def divide(
    x: Tensor, y: Operand, name: str | None = None, *, rounding_mode: str | None = None
) -> Tensor:
    """x / y, rounded towards zero (`"trunc"`) or down (`"floor"`) on request."""
    if rounding_mode is None:
        return over(x, y)
    if rounding_mode == "floor":
        return floor_divide(x, y)
    if rounding_mode == "trunc":
        return _divide_trunc(x, y)
    raise InvalidArgument(
        f"[divide] rounding_mode must be None, 'trunc' or 'floor'. Received: {rounding_mode!r}"
    )


@op(promote="binary", infer="elementwise", differentiable=False, takes="if", requires=_divisor)
def _divide_trunc(xp, x, y):
    """x / y rounded towards zero."""
    if x.dtype.kind not in "iub":
        return xp.trunc(x / y)
    quotient = xp.floor_divide(x, y)
    inexact = quotient * y != x
    return quotient + (inexact & ((x < 0) != (y < 0))).astype(x.dtype)


sub = another_name("sub", subtract)
mul = another_name("mul", multiply, inplace="method")
div = another_name("div", divide)


@public(out=True)
def true_divide(input: Tensor, other: Operand) -> Tensor:
    """input / other; integers are divided as floats."""
    return over(input, other)


# --- powers -----------------------------------------------------------------------------------


def _pow_vjp(xp: Any, grad: Any, x: Any, y: Any, out: Any, needs: Any) -> tuple[Any, Any]:
    by_x = by_y = None
    if needs[0]:
        slope = y * xp.power(x, xp.where(y == 0, xp.ones_like(y), y - 1))
        by_x = grad * conj_of(xp, slope)
    if needs[1]:
        base = xp.where(x == 0, xp.ones_like(x), x)
        by_y = grad * conj_of(xp, out * xp.log(base))
    return by_x, by_y


@op(name="pow", vjp=_pow_vjp, promote="binary", infer="elementwise", amp="black", takes="ifc")
def power(xp, x, y):
    """x to the power y."""
    if x.dtype.kind in "iu":
        return _integer_power(xp, x, y)
    return xp.power(x, y)


def _integer_power(xp: Any, x: Any, y: Any) -> Any:
    """Integers have no fractions: a negative exponent gives 0 except for 1 and -1."""
    size = xp.power(x, xp.maximum(y, xp.zeros_like(y)))
    if x.dtype.kind == "u":
        return size
    odd = xp.where(y % 2 == 0, 1, x).astype(x.dtype)
    small = xp.where((x == 1) | (x == -1), odd, xp.zeros_like(x))
    return xp.where(y < 0, small, size)


def _small_power_vjp(xp: Any, grad: Any, x: Any, n: int) -> tuple[Any]:
    return (grad * conj_of(xp, n * _repeated_product(x, n - 1)),)


def _repeated_product(x: Any, n: int) -> Any:
    """x**n for n >= 1 by squaring."""
    result = None
    while True:
        if n & 1:
            result = x if result is None else result * x
        n >>= 1
        if n == 0:
            return result
        x = x * x


@op(vjp=_small_power_vjp, infer="elementwise", amp="black")
def small_power(xp, x, n=3):
    """x**n for a small fixed n: products are far cheaper than a general power."""
    return _repeated_product(x, n)


_FLOAT_POWERS = {0.5: sqrt, -0.5: rsqrt, -1: reciprocal}


@public(also={"input": "x", "exponent": "y"}, out=True, inplace=True)
def pow(x: Tensor, y: Operand, name: str | None = None) -> Tensor:
    """x to the power y. Usual fixed exponents (2, 3, 1/2, -1 …) run as products or roots."""
    if (type(y) is float or type(y) is int) and isinstance(x, Tensor):
        d = x._value.aval.dtype
        if d.differentiable or (d.is_integer and type(y) is int):
            if y == 2:
                return square(x)
            if 3 <= y <= 8 and y == int(y):
                return small_power(x, int(y))
        if d.is_floating and y in _FLOAT_POWERS:
            return _FLOAT_POWERS[y](x)
    return power(x, y)


# --- extrema ----------------------------------------------------------------------------------


def _half_at_ties(xp: Any, grad: Any, x: Any, y: Any, needs: Any) -> tuple[Any, Any]:
    half = xp.where(x == y, 0.5 * grad, xp.zeros_like(grad))
    none = xp.zeros_like(grad)
    return (
        xp.where(x > y, grad, half) if needs[0] else none,
        xp.where(x < y, grad, half) if needs[1] else none,
    )


def _maximum_vjp(xp: Any, grad: Any, x: Any, y: Any, needs: Any) -> tuple[Any, Any]:
    return _half_at_ties(xp, grad, x, y, needs)


def _minimum_vjp(xp: Any, grad: Any, x: Any, y: Any, needs: Any) -> tuple[Any, Any]:
    by_y, by_x = _half_at_ties(xp, grad, x, y, (needs[1], needs[0]))
    return by_x, by_y


@public(also={"input": "x", "other": "y"}, out=True)
@op(vjp=_maximum_vjp, promote="binary", infer="elementwise", takes="bif")
def maximum(xp, x, y):
    """The larger of x and y; NaN where either is NaN."""
    return xp.maximum(x, y)


@public(also={"input": "x", "other": "y"}, out=True)
@op(vjp=_minimum_vjp, promote="binary", infer="elementwise", takes="bif")
def minimum(xp, x, y):
    """The smaller of x and y; NaN where either is NaN."""
    return xp.minimum(x, y)


def _fmax_vjp(xp: Any, grad: Any, x: Any, y: Any) -> tuple[Any, Any]:
    first = (x >= y) | xp.isnan(y)
    none = xp.zeros_like(grad)
    return xp.where(first, grad, none), xp.where(first, none, grad)


@public
@op(vjp=_fmax_vjp, promote="binary", infer="elementwise", takes="bif")
def fmax(xp, x, y):
    """The larger of x and y; a NaN yields to the other."""
    return xp.fmax(x, y)


def _fmin_vjp(xp: Any, grad: Any, x: Any, y: Any) -> tuple[Any, Any]:
    first = (x <= y) | xp.isnan(y)
    none = xp.zeros_like(grad)
    return xp.where(first, grad, none), xp.where(first, none, grad)


@public
@op(vjp=_fmin_vjp, promote="binary", infer="elementwise", takes="bif")
def fmin(xp, x, y):
    """The smaller of x and y; a NaN yields to the other."""
    return xp.fmin(x, y)


def _clip_vjp(xp: Any, grad: Any, x: Any, min: Any, max: Any) -> tuple[Any, None, None]:
    inside = None if min is None else x >= min
    if max is not None:
        below = x <= max
        inside = below if inside is None else inside & below
    return (grad if inside is None else xp.where(inside, grad, xp.zeros_like(grad))), None, None


@op(
    name="clip",
    inputs=("x", "min", "max"),
    vjp=_clip_vjp,
    promote="binary",
    infer="elementwise",
    takes="bif",
)
def _clip(xp, x, min=None, max=None):
    """x limited to [min, max]."""
    if min is not None:
        x = xp.maximum(x, min)
    return x if max is None else xp.minimum(x, max)


@public(also={"input": "x"}, out=True, inplace="method")
def clip(
    x: Tensor, min: Operand | None = None, max: Operand | None = None, name: str | None = None
) -> Tensor:
    """x limited to [min, max]; either bound may be a number, a tensor or absent."""
    if isinstance(min, int | float) and isinstance(max, int | float) and min > max:
        raise InvalidArgument(f"[clip] min must not be above max. Received: min={min}, max={max}")
    return _clip(x, min, max)


clamp = another_name("clamp", clip)


# --- other functions of two -------------------------------------------------------------------


def _lerp_vjp(xp: Any, grad: Any, x: Any, y: Any, weight: Any, needs: Any) -> tuple[Any, Any, Any]:
    by_y = grad * weight
    return grad - by_y, by_y, grad * (y - x) if needs[2] else None


@public(inplace="method")
@op(vjp=_lerp_vjp, promote="binary", infer="elementwise", takes="fc")
def lerp(xp, x, y, weight):
    """x + weight * (y - x): from x to y as the weight goes from 0 to 1."""
    return x + weight * (y - x)


def _atan2_vjp(xp: Any, grad: Any, x: Any, y: Any) -> tuple[Any, Any]:
    share = grad / (x * x + y * y)
    return share * y, -share * x


@op(name="atan2", vjp=_atan2_vjp, promote="float_binary", infer="elementwise", takes="f")
def _atan2(xp, x, y):
    """The angle of the point (y, x)."""
    return xp.arctan2(x, y)


@public(takes="ifc")
def atan2(x: Tensor, y: Tensor, name: str | None = None) -> Tensor:
    """The angle of the point (y, x), in (-pi, pi]; integers give float64."""
    if not (x.dtype.differentiable or y.dtype.differentiable):
        from bireme.ops.math_unary import cast

        x, y = cast(x, "float64"), cast(y, "float64")
    return _atan2(x, y)


def _hypot_vjp(xp: Any, grad: Any, x: Any, y: Any, out: Any) -> tuple[Any, Any]:
    return grad * conj_of(xp, x / out), grad * conj_of(xp, y / out)


@public(inplace=True)
@op(vjp=_hypot_vjp, promote="float_binary", infer="elementwise", takes="ifc")
def hypot(xp, x, y):
    """sqrt(x**2 + y**2), without overflow for real numbers."""
    return xp.sqrt(x * x + y * y) if x.dtype.kind == "c" else xp.hypot(x, y)


def _heaviside_vjp(xp: Any, grad: Any, x: Any) -> tuple[Any, Any]:
    none = xp.zeros_like(grad)
    return none, xp.where(x == 0, grad, none)


@public
@op(vjp=_heaviside_vjp, promote="binary", infer="elementwise", takes="if")
def heaviside(xp, x, y):
    """0 for x < 0, y for x == 0, 1 for x > 0."""
    step = (x > 0).astype(x.dtype)
    return xp.where(x == 0, y, xp.where(x != x, x, step))


def _logaddexp_vjp(xp: Any, grad: Any, x: Any, y: Any, out: Any) -> tuple[Any, Any]:
    return grad * xp.exp(x - out), grad * xp.exp(y - out)


@public
@op(vjp=_logaddexp_vjp, promote="float_binary", infer="elementwise", amp="black", takes="f")
def logaddexp(xp, x, y):
    """log(exp(x) + exp(y)), without overflow."""
    return xp.logaddexp(x, y)


def _copysign_vjp(xp: Any, grad: Any, x: Any, y: Any) -> tuple[Any, Any]:
    flipped = xp.copysign(xp.ones_like(x), x) * xp.copysign(xp.ones_like(y), y)
    return xp.where(x == 0, xp.zeros_like(grad), grad * flipped), xp.zeros_like(grad)


@public(inplace=True)
@op(vjp=_copysign_vjp, promote="binary", infer="elementwise", takes="bif")
def copysign(xp, x, y):
    """The size of x with the sign of y."""
    if x.dtype.kind in "iub":
        size = xp.abs(x)
        return xp.where(y < 0, -size if x.dtype.kind == "i" else size, size)
    return xp.copysign(x, y)


@public
@op(promote="binary", infer="elementwise", differentiable=False, takes="f", exact=True)
def nextafter(xp, x, y):
    """The next representable number from x towards y."""
    return xp.nextafter(x, y)


@public(inplace=True)
def ldexp(x: Tensor, y: Tensor, name: str | None = None) -> Tensor:
    """x * 2**y, in floats."""
    from bireme.ops.math_unary import cast

    wide = dt.float64 in (x.dtype, y.dtype)
    to = "float64" if wide else "float32"
    return multiply(cast(x, to), power(2.0, cast(y, to)))


@public(also={"input": "x", "other": "y"}, inplace=True, inplace_also=True)
@op(promote="binary", infer="elementwise", differentiable=False, takes="i")
def gcd(xp, x, y):
    """The greatest common divisor."""
    return xp.gcd(x, y)


@public(also={"input": "x", "other": "y"}, inplace=True, inplace_also=True)
@op(promote="binary", infer="elementwise", differentiable=False, takes="i")
def lcm(xp, x, y):
    """The least common multiple."""
    return xp.lcm(x, y)


def _scale_vjp(xp: Any, grad: Any, scale: Any) -> tuple[Any, None, None]:
    return grad * xp.asarray(scale).astype(grad.dtype), None, None


@op(name="scale", inputs=("x", "scale", "bias"), vjp=_scale_vjp, infer=lambda x, *_, **__: x)
def _scale(xp, x, scale, bias, bias_after_scale=True):
    """scale * x + bias, or scale * (x + bias)."""
    factor, shift = xp.asarray(scale).astype(x.dtype), xp.asarray(bias).astype(x.dtype)
    return x * factor + shift if bias_after_scale else (x + shift) * factor


_ACTIVATIONS = ("exp", "sigmoid", "sqrt", "square", "tanh", "abs", "reciprocal", "log")


@public(inplace="method")
def scale(
    x: Tensor,
    scale: Scalar = 1.0,
    bias: Scalar = 0.0,
    bias_after_scale: bool = True,
    act: str | None = None,
    name: str | None = None,
) -> Tensor:
    """scale * x + bias (or scale * (x + bias)) in x's own type, then `act` if given."""
    out = _scale(x, scale, bias, bias_after_scale)
    if act is None:
        return out
    if act == "relu":
        return maximum(out, 0)
    if act not in _ACTIVATIONS:
        raise InvalidArgument(
            f"[scale] act must be one of {('relu', *_ACTIVATIONS)} or None. Received: {act!r}"
        )
    from bireme.ops import math_unary

    return getattr(math_unary, act)(out)


@public(takes="ifc")
def increment(x: Tensor, value: float = 1.0, name: str | None = None) -> Tensor:
    """Add `value` to a tensor with one element, in place."""
    if x.size not in (0, 1):
        raise ShapeMismatch(
            f"[increment] takes a tensor with one element. Received: shape {x.shape}; use x + value"
        )
    return views.assign(x, _scale(x, 1, value), "increment")


# --- functions of many ------------------------------------------------------------------------


def _add_n_vjp(xp: Any, grad: Any, types: Any) -> tuple[list[Any]]:
    return ([grad] * len(types[0]),)


def _check_same_shape(inputs: Sequence[Any]) -> None:
    if not inputs:
        raise InvalidArgument("needs at least one tensor")
    if any(t.shape != inputs[0].shape for t in inputs):
        raise ShapeMismatch("all tensors must have one shape")


@op(
    name="add_n",
    inputs=("*inputs",),
    vjp=_add_n_vjp,
    check=_check_same_shape,
    infer=lambda inputs: inputs[0],
)
def _add_n(xp, inputs):
    """The sum of several tensors."""
    total = inputs[0]
    for x in inputs[1:]:
        total = total + x
    return total


@public(method=True)
def add_n(inputs: Tensor | Sequence[Tensor], name: str | None = None) -> Tensor:
    """The sum of several tensors of one shape."""
    return _add_n((inputs,) if isinstance(inputs, Tensor) else tuple(inputs))


def _multiplex_vjp(xp: Any, grad: Any, index: Any, types: Any) -> tuple[list[Any], None]:
    rows = index.reshape((-1,) + (1,) * (grad.ndim - 1))
    return [xp.where(rows == k, grad, xp.zeros_like(grad)) for k in range(len(types[0]))], None


def _check_multiplex(inputs: Sequence[Any], index: Any) -> None:
    _check_same_shape(inputs)
    if len(inputs) < 2:
        raise InvalidArgument("there must be at least two inputs to choose from")
    if inputs[0].ndim < 2:
        raise ShapeMismatch("inputs must have at least two dimensions")
    if not index.dtype.is_integer:
        raise TypeMismatch("index must be an integer tensor")


@public(method=True)
@op(
    name="multiplex",
    inputs=("*inputs", "index"),
    vjp=_multiplex_vjp,
    check=_check_multiplex,
    infer=lambda inputs, index: inputs[0],
    requires=lambda inputs, index: [InRange("index", 0, len(inputs) - 1)],
)
def multiplex(xp, inputs, index):
    """Row i of the result is row i of inputs[index[i]]."""
    rows = index.reshape((-1,) + (1,) * (inputs[0].ndim - 1))
    result = inputs[0]
    for k, x in enumerate(inputs[1:], 1):
        result = xp.where(rows == k, x, result)
    return result


# --- complex numbers from parts ---------------------------------------------------------------


def _check_parts(real: Any, imag: Any) -> None:
    if real.dtype not in (dt.float32, dt.float64) or imag.dtype is not real.dtype:
        raise TypeMismatch("both parts must be float32, or both float64")


def _complex_type(real: Aval, imag: Aval) -> Aval:
    wide = dt.complex128 if real.dtype is dt.float64 else dt.complex64
    return aval(broadcast_shapes(real.shape, imag.shape), wide)


def _complex_vjp(xp: Any, grad: Any) -> tuple[Any, Any]:
    return xp.real(grad), xp.imag(grad)


@public(out=True, method=False)
@op(vjp=_complex_vjp, check=_check_parts, infer=_complex_type)
def complex(xp, real, imag):
    """real + i * imag."""
    return from_parts(xp, real, imag)


def _polar_vjp(xp: Any, grad: Any, abs: Any, angle: Any, out: Any) -> tuple[Any, Any]:
    unit = xp.cos(angle) - 1j * xp.sin(angle)
    return xp.real(grad * unit), xp.real(grad * xp.conj(1j * out))


@public(out=True)
@op(
    vjp=_polar_vjp,
    promote="binary",
    check=lambda abs, angle: _check_parts(abs, angle),
    infer=_complex_type,
)
def polar(xp, abs, angle):
    """The complex number of size `abs` at `angle`."""
    return abs * xp.cos(angle) + 1j * (abs * xp.sin(angle))


@public
def frexp(x: Tensor, name: str | None = None) -> tuple[Tensor, Tensor]:
    """(mantissa in [0.5, 1), exponent) with x = mantissa * 2**exponent."""
    return tuple(_frexp(x))  # type: ignore[return-value]


@op(name="frexp", infer=lambda x: (x, x), takes="f")
def _frexp(xp, x):
    """(mantissa in [0.5, 1), exponent) with x = mantissa * 2**exponent."""
    mantissa, exponent = xp.frexp(x)
    return mantissa, exponent.astype(x.dtype)
