"""Activation functions.

Slopes, bounds and temperatures are run-time inputs: changing one never recompiles.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bireme.api.in_place import in_place_of
from bireme.api.public import another_name, namespace
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, not_a_tensor
from bireme.core.lowering import computes_at_once
from bireme.core.op import op
from bireme.core.random import next_key
from bireme.core.tensor import Tensor
from bireme.core.views import assign
from bireme.host import jax_door
from bireme.host.arrays import Array, Namespace
from bireme.ops.math_unary import conj_of
from bireme.ops.nn_support import channel_shape, need_float, normal_axis, wide
from bireme.ops.random_bits import uniform

public = namespace("paddle.nn.functional")


def _float_input(x: Aval, *rest: Any, **attrs: Any) -> None:
    need_float("x", x)


def _like_x(x: Aval, *rest: Any, **attrs: Any) -> Aval:
    return x


def sigmoid_of(xp: Namespace, x: Array) -> Array:
    """1 / (1 + exp(-x)); the overflow of exp gives the right limit."""
    return 1 / (1 + xp.exp(-x))


# erf(x) = x P(x**2) / Q(x**2) up to 4, where float32 has 1: a fit to 3e-8, rounding apart.
_ERF_P = (1.1283791, 0.19353851, 0.053100852, 3.8830527e-3, 2.8455768e-4, 1.9868129e-6)
_ERF_Q = (1.0, 0.5048516, 0.11534727, 0.015206673, 1.1854971e-3, 3.7420056e-5)


def erf(xp: Namespace, x: Array) -> Array:
    """The error function, in the precision of `x`."""
    if xp is not np:
        return xp.erf(x) if computes_at_once(xp) else jax_door.jax().lax.erf(x)
    if x.dtype == np.float64:
        from scipy.special import erf as exact  # 0.2 s, which others need not wait for

        return exact(x)
    near = np.clip(wide(np, x), -4, 4)
    squared = near * near
    up, down = np.full_like(near, _ERF_P[-1]), np.full_like(near, _ERF_Q[-1])
    for p, q in zip(_ERF_P[-2::-1], _ERF_Q[-2::-1], strict=True):
        up *= squared
        up += np.float32(p)
        down *= squared
        down += np.float32(q)
    up *= near
    up /= down
    return np.clip(up, -1, 1, out=up).astype(x.dtype, copy=False)


# --- piecewise linear ---------------------------------------------------------------------------


@public(inplace=True)
@op(vjp=lambda xp, grad, out: (xp.where(out > 0, grad, 0),), infer="elementwise", takes="fc")
def relu(xp, x):
    """max(x, 0)."""
    return xp.maximum(x, 0)


@public
@op(
    vjp=lambda xp, grad, out: (xp.where((out > 0) & (out < 6), grad, 0),),
    infer="elementwise",
    takes="fc",
)
def relu6(xp, x):
    """min(max(x, 0), 6)."""
    return xp.minimum(xp.maximum(x, 0), 6)


@op(
    name="leaky_relu",
    vjp=lambda xp, grad, x, negative_slope: (xp.where(x < 0, grad * negative_slope, grad), None),
    infer=_like_x,
    check=_float_input,
)
def _leaky_relu(xp, x, negative_slope):
    return xp.where(x < 0, x * negative_slope, x)


@public(inplace=True)
def leaky_relu(x: Tensor, negative_slope: float = 0.01, name: str | None = None) -> Tensor:
    """x above zero, negative_slope * x below."""
    return _leaky_relu(x, float(negative_slope))


def _prelu_vjp(xp: Any, grad: Any, x: Any, weight: Any, axis: int, needs: Any) -> tuple[Any, Any]:
    slope = _prelu_slope(xp, x, weight, axis)
    positive = x > 0
    grad_weight = None
    if needs[1]:
        pull = wide(xp, xp.where(positive, 0, grad * x))
        if slope.ndim == 0:
            grad_weight = xp.reshape(xp.sum(pull), weight.shape)
        else:
            others = tuple([i for i in range(x.ndim) if i != axis])
            grad_weight = xp.reshape(xp.sum(pull, axis=others), weight.shape)
    return xp.where(positive, grad, grad * slope), grad_weight


def _prelu_slope(xp: Any, x: Any, weight: Any, axis: int) -> Any:
    if weight.size == 1:
        return xp.reshape(weight, ())
    return xp.reshape(weight, channel_shape(x.ndim, axis))


@op(name="prelu", inputs=("x", "weight"), vjp=_prelu_vjp, infer=_like_x)
def _prelu(xp, x, weight, axis=1):
    return xp.where(x > 0, x, x * _prelu_slope(xp, x, weight, axis))


_CHANNEL_FIRST = ("NC", "NCL", "NCHW", "NCDHW")
_CHANNEL_LAST = ("NLC", "NHWC", "NDHWC")


@public(takes="fc")
def prelu(x: Tensor, weight: Tensor, data_format: str = "NCHW", name: str | None = None) -> Tensor:
    """x above zero, weight * x below; `weight` is one number or one per channel."""
    if not isinstance(x, Tensor):
        raise not_a_tensor("prelu", "x", x)
    axis = 1
    size = weight.size
    if size != 1:
        if data_format in _CHANNEL_LAST:
            axis = x.ndim - 1
        elif data_format not in _CHANNEL_FIRST:
            raise InvalidArgument(
                f"[prelu] data_format must be one of {_CHANNEL_FIRST + _CHANNEL_LAST}. "
                f"Received: {data_format!r}"
            )
        if x.ndim < 2 or x._value.aval.shape[axis] != size:
            raise ShapeMismatch(
                f"[prelu] weight must have one element, or one per channel of x. Received: weight "
                f"with {size} elements, x of shape {x.shape} in {data_format}"
            )
    return _prelu(x, weight, axis)


def _between(xp: Any, grad: Any, x: Any, min: Any, max: Any) -> tuple[Any, ...]:
    return xp.where((x > min) & (x < max), grad, 0), None, None


@op(name="hardtanh", vjp=_between, infer=_like_x, check=_float_input)
def _hardtanh(xp, x, min, max):
    return xp.minimum(xp.maximum(x, min), max)


@public(inplace=True)
def hardtanh(x: Tensor, min: float = -1.0, max: float = 1.0, name: str | None = None) -> Tensor:
    """x limited to [min, max]."""
    return _hardtanh(x, float(min), float(max))


def _hardsigmoid_vjp(xp: Any, grad: Any, out: Any, slope: Any) -> tuple[Any, ...]:
    return xp.where((out > 0) & (out < 1), grad * slope, 0), None, None


@op(name="hardsigmoid", vjp=_hardsigmoid_vjp, infer=_like_x, check=_float_input)
def _hardsigmoid(xp, x, slope, offset):
    return xp.minimum(xp.maximum(x * slope + offset, 0), 1)


@public
def hardsigmoid(
    x: Tensor, slope: float = 0.1666667, offset: float = 0.5, name: str | None = None
) -> Tensor:
    """slope * x + offset limited to [0, 1]."""
    return _hardsigmoid(x, float(slope), float(offset))


def _hardswish_vjp(xp: Any, grad: Any, x: Any) -> tuple[Any]:
    slope = xp.where(x < 3, x / 3 + 0.5, 1.0)
    return (xp.where(x > -3, grad * slope, 0),)


@public
@op(vjp=_hardswish_vjp, infer="elementwise", check=_float_input)
def hardswish(xp, x):
    """x * min(max(x + 3, 0), 6) / 6."""
    return x * xp.minimum(xp.maximum(x + 3, 0), 6) / 6


def _shrink_vjp(xp: Any, grad: Any, x: Any, threshold: Any) -> tuple[Any, ...]:
    return xp.where((x > threshold) | (x < -threshold), grad, 0), None


def _outside(x: Any, threshold: Any) -> Any:
    return (x >= threshold) | (x <= -threshold)


@op(
    name="hardshrink",
    vjp=lambda xp, grad, x, threshold: (xp.where(_outside(x, threshold), grad, 0), None),
    infer=_like_x,
    check=_float_input,
)
def _hardshrink(xp, x, threshold):
    return xp.where(_outside(x, threshold), x, 0)


@public(also={"input": "x", "lambd": "threshold"})
def hardshrink(x: Tensor, threshold: float = 0.5, name: str | None = None) -> Tensor:
    """x where |x| >= threshold, else 0."""
    return _hardshrink(x, float(threshold))


@op(name="softshrink", vjp=_shrink_vjp, infer=_like_x, check=_float_input)
def _softshrink(xp, x, threshold):
    return xp.where(x > threshold, x - threshold, xp.where(x < -threshold, x + threshold, 0))


@public(also={"input": "x", "lambd": "threshold"})
def softshrink(x: Tensor, threshold: float = 0.5, name: str | None = None) -> Tensor:
    """x moved towards 0 by threshold, 0 in between."""
    if threshold < 0:
        raise InvalidArgument(f"[softshrink] threshold must not be negative. Received: {threshold}")
    return _softshrink(x, float(threshold))


@op(
    name="thresholded_relu",
    vjp=lambda xp, grad, x, threshold: (xp.where(x > threshold, grad, 0), None, None),
    infer=_like_x,
    check=_float_input,
)
def _thresholded_relu(xp, x, threshold, value):
    return xp.where(x > threshold, x, value)


@public(inplace=True)
def thresholded_relu(
    x: Tensor, threshold: float = 1.0, value: float = 0.0, name: str | None = None
) -> Tensor:
    """x above threshold, value elsewhere."""
    return _thresholded_relu(x, float(threshold), float(value))


def _rrelu_slopes(xp: Any, x: Any, lower: Any, upper: Any, seed: Any, offset: Any) -> Any:
    draws = uniform(xp, seed, offset, x.shape, wide(xp, xp.zeros((), x.dtype)).dtype)
    return (lower + (upper - lower) * draws).astype(x.dtype)


def _rrelu_vjp(
    xp: Any, grad: Any, x: Any, lower: Any, upper: Any, seed: Any, offset: Any
) -> tuple[Any, ...]:
    slopes = _rrelu_slopes(xp, x, lower, upper, seed, offset)
    return xp.where(x >= 0, grad, grad * slopes), None, None, None, None


@op(name="rrelu", vjp=_rrelu_vjp, infer=_like_x, check=_float_input)
def _rrelu(xp, x, lower, upper, seed, offset):
    return xp.where(x >= 0, x, x * _rrelu_slopes(xp, x, lower, upper, seed, offset))


@public
def rrelu(
    x: Tensor,
    lower: float = 1.0 / 8.0,
    upper: float = 1.0 / 3.0,
    training: bool = True,
    name: str | None = None,
) -> Tensor:
    """x above zero; below, x times a slope drawn from [lower, upper] (their mean in inference)."""
    if not 0 <= lower <= upper <= 1:
        raise InvalidArgument(
            f"[rrelu] 0 <= lower <= upper <= 1 must hold. Received: lower={lower}, upper={upper}"
        )
    if not training:
        return _leaky_relu(x, (lower + upper) / 2.0)
    return _rrelu(x, float(lower), float(upper), *next_key())


# --- smooth -------------------------------------------------------------------------------------

_SQRT_HALF = math.sqrt(0.5)
_PDF_PEAK = 1 / math.sqrt(2 * math.pi)
_TANH_SCALE = math.sqrt(2 / math.pi)


def _gelu_vjp(xp: Any, grad: Any, x: Any, approximate: bool) -> tuple[Any]:
    w = wide(xp, x)
    if approximate:
        square = w * w
        s = sigmoid_of(xp, 2 * _TANH_SCALE * w * (1 + 0.044715 * square))
        slope = s + w * s * (1 - s) * (2 * _TANH_SCALE) * (1 + 0.134145 * square)
    else:
        slope = 0.5 * (1 + erf(xp, w * _SQRT_HALF)) + w * (_PDF_PEAK * xp.exp(-0.5 * w * w))
    return (grad * slope,)


@op(name="gelu", vjp=_gelu_vjp, infer="elementwise", check=_float_input)
def _gelu(xp, x, approximate=False):
    """x * Phi(x) with the normal distribution's Phi, or its approximation by tanh."""
    w = wide(xp, x)
    if approximate:  # (1 + tanh(u)) / 2 is sigmoid(2u), which costs a GPU half as much
        out = w * sigmoid_of(xp, 2 * _TANH_SCALE * w * (1 + 0.044715 * w * w))
    else:
        out = 0.5 * w * (1 + erf(xp, w * _SQRT_HALF))
    return out.astype(x.dtype)


