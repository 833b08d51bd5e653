"""What the ops of TensorFlow's family mean: channels last, padding that depends on the size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import bireme as paddle
from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.imported import check_size
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.ops.conv import _conv, _conv_transpose
from bireme.ops.pooling import _avg_pool, _max_pool

Pairs = tuple[tuple[int, int], ...]


def pads_of(
    padding: str,
    space: Sequence[Any],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Pairs:
    """(before, after) per axis. SAME makes as many windows as steps, one more zero at the end."""
    if min([*kernel, *stride, *dilation]) < 1:
        raise ModelFileError(f"windows of {list(kernel)} cannot go in steps of {list(stride)}")
    if padding == "VALID":
        return tuple([(0, 0)] * len(kernel))
    made = []
    for size, k, s, d in zip(space, kernel, stride, dilation, strict=True):
        reach = (k - 1) * d + 1
        if s == 1:
            total = reach - 1
        elif type(size) is int:
            total = max((-(-size // s) - 1) * s + reach - size, 0)
        else:
            raise UnsupportedModel("padding SAME with steps needs the size of the image")
        made.append((total // 2, total - total // 2))
    return tuple(made)


def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: str | Pairs,
    dilation: Sequence[int],
) -> Tensor:
    """Windows of x [n, *space, c] times weight [out, in, *kernel]; fewer `in` than c are groups."""
    kernel = list(weight.shape[2:])
    if isinstance(padding, str):
        padding = pads_of(padding, x.shape[1:-1], kernel, stride, dilation)
    channels, each = x.shape[-1], weight.shape[1]
    if type(channels) is not int or not each or channels % each:
        raise ModelFileError(f"{channels} channels do not fit to a kernel for {each}")
    return _conv(x, weight, bias, tuple(stride), padding, tuple(dilation), channels // each, True)


def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    space: Sequence[Any],
    stride: Sequence[int],
    padding: str | Pairs,
    dilation: Sequence[int] = (1, 1),
) -> Tensor:
    """The gradient of a convolution with weight [channels of x, out, *kernel], of size `space`."""
    check_size(space)
    if isinstance(padding, str):
        padding = pads_of(padding, space, weight.shape[2:], stride, dilation)
    return _conv_transpose(
        x, weight, bias, tuple(space), tuple(stride), padding, tuple(dilation), 1, True
    )


def pool(
    kind: str, x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: str | Pairs
) -> Tensor:
    """The maximum or mean of windows; padding does not count."""
    space = x.shape[1:-1]
    if isinstance(padding, str):
        padding = pads_of(padding, space, kernel, stride, [1] * len(kernel))
    plans, pads = [], []
    for size, k, s, (lo, hi) in zip(space, kernel, stride, padding, strict=True):
        count = (size + lo + hi - k) // s + 1
        plans.append((k, s, count))
        pads.append((lo, (count - 1) * s + k - size - lo))
    axes = tuple(range(1, x.ndim - 1))
    if kind == "max":
        return _max_pool(x, axes, tuple(plans), tuple(pads))
    return _avg_pool(x, axes, tuple(plans), tuple(pads), ((0, 0),) * len(axes))


# --- sizes of images ------------------------------------------------------------------------


def positions(size: int, wanted: int, align_corners: bool, half: bool) -> np.ndarray:
    """Where each pixel of the result lies in the input."""
    if align_corners and wanted > 1:
        return np.arange(wanted, dtype=np.float32) * np.float32((size - 1) / (wanted - 1))
    scale = np.float32(size / wanted)
    at = np.arange(wanted, dtype=np.float32)
    return (at + np.float32(0.5)) * scale - np.float32(0.5) if half else at * scale


def _known_sizes(x: Tensor, wanted: Sequence[Any]) -> tuple[list[int], list[int]]:
    have, sizes = list(x.shape[1:3]), list(wanted)
    if not all(type(d) is int and d > 0 for d in (*have, *sizes)):
        raise UnsupportedModel(f"an image of {have} cannot become {sizes}: sizes must be known")
    check_size([*sizes, 64])
    return have, sizes


def resize_bilinear(x: Tensor, wanted: Sequence[Any], align_corners: bool, half: bool) -> Tensor:
    have, sizes = _known_sizes(x, wanted)
    for axis, (size, new) in enumerate(zip(have, sizes, strict=True), 1):
        at = positions(size, new, align_corners, half)
        low = np.floor(at)
        part = (at - low).astype(np.float32).reshape([-1] + [1] * (3 - axis))
        first = paddle.to_tensor(np.clip(low, 0, size - 1).astype(np.int64))
        second = paddle.to_tensor(np.clip(low + 1, 0, size - 1).astype(np.int64))
        a, b = paddle.index_select(x, first, axis), paddle.index_select(x, second, axis)
        x = a + (b - a) * paddle.to_tensor(part).astype(x.dtype)
    return x


def resize_nearest(x: Tensor, wanted: Sequence[Any], align_corners: bool, half: bool) -> Tensor:
    have, sizes = _known_sizes(x, wanted)
    for axis, (size, new) in enumerate(zip(have, sizes, strict=True), 1):
        if align_corners and new > 1:
            at = np.floor(positions(size, new, True, False) + np.float32(0.5))
        else:
            scale = np.float32(size / new)
            shift = np.float32(0.5) if half else np.float32(0)
            at = np.floor((np.arange(new, dtype=np.float32) + shift) * scale)
        index = paddle.to_tensor(np.clip(at, 0, size - 1).astype(np.int64))
        x = paddle.index_select(x, index, axis)
    return x


def depth_to_space(x: Tensor, block: int) -> Tensor:
    n, h, w, c = x.shape
    inner = c // (block * block)
    parts = paddle.transpose(x.reshape([n, h, w, block, block, inner]), [0, 1, 3, 2, 4, 5])
    return parts.reshape([n, h * block, w * block, inner])


def space_to_depth(x: Tensor, block: int) -> Tensor:
    n, h, w, c = x.shape
    parts = x.reshape([n, h // block, block, w // block, block, c])
    parts = paddle.transpose(parts, [0, 1, 3, 2, 4, 5])
    return parts.reshape([n, h // block, w // block, block * block * c])


def space_to_batch(x: Tensor, block: Sequence[int], pads: np.ndarray) -> Tensor:
    x = pad(x, [(0, 0), *[(int(a), int(b)) for a, b in pads]])
    n, *space = x.shape[: 1 + len(block)]
    rest = list(x.shape[1 + len(block) :])
    split = [d for s, b in zip(space, block, strict=True) for d in (s // b, b)]
    parts = x.reshape([n, *split, *rest])
    count = len(block)
    order = [2 * i + 2 for i in range(count)] + [0] + [2 * i + 1 for i in range(count)]
    made = paddle.transpose(parts, [*order, *range(2 * count + 1, parts.ndim)])
    sizes = [s // b for s, b in zip(space, block, strict=True)]
    return made.reshape([n * math.prod(block), *sizes, *rest])


def batch_to_space(x: Tensor, block: Sequence[int], crops: np.ndarray) -> Tensor:
    count = len(block)
    n, *space = x.shape[: 1 + count]
    rest = list(x.shape[1 + count :])
    parts = x.reshape([*block, n // math.prod(block), *space, *rest])
    order = [count] + [d for i in range(count) for d in (count + 1 + i, i)]
    made = paddle.transpose(parts, [*order, *range(2 * count + 1, parts.ndim)])
    sizes = [s * b for s, b in zip(space, block, strict=True)]
    made = made.reshape([n // math.prod(block), *sizes, *rest])
    cut = [slice(int(a), s - int(b)) for s, (a, b) in zip(sizes, crops, strict=True)]
    return made[(slice(None), *cut)]


# --- shapes ---------------------------------------------------------------------------------


def pad(
    x: Tensor,
    pairs: np.ndarray | Sequence[tuple[int, int]],
    value: float = 0.0,
    mode: str = "constant",
) -> Tensor:
    """(before, after) for each axis."""
    pairs = [(int(a), int(b)) for a, b in pairs]
    if any(a < 0 or b < 0 for a, b in pairs):
        raise ModelFileError(f"padding cannot be {pairs}")
    check_size([d + a + b for d, (a, b) in zip(x.shape, pairs, strict=False)])
    pairs += [(0, 0)] * (x.ndim - len(pairs))
    if mode == "constant":
        flat = [n for pair in pairs for n in pair]
        return F.pad(x, flat, "constant", value, pad_from_left_axis=True)
    for axis, (before, after) in enumerate(pairs):  # REFLECT leaves the edge out
        if before or after:
            size = x.shape[axis]
            if type(size) is not int:
                raise UnsupportedModel("mirrored padding needs the size")
            edges = "reflect" if mode == "REFLECT" else "symmetric"
            at = np.pad(np.arange(size), (before, after), edges)
            x = paddle.index_select(x, paddle.to_tensor(at), axis)
    return x


def slices(
    begin: Sequence[object],
    end: Sequence[object],
    strides: Sequence[int],
    masks: dict[str, int],
    rank: int,
) -> tuple[object, ...]:
    """The index of a strided slice, as Python writes it."""
    made: list[Any] = []
    for i in range(len(begin)):
        bit = 1 << i
        if masks.get("ellipsis_mask", 0) & bit:
            made.append(Ellipsis)
        elif masks.get("new_axis_mask", 0) & bit:
            made.append(None)
        elif masks.get("shrink_axis_mask", 0) & bit:
            made.append(_plain(begin[i]))
        else:
            first = None if masks.get("begin_mask", 0) & bit else _plain(begin[i])
            last = None if masks.get("end_mask", 0) & bit else _plain(end[i])
            made.append(slice(first, last, int(strides[i])))
    if len([m for m in made if m is not None and m is not Ellipsis]) > rank:
        raise ModelFileError(f"{len(made)} slices for {rank} sizes")
    return tuple(made)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, np.integer) else value


def sizes_of(known: np.ndarray) -> list[Any]:
    """Known numbers as sizes: integers, or the symbols of open sizes."""
    return [_plain(v) for v in np.asarray(known).reshape(-1).tolist()]


def shape_of(x: Tensor, dtype: str = "int32") -> np.ndarray:
    """A shape as a known value."""
    dims = list(x.shape)
    if all(type(d) is int for d in dims):
        return np.array(dims, dtype)
    made = np.empty(len(dims), object)
    made[:] = dims
    return made


def reshape(x: Tensor, sizes: Sequence[Any]) -> Tensor:
    check_size([d for d in sizes if d != -1])
    return x.reshape(list(sizes))


def gather(x: Tensor, index: Tensor, axis: int, batch: int = 0) -> Tensor:
    """Rows of x along an axis; the first `batch` dimensions of both are walked through together."""
    axis += x.ndim if axis < 0 else 0
    batch += index.ndim if batch < 0 else 0
    if not 0 <= batch <= axis < x.ndim or batch > index.ndim:
        raise ModelFileError(f"the axis {axis} and {batch} dimensions of a batch do not fit")
    shape = [*x.shape[:axis], *index.shape[batch:], *x.shape[axis + 1 :]]
    if not batch:
        return paddle.index_select(x, index.reshape([-1]), axis).reshape(shape)
    groups, before = math.prod(x.shape[:batch]), math.prod(x.shape[batch:axis])
    size, after = x.shape[axis], math.prod(x.shape[axis + 1 :])
    rows = paddle.transpose(x.reshape([groups, before, size, after]), [0, 2, 1, 3])
    flat = index.reshape([groups, -1]).astype("int64")
    count = flat.shape[1]
    owner = paddle.arange(groups).unsqueeze(1)
    places = paddle.stack([paddle.broadcast_to(owner, [groups, count]), flat], -1)
    made = paddle.gather_nd(rows, places)  # [groups, count, before, after]
    return paddle.transpose(made, [0, 2, 1, 3]).reshape(shape)
