"""Reading an image at places between its pixels: grids, regions, deformed windows."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

import bireme as paddle
from bireme.convert.onnx.imports import onnx_op
from bireme.convert.onnx.imports.elementwise import dtype_of, number
from bireme.convert.onnx.imports.shapes import shape_of
from bireme.core.tensor import Tensor
from bireme.ops.indexing import _gather, _take_along

if TYPE_CHECKING:
    from bireme.convert.onnx.interpreter import NodeView, Value


def _reflect(x: Tensor, low: float, high: float) -> Tensor:
    """x thrown back into [low, high] as often as it takes."""
    span = high - low
    if span <= 0:
        return paddle.zeros_like(x)
    away = paddle.remainder(x - low, number(2 * span, x))
    return paddle.minimum(away, 2 * span - away) + low


def _cubic_weights(part: Tensor) -> list[Tensor]:
    a = -0.75
    made = []
    for shift in (1.0, 0.0, -1.0, -2.0):
        d = paddle.abs(part + shift)
        if shift in (1.0, -2.0):
            made.append(((d * a - 5 * a) * d + 8 * a) * d - 4 * a)
        else:
            made.append((d * (a + 2) - (a + 3)) * d * d + 1)
    return made


def _axis_taps(x: Tensor, mode: str) -> list[tuple[Tensor, Tensor | None]]:
    """(place, weight) of every pixel of one axis that takes part."""
    if mode == "nearest":
        return [(paddle.round(x), None)]
    base = paddle.floor(x)
    part = x - base
    if mode == "linear":
        return [(base, 1 - part), (base + 1, part)]
    return [(base + (k - 1), w) for k, w in enumerate(_cubic_weights(part))]


def sample(image: Tensor, places: list[Tensor], mode: str, padding: str, align: bool) -> Tensor:
    """[N, C, P]: the image [N, C, *space] at `places`, one [N, P] per axis, in pixels."""
    space = shape_of(image)[2:]
    per_axis = []
    for x, size in zip(places, space, strict=True):
        low, high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
        if padding == "border":
            x = paddle.clip(x, 0.0, float(size - 1))
        elif padding == "reflection":
            x = _reflect(x, low, high)
        taps = []
        for place, weight in _axis_taps(x, mode):
            inside = None
            if padding == "zeros":
                inside = paddle.logical_and(place >= 0, place <= size - 1)
            elif padding == "reflection":
                place = _reflect(place, low, high)
            spot = paddle.clip(place, 0, size - 1).astype("int64")
            taps.append((spot, weight, inside))
        per_axis.append(taps)
    flat = image.reshape([*shape_of(image)[:2], -1])
    total = None
    for combination in itertools.product(*per_axis):
        spot: Any = None
        share: Any = None
        for (place, weight, inside), size in zip(combination, space, strict=True):
            spot = place if spot is None else spot * size + place
            for factor in (weight, None if inside is None else inside.astype(image.dtype)):
                if factor is not None:
                    share = factor if share is None else share * factor
        wide = paddle.expand(
            spot.unsqueeze(1), [shape_of(flat)[0], shape_of(flat)[1], shape_of(spot)[1]]
        )
        part = _take_along(flat, wide, 2)
        if share is not None:
            part = part * share.unsqueeze(1)
        total = part if total is None else total + part
    return total  # pyright: ignore[reportReturnType]


@onnx_op("GridSample")
def grid_sample(n: NodeView, x: Tensor, grid: Tensor) -> Tensor:
    names = {"bilinear": "linear", "bicubic": "cubic"}
    given: str = n.attr("mode", "linear")
    mode = names.get(given, given)
    align = bool(n.attr("align_corners", 0))
    space, d = shape_of(x)[2:], x.ndim - 2
    points = grid.reshape([shape_of(grid)[0], -1, d])
    places = []
    for i, size in enumerate(space):
        g = points[:, :, d - 1 - i]  # the last axis comes first in a grid
        places.append((g + 1) * ((size - 1) / 2) if align else ((g + 1) * size - 1) / 2)
    out = sample(x, places, mode, n.attr("padding_mode", "zeros"), align)
    return out.reshape([*shape_of(x)[:2], *shape_of(grid)[1:-1]])


@onnx_op("AffineGrid", static=(1,))
def affine_grid(n: NodeView, theta: Tensor, size: Value) -> Tensor:
    space = [int(s) for s in np.ravel(size)[2:]]
    align = n.attr("align_corners", 0)
    axes = []
    for s in space:
        steps = np.arange(s, dtype=np.float64)
        axes.append(-1 + 2 * steps / max(s - 1, 1) if align else -1 + (2 * steps + 1) / s)
    mesh = np.meshgrid(*axes, indexing="ij")
    base = np.stack([*mesh[::-1], np.ones(space)], -1).reshape(-1, len(space) + 1)
    points = paddle.to_tensor(base.astype(dtype_of(theta)))
    made = paddle.matmul(points, theta.transpose([0, 2, 1]))
    return made.reshape([shape_of(theta)[0], *space, len(space)])


@onnx_op("RoiAlign")
def roi_align(n: NodeView, x: Tensor, rois: Tensor, batch: Tensor) -> Tensor:
    height, width = n.attr("output_height", 1), n.attr("output_width", 1)
    ratio = n.attr("sampling_ratio", 0)
    scale = n.attr("spatial_scale", 1.0)
    half = n.opset >= 16 and n.attr("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    boxes, owners = n.known(rois).astype(np.float64) * scale, n.known(batch)
    boxes = boxes - (0.5 if half else 0.0)
    made = []
    for (x1, y1, x2, y2), owner in zip(boxes, owners, strict=True):
        extent = [y2 - y1, x2 - x1]
        if not half:
            extent = [max(e, 1.0) for e in extent]
        steps = [e / o for e, o in zip(extent, (height, width), strict=True)]
        counts = [ratio or max(math.ceil(s), 1) for s in steps]
        spots = []
        for start, step, count, out in zip((y1, x1), steps, counts, (height, width), strict=True):
            inner = (np.arange(count) + 0.5) / count
            spots.append(start + (np.arange(out)[:, None] + inner[None]) * step)
        made.append(_aligned(n, x[int(owner) : int(owner) + 1], spots))
    if not made:
        return paddle.zeros([0, shape_of(x)[1], height, width], x.dtype)
    return paddle.concat(made, 0)


def _aligned(n: NodeView, image: Tensor, spots: list[np.ndarray]) -> Tensor:
    """[1, C, height, width] of one region, from sample points per bin along y and x."""
    (height, m), (width, k) = spots[0].shape, spots[1].shape
    sides, kept = [], []
    for s, size in zip(spots, shape_of(image)[2:], strict=True):
        flat = s.ravel()
        kept.append((flat >= -1) & (flat <= size))
        sides.append(flat.clip(0, size - 1).astype(np.float32))
    y, x = np.meshgrid(*sides, indexing="ij")
    inside = (kept[0][:, None] & kept[1][None]).astype(np.float32)
    places = [paddle.to_tensor(v.reshape(1, -1)).astype(image.dtype) for v in (y, x)]
    if n.attr("mode", "avg") == "avg":
        got = sample(image, places, "linear", "border", True)
        got = got * paddle.to_tensor(inside.reshape(1, 1, -1)).astype(image.dtype)
        return got.reshape([1, -1, height, m, width, k]).mean([3, 5])
    # The maximum is taken over the weighted neighbours, not over their sums.
    best = None
    for (spot_y, w_y), (spot_x, w_x) in itertools.product(
        *[_axis_taps(p, "linear") for p in places]
    ):
        h, w = shape_of(image)[2:]
        place = paddle.clip(spot_y, 0, h - 1) * w + paddle.clip(spot_x, 0, w - 1)
        flat = image.reshape([*shape_of(image)[:2], -1])
        part = _gather(flat, place.astype("int64").reshape([-1]), 2) * (w_y * w_x).unsqueeze(1)  # type: ignore[operator]
        best = part if best is None else paddle.maximum(best, part)
    return best.reshape([1, -1, height, m, width, k]).max([3, 5])  # pyright: ignore[reportOptionalMemberAccess]


@onnx_op("DeformConv")
def deform_conv(
    n: NodeView,
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    groups, spread = n.attr("group", 1), n.attr("offset_group", 1)
    kernel = shape_of(weight)[2:]
    d = len(kernel)
    stride, dilation = n.attr("strides") or [1] * d, n.attr("dilations") or [1] * d
    pads = n.attr("pads") or [0] * 2 * d
    batch, channels = shape_of(x)[:2]
    counts, area, taps = shape_of(offset)[2:], math.prod(shape_of(offset)[2:]), math.prod(kernel)
    moves = offset.reshape([batch * spread, taps, d, area])
    grids = np.meshgrid(*[np.arange(c) for c in counts], indexing="ij")
    places = []
    for i in range(d):
        start = grids[i].reshape(1, -1) * stride[i] - pads[i]
        inner = np.array([at[i] for at in np.ndindex(*kernel)])[:, None] * dilation[i]
        fixed = paddle.to_tensor((start + inner)[None]).astype(x.dtype)
        places.append((moves[:, :, i] + fixed).reshape([batch * spread, -1]))
    images = x.reshape([batch * spread, channels // spread, *shape_of(x)[2:]])
    got = sample(images, places, "linear", "zeros", True)
    got = got.reshape([batch, spread, channels // spread, taps, area])
    if mask is not None:
        got = got * mask.reshape([batch, spread, 1, taps, area])
    outs = shape_of(weight)[0]
    columns = got.reshape([batch, groups, channels // groups * taps, area])
    rows = weight.reshape([1, groups, outs // groups, -1])
    out = paddle.matmul(rows, columns).reshape([batch, outs, *counts])
    return out if bias is None else out + bias.reshape([1, -1, *[1] * d])
