"""Deformable convolution: every tap of the kernel reads at a place of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.api.types import IntOrPair
from bireme.core.aval import Aval, aval
from bireme.core.errors import ShapeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.ops.manipulation import reshape
from bireme.ops.nn_support import ints, need_float, need_rank


def _out_size(space: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    return tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(space, kernel, stride, padding, dilation, strict=True)
    )


def _deform_check(
    x: Aval,
    offset: Aval,
    weight: Aval,
    mask: Aval | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    parts: int,
    groups: int,
) -> None:
    need_float("x", x)
    for what, t in (("x", x), ("offset", offset), ("weight", weight), ("mask", mask)):
        if t is not None:
            need_rank(what, t, 4)
    if x.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups != 0:
        raise ShapeMismatch(
            f"with groups={groups} the weight must be [out, {x.shape[1]} / {groups}, height, "
            "width] and out a multiple of the groups"
        )
    if x.shape[1] % parts != 0:
        raise ShapeMismatch(f"{x.shape[1]} channels do not divide into deformable_groups={parts}")
    taps = weight.shape[2] * weight.shape[3]
    size = _out_size(x.shape[2:], weight.shape[2:], stride, padding, dilation)
    for what, t, count in (("offset", offset, 2 * parts * taps), ("mask", mask, parts * taps)):
        if t is not None and (t.shape[1] != count or _differ(t.shape[2:], size)):
            raise ShapeMismatch(
                f"'{what}' must be [batch, {count}, {size[0]}, {size[1]}] for these sizes"
            )


def _differ(have: Sequence[Any], want: Sequence[Any]) -> bool:
    """Whether sizes are known to be unequal; open ones are looked at when they are known."""
    return any(
        type(h) is int and type(w) is int and h != w for h, w in zip(have, want, strict=True)
    )


def _corner(xp: Any, flat: Any, y: Any, x: Any, space: Any) -> Any:
    """flat [N, D, C, H * W] at whole places [N, D, 1, P]; zero outside."""
    inside = (y >= 0) & (y < space[0]) & (x >= 0) & (x < space[1])
    rows, cols = xp.clip(y, 0, space[0] - 1), xp.clip(x, 0, space[1] - 1)
    index = (rows * space[1] + cols).astype(np.int64)
    return xp.where(inside, xp.take_along_axis(flat, index, axis=3), 0)


@op(
    name="deformable_conv",
    inputs=("x", "offset", "weight", "mask"),
    check=_deform_check,
    amp="white",
    infer=lambda x, offset, weight, mask, **rest: aval(
        (x.shape[0], weight.shape[0], *offset.shape[2:]), x.dtype
    ),
)
def _deformable_conv(
    xp,
    x,
    offset,
    weight,
    mask=None,
    stride=(1, 1),
    padding=(0, 0),
    dilation=(1, 1),
    parts=1,
    groups=1,
):
    n, channels, height, width = x.shape
    out, _, kh, kw = weight.shape
    size = offset.shape[2:]
    taps = kh * kw
    # [N, parts, taps, 2 (y, x), out_h, out_w]: the regular grid plus the offsets.
    moved = xp.reshape(offset, (n, parts, taps, 2, *size))
    grid = []
    for axis, shape in ((0, (1, 1, taps, -1, 1)), (1, (1, 1, taps, 1, -1))):
        tap = np.arange(taps) // kw if axis == 0 else np.arange(taps) % kw
        start = xp.arange(size[axis]) * stride[axis] - padding[axis]
        line = xp.asarray(tap * dilation[axis])[:, None] + start[None, :]
        grid.append(xp.reshape(line, shape).astype(offset.dtype) + moved[:, :, :, axis])
    y, x_at = [xp.reshape(g, (n, parts, 1, -1)) for g in grid]
    flat = xp.reshape(x, (n, parts, channels // parts, height * width))
    top, left = xp.floor(y), xp.floor(x_at)
    v, u = y - top, x_at - left
    taken = (
        _corner(xp, flat, top, left, (height, width)) * ((1 - v) * (1 - u))
        + _corner(xp, flat, top, left + 1, (height, width)) * ((1 - v) * u)
        + _corner(xp, flat, top + 1, left, (height, width)) * (v * (1 - u))
        + _corner(xp, flat, top + 1, left + 1, (height, width)) * (v * u)
    )
    if mask is not None:
        taken = taken * xp.reshape(mask, (n, parts, 1, -1))
    columns = xp.reshape(taken, (n, groups, channels // groups * taps, -1))
    kernel = xp.reshape(weight, (groups, out // groups, channels // groups * taps))
    return xp.reshape(xp.matmul(kernel, columns), (n, out, *size)).astype(x.dtype)


def deform_conv2d(
    x: Tensor,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrPair = 1,
    padding: IntOrPair = 0,
    dilation: IntOrPair = 1,
    deformable_groups: int = 1,
    groups: int = 1,
    mask: Tensor | None = None,
    name: str | None = None,
) -> Tensor:
    """Convolution whose taps are moved by `offset` and, in version 2, weighted by `mask`.

    `offset` holds y and x in turn for every tap: [N, 2 * deformable_groups * taps, H, W].
    """
    out = _deformable_conv(
        x, offset, weight, mask, ints("deform_conv2d", "stride", stride, 2),
        ints("deform_conv2d", "padding", padding, 2),
        ints("deform_conv2d", "dilation", dilation, 2), deformable_groups, groups,
    )  # fmt: skip
    return out if bias is None else out + reshape(bias, [1, -1, 1, 1])


__all__ = ["deform_conv2d"]
