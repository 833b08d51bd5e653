"""Normalisation: batch, layer, instance, group, root mean square, local response.

Statistics are taken in float32 where the data is half precision, and in two passes: the mean of
squares minus the square of the mean loses digits where the mean is large. Gradient rules make the
statistics again from the input instead of keeping them: inside one compiled step that is the same
expression twice, which XLA computes once, and across steps nothing extra stays in memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bireme.api.public import namespace
from bireme.core.aval import Aval, aval
from bireme.core.dtype import float32, float64
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.host.arrays import Array, Namespace
from bireme.ops.nn_support import channel_shape, need_float, pad_constant, wide

public = namespace("paddle.nn.functional")


def _moments(xp: Any, x: Any, axes: tuple[int, ...]) -> tuple[Any, Any]:
    """(mean, variance) over `axes`, which are kept."""
    mean = xp.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    return mean, xp.mean(centred * centred, axis=axes, keepdims=True)


def _rsqrt(xp: Any, x: Any) -> Any:
    return 1 / xp.sqrt(x)


def _normalized(xp: Any, x: Any, axes: tuple[int, ...], epsilon: float) -> tuple[Any, Any]:
    """(x with mean 0 and variance 1 over `axes`, the factor that made it so)."""
    mean, variance = _moments(xp, x, axes)
    factor = _rsqrt(xp, variance + epsilon)
    return (x - mean) * factor, factor


def _pull(xp: Any, grad: Any, unit: Any, factor: Any, axes: tuple[int, ...]) -> Any:
    """The input gradient of `_normalized` from that of its result."""
    mean = xp.mean(grad, axis=axes, keepdims=True)
    slope = xp.mean(grad * unit, axis=axes, keepdims=True)
    return factor * (grad - mean - unit * slope)


def _check_vector(what: str, x: Aval | None, size: Any) -> None:
    if x is not None and x.shape != (size,):
        raise ShapeMismatch(
            f"'{what}' must be a vector of {size} numbers, one per channel, not {list(x.shape)}"
        )


def _like_x(x: Aval, *rest: Any, **attrs: Any) -> Aval:
    return x


# --- batch --------------------------------------------------------------------------------------


def _batch_check(
    x: Aval,
    weight: Aval | None,
    bias: Aval | None,
    mean: Aval | None,
    variance: Aval | None,
    *rest: Any,
    axis: int = 1,
    **attrs: Any,
) -> None:
    need_float("x", x)
    if x.ndim < 2:
        raise ShapeMismatch(f"'x' must have at least 2 dimensions, not {x.ndim}")
    for what, v in (
        ("weight", weight),
        ("bias", bias),
        ("running_mean", mean),
        ("running_var", variance),
    ):
        _check_vector(what, v, x.shape[axis])


def _others(ndim: int, axis: int) -> tuple[int, ...]:
    return tuple([i for i in range(ndim) if i != axis])


def _affine(xp: Any, unit: Any, weight: Any, bias: Any, axis: int) -> Any:
    shape = channel_shape(unit.ndim, axis)
    if weight is not None:
        unit = unit * xp.reshape(weight, shape)
    return unit if bias is None else unit + xp.reshape(bias, shape)


def _affine_grads(xp: Any, grad: Any, unit: Any, axis: int, needs: Any) -> tuple[Any, Any]:
    """Gradients of weight and of bias."""
    axes = _others(grad.ndim, axis)
    grad_weight = xp.sum(grad * unit, axis=axes) if needs[1] else None
    return grad_weight, xp.sum(grad, axis=axes) if needs[2] else None


def _scaled(xp: Any, grad: Any, weight: Any, axis: int) -> Any:
    """`grad` times each channel's weight."""
    if weight is None:
        return grad
    return grad * xp.reshape(wide(xp, weight), channel_shape(grad.ndim, axis))


def _batch_vjp(
    xp: Any, grads: Any, x: Any, weight: Any, axis: int, epsilon: float, needs: Any
) -> tuple[Any, ...]:
    axes = _others(x.ndim, axis)
    unit, factor = _normalized(xp, wide(xp, x), axes, epsilon)
    return (
        *_batch_pull(xp, wide(xp, grads[0]), unit, factor, weight, axis, needs),
        None,
        None,
        None,
    )