_APPROXIMATE = {"none": False, "tanh": True}


@public(also={"input": "x"})
def gelu(x: Tensor, approximate: bool | str = False, name: str | None = None) -> Tensor:
    """x * Phi(x) with the normal distribution's Phi; True or "tanh": its approximation by tanh."""
    if approximate.__class__ is str:
        if approximate not in _APPROXIMATE:
            raise InvalidArgument(
                f"[gelu] approximate must be a bool, 'none' or 'tanh'. Received: {approximate!r}"
            )
        approximate = _APPROXIMATE[approximate]
    return _gelu(x, approximate)


def _silu_vjp(xp: Any, grad: Any, x: Any) -> tuple[Any]:
    s = sigmoid_of(xp, x)
    return (grad * conj_of(xp, s * (1 + x * (1 - s))),)


def _continuous_input(x: Aval) -> None:
    if not x.dtype.is_complex:
        need_float("x", x)


@op(name="silu", vjp=_silu_vjp, infer="elementwise", check=_continuous_input)
def _silu(xp, x):
    return x * sigmoid_of(xp, x)


@public(also={"input": "x"})
def silu(x: Tensor, inplace: bool = False, name: str | None = None) -> Tensor:
    """x * sigmoid(x)."""
    return assign(x, _silu(x), "silu") if inplace else _silu(x)


