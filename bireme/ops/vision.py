"""Rearranging images: pixel and channel shuffles, patches, shifts along time."""

from __future__ import annotations

import math
from typing import Any

from bireme.api.public import namespace
from bireme.api.types import IntOrPair
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.ops.nn_support import (
    channel_last,
    ints,
    need_float,
    need_rank,
    pad_constant,
    place_strided,
    strided_slice,
)

public = namespace("paddle.nn.functional")


def _split(x: Aval, last: bool) -> tuple[Any, Any, Any, Any]:
    """(batch, channels, height, width)."""
    if last:
        return x.shape[0], x.shape[3], x.shape[1], x.shape[2]
    return x.shape[0], x.shape[1], x.shape[2], x.shape[3]


def _is_last(function: str, data_format: str) -> bool:
    return channel_last(function, data_format, ("NCHW",), ("NHWC",))


# --- shuffles -----------------------------------------------------------------------------------


def _shuffle(xp: Any, x: Any, r: int, last: bool) -> Any:
    """Channels [C * r * r] to pixels [H * r, W * r]."""
    n, c, h, w = _split(x, last)
    c = c // (r * r)
    if last:
        x = xp.transpose(xp.reshape(x, (n, h, w, c, r, r)), (0, 1, 4, 2, 5, 3))
        return xp.reshape(x, (n, h * r, w * r, c))
    x = xp.transpose(xp.reshape(x, (n, c, r, r, h, w)), (0, 1, 4, 2, 5, 3))
    return xp.reshape(x, (n, c, h * r, w * r))


def _unshuffle(xp: Any, x: Any, r: int, last: bool) -> Any:
    """The inverse of `_shuffle`."""
    n, c, h, w = _split(x, last)
    h, w = h // r, w // r
    if last:
        x = xp.transpose(xp.reshape(x, (n, h, r, w, r, c)), (0, 1, 3, 5, 2, 4))
        return xp.reshape(x, (n, h, w, c * r * r))
    x = xp.transpose(xp.reshape(x, (n, c, h, r, w, r)), (0, 1, 3, 5, 2, 4))
    return xp.reshape(x, (n, c * r * r, h, w))


def _shuffle_check(x: Aval, factor: int, last: bool) -> None:
    need_rank("x", x, 4)
    if _split(x, last)[1] % (factor * factor) != 0:
        raise ShapeMismatch(
            f"the {_split(x, last)[1]} channels must be a multiple of upscale_factor^2 = "
            f"{factor * factor}"
        )


def _unshuffle_check(x: Aval, factor: int, last: bool) -> None:
    need_rank("x", x, 4)
    if any(d % factor != 0 for d in _split(x, last)[2:]):
        raise ShapeMismatch(f"height and width must be multiples of downscale_factor = {factor}")


@op(
    name="pixel_shuffle",
    inputs=("x",),
    vjp=lambda xp, grad, factor, last: (_unshuffle(xp, grad, factor, last),),
    check=_shuffle_check,
)
def _pixel_shuffle(xp, x, factor=1, last=False):
    return _shuffle(xp, x, factor, last)


@public(takes="fc")
def pixel_shuffle(
    x: Tensor, upscale_factor: int, data_format: str = "NCHW", name: str | None = None
) -> Tensor:
    """Channels become pixels: [N, C r^2, H, W] to [N, C, H r, W r]."""
    return _pixel_shuffle(x, upscale_factor, _is_last("pixel_shuffle", data_format))


@op(
    name="pixel_unshuffle",
    inputs=("x",),
    vjp=lambda xp, grad, factor, last: (_shuffle(xp, grad, factor, last),),
    check=_unshuffle_check,
)
def _pixel_unshuffle(xp, x, factor=1, last=False):
    return _unshuffle(xp, x, factor, last)


@public(takes="fc")
def pixel_unshuffle(
    x: Tensor, downscale_factor: int, data_format: str = "NCHW", name: str | None = None
) -> Tensor:
    """Pixels become channels: [N, C, H r, W r] to [N, C r^2, H, W]."""
    return _pixel_unshuffle(x, downscale_factor, _is_last("pixel_unshuffle", data_format))


def _mixed(xp: Any, x: Any, groups: int, last: bool) -> Any:
    axis = x.ndim - 1 if last else 1
    shape = (*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :])
    return xp.reshape(xp.swapaxes(xp.reshape(x, shape), axis, axis + 1), x.shape)


def _mix_check(x: Aval, groups: int, last: bool) -> None:
    need_rank("x", x, 4)
    if groups < 1 or _split(x, last)[1] % groups != 0:
        raise ShapeMismatch(f"{_split(x, last)[1]} channels do not divide into {groups} groups")