def _batch_pull(
    xp: Any, grad: Any, unit: Any, factor: Any, weight: Any, axis: int, needs: Any
) -> tuple[Any, Any, Any]:
    """Gradients of x, weight and bias. A channel's weight is taken out of its sums, which are then
    those that weight and bias need, too."""
    grad_weight, grad_bias = _affine_grads(xp, grad, unit, axis, needs)
    grad_x = None
    if needs[0]:
        factor = _scaled(xp, factor, weight, axis)
        grad_x = _pull(xp, grad, unit, factor, _others(grad.ndim, axis))
    return grad_x, grad_weight, grad_bias


def _batch_infer(
    x: Aval,
    weight: Aval | None,
    bias: Aval | None,
    running_mean: Aval | None,
    running_var: Aval | None,
    momentum: Any,
    axis: int,
    epsilon: float,
) -> tuple[Aval, ...]:
    if running_mean is not None:
        kept = running_mean.dtype
    else:
        kept = float64 if x.dtype is float64 else float32
    stat = aval((x.shape[axis],), kept)
    return x, stat, stat


@op(
    name="batch_norm_train",
    inputs=("x", "weight", "bias", "running_mean", "running_var", "momentum"),
    vjp=_batch_vjp,
    infer=_batch_infer,
    check=_batch_check,
    usual=("tttttf",),
    carries=1,
)
def _batch_norm_train(
    xp, x, weight, bias, running_mean, running_var, momentum, axis=1, epsilon=1e-5
):
    """`x` normalised by its own statistics, and the running statistics after this batch."""
    mean, variance = _moments(xp, wide(xp, x), _others(x.ndim, axis))
    return batch_normed(
        xp, x, mean, variance, weight, bias, running_mean, running_var, momentum, axis, epsilon
    )


def batch_normed(
    xp: Namespace,
    x: Array,
    mean: Array,
    variance: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Any,
    running_var: Any,
    momentum: Array,
    axis: int,
    epsilon: float,
) -> tuple[Any, Any, Any]:
    """The results of `batch_norm_train` from the batch's statistics."""
    unit = (wide(xp, x) - mean) * _rsqrt(xp, variance + epsilon)
    out = _affine(xp, unit, wide(xp, weight), wide(xp, bias), axis).astype(x.dtype)
    mean, variance = xp.reshape(mean, (-1,)), xp.reshape(variance, (-1,))
    return out, *running_statistics(xp, mean, variance, running_mean, running_var, momentum)


def running_statistics(
    xp: Namespace, mean: Array, variance: Any, running_mean: Any, running_var: Any, momentum: Any
) -> tuple[Any, Any]:
    """The running statistics after a batch with these; where none are kept, the batch's."""
    if running_mean is None:
        return mean, variance
    keep = xp.asarray(momentum).astype(running_mean.dtype)
    return (
        running_mean * keep + mean.astype(running_mean.dtype) * (1 - keep),
        running_var * keep + variance.astype(running_var.dtype) * (1 - keep),
    )


def _fixed_vjp(
    xp: Any,
    grad: Any,
    x: Any,
    weight: Any,
    mean: Any,
    variance: Any,
    axis: int,
    epsilon: float,
    needs: Any,
) -> tuple[Any, ...]:
    shape = channel_shape(x.ndim, axis)
    factor = _rsqrt(xp, xp.reshape(wide(xp, variance), shape) + epsilon)
    unit = None
    if needs[1]:
        unit = (wide(xp, x) - xp.reshape(wide(xp, mean), shape)) * factor
    grad = wide(xp, grad)
    grad_weight, grad_bias = _affine_grads(xp, grad, unit, axis, needs)
    return _scaled(xp, grad, weight, axis) * factor, grad_weight, grad_bias, None, None


@op(
    name="batch_norm",
    inputs=("x", "weight", "bias", "mean", "variance"),
    vjp=_fixed_vjp,
    infer=_like_x,
    check=_batch_check,
)
def _batch_norm_fixed(xp, x, weight, bias, mean, variance, axis=1, epsilon=1e-5):
    """`x` normalised by given statistics: one multiplication and one addition per element."""
    scale = _rsqrt(xp, wide(xp, variance) + epsilon)
    if weight is not None:
        scale = scale * wide(xp, weight)
    shift = -wide(xp, mean) * scale
    if bias is not None:
        shift = shift + wide(xp, bias)
    shape = channel_shape(x.ndim, axis)
    out = wide(xp, x) * xp.reshape(scale, shape) + xp.reshape(shift, shape)
    return out.astype(x.dtype)