@public
def swish(x: Tensor, name: str | None = None) -> Tensor:
    """x * sigmoid(x); another name of silu."""
    return _silu(x)


def _swiglu_vjp(xp: Any, grad: Any, x: Any, y: Any) -> tuple[Any, Any]:
    x, y = conj_of(xp, x), conj_of(xp, y)
    s = sigmoid_of(xp, x)
    return grad * y * s * (1 + x * (1 - s)), grad * x * s


def _same_shapes(x: Aval, y: Aval) -> None:
    if x.shape != y.shape:
        raise ShapeMismatch("x and y must have one shape")


@op(name="swiglu", vjp=_swiglu_vjp, infer="elementwise", takes="fc", check=_same_shapes)
def _swiglu(xp, x, y):
    return x * sigmoid_of(xp, x) * y


def _halves(xp: Any, x: Any, axis: int) -> tuple[Any, Any]:
    return tuple(xp.split(x, 2, axis=axis))


def _half_infer(x: Aval, axis: int) -> Aval:
    shape = list(x.shape)
    shape[axis] = shape[axis] // 2
    return aval(tuple(shape), x.dtype)


def _half_check(x: Aval, axis: int) -> None:
    need_float("x", x)
    if x.shape[normal_axis(axis, x.ndim)] % 2 != 0:
        raise ShapeMismatch("the dimension to be halved must be even")


