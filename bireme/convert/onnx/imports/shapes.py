"""Shapes: what they are, and changing them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import bireme as paddle
from bireme.convert.onnx.imports import onnx_op
from bireme.convert.onnx.imports.elementwise import number
from bireme.convert.onnx.reader import OnnxError
from bireme.core.errors import ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.ops.dimensions import dimensions
from bireme.ops.indexing import _gather
from bireme.ops.padding import _pad_constant, _pad_copy

if TYPE_CHECKING:
    from bireme.convert.onnx.interpreter import NodeView, Value, Values


_FAR = 1 << 29  # a bound at least so large means "to the end" of a size that is not known


def shape_of(x: Any) -> tuple[Any, ...]:
    """The sizes of a tensor or known value; symbolic ones stay symbolic."""
    return tuple(x._value.aval.shape) if isinstance(x, Tensor) else x.shape


def sizes(items: Any) -> list[Any]:
    """A known vector as a list of plain or symbolic sizes."""
    return [int(d) if isinstance(d, int | np.integer) else d for d in np.ravel(items).tolist()]


def dims_array(shape: Sequence[Any]) -> np.ndarray:
    """Sizes as a known vector: int64, or objects where some are symbolic."""
    plain = all(type(d) is int for d in shape)
    made = np.empty(len(shape), np.int64 if plain else object)
    made[:] = list(shape)
    return made


def in_tensors(size: Any) -> Any:
    """A size as something that tensors can be added to: symbolic ones become tensors."""
    return size if isinstance(size, int | float) else dimensions(dims=(size,)).reshape([])


@onnx_op("Shape", host=True)
def shape(n: NodeView, x: Value) -> np.ndarray:
    return dims_array(shape_of(x)[n.attr("start", 0) : n.attr("end")])


@onnx_op("Size", host=True)
def size(n: NodeView, x: Value) -> np.ndarray:
    count = math.prod(shape_of(x)) if len(shape_of(x)) else 1
    made = np.empty((), np.int64 if type(count) is int else object)
    made[()] = count
    return made


def target_shape(n: NodeView, old: Sequence[Any], new: Any) -> list[Any]:
    """Reshape's target with zeros (copies) and -1 (the rest) worked out."""
    keep_zero = n.attr("allowzero", 0)
    target = []
    for i, d in enumerate(sizes(new)):
        if type(d) is int and d == 0 and not keep_zero:
            if i >= len(old):
                raise ShapeMismatch(
                    f"the target {sizes(new)} copies a dimension that {list(old)} lacks"
                )
            d = old[i]
        target.append(d)
    return target


@onnx_op("Reshape", static=(1,))
def reshape(n: NodeView, x: Tensor, target: Value | None = None) -> Tensor:
    target = n.attr("shape") if target is None else target
    wanted = target_shape(n, shape_of(x), target)
    if any(type(d) is int and d == 0 for d in wanted):
        # Ours reads 0 as "copy", too.
        rest = math.prod(d for d in wanted if type(d) is int and d > 0) or 1
        wanted = [0 if d == -1 and rest else d for d in wanted]
        return paddle.zeros(wanted, x.dtype)
    return x.reshape(wanted)


@onnx_op("Flatten")
def flatten(n: NodeView, x: Tensor) -> Tensor:
    axis = n.attr("axis", 1)
    axis += x.ndim if axis < 0 else 0
    old = shape_of(x)
    lead, rest = math.prod(old[:axis]), math.prod(old[axis:])
    if type(lead) is int and lead > 0:
        return x.reshape([lead, -1 if type(rest) is not int or rest else 0])
    return x.reshape([lead, rest])


@onnx_op("Transpose")
def transpose(n: NodeView, x: Tensor) -> Tensor:
    return paddle.transpose(x, n.attr("perm") or list(range(x.ndim))[::-1])