_CHANNEL_FIRST = ("NCHW", "NC", "NCL", "NCDHW")
_CHANNEL_LAST = ("NHWC", "NLC", "NDHWC")


def _channel_axis(function: str, x: Tensor, data_format: str) -> int:
    if data_format in _CHANNEL_FIRST:
        return 1
    if data_format in _CHANNEL_LAST:
        return x.ndim - 1
    allowed = ", ".join(map(repr, _CHANNEL_FIRST + _CHANNEL_LAST))
    raise InvalidArgument(
        f"[{function}] data_format must be one of {allowed}. Received: {data_format!r}"
    )


@public
def batch_norm(
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    data_format: str = "NCHW",
    use_global_stats: bool | None = None,
    name: str | None = None,
) -> Tensor:
    """`x` with mean 0 and variance 1 per channel, then scaled by weight and moved by bias.

    In training the batch's own statistics are used, and the running ones become
    momentum * running + (1 - momentum) * batch, in place. Otherwise the running statistics are
    used and stay. `use_global_stats` decides instead of `training` where it is not None: True
    takes the running statistics, False the batch's.
    """
    axis = 1 if data_format == "NCHW" else _channel_axis("batch_norm", x, data_format)
    if use_global_stats is None:
        use_global_stats = not training
    if use_global_stats:
        return _batch_norm_fixed(x, weight, bias, running_mean, running_var, axis, epsilon)
    out, mean, variance = _batch_norm_train(
        x, weight, bias, running_mean, running_var, float(momentum), axis, epsilon
    )
    if running_mean is not None:
        running_mean._put(mean._value)
        running_var._put(variance._value)
    return out


# --- layer and root mean square -----------------------------------------------------------------


def _layer_check(
    x: Aval, weight: Aval | None, bias: Aval | None, dims: int, epsilon: float
) -> None:
    need_float("x", x)
    size = math.prod(x.shape[x.ndim - dims :])
    for what, v in (("weight", weight), ("bias", bias)):
        if v is not None and math.prod(v.shape) != size:
            raise ShapeMismatch(
                f"'{what}' must have the {size} elements of the normalised dimensions "
                f"{list(x.shape[x.ndim - dims :])}, not shape {list(v.shape)}"
            )


def _flat(xp: Any, x: Any, dims: int) -> Any:
    """[rows, width] with the last `dims` dimensions in the width."""
    if x.ndim == 2 and dims == 1:
        return x
    width = math.prod(x.shape[x.ndim - dims :])
    rows = math.prod(x.shape[: x.ndim - dims])
    return xp.reshape(x, (rows, width))


def _layer_vjp(
    xp: Any, grad: Any, x: Any, weight: Any, dims: int, epsilon: float, types: Any, needs: Any
) -> tuple[Any, ...]:
    unit, factor = _normalized(xp, wide(xp, _flat(xp, x, dims)), (1,), epsilon)
    grad = wide(xp, _flat(xp, grad, dims))
    grad_weight = grad_bias = None
    if needs[1]:
        grad_weight = xp.reshape(xp.sum(grad * unit, axis=0), types[1].shape)
    if needs[2]:
        grad_bias = xp.reshape(xp.sum(grad, axis=0), types[2].shape)
    if weight is not None:
        grad = grad * xp.reshape(wide(xp, weight), (-1,))
    grad_x = xp.reshape(_pull(xp, grad, unit, factor, (1,)), x.shape) if needs[0] else None
    return grad_x, grad_weight, grad_bias


@op(
    name="layer_norm",
    inputs=("x", "weight", "bias"),
    vjp=_layer_vjp,
    infer=_like_x,
    check=_layer_check,
    amp="black",
)
def _layer_norm(xp, x, weight, bias, dims=1, epsilon=1e-5):
    out, _ = _normalized(xp, wide(xp, _flat(xp, x, dims)), (1,), epsilon)
    if weight is not None:
        out = out * xp.reshape(wide(xp, weight), (-1,))
    if bias is not None:
        out = out + xp.reshape(wide(xp, bias), (-1,))
    return xp.reshape(out.astype(x.dtype), x.shape)