def _swiglu_packed_vjp(xp: Any, grad: Any, x: Any, axis: int) -> tuple[Any]:
    a, b = _halves(xp, x, axis)
    return (xp.concatenate(_swiglu_vjp(xp, grad, a, b), axis=axis),)


@op(name="swiglu_packed", vjp=_swiglu_packed_vjp, infer=_half_infer, check=_half_check)
def _swiglu_packed(xp, x, axis=-1):
    a, b = _halves(xp, x, axis)
    return a * sigmoid_of(xp, a) * b


@public
def swiglu(x: Tensor, y: Tensor | None = None, name: str | None = None) -> Tensor:
    """silu(x) * y; without `y` the last dimension of `x` holds both."""
    return _swiglu_packed(x) if y is None else _swiglu(x, y)


def _glu_vjp(xp: Any, grad: Any, x: Any, axis: int) -> tuple[Any]:
    a, b = _halves(xp, x, axis)
    s = sigmoid_of(xp, b)
    return (xp.concatenate((grad * s, grad * a * s * (1 - s)), axis=axis),)


@public(also={"input": "x", "dim": "axis"})
@op(name="glu", vjp=_glu_vjp, infer=_half_infer, check=_half_check)
def glu(xp, x, axis=-1):
    """a * sigmoid(b) where a and b are the halves of x along axis."""
    a, b = _halves(xp, x, axis)
    return a * sigmoid_of(xp, b)


@op(
    name="elu",
    vjp=lambda xp, grad, x, alpha: (xp.where(x > 0, grad, grad * alpha * xp.exp(x)), None),
    infer=_like_x,
    check=_float_input,
)
def _elu(xp, x, alpha):
    return xp.where(x > 0, x, alpha * xp.expm1(x))


@public
def elu(x: Tensor, alpha: float = 1.0, name: str | None = None) -> Tensor:
    """x above zero, alpha * (exp(x) - 1) below."""
    return _elu(x, float(alpha))


@public
@in_place_of(elu)
def elu_(x: Tensor, alpha: float = 1.0, name: str | None = None) -> Tensor:
    """`elu` in place, which needs an alpha from 0: its gradient is taken from the result."""
    if alpha < 0:
        raise InvalidArgument(f"[elu_] alpha must be 0 or more; use elu. Received: {alpha}")
    return assign(x, elu(x, alpha), "elu_")


