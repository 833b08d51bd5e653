"""Pooling over regions of interest: boxes of any size become features of one size.

A region is read through two small matrices, one for its rows and one for its columns, so that
nothing depends on how large the boxes are: no value is read while recording, and the gradient is
the same two products the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.api.types import OutputSize
from bireme.core.aval import Aval, aval
from bireme.core.dtype import int64 as INT64
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.op import op
from bireme.core.requirements import Holds, InRange
from bireme.core.tensor import Tensor
from bireme.host import jax_door
from bireme.host.arrays import Namespace
from bireme.ops.nn_support import ints, need_float, need_integer, need_rank, scatter_add, wide

# Samples are more than half a cell apart where their number follows the box, and a cell is
# touched by those within one cell of it: at most five, and one on either side for rounding.
_NEAR = 7


def _images_of(xp: Any, boxes: Any, boxes_num: Any) -> Any:
    """The image that each box belongs to."""
    ends = xp.cumsum(boxes_num.astype(np.int64))
    places = xp.searchsorted(ends, xp.arange(boxes.shape[0]), side="right")
    return xp.minimum(places, boxes_num.shape[0] - 1)


def _counted(x: Aval, boxes: Aval, *_: Any, **__: Any) -> list[InRange | Holds]:
    count = boxes.shape[0]
    return [
        InRange("boxes_num", 0, math.inf),
        Holds(
            "boxes_num must say how many of the boxes belong to each image: its sum must be the "
            "number of boxes",
            lambda xp, inputs, out: xp.sum(xp.asarray(inputs[2]).astype(np.int64)) == count,
            before=True,
        ),
    ]


def _each_box(xp: Any, one: Callable[..., Any], arrays: Any, shape: Any, dtypes: Any) -> Any:
    """A tuple: each result of `one`, of `shape`, for every box's entries, stacked."""
    if xp is np:
        results = [np.empty((len(arrays[0]), *shape), d) for d in dtypes]
        for i, row in enumerate(zip(*arrays, strict=True)):
            for into, found in zip(results, one(*row), strict=True):
                into[i] = found
        return tuple(results)
    return jax_door.jax().lax.map(lambda row: one(*row), arrays)


def _touched(xp: Any, weights: Any) -> slice:
    """The cells that a matrix [outputs, cells] reads: known, and worth knowing, in NumPy only."""
    if xp is not np:
        return slice(None)
    cells = np.flatnonzero(weights.any(axis=0))
    return slice(int(cells[0]), int(cells[-1]) + 1) if len(cells) else slice(0, 0)


# --- linear pooling: roi_align and psroi_pool ---------------------------------------------------


def _pool_boxes(xp: Any, x: Any, image: Any, rows: Any, cols: Any, by_position: bool) -> Any:
    """rows [R, P, H] @ x[image] [C, H, W] @ cols [R, Q, W]^T for every box: [R, C, P, Q].

    `by_position`: x has channels [C, P, Q], of which each output reads its own.
    """
    p, q = rows.shape[1], cols.shape[1]
    channels = x.shape[1] // (p * q) if by_position else x.shape[1]

    def one(image: Any, row: Any, col: Any) -> Any:
        down, across = _touched(xp, row), _touched(xp, col)
        part = x[image][:, down, across]
        row, col = row[:, down], col[:, across]
        if not by_position:
            return (xp.matmul(xp.matmul(row, part), xp.swapaxes(col, 0, 1)),)
        part = xp.reshape(part, (channels, p, q, part.shape[1], part.shape[2]))
        wides = [wide(xp, a) for a in (part, row, col)]
        return (xp.einsum("cpqhw,ph,qw->cpq", *wides).astype(x.dtype),)

    return _each_box(xp, one, (image, rows, cols), (channels, p, q), (x.dtype,))[0]


def _spread_boxes(
    xp: Any, grad: Any, shape: tuple[Any, ...], image: Any, rows: Any, cols: Any, by_position: bool
) -> Any:
    """The transpose of `_pool_boxes`; what several boxes give to one pixel adds up in float32."""
    _, channels, height, width = shape
    grad = wide(xp, grad)

    def one(grad: Any, row: Any, col: Any) -> Any:
        if not by_position:
            return xp.matmul(xp.matmul(xp.swapaxes(row, 0, 1), grad), col)
        wides = [wide(xp, a) for a in (grad, row, col)]
        full = xp.einsum("cpq,ph,qw->cpqhw", *wides).astype(grad.dtype)
        return xp.reshape(full, (channels, height, width))

    if xp is np:
        out = np.zeros(shape, grad.dtype)
        for g, i, row, col in zip(grad, image, rows, cols, strict=True):
            down, across = _touched(xp, row), _touched(xp, col)
            height, width = down.stop - down.start, across.stop - across.start
            if height and width:
                out[i, :, down, across] += one(g, row[:, down], col[:, across])
        return out

    def step(total: Any, entry: Any) -> Any:
        i, *rest = entry
        return total.at[i].add(one(*rest)), None

    start = xp.zeros(shape, grad.dtype)
    return jax_door.jax().lax.scan(step, start, (image, grad, rows, cols))[0]