def _normalized_dims(function: str, x: Tensor, normalized_shape: Any) -> int:
    shape = x._value.aval.shape
    if normalized_shape.__class__ is int:
        normalized_shape = (normalized_shape,)
    dims = len(normalized_shape)
    if not 0 < dims <= len(shape) or tuple(normalized_shape) != shape[len(shape) - dims :]:
        raise ShapeMismatch(
            f"[{function}] normalized_shape must be the last dimensions of x. Received: "
            f"normalized_shape={list(normalized_shape)}, x of shape {list(shape)}"
        )
    return dims


@public(also={"input": "x", "eps": "epsilon"})
def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> Tensor:
    """`x` with mean 0 and variance 1 over its last dimensions, scaled and moved."""
    return _layer_norm(
        x, weight, bias, _normalized_dims("layer_norm", x, normalized_shape), epsilon
    )


def _rms_check(x: Aval, weight: Aval | None, dims: int, epsilon: float) -> None:
    _layer_check(x, weight, None, dims, epsilon)


def _rms_unit(xp: Any, x: Any, epsilon: float) -> tuple[Any, Any]:
    factor = _rsqrt(xp, xp.mean(x * x, axis=1, keepdims=True) + epsilon)
    return x * factor, factor


def _rms_vjp(
    xp: Any, grad: Any, x: Any, weight: Any, dims: int, epsilon: float, types: Any, needs: Any
) -> tuple[Any, Any]:
    unit, factor = _rms_unit(xp, wide(xp, _flat(xp, x, dims)), epsilon)
    grad = wide(xp, _flat(xp, grad, dims))
    grad_weight = None
    if needs[1]:
        grad_weight = xp.reshape(xp.sum(grad * unit, axis=0), types[1].shape)
    if weight is not None:
        grad = grad * xp.reshape(wide(xp, weight), (-1,))
    slope = xp.mean(grad * unit, axis=1, keepdims=True)
    return xp.reshape(factor * (grad - unit * slope), x.shape), grad_weight


@op(
    name="rms_norm",
    inputs=("x", "weight"),
    vjp=_rms_vjp,
    infer=_like_x,
    check=_rms_check,
    amp="black",
)
def _rms_norm(xp, x, weight, dims=1, epsilon=1e-5):
    out, _ = _rms_unit(xp, wide(xp, _flat(xp, x, dims)), epsilon)
    if weight is not None:
        out = out * xp.reshape(wide(xp, weight), (-1,))
    return xp.reshape(out.astype(x.dtype), x.shape)


@public
def rms_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    eps: float = 1e-5,
    name: str | None = None,
) -> Tensor:
    """`input` divided by its root mean square over the last dimensions, scaled by weight."""
    return _rms_norm(input, weight, _normalized_dims("rms_norm", input, normalized_shape), eps)


# --- group and instance -------------------------------------------------------------------------
#
# Both normalise [N, groups, rest]; an instance is a group of one channel.


def _group_check(
    x: Aval, weight: Aval | None, bias: Aval | None, groups: int, epsilon: float, axis: int
) -> None:
    need_float("x", x)
    if x.ndim < 2:
        raise ShapeMismatch(f"'x' must have at least 2 dimensions, not {x.ndim}")
    channels = x.shape[axis]
    if groups and channels % groups != 0:
        raise ShapeMismatch(f"{channels} channels do not divide into {groups} groups")
    _check_vector("weight", weight, channels)
    _check_vector("bias", bias, channels)