@onnx_op("Squeeze", static=(1,))
def squeeze(n: NodeView, x: Tensor, axes: Value | None = None) -> Tensor:
    chosen = n.attr("axes") if axes is None else sizes(axes)
    if chosen is None:
        chosen = [i for i, d in enumerate(shape_of(x)) if type(d) is int and d == 1]
    return paddle.squeeze(x, list(chosen)) if chosen else x


@onnx_op("Unsqueeze", static=(1,))
def unsqueeze(n: NodeView, x: Tensor, axes: Value | None = None) -> Tensor:
    chosen = n.attr("axes") if axes is None else sizes(axes)
    rank = x.ndim + len(chosen)
    return paddle.unsqueeze(x, sorted(a % rank for a in chosen))


@onnx_op("Concat")
def concat(n: NodeView, *xs: Tensor) -> Tensor:
    return paddle.concat(list(xs), n.attr("axis"))


def split_sizes(n: NodeView, total: Any, split: Any, axis: int) -> list[Any]:
    """How long each part of a split is."""
    parts = n.attr("split") if split is None else sizes(split)
    if parts is None:
        count = n.attr("num_outputs") or n.wanted
        if type(total) is not int:
            return [total // count] * count
        step = -(-total // count)
        parts = [max(min(step, total - i * step), 0) for i in range(count)]
    return list(parts)


@onnx_op("Split", static=(1,))
def split(n: NodeView, x: Tensor, parts: Value | None = None) -> Values:
    axis = n.attr("axis", 0) % x.ndim
    lengths = split_sizes(n, shape_of(x)[axis], parts, axis)
    if len(lengths) == 1:
        return x
    made, at = [], 0
    for length in lengths:
        made.append(cut(x, axis, at, at + length))
        at = at + length
    return tuple(made)


def cut(x: Tensor, axis: int, start: Any, end: Any, step: int = 1) -> Tensor:
    """Part of one axis."""
    return x[(*[slice(None)] * axis, slice(start, end, step))]


@onnx_op("Slice", static=(1, 2, 3, 4))
def slice_(
    n: NodeView,
    x: Tensor,
    starts: Value | None = None,
    ends: Value | None = None,
    axes: Value | None = None,
    steps: Value | None = None,
) -> Tensor:
    for axis, start, end, step in slice_plan(n, x.ndim, starts, ends, axes, steps):
        size = shape_of(x)[axis]
        if type(size) is int and all(type(v) is int for v in (start, end)):
            start, end, step = slice(start, end, step).indices(size)
            if len(range(start, end, step)) == size and step == 1:
                continue
            if step < 0:
                index = np.arange(start, end, step)
                x = paddle.index_select(x, paddle.to_tensor(index), axis)
                continue
            x = cut(x, axis, start, max(end, start), step)
            continue
        if type(end) is int and abs(end) >= _FAR:
            end = None
        if type(start) is int and start == 0 and end is None and step == 1:
            continue
        x = _open_cut(x, axis, start, end, step)
    return x


def _open_cut(x: Tensor, axis: int, start: Any, end: Any, step: int) -> Tensor:
    """Part of an axis where the size or a bound is symbolic."""
    if step < 0:
        raise OnnxError("a slice backwards needs sizes that are known")
    size = shape_of(x)[axis]
    if all(v is None or type(v) is int for v in (start, end)):
        return cut(x, axis, start, end, step)
    first = size + start if type(start) is int and start < 0 else start
    last = size if end is None else size + end if type(end) is int and end < 0 else end
    if type(first) is int and first == 0 and last == size and step == 1:
        return x
    places = paddle.arange(0, last - first, step, "int64") + in_tensors(first)
    return _gather(x, places, axis)


def slice_plan(n: NodeView, rank: int, starts: Any, ends: Any, axes: Any, steps: Any) -> list[Any]:
    """(axis, start, end, step) per sliced axis."""
    if n.opset < 10:
        starts, ends, axes = n.attr("starts"), n.attr("ends"), n.attr("axes")
    starts, ends = sizes(starts), sizes(ends)
    axes = range(len(starts)) if axes is None else sizes(axes)
    steps = [1] * len(starts) if steps is None else sizes(steps)
    return [(a % rank, s, e, t) for a, s, e, t in zip(axes, starts, ends, steps, strict=True)]


def broadcast_target(old: Sequence[Any], new: Any) -> list[Any]:
    """The shape of an Expand: both sides may have ones."""
    old, new = list(old), sizes(new)
    rank = max(len(old), len(new))
    old, new = [1] * (rank - len(old)) + old, [1] * (rank - len(new)) + new
    return [o if type(w) is int and w == 1 else w for o, w in zip(old, new, strict=True)]


@onnx_op("Expand", static=(1,))
def expand(n: NodeView, x: Tensor, target: Value) -> Tensor:
    return paddle.expand(x, broadcast_target(shape_of(x), target))


@onnx_op("Tile", static=(1,))
def tile(n: NodeView, x: Tensor, repeats: Value) -> Tensor:
    return paddle.tile(x, sizes(repeats)) if x.ndim else x


@onnx_op("Pad", static=(1, 3))
def pad(
    n: NodeView,
    x: Tensor,
    pads: Value | None = None,
    value: Tensor | None = None,
    axes: Value | None = None,
) -> Values:
    if n.opset < 11:
        pads, value = n.attr("pads", n.attr("paddings")), number(n.attr("value", 0.0), x)
    amounts = sizes(pads)
    over = list(range(x.ndim)) if axes is None else [a % x.ndim for a in sizes(axes)]
    pairs: list[tuple[Any, Any]] = [(0, 0)] * x.ndim
    for i, axis in enumerate(over):
        pairs[axis] = (amounts[i], amounts[i + len(over)])
    mode = n.attr("mode", "constant")
    if mode == "constant":
        return _pad_constant(x, number(0, x) if value is None else value.reshape([]), tuple(pairs))
    names = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    for axis, (before, after) in enumerate(pairs):
        if type(shape_of(x)[axis]) is not int and (before or after) and mode != "wrap":
            x = _open_pad(x, axis, before, after, mode)
            pairs[axis] = (0, 0)
    if mode not in names:
        raise OnnxError(f"the padding mode {mode!r} is not known")
    return _pad_copy(x, tuple(pairs), names[mode])


def _open_pad(x: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    """Reflected or repeated edges of an axis whose size is symbolic."""
    size = shape_of(x)[axis]
    reflect = mode == "reflect"
    left = np.arange(before, 0, -1) if reflect else np.zeros(before, np.int64)
    right = np.arange(2, after + 2) if reflect else np.ones(after, np.int64)
    parts = [x]
    if before:
        parts.insert(0, _gather(x, paddle.to_tensor(left), axis))
    if after:
        parts.append(_gather(x, paddle.to_tensor(-right) + in_tensors(size), axis))
    return paddle.concat(parts, axis)


@onnx_op("DepthToSpace")
def depth_to_space(n: NodeView, x: Tensor) -> Tensor:
    b, c, h, w = shape_of(x)
    k = n.attr("blocksize")
    if n.attr("mode", "DCR") == "DCR":
        parts = x.reshape([b, k, k, c // (k * k), h, w]).transpose([0, 3, 4, 1, 5, 2])
    else:
        parts = x.reshape([b, c // (k * k), k, k, h, w]).transpose([0, 1, 4, 2, 5, 3])
    return parts.reshape([b, c // (k * k), h * k, w * k])


@onnx_op("SpaceToDepth")
def space_to_depth(n: NodeView, x: Tensor) -> Tensor:
    b, c, h, w = shape_of(x)
    k = n.attr("blocksize")
    parts = x.reshape([b, c, h // k, k, w // k, k]).transpose([0, 3, 5, 1, 2, 4])
    return parts.reshape([b, c * k * k, h // k, w // k])