def _pool_vjp(
    xp: Any, grad: Any, boxes: Any, boxes_num: Any, types: Any, weights: Any, by_position: bool
) -> tuple[Any, None, None]:
    shape = types[0].shape
    rows, cols = weights(xp, boxes, shape[2:])
    image = _images_of(xp, boxes, boxes_num)
    spread = _spread_boxes(xp, grad, shape, image, rows, cols, by_position)
    return spread, None, None


def _align_weights(
    xp: Any, low: Any, high: Any, pooled: int, cells: Any, ratio: int, aligned: bool
) -> Any:
    """[R, pooled, cells]: how much of each cell goes into the mean of each bin's samples."""
    length = high - low
    if not aligned:
        length = xp.maximum(length, 1.0)
    size = length / pooled
    count = xp.ceil(size) if ratio <= 0 else xp.full_like(size, ratio)
    at_least_one = xp.maximum(count, 1.0)
    size, low, count = size[:, None, None], low[:, None, None], count[:, None, None]
    dtype = low.dtype
    edge = low + xp.arange(pooled).astype(dtype)[None, :, None] * size
    cell = xp.arange(cells).astype(dtype)[None, None, :]
    last = xp.asarray(cells).astype(dtype)
    if ratio > 0:
        first, tries = xp.zeros_like(cell), ratio
    else:
        step = xp.where(count > 1, size / xp.maximum(count, 1.0), 1.0)
        first = xp.ceil((cell - 1 - edge) / step - 0.5) - 1
        first, tries = xp.clip(first, 0.0, xp.maximum(count - 1, 0.0)), _NEAR
    total: Any = 0.0
    for k in range(tries):
        index = first + k
        place = edge + (index + 0.5) * size / xp.where(count > 0, count, 1.0)
        valid = (index < count) & (place >= -1.0) & (place <= last)
        near = 1.0 - xp.abs(xp.clip(place, 0.0, last - 1.0) - cell)
        total = total + xp.where(valid, xp.maximum(near, 0.0), 0.0)
    return (total / at_least_one[:, None, None]).astype(dtype)


def _align(pooled: Any, scale: float, ratio: int, aligned: bool) -> Callable[..., Any]:
    def weights(xp: Namespace, boxes: Any, space: Any) -> tuple[Any, Any]:
        shift = 0.5 if aligned else 0.0
        x1, y1, x2, y2 = [boxes[:, i] * scale - shift for i in range(4)]
        rows = _align_weights(xp, y1, y2, pooled[0], space[0], ratio, aligned)
        return rows, _align_weights(xp, x1, x2, pooled[1], space[1], ratio, aligned)

    return weights


def _boxes_check(x: Aval, boxes: Aval, boxes_num: Aval, **rest: Any) -> None:
    need_float("x", x)
    need_rank("x", x, 4)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise ShapeMismatch("'boxes' must be [boxes, 4]: x1, y1, x2, y2 in each row")
    need_rank("boxes_num", boxes_num, 1)
    need_integer("boxes_num", boxes_num)


def _pooled_infer(x: Aval, boxes: Aval, boxes_num: Aval, pooled: Any, **rest: Any) -> Aval:
    return aval((boxes.shape[0], x.shape[1], *pooled), x.dtype)


def _align_vjp(
    xp: Any,
    grad: Any,
    boxes: Any,
    boxes_num: Any,
    types: Any,
    pooled: Any,
    scale: float,
    ratio: int,
    aligned: bool,
) -> Any:
    weights = _align(pooled, scale, ratio, aligned)
    return _pool_vjp(xp, grad, boxes, boxes_num, types, weights, False)


@op(
    name="roi_align",
    inputs=("x", "boxes", "boxes_num"),
    vjp=_align_vjp,
    check=_boxes_check,
    requires=_counted,
    infer=_pooled_infer,
)
def _roi_align(xp, x, boxes, boxes_num, pooled=(1, 1), scale=1.0, ratio=-1, aligned=True):
    rows, cols = _align(pooled, scale, ratio, aligned)(xp, boxes.astype(x.dtype), x.shape[2:])
    return _pool_boxes(xp, x, _images_of(xp, boxes, boxes_num), rows, cols, False)


