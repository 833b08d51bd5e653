"""Softmax and the other activations that work along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.api.in_place import in_place_of
from bireme.api.public import namespace
from bireme.api.types import DTypeLike
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.random import next_key
from bireme.core.tensor import Tensor
from bireme.core.views import assign
from bireme.host.arrays import Array, Namespace
from bireme.ops.nn_support import channel_shape, need_float, normal_axis, wide
from bireme.ops.random_bits import bits

public = namespace("paddle.nn.functional")


def _axis_check(x: Aval, axis: int, dtype: Any) -> None:
    if dtype is None:
        need_float("x", x)
    normal_axis(axis, max(x.ndim, 1))


def _cast_infer(x: Aval, axis: int, dtype: Any) -> Aval:
    return x if dtype is None else aval(x.shape, dtype)


def softmax_of(xp: Namespace, x: Array, axis: int) -> Array:
    if x.ndim == 0:
        return xp.ones_like(x)
    if 0 in x.shape:
        return x
    e = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return e / xp.sum(e, axis=axis, keepdims=True)


def log_softmax_of(xp: Namespace, x: Array, axis: int) -> Array:
    if x.ndim == 0:
        return xp.zeros_like(x)
    if 0 in x.shape:
        return x
    shifted = x - xp.max(x, axis=axis, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=axis, keepdims=True))


def _softmax_vjp(xp: Any, grad: Any, out: Any, axis: int) -> tuple[Any]:
    if out.ndim == 0:
        return (xp.zeros_like(out),)
    return (out * (grad - xp.sum(grad * out, axis=axis, keepdims=True)),)


@op(
    name="softmax",
    inputs=("x",),
    promote="binary",  # a Python number has the default dtype
    vjp=_softmax_vjp,
    infer=_cast_infer,
    check=_axis_check,
    amp="black",
)
def _softmax(xp, x, axis=-1, dtype=None):
    if dtype is not None:
        x = x.astype(dtype.numpy)
    return softmax_of(xp, wide(xp, x), axis).astype(x.dtype)


@public(also={"input": "x", "dim": "axis"}, out=True)
def softmax(
    x: Tensor,
    axis: int = -1,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """exp(x) divided by its sum along `axis`; computed in `dtype` if one is given."""
    return _softmax(x, axis, _computed_in("softmax", dtype))


def _computed_in(name: str, dtype: DTypeLike | None) -> dt.DType | None:
    """The floating type to compute in, None for that of x."""
    want = None if dtype is None else dt.as_dtype(dtype)
    if want is not None and not want.is_floating:
        raise TypeMismatch(f"[{name}] dtype must be a floating type. Received: {want.name}")
    return want


def _log_softmax_vjp(xp: Any, grad: Any, out: Any, axis: int) -> tuple[Any]:
    if out.ndim == 0:
        return (xp.zeros_like(out),)
    return (grad - xp.exp(out) * xp.sum(grad, axis=axis, keepdims=True),)


@op(
    name="log_softmax",
    inputs=("x",),
    promote="binary",  # a Python number has the default dtype
    vjp=_log_softmax_vjp,
    infer=_cast_infer,
    check=_axis_check,
    amp="black",
)
def _log_softmax(xp, x, axis=-1, dtype=None):
    if dtype is not None:
        x = x.astype(dtype.numpy)
    return log_softmax_of(xp, wide(xp, x), axis).astype(x.dtype)


@public
def log_softmax(
    x: Tensor, axis: int = -1, dtype: DTypeLike | None = None, name: str | None = None
) -> Tensor:
    """log(softmax(x)) along `axis`, without overflow."""
    return _log_softmax(x, axis, _computed_in("log_softmax", dtype))


@public
@in_place_of(softmax)
def softmax_(
    x: Tensor, axis: int = -1, dtype: DTypeLike | None = None, name: str | None = None
) -> Tensor:
    """`softmax` in place."""
    return assign(x, softmax(x, axis, dtype), "softmax_")


def _gumbel_vjp(xp: Any, grads: Any, out: Any, temperature: Any, axis: int) -> tuple[Any, ...]:
    # The hard sample passes its gradient straight through to the soft one.
    soft = out[1]
    grad = grads[0] + grads[1]
    pull = soft * (grad - xp.sum(grad * soft, axis=axis, keepdims=True)) / temperature
    return pull, None, None, None


@op(
    name="gumbel_softmax",
    inputs=("x", "temperature", "seed", "offset"),
    vjp=_gumbel_vjp,
    infer=lambda x, temperature, seed, offset, hard, axis: (x, x),
    check=lambda x, *rest, **attrs: need_float("x", x),
    amp="black",
)
def _gumbel_softmax(xp, x, temperature, seed, offset, hard=False, axis=-1):
    # 24 bits and half a step: never 0 or 1, so both logarithms are finite.
    draws = (bits(xp, seed, offset, x.shape) >> np.uint32(8)).astype(np.float32)
    noise = -xp.log(-xp.log((draws + 0.5) * np.float32(2.0**-24)))
    soft = softmax_of(xp, (x + noise.astype(x.dtype)) / temperature, axis)
    if not hard:
        return soft, soft
    first = xp.expand_dims(xp.argmax(soft, axis=axis), axis)
    places = xp.reshape(xp.arange(x.shape[axis]), channel_shape(x.ndim, axis % x.ndim))
    return (places == first).astype(x.dtype), soft


@public
def gumbel_softmax(
    x: Tensor,
    temperature: float = 1.0,
    hard: bool = False,
    axis: int = -1,
    name: str | None = None,
) -> Tensor:
    """A sample of the Gumbel-softmax distribution with logits `x`; one-hot if `hard`."""
    if not temperature > 0:
        raise InvalidArgument(
            f"[gumbel_softmax] temperature must be positive. Received: {temperature}"
        )
    return _gumbel_softmax(x, float(temperature), *next_key(), hard, axis)[0]


def _maxout_infer(x: Aval, groups: int, axis: int) -> Aval:
    shape = list(x.shape)
    shape[axis] = shape[axis] // groups
    return aval(tuple(shape), x.dtype)


def _maxout_check(x: Aval, groups: int, axis: int) -> None:
    if groups < 1 or x.shape[normal_axis(axis, x.ndim)] % groups != 0:
        raise ShapeMismatch(
            f"the {x.shape[axis]} channels on axis {axis} must divide into groups of {groups}"
        )


def _grouped(xp: Any, x: Any, groups: int, axis: int) -> Any:
    axis %= x.ndim
    shape = (*x.shape[:axis], x.shape[axis] // groups, groups, *x.shape[axis + 1 :])
    return xp.reshape(x, shape)


def _maxout_vjp(xp: Any, grad: Any, x: Any, out: Any, groups: int, axis: int) -> tuple[Any]:
    axis %= x.ndim
    peak = _grouped(xp, x, groups, axis) == xp.expand_dims(out, axis + 1)
    # Of equal elements the first one gets the gradient, as in Paddle.
    first = peak & (xp.cumsum(peak, axis=axis + 1) == 1)
    return (xp.reshape(xp.where(first, xp.expand_dims(grad, axis + 1), 0), x.shape),)


@public
@op(
    name="maxout",
    inputs=("x",),
    vjp=_maxout_vjp,
    infer=_maxout_infer,
    check=_maxout_check,
    takes="fc",
)
def maxout(xp, x, groups=1, axis=1):
    """The maximum of every `groups` neighbouring channels."""
    axis %= x.ndim
    return xp.max(_grouped(xp, x, groups, axis), axis=axis + 1)