def _grouped_unit(
    xp: Any, x: Any, groups: int, epsilon: float, axis: int
) -> tuple[Any, Any, tuple[Any, ...], tuple[int, ...]]:
    """(normalised, factor, the shape they have, the axes of one group); groups 0: one a channel."""
    channels = x.shape[axis]
    groups = groups or channels
    shape = (*x.shape[:axis], groups, channels // groups, *x.shape[axis + 1 :])
    axes = tuple([i for i in range(1, len(shape)) if i != axis])
    unit, factor = _normalized(xp, xp.reshape(x, shape), axes, epsilon)
    return unit, factor, shape, axes


def _group_vjp(
    xp: Any, grad: Any, x: Any, weight: Any, groups: int, epsilon: float, axis: int, needs: Any
) -> tuple[Any, ...]:
    unit, factor, shape, axes = _grouped_unit(xp, wide(xp, x), groups, epsilon, axis)
    grad = wide(xp, grad)
    grad_weight, grad_bias = _affine_grads(xp, grad, xp.reshape(unit, x.shape), axis, needs)
    grad_x = None
    if needs[0]:
        grad = _scaled(xp, grad, weight, axis)
        grad_x = xp.reshape(_pull(xp, xp.reshape(grad, shape), unit, factor, axes), x.shape)
    return grad_x, grad_weight, grad_bias


@op(
    name="group_norm",
    inputs=("x", "weight", "bias"),
    vjp=_group_vjp,
    infer=_like_x,
    check=_group_check,
    amp="black",
)
def _group_norm(xp, x, weight, bias, groups=0, epsilon=1e-5, axis=1):
    unit = _grouped_unit(xp, wide(xp, x), groups, epsilon, axis)[0]
    out = _affine(xp, xp.reshape(unit, x.shape), wide(xp, weight), wide(xp, bias), axis)
    return out.astype(x.dtype)


@public(also={"input": "x"})
def group_norm(
    x: Tensor,
    num_groups: int,
    epsilon: float = 1e-5,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Tensor:
    """`x` with mean 0 and variance 1 over every group of channels of every sample."""
    if num_groups < 1:
        raise InvalidArgument(f"[group_norm] num_groups must be positive. Received: {num_groups}")
    axis = 1 if data_format == "NCHW" else _channel_axis("group_norm", x, data_format)
    return _group_norm(x, weight, bias, num_groups, epsilon, axis)


@public
def instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.9,
    eps: float = 1e-5,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Tensor:
    """`x` with mean 0 and variance 1 over every channel of every sample.

    As in Paddle the statistics are always those of `x`: the running ones, momentum and
    use_input_stats are part of the signature and change nothing.
    """
    axis = 1 if data_format == "NCHW" else _channel_axis("instance_norm", x, data_format)
    return _group_norm(x, weight, bias, 0, eps, axis)


# --- local response -----------------------------------------------------------------------------


def _channel_means(xp: Any, x: Any, size: int, axis: int, flip: bool) -> Any:
    """Means over `size` neighbouring channels; `flip` mirrors the window (for the gradient)."""
    lo, hi = size // 2, (size - 1) // 2
    pairs = [(0, 0)] * x.ndim
    pairs[axis] = (hi, lo) if flip else (lo, hi)
    padded = pad_constant(xp, x, pairs, 0)
    n = x.shape[axis]
    before = (slice(None),) * axis
    total = padded[(*before, slice(0, n))]
    for i in range(1, size):
        total = total + padded[(*before, slice(i, i + n))]
    return total / size


def _response_vjp(
    xp: Any, grad: Any, x: Any, alpha: Any, beta: Any, k: Any, size: int, axis: int
) -> tuple[Any, ...]:
    base = k + alpha * _channel_means(xp, x * x, size, axis, False)
    power = base**-beta
    inner = _channel_means(xp, grad * x * power / base, size, axis, True)
    return grad * power - 2 * alpha * beta * x * inner, None, None, None


@op(
    name="local_response_norm",
    inputs=("x", "alpha", "beta", "k"),
    vjp=_response_vjp,
    infer=_like_x,
)
def _local_response_norm(xp, x, alpha, beta, k, size=5, axis=1):
    return x * (k + alpha * _channel_means(xp, x * x, size, axis, False)) ** -beta


@public
def local_response_norm(
    x: Tensor,
    size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Tensor:
    """x / (k + alpha * mean of squares over `size` neighbouring channels)^beta."""
    need_float("x", x)
    if x.ndim < 3:
        raise ShapeMismatch(
            f"[local_response_norm] x must have at least 3 dimensions. Received: shape {x.shape}"
        )
    axis = _channel_axis("local_response_norm", x, data_format)
    return _local_response_norm(x, float(alpha), float(beta), float(k), size, axis)
