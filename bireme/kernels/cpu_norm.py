"""Batch norm in training on the CPU: separate sums over the pixels.

The native sums read channels-last memory once, forward (mean and variance) and backward. Without
the native library XLA sums over arrays whose last axis is the channels, so that it gives the images
the layout of the convolutions. The element-wise part stays with XLA, which fuses it with the
following activation or addition.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.lowering import keep_residual, residual_of
from bireme.core.op import Call
from bireme.host import jax_door
from bireme.host.arrays import Array
from bireme.kernels import native
from bireme.kernels.native.calling import Result, ffi_call, namespace
from bireme.ops import norm
from bireme.ops.nn_support import channel_shape


def _accepts(call: Call) -> bool:
    """Float32 images, or anything whose channels are last."""
    x = call.types[0]
    return (
        isinstance(x, Aval)
        and x.dtype is dt.float32
        and x.is_static
        and x.size > 0
        and (x.ndim == 4 or call.attrs["axis"] == x.ndim - 1)
        and all(c is None for c in call.casts[:5])
        and all(t is None or not isinstance(t, Aval) or t.dtype is dt.float32 for t in call.types)
    )


def _sums(name: str, call: Call, images: tuple[Any, ...], vectors: tuple[Any, ...]) -> Any:
    """Two vectors of one number per channel, from images laid out with the channels last."""
    axis, ndim = call.attrs["axis"], images[0].ndim
    last = (*norm._others(ndim, axis), axis)
    found = Result((images[0].shape[axis],))
    layouts = (*(last for _ in images), *((0,) for _ in vectors))
    return ffi_call(name, (found, found), input_layouts=layouts)(*images, *vectors)


class _Native:
    """Sums over the pixels by the native library."""

    name = "native_batch_norm"
    ready = staticmethod(native.available)
    direct = staticmethod(native.arrived)

    @staticmethod
    def moments(call: Call, x: Array) -> tuple[Any, Any]:
        """Mean and variance of every channel."""
        return _sums("bireme_channel_moments", call, (x,), ())

    @staticmethod
    def pulls(call: Call, grad: Array, x: Array, mean: Array) -> tuple[Any, Any]:
        """Of every channel the sum of `grad`, and of `grad` times the distances from the mean."""
        return _sums("bireme_channel_pulls", call, (grad, x), (mean,))


class _Rows:
    """The same by XLA."""

    name = "rows_batch_norm"
    ready = staticmethod(native.unavailable)
    direct = None

    @staticmethod
    def moments(call: Call, x: Array) -> tuple[Any, Any]:
        mean, variance = norm._moments(jax_door.jnp(), _rows(call, x), (0,))
        return mean[0], variance[0]

    @staticmethod
    def pulls(call: Call, grad: Array, x: Array, mean: Array) -> tuple[Any, Any]:
        grad = _rows(call, grad)
        return grad.sum(0), (grad * (_rows(call, x) - mean)).sum(0)


_Way = type[_Native] | type[_Rows]


def _rows(call: Call, x: Any) -> Any:
    """[pixels, channels]"""
    axis = call.attrs["axis"]
    return jax_door.jnp().moveaxis(x, axis, -1).reshape(-1, x.shape[axis])


def _statistics(way: _Way, call: Call, x: Any) -> tuple[Any, Any, Any]:
    """Mean, variance and 1 / deviation of the channels; made once per program."""
    found = residual_of(call, (x,))
    if found is None:
        mean, variance = way.moments(call, x)
        factor = norm._rsqrt(namespace(x), variance + call.attrs["epsilon"])
        found = mean, variance, factor
        keep_residual(call, (x,), found)
    return found


def _batch_norm(
    way: _Way,
    call: Call,
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    momentum: Any,
) -> Any:
    mean, variance, factor = _statistics(way, call, x)
    shape = channel_shape(x.ndim, call.attrs["axis"])
    scale = factor if weight is None else factor * weight
    out = x - mean.reshape(shape)
    out *= scale.reshape(shape)
    if bias is not None:
        out += bias.reshape(shape)
    xp = namespace(x)
    kept = norm.running_statistics(xp, mean, variance, running_mean, running_var, momentum)
    return out, *kept


def _batch_norm_grad(way: _Way, call: Call, *arrays: Any) -> Any:
    forward: Call = call.attrs["forward"]
    grad, (x, weight) = arrays[0], arrays[len(forward.outs) :]
    needs = call.attrs["needs"]
    mean, _, factor = _statistics(way, forward, x)
    total, slope = way.pulls(forward, grad, x, mean)
    by_input = {1: slope * factor, 2: total}
    if 0 in needs:
        shape = channel_shape(x.ndim, forward.attrs["axis"])
        count = x.size // mean.size
        scale = factor if weight is None else factor * weight
        centre, tilt = total / count, slope * factor * factor / count
        pull = x - mean.reshape(shape)
        pull *= tilt.reshape(shape)
        pull = grad - pull
        pull -= centre.reshape(shape)
        pull *= scale.reshape(shape)
        by_input[0] = pull
    return tuple(by_input[i] for i in needs)


for _way in (_Native, _Rows):
    kernel(
        "batch_norm_train",
        name=_way.name,
        platform="cpu",
        accepts=_accepts,
        ready=_way.ready,
        direct=_way.direct,
    )(partial(_batch_norm, _way))
    kernel(
        "batch_norm_train_grad",
        name=_way.name,
        platform="cpu",
        accepts=lambda call: call.types[0] is not None and _accepts(call.attrs["forward"]),
        ready=_way.ready,
        direct=_way.direct,
    )(partial(_batch_norm_grad, _way))