@op(
    name="celu",
    vjp=lambda xp, grad, x, alpha: (xp.where(x > 0, grad, grad * xp.exp(x / alpha)), None),
    infer=_like_x,
    check=_float_input,
)
def _celu(xp, x, alpha):
    return xp.where(x > 0, x, alpha * xp.expm1(x / alpha))


@public
def celu(x: Tensor, alpha: float = 1.0, name: str | None = None) -> Tensor:
    """x above zero, alpha * (exp(x / alpha) - 1) below."""
    if alpha == 0:
        raise InvalidArgument("[celu] alpha must not be zero. Received: 0")
    return _celu(x, float(alpha))


@op(
    name="selu",
    vjp=lambda xp, grad, x, scale, alpha: (
        xp.where(x > 0, grad * scale, grad * (scale * alpha) * xp.exp(x)),
        None,
        None,
    ),
    infer=_like_x,
    check=_float_input,
)
def _selu(xp, x, scale, alpha):
    return scale * xp.where(x > 0, x, alpha * xp.expm1(x))


@public
def selu(
    x: Tensor,
    scale: float = 1.0507009873554805,
    alpha: float = 1.6732632423543772,
    name: str | None = None,
) -> Tensor:
    """scale * x above zero, scale * alpha * (exp(x) - 1) below."""
    if scale <= 1.0:
        raise InvalidArgument(f"[selu] scale must be greater than 1. Received: {scale}")
    if alpha < 0:
        raise InvalidArgument(f"[selu] alpha must not be negative. Received: {alpha}")
    return _selu(x, float(scale), float(alpha))


def _softplus_vjp(xp: Any, grad: Any, x: Any, beta: Any, threshold: Any) -> tuple[Any, ...]:
    scaled = x * beta
    past = xp.real(scaled) > xp.real(threshold)
    return xp.where(past, grad, grad * conj_of(xp, sigmoid_of(xp, scaled))), None, None


@op(name="softplus", vjp=_softplus_vjp, infer=_like_x, takes={"x": "fc"})
def _softplus(xp, x, beta, threshold):
    scaled = x * beta
    return xp.where(xp.real(scaled) > xp.real(threshold), x, softplus_of(xp, scaled) / beta)


def softplus_of(xp: Namespace, x: Array) -> Array:
    """log(1 + exp(x)) without overflow; of complex numbers as it stands."""
    if x.dtype.kind == "c":
        return xp.log(1 + xp.exp(x))
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))


@public(also={"input": "x"})
def softplus(x: Tensor, beta: float = 1, threshold: float = 20, name: str | None = None) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x passes threshold."""
    return _softplus(x, float(beta), float(threshold))


@public(also={"input": "x"})
@op(
    vjp=lambda xp, grad, x: (grad * conj_of(xp, sigmoid_of(xp, -x)),),
    infer="elementwise",
    takes="fc",
)
def log_sigmoid(xp, x):
    """log(sigmoid(x)) without overflow."""
    return -softplus_of(xp, -x)


logsigmoid = another_name("logsigmoid", log_sigmoid)


def _mish_vjp(xp: Any, grad: Any, x: Any) -> tuple[Any]:
    t = xp.tanh(softplus_of(xp, x))
    return (grad * (t + x * (1 - t * t) * sigmoid_of(xp, x)),)


@public
@op(vjp=_mish_vjp, infer="elementwise", check=_float_input)
def mish(xp, x):
    """x * tanh(softplus(x))."""
    return x * xp.tanh(softplus_of(xp, x))


def _softsign_vjp(xp: Any, grad: Any, x: Any) -> tuple[Any]:
    size = xp.abs(x)
    if x.dtype.kind != "c":
        return (grad / xp.square(1 + size),)
    # x / (1 + |x|) is not analytic: the part of the gradient along x shrinks once more.
    unit = x / xp.where(size == 0, xp.ones_like(size), size)
    along = unit * xp.real(grad * xp.conj(unit))
    return ((grad - along * (size / (1 + size))) / (1 + size),)


@public
@op(vjp=_softsign_vjp, infer="elementwise", takes="fc")
def softsign(xp, x):
    """x / (1 + |x|)."""
    return x / (1 + xp.abs(x))


@public
@op(
    vjp=lambda xp, grad, x: (grad * xp.square(xp.tanh(x)),),
    infer="elementwise",
    check=_float_input,
)
def tanhshrink(xp, x):
    """x - tanh(x)."""
    return x - xp.tanh(x)
