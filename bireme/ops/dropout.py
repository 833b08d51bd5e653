"""Dropout in its forms.

A mask is a function of a key (seed, offset) that is drawn when the call is recorded. The
probability and the key are run-time inputs, so no step recompiles; the backward pass makes the
mask again from the key, so no mask is ever kept in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.api.public import namespace
from bireme.core.aval import Aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.random import next_key
from bireme.core.tensor import Tensor
from bireme.core.views import assign
from bireme.host.arrays import Array, Namespace
from bireme.ops.nn_support import channel_last, one_of
from bireme.ops.random_bits import bits

public = namespace("paddle.nn.functional")

_WORD = 4294967296.0  # 2^32: a draw below p * 2^32 drops its element


def kept(xp: Namespace, threshold: Any, seed: Any, offset: Any, shape: tuple[Any, ...]) -> Array:
    """Which elements stay: booleans of `shape`, a function of the key."""
    return bits(xp, seed, offset, shape) >= xp.asarray(threshold).astype(np.uint32)


def drop_threshold(p: float) -> int:
    """The draw, of 2^32, from which on an element stays."""
    return min(int(p * _WORD), 4294967295)


def _mask_shape(shape: tuple[Any, ...], axis: tuple[int, ...] | None) -> tuple[Any, ...]:
    if axis is None:
        return shape
    return tuple([d if i in axis else 1 for i, d in enumerate(shape)])


def _same_type(x: Aval, *rest: Any, **attrs: Any) -> Aval:
    return x


def _dropout_vjp(
    xp: Any,
    grad: Any,
    threshold: Any,
    scale: Any,
    seed: Any,
    offset: Any,
    axis: tuple[int, ...] | None,
) -> tuple[Any, ...]:
    keep = kept(xp, threshold, seed, offset, _mask_shape(grad.shape, axis))
    return xp.where(keep, grad * scale, xp.zeros((), grad.dtype)), None, None, None, None


@op(
    name="dropout",
    inputs=("x", "threshold", "scale", "seed", "offset"),
    vjp=_dropout_vjp,
    infer=_same_type,
    usual=("tifii",),
)
def _dropout(xp, x, threshold, scale, seed, offset, axis=None):
    """`x * scale` where a draw reaches `threshold`, zero elsewhere."""
    keep = kept(xp, threshold, seed, offset, _mask_shape(x.shape, axis))
    return xp.where(keep, x * scale, xp.zeros((), x.dtype))


def _scaled_vjp(xp: Any, grad: Any, scale: Any) -> tuple[Any, ...]:
    return grad * scale, None


@op(vjp=_scaled_vjp, infer=_same_type)
def _dropout_scaled(xp, x, scale):
    return x * scale


def _probability(function: str, p: Any) -> float:
    try:
        p = float(p)
    except (TypeError, ValueError):
        raise TypeMismatch(
            f"[{function}] p must be a number. Received: {type(p).__name__} {p!r}"
        ) from None
    if not 0.0 <= p <= 1.0:
        raise InvalidArgument(f"[{function}] p must be in [0, 1]. Received: {p}")
    return p


@public(also={"input": "x"})
def dropout(
    x: Tensor,
    p: float = 0.5,
    axis: int | Sequence[int] | None = None,
    training: bool = True,
    inplace: bool = False,
    mode: str = "upscale_in_train",
    name: str | None = None,
) -> Tensor:
    """Set elements to zero with probability `p`.

    'upscale_in_train' divides the rest by 1 - p while training; 'downscale_in_infer' multiplies
    by 1 - p when not training. `axis` names the axes along which the mask varies.
    """
    if p.__class__ is not float or not 0.0 <= p <= 1.0:
        p = _probability("dropout", p)
    upscale = mode == "upscale_in_train"
    if not upscale:
        one_of("dropout", "mode", mode, ("upscale_in_train", "downscale_in_infer"))
    if not training:
        return x if upscale else _dropout_scaled(x, 1.0 - p)
    if p == 0.0:
        return x
    if isinstance(x, Tensor) and not x.dtype.is_floating:  # 1 / (1 - p) would be cut off
        raise TypeMismatch(
            f"[dropout] x must be a floating tensor; write x.astype('float32'). Received: "
            f"{x.dtype.name}"
        )
    if axis is not None:
        axis = _axes(x, axis)
    if p == 1.0 and not upscale:
        return _dropped_whole(x, inplace)
    scale = (0.0 if p == 1.0 else 1.0 / (1.0 - p)) if upscale else 1.0
    seed, offset = next_key()
    made = _dropout(x, drop_threshold(p), scale, seed, offset, axis)
    return assign(x, made, "dropout") if inplace else made


def _dropped_whole(x: Tensor, inplace: bool) -> Tensor:
    """Zeros in training and in testing: what 'downscale_in_infer' makes of p = 1."""
    made = _dropout_scaled(x, 0.0)
    return assign(x, made, "dropout") if inplace else made


def _axes(x: Tensor, axis: int | Sequence[int]) -> tuple[int, ...]:
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    ndim = x.ndim
    for a in axes:
        if not 0 <= a < ndim:
            raise InvalidArgument(
                f"[dropout] axis must be in [0, {ndim - 1}] for a tensor of {ndim} dimensions. "
                f"Received: {a}"
            )
    return axes


@public
def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Set whole channels of [N, C, L] (or [C, L]) to zero with probability `p`."""
    return dropout(input, p, (0, 1) if input.ndim == 3 else (0,), training, inplace)