def _mix_vjp(xp: Any, grad: Any, groups: int, last: bool) -> tuple[Any]:
    return (_mixed(xp, grad, grad.shape[-1 if last else 1] // groups, last),)


@op(
    name="channel_shuffle",
    inputs=("x",),
    vjp=_mix_vjp,
    check=_mix_check,
    infer=lambda x, groups, last: x,
)
def _channel_shuffle(xp, x, groups=1, last=False):
    return _mixed(xp, x, groups, last)


@public(takes="fc")
def channel_shuffle(
    x: Tensor, groups: int, data_format: str = "NCHW", name: str | None = None
) -> Tensor:
    """Deal the channels of every group out in turn."""
    return _channel_shuffle(x, groups, _is_last("channel_shuffle", data_format))


# --- patches ------------------------------------------------------------------------------------


def _patch_counts(space: Any, kernel: Any, strides: Any, pads: Any, dilations: Any) -> Any:
    top, left, bottom, right = pads
    sizes = (space[0] + top + bottom, space[1] + left + right)
    return tuple(
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True)
    )


def _offsets(kernel: Any, dilations: Any) -> list[tuple[int, int]]:
    return [
        (i * dilations[0], j * dilations[1]) for i in range(kernel[0]) for j in range(kernel[1])
    ]


def _to_patches(xp: Any, x: Any, kernel: Any, strides: Any, pads: Any, dilations: Any) -> Any:
    """[N, C, H, W] to [N, C * kernel, patches]."""
    top, left, bottom, right = pads
    counts = _patch_counts(x.shape[2:], kernel, strides, pads, dilations)
    padded = pad_constant(xp, x, ((0, 0), (0, 0), (top, bottom), (left, right)), 0)
    parts = [strided_slice(padded, o, counts, strides) for o in _offsets(kernel, dilations)]
    out = xp.stack(parts, axis=2)
    return xp.reshape(out, (x.shape[0], x.shape[1] * len(parts), counts[0] * counts[1]))


def _from_patches(
    xp: Any, x: Any, space: Any, kernel: Any, strides: Any, pads: Any, dilations: Any
) -> Any:
    """The sum of [N, C * kernel, patches] where `_to_patches` took them from."""
    top, left, bottom, right = pads
    counts = _patch_counts(space, kernel, strides, pads, dilations)
    places = _offsets(kernel, dilations)
    n, channels = x.shape[0], x.shape[1] // len(places)
    x = xp.reshape(x, (n, channels, len(places), *counts))
    full = (n, channels, space[0] + top + bottom, space[1] + left + right)
    total = None
    for i, offset in enumerate(places):
        placed = place_strided(xp, x[:, :, i], full, offset, strides)
        total = placed if total is None else total + placed
    assert total is not None  # noqa: S101 (a kernel has at least one element)
    return total[:, :, top : top + space[0], left : left + space[1]]


def _unfold_infer(x: Aval, kernel: Any, strides: Any, pads: Any, dilations: Any) -> Aval:
    counts = _patch_counts(x.shape[2:], kernel, strides, pads, dilations)
    if any(type(c) is int and c < 1 for c in counts):
        raise ShapeMismatch("the kernel does not fit into the padded image")
    return aval((x.shape[0], x.shape[1] * math.prod(kernel), math.prod(counts)), x.dtype)


def _unfold_vjp(
    xp: Any, grad: Any, types: Any, kernel: Any, strides: Any, pads: Any, dilations: Any
) -> tuple[Any]:
    return (_from_patches(xp, grad, types[0].shape[2:], kernel, strides, pads, dilations),)


@op(
    name="im2col",
    inputs=("x",),
    vjp=_unfold_vjp,
    infer=_unfold_infer,
    check=lambda x, **rest: need_rank("x", x, 4),
)
def _unfold(xp, x, kernel=(), strides=(), pads=(), dilations=()):
    return _to_patches(xp, x, kernel, strides, pads, dilations)


def _fold_vjp(
    xp: Any, grad: Any, space: Any, kernel: Any, strides: Any, pads: Any, dilations: Any
) -> tuple[Any]:
    return (_to_patches(xp, grad, kernel, strides, pads, dilations),)


def _fold_check(x: Aval, space: Any, kernel: Any, strides: Any, pads: Any, dilations: Any) -> None:
    need_rank("x", x, 3)
    counts = _patch_counts(space, kernel, strides, pads, dilations)
    if x.shape[1] % math.prod(kernel) != 0 or x.shape[2] != math.prod(counts):
        raise ShapeMismatch(
            f"x must be [batch, channels * {math.prod(kernel)}, {math.prod(counts)}] for these "
            "sizes"
        )


@op(
    name="col2im",
    inputs=("x",),
    vjp=_fold_vjp,
    check=_fold_check,
    infer=lambda x, space, kernel, **rest: aval(
        (x.shape[0], x.shape[1] // math.prod(kernel), *space), x.dtype
    ),
)
def _fold(xp, x, space=(), kernel=(), strides=(), pads=(), dilations=()):
    return _from_patches(xp, x, space, kernel, strides, pads, dilations)


def _four(function: str, paddings: Any) -> tuple[int, ...]:
    """top, left, bottom, right."""
    if isinstance(paddings, int):
        return (paddings,) * 4
    if isinstance(paddings, list | tuple) and len(paddings) in (2, 4):
        return tuple(paddings) * (4 // len(paddings))
    raise InvalidArgument(
        f"[{function}] paddings must be an integer, 2 or 4 integers. Received: {paddings!r}"
    )


@public(takes="fc")
def unfold(
    x: Tensor,
    kernel_sizes: IntOrPair,
    strides: IntOrPair = 1,
    paddings: IntOrPair = 0,
    dilations: IntOrPair = 1,
    name: str | None = None,
) -> Tensor:
    """Every patch of [N, C, H, W] as a column: [N, C * kernel, patches]."""
    return _unfold(
        x,
        ints("unfold", "kernel_sizes", kernel_sizes, 2),
        ints("unfold", "strides", strides, 2),
        _four("unfold", paddings),
        ints("unfold", "dilations", dilations, 2),
    )


@public(
    also={
        "input": "x",
        "dilation": "dilations",
        "kernel_size": "kernel_sizes",
        "output_size": "output_sizes",
        "padding": "paddings",
        "stride": "strides",
    },
    takes="fc",
)
def fold(
    x: Tensor,
    output_sizes: IntOrPair,
    kernel_sizes: IntOrPair,
    strides: IntOrPair = 1,
    paddings: IntOrPair = 0,
    dilations: IntOrPair = 1,
    name: str | None = None,
) -> Tensor:
    """Columns [N, C * kernel, patches] summed into images of `output_sizes`."""
    return _fold(
        x,
        ints("fold", "output_sizes", output_sizes, 2),
        ints("fold", "kernel_sizes", kernel_sizes, 2),
        ints("fold", "strides", strides, 2),
        _four("fold", paddings),
        ints("fold", "dilations", dilations, 2),
    )


# --- time ---------------------------------------------------------------------------------------


def _shift(xp: Any, x: Any, segments: int, ratio: float, last: bool, back: bool) -> Any:
    channels = x.shape[-1 if last else 1]
    axis = x.ndim if last else 2
    x = xp.reshape(x, (x.shape[0] // segments, segments, *x.shape[1:]))
    one, two = int(channels * ratio), int(channels * 2 * ratio)
    before = (slice(None),) * axis
    first = x[(*before, slice(0, one))]
    second = x[(*before, slice(one, two))]
    rest = x[(*before, slice(two, None))]
    zero_1 = xp.zeros_like(first[:, :1])
    zero_2 = xp.zeros_like(second[:, :1])
    if back:
        first = xp.concatenate([first[:, 1:], zero_1], axis=1)
        second = xp.concatenate([zero_2, second[:, :-1]], axis=1)
    else:
        first = xp.concatenate([zero_1, first[:, :-1]], axis=1)
        second = xp.concatenate([second[:, 1:], zero_2], axis=1)
    out = xp.concatenate([first, second, rest], axis=axis)
    return xp.reshape(out, (out.shape[0] * segments, *out.shape[2:]))


def _shift_vjp(xp: Any, grad: Any, segments: int, ratio: float, last: bool) -> tuple[Any]:
    return (_shift(xp, grad, segments, ratio, last, True),)


def _shift_check(x: Aval, segments: int, ratio: float, last: bool) -> None:
    need_float("x", x)
    need_rank("x", x, 4)
    if segments < 1 or x.shape[0] % segments != 0:
        raise ShapeMismatch(f"the batch of {x.shape[0]} does not divide into {segments} segments")


@op(
    name="temporal_shift",
    inputs=("x",),
    vjp=_shift_vjp,
    check=_shift_check,
    infer=lambda x, segments, ratio, last: x,
)
def _temporal_shift(xp, x, segments=1, ratio=0.25, last=False):
    return _shift(xp, x, segments, ratio, last, False)


@public
def temporal_shift(
    x: Tensor,
    seg_num: int,
    shift_ratio: float = 0.25,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Tensor:
    """Move a share of the channels one frame forwards and as many backwards."""
    if not 0.0 <= shift_ratio <= 0.5:
        raise InvalidArgument(
            f"[temporal_shift] shift_ratio must be in [0, 0.5]. Received: {shift_ratio}"
        )
    return _temporal_shift(x, seg_num, float(shift_ratio), _is_last("temporal_shift", data_format))