def _output_size(function: str, output_size: Any) -> tuple[int, ...]:
    size = ints(function, "output_size", output_size, 2)
    if min(size) < 1:
        raise InvalidArgument(f"[{function}] output_size must be positive. Received: {size}")
    return size


def roi_align(
    x: Tensor,
    boxes: Tensor,
    boxes_num: Tensor,
    output_size: OutputSize,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = True,
    name: str | None = None,
) -> Tensor:
    """The features of every box, averaged over bilinear samples: [boxes, C, *output_size].

    `boxes_num` says how many of the boxes belong to each image. `sampling_ratio` is the number of
    samples along each side of a bin; by default it follows the box.

        features = roi_align(x, boxes, paddle.to_tensor([2, 1], "int32"), 7, 1 / 16)
    """
    size = _output_size("roi_align", output_size)
    return _roi_align(x, boxes, boxes_num, size, float(spatial_scale), int(sampling_ratio), aligned)


def _bin_ends(xp: Any, length: Any, low: Any, pooled: int, dtype: Any) -> tuple[Any, Any]:
    """[R, pooled]: where each bin starts and stops, before rounding to whole cells.

    Bins often end exactly on a cell's edge, where one rounding more or less takes in another cell;
    XLA fuses a product with the sum that follows it. So this computes in float64 and rounds each
    step to `dtype` explicitly.
    """

    def rounded(x: Any) -> Any:
        if dtype == np.float64:
            return x
        if xp is np:
            return x.astype(np.float32).astype(np.float64)
        return jax_door.jax().lax.reduce_precision(x, 8, 23)

    size = rounded(length.astype(np.float64) / pooled)[:, None]
    first = low.astype(np.float64)[:, None]
    bins = xp.arange(pooled).astype(np.float64)
    return rounded(rounded(bins * size) + first), rounded(rounded((bins + 1) * size) + first)


def _rounded(xp: Any, x: Any) -> Any:
    """Halves away from zero, as C rounds."""
    return xp.where(x < 0, xp.ceil(x - 0.5), xp.floor(x + 0.5))


def _position(pooled: Any, scale: float) -> Callable[..., Any]:
    """Weights of 1 / count on the whole cells that each bin touches."""

    def weights(xp: Namespace, boxes: Any, space: Any) -> tuple[Any, Any]:
        dtype = boxes.dtype
        x1, y1, x2, y2 = [_rounded(xp, boxes[:, i]) for i in range(4)]
        found = []
        for low, high, p, n in ((y1, y2, pooled[0], space[0]), (x1, x2, pooled[1], space[1])):
            length = xp.maximum((high + 1.0) * scale - low * scale, 0.1)
            start, stop = _bin_ends(xp, length, low * scale, p, dtype)
            last = xp.asarray(n).astype(np.float64)
            start = xp.clip(xp.floor(start), 0.0, last)[:, :, None]
            stop = xp.clip(xp.ceil(stop), 0.0, last)[:, :, None]
            inside = (xp.arange(n) >= start) & (xp.arange(n) < stop)
            share = xp.where(inside, 1.0 / xp.maximum(stop - start, 1.0), 0.0)
            found.append(share.astype(dtype))
        return found[0], found[1]

    return weights


def _position_check(x: Aval, boxes: Aval, boxes_num: Aval, pooled: Any, scale: float) -> None:
    _boxes_check(x, boxes, boxes_num)
    if x.shape[1] % (pooled[0] * pooled[1]) != 0:
        raise ShapeMismatch(
            f"x has {x.shape[1]} channels; they must be a multiple of {pooled[0]} * {pooled[1]}, "
            "one set for each position"
        )