def _check_rank(name: str, x: Tensor, rank: int) -> None:
    if isinstance(x, Tensor) and x.ndim != rank:
        raise ShapeMismatch(f"[{name}] x must have {rank} dimensions. Received: shape {x.shape}")


@public
def dropout2d(
    x: Tensor,
    p: float = 0.5,
    training: bool = True,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Tensor:
    """Set whole channels of [N, C, H, W] to zero with probability `p`."""
    _check_rank("dropout2d", x, 4)
    last = channel_last("dropout2d", data_format, ("NCHW",), ("NHWC",))
    return dropout(x, p, (0, 3) if last else (0, 1), training)


@public
def dropout3d(
    x: Tensor,
    p: float = 0.5,
    training: bool = True,
    data_format: str = "NCDHW",
    name: str | None = None,
) -> Tensor:
    """Set whole channels of [N, C, D, H, W] to zero with probability `p`."""
    _check_rank("dropout3d", x, 5)
    last = channel_last("dropout3d", data_format, ("NCDHW",), ("NDHWC",))
    return dropout(x, p, (0, 4) if last else (0, 1), training)


_SELU_FLOOR = -1.0507009873554805 * 1.6732632423543772


def _alpha_vjp(
    xp: Any, grad: Any, threshold: Any, a: Any, seed: Any, offset: Any, per_channel: bool
) -> tuple[Any, ...]:
    keep = kept(xp, threshold, seed, offset, _alpha_shape(grad.shape, per_channel))
    return xp.where(keep, grad * a, xp.zeros((), grad.dtype)), None, None, None, None, None


def _alpha_shape(shape: tuple[Any, ...], per_channel: bool) -> tuple[Any, ...]:
    return (*shape[:2], *(1 for _ in shape[2:])) if per_channel else shape


@op(
    name="alpha_dropout",
    inputs=("x", "threshold", "a", "b", "seed", "offset"),
    vjp=_alpha_vjp,
    infer=_same_type,
)
def _alpha_dropout(xp, x, threshold, a, b, seed, offset, per_channel=False):
    keep = kept(xp, threshold, seed, offset, _alpha_shape(x.shape, per_channel))
    return xp.where(keep, x, xp.asarray(_SELU_FLOOR, x.dtype)) * a + b


def _keep_moments(function: str, x: Tensor, p: float, training: bool, per_channel: bool) -> Tensor:
    p = _probability(function, p)
    if not training or p == 0.0:
        return x
    if p == 1.0:
        return _dropout_scaled(x, 0.0)
    a = ((1 - p) * (1 + p * _SELU_FLOOR**2)) ** -0.5
    b = -a * p * _SELU_FLOOR
    return _alpha_dropout(x, drop_threshold(p), a, b, *next_key(), per_channel)


@public
def alpha_dropout(
    x: Tensor, p: float = 0.5, training: bool = True, name: str | None = None
) -> Tensor:
    """Dropout for SELU networks: mean and variance of a standard normal input are kept."""
    return _keep_moments("alpha_dropout", x, p, training, False)


@public
def feature_alpha_dropout(
    x: Tensor, p: float = 0.5, training: bool = True, name: str | None = None
) -> Tensor:
    """As alpha_dropout, with whole channels (axes 0 and 1) dropped together."""
    return _keep_moments("feature_alpha_dropout", x, p, training, True)