@op(
    name="psroi_pool",
    inputs=("x", "boxes", "boxes_num"),
    vjp=lambda xp, grad, boxes, boxes_num, types, pooled, scale: _pool_vjp(
        xp, grad, boxes, boxes_num, types, _position(pooled, scale), True
    ),
    check=_position_check,
    requires=_counted,
    infer=lambda x, boxes, boxes_num, pooled, scale: aval(
        (boxes.shape[0], x.shape[1] // (pooled[0] * pooled[1]), *pooled), x.dtype
    ),
)
def _psroi_pool(xp, x, boxes, boxes_num, pooled=(1, 1), scale=1.0):
    rows, cols = _position(pooled, scale)(xp, boxes.astype(x.dtype), x.shape[2:])
    return _pool_boxes(xp, x, _images_of(xp, boxes, boxes_num), rows, cols, True)


def psroi_pool(
    x: Tensor,
    boxes: Tensor,
    boxes_num: Tensor,
    output_size: OutputSize,
    spatial_scale: float = 1.0,
    name: str | None = None,
) -> Tensor:
    """Position-sensitive means: each bin of a box reads its own set of channels."""
    size = _output_size("psroi_pool", output_size)
    return _psroi_pool(x, boxes, boxes_num, size, float(spatial_scale))


# --- maxima: roi_pool ---------------------------------------------------------------------------


def _max_ranges(xp: Any, boxes: Any, pooled: Any, scale: float, space: Any) -> tuple[Any, Any]:
    """[R, P, H] and [R, Q, W]: whether a cell lies in a bin."""
    x1, y1, x2, y2 = [_rounded(xp, boxes[:, i] * scale) for i in range(4)]
    found = []
    for low, high, p, n in ((y1, y2, pooled[0], space[0]), (x1, x2, pooled[1], space[1])):
        length = xp.maximum(high - low + 1.0, 1.0)
        start, stop = _bin_ends(xp, length, xp.zeros_like(low), p, boxes.dtype)
        start = (xp.floor(start) + low[:, None])[:, :, None]
        stop = (xp.ceil(stop) + low[:, None])[:, :, None]
        found.append((xp.arange(n) >= start) & (xp.arange(n) < stop))
    return found[0], found[1]


def _first_max(xp: Any, x: Any, inside: Any) -> tuple[Any, Any]:
    """The maximum over the last axis where `inside` holds, and the first index that has it."""
    held = xp.where(inside, x, -xp.inf)
    where = xp.argmax(held, axis=-1)
    return xp.take_along_axis(held, where[..., None], axis=-1)[..., 0], where


def _roi_pool_vjp(
    xp: Any, grad: Any, out: Any, boxes: Any, boxes_num: Any, types: Any, pooled: Any, scale: float
) -> tuple[Any, None, None]:
    shape = types[0].shape
    found = out[1]
    image = _images_of(xp, boxes, boxes_num)[:, None, None, None]
    channel = xp.arange(shape[1])[None, :, None, None]
    base = (image * shape[1] + channel) * (shape[2] * shape[3])
    flat = xp.where(found >= 0, base + found, 0)
    given = xp.where(found >= 0, grad[0], 0)
    full = xp.zeros((shape[0] * shape[1] * shape[2] * shape[3],), grad[0].dtype)
    return xp.reshape(scatter_add(xp, full, flat, given), shape), None, None


def _roi_pool_infer(x: Aval, boxes: Aval, boxes_num: Aval, pooled: Any, scale: float) -> Any:
    shape = (boxes.shape[0], x.shape[1], *pooled)
    return aval(shape, x.dtype), aval(shape, INT64)


@op(
    name="roi_pool",
    inputs=("x", "boxes", "boxes_num"),
    vjp=_roi_pool_vjp,
    check=_boxes_check,
    requires=_counted,
    infer=_roi_pool_infer,
)
def _roi_pool(xp, x, boxes, boxes_num, pooled=(1, 1), scale=1.0):
    width = x.shape[3]
    rows, cols = _max_ranges(xp, boxes.astype(x.dtype), pooled, scale, x.shape[2:])

    def one(image: Any, row: Any, col: Any) -> Any:
        # In each line first, then over the lines: the first maximum in reading order.
        lines, at = _first_max(xp, x[image][:, None, :, :], col[None, :, None, :])
        peak, line = _first_max(xp, lines[:, None, :, :], row[None, :, None, :])
        at = xp.broadcast_to(at[:, None, :, :], (*peak.shape, at.shape[-1]))
        found = line * width + xp.take_along_axis(at, line[..., None], axis=-1)[..., 0]
        some = xp.any(row, axis=1)[:, None] & xp.any(col, axis=1)[None, :]
        return xp.where(some, peak, 0).astype(x.dtype), xp.where(some, found, -1)

    entries = (_images_of(xp, boxes, boxes_num), rows, cols)
    return _each_box(xp, one, entries, (x.shape[1], *pooled), (x.dtype, np.int64))


def roi_pool(
    x: Tensor,
    boxes: Tensor,
    boxes_num: Tensor,
    output_size: OutputSize,
    spatial_scale: float = 1.0,
    name: str | None = None,
) -> Tensor:
    """The largest feature in every bin of every box: [boxes, C, *output_size]."""
    size = _output_size("roi_pool", output_size)
    return _roi_pool(x, boxes, boxes_num, size, float(spatial_scale))[0]


__all__ = ["psroi_pool", "roi_align", "roi_pool"]
