"""Moving elements around: flip, roll, diagonals, windows, repetition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.api.public import another_name, method, public
from bireme.api.types import Axis, Ints
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor, constant
from bireme.core.views import Step, as_view
from bireme.ops.axes import axes_in, axis_in, dimension_in, ints, number
from bireme.ops.joining import unstack_at
from bireme.ops.linalg import diagonal as _diagonal
from bireme.ops.manipulation import flatten, reshape, transpose
from bireme.ops.nn_support import scatter_add
from bireme.ops.open_sizes import diagonal_length, surely
from bireme.ops.slicing import FULL, GETITEM


def _same(x: Aval, *rest: Any, **attrs: Any) -> Aval:
    return x


# --- flip and roll ------------------------------------------------------------------------------


@op(name="flip", infer=_same, vjp=lambda xp, grad, axis: (xp.flip(grad, axis),), exact=True)
def _flip(xp, x, axis=()):
    """Elements in reverse order along dimensions."""
    return xp.flip(x, axis)


@public
def flip(x: Tensor, axis: Axis, name: str | None = None) -> Tensor:
    """`x` in reverse order along `axis`."""
    given: Any = axis
    if x.ndim == 0 and (type(given) is int or len(given)):
        dimension_in(given, 0, "flip")
    return _flip(x, axes_in(axis, x.ndim, "flip"))


reverse = another_name("reverse", flip)


def _roll_vjp(xp: Any, grad: Any, shifts: Any, axis: Any) -> tuple[Any]:
    return (xp.roll(grad, tuple([-s for s in shifts]), axis),)


@op(name="roll", infer=_same, vjp=_roll_vjp, exact=True)
def _roll(xp, x, shifts=(), axis=()):
    """Elements shifted along dimensions; what falls off comes back at the other end."""
    return xp.roll(x, shifts, axis)


@public(also={"input": "x", "dims": "axis"})
def roll(x: Tensor, shifts: Ints, axis: Axis | None = None, name: str | None = None) -> Tensor:
    """`x` shifted by `shifts` along `axis`, or over all its elements; what falls off comes back."""
    by = ints(shifts, "shifts")
    if axis is None:
        return reshape(_roll(flatten(x), by[:1], (0,)), x._value.aval.shape)
    places = tuple([dimension_in(a, x.ndim, "roll") for a in ints(axis, "axis")])
    if len(places) != len(by):
        raise InvalidArgument(
            f"[roll] shifts and axis must have the same length. Received: {shifts!r} and {axis!r}"
        )
    return _roll(x, by, places)


@public
def rot90(x: Tensor, k: int = 1, axes: Sequence[int] = (0, 1), name: str | None = None) -> Tensor:
    """`x` turned by 90 degrees `k` times, from the first of `axes` towards the second."""
    if x.ndim < 2 or len(axes) != 2:
        raise InvalidArgument(
            f"[rot90] takes a tensor of 2 or more dimensions and two axes. Received: shape "
            f"{x.shape} and axes {axes!r}"
        )
    a, b = axes_in(axes, x.ndim, "rot90", "axes")
    k %= 4
    if k == 0:
        return x
    if k == 2:
        return _flip(x, (a, b))
    order = list(range(x.ndim))
    order[a], order[b] = b, a
    if k == 1:
        return transpose(_flip(x, (b,)), tuple(order))
    return _flip(transpose(x, tuple(order)), (b,))


# --- diagonals ----------------------------------------------------------------------------------


def _diagonal_infer(x: Aval, offset: int, axis1: int, axis2: int) -> Aval:
    rest = [d for i, d in enumerate(x.shape) if i not in (axis1, axis2)]
    return aval((*rest, diagonal_length(x.shape[axis1], x.shape[axis2], offset)), x.dtype)


def _on_diagonal(xp: Any, x: Any, values: Any, offset: int, axis1: int, axis2: int) -> Any:
    """`x` with `values` on its diagonal."""
    order = [i for i in range(x.ndim) if i not in (axis1, axis2)] + [axis1, axis2]
    moved = xp.transpose(x, order)
    n = diagonal_length(x.shape[axis1], x.shape[axis2], offset)
    steps = np.arange(n)
    spot = (..., steps + max(-offset, 0), steps + max(offset, 0))
    if xp is np:
        moved = moved.copy()
        moved[spot] = values
    else:
        moved = moved.at[spot].set(values)
    return xp.transpose(moved, np.argsort(order).tolist())


def _diagonal_write(base: Tensor, view: Tensor, *args: int) -> Tensor:
    return _diagonal_scatter(base, view, *args)


DIAGONAL = Step(_diagonal, _diagonal_write, np.diagonal)


def _two_axes(name: str, x: Tensor, axis1: int, axis2: int) -> tuple[int, int]:
    first, second = axis_in(axis1, x.ndim, name), axis_in(axis2, x.ndim, name)
    if first == second or x.ndim < 2:
        raise InvalidArgument(
            f"[{name}] needs two different dimensions. Received: {axis1} and {axis2} for shape "
            f"{x.shape}"
        )
    return first, second


@public(spaces=("paddle", "paddle.linalg"), also={"input": "x", "dim1": "axis1", "dim2": "axis2"})
def diagonal(
    x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1, name: str | None = None
) -> Tensor:
    """The diagonal of the dimensions `axis1` and `axis2`, as the last dimension; a view."""
    args = (offset, *_two_axes("diagonal", x, axis1, axis2))
    return as_view(_diagonal(x, *args), x, DIAGONAL, args)


def _diagonal_scatter_vjp(
    xp: Any, grad: Any, types: Any, offset: int, axis1: int, axis2: int
) -> tuple[Any, Any]:
    into = _on_diagonal(xp, grad, xp.zeros((), grad.dtype), offset, axis1, axis2)
    return into, xp.diagonal(grad, offset, axis1, axis2)


def _diagonal_scatter_check(x: Aval, y: Aval, offset: int, axis1: int, axis2: int) -> None:
    want = _diagonal_infer(x, offset, axis1, axis2).shape
    if y.shape != want:
        raise ShapeMismatch(f"the diagonal has shape {list(want)}, but y has {list(y.shape)}")


@op(name="diagonal_scatter", infer=_same, check=_diagonal_scatter_check, vjp=_diagonal_scatter_vjp)
def _diagonal_scatter(xp, x, y, offset=0, axis1=0, axis2=1):
    """A copy of x with another diagonal."""
    return _on_diagonal(xp, x, y.astype(x.dtype), offset, axis1, axis2)


@public
def diagonal_scatter(
    x: Tensor,
    y: Tensor,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    name: str | None = None,
) -> Tensor:
    """A copy of `x` whose diagonal of the dimensions `axis1` and `axis2` is `y`."""
    return _diagonal_scatter(x, y, offset, *_two_axes("diagonal_scatter", x, axis1, axis2))


@method(inplace=True)
def fill_diagonal_tensor(
    x: Tensor, y: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1, name: str | None = None
) -> Tensor:
    """A copy of `x` whose diagonal of the dimensions `dim1` and `dim2` is `y`."""
    first, second = _two_axes("fill_diagonal_tensor", x, dim1, dim2)
    values = y
    if y.ndim == 1 and x.ndim > 2:
        values = reshape(y, (1,) * (x.ndim - 2) + (-1,))
    return _diagonal_scatter(x, values, offset, first, second)


def _fill_diagonal_mask(shape: tuple[int, ...], offset: int, wrap: bool) -> np.ndarray:
    mask = np.zeros(shape, bool)
    if len(shape) == 2:
        flat = mask.reshape(-1)
        width = shape[1]
        last = len(flat) if wrap else min(shape[0], width) * width
        for at in range(0, last, width + 1):
            row, column = divmod(at, width)
            if 0 <= column + offset < width and row * width + column + offset < len(flat):
                flat[at + offset] = True
    else:
        for i in range(shape[0]):
            if 0 <= i + offset < shape[-1]:
                mask[(i,) * (len(shape) - 1) + (i + offset,)] = True
    return mask


@method
def fill_diagonal_(
    x: Tensor, value: float, offset: int = 0, wrap: bool = False, name: str | None = None
) -> Tensor:
    """Set the main diagonal to `value`, in place.

    With `wrap` the diagonal of a tall matrix starts again below its last column.
    """
    from bireme.core.views import assign
    from bireme.ops.slice_ops import mask_set

    shape = x._value.aval.shape
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise InvalidArgument(
            "[fill_diagonal_] takes a matrix, or a tensor whose dimensions are all equal. "
            f"Received: shape {x.shape}"
        )
    mask = constant(_fill_diagonal_mask(shape, offset, wrap))
    return assign(x, mask_set(x, mask, value), "fill_diagonal_")


# --- windows ------------------------------------------------------------------------------------


def _strided_indices(shape: Any, stride: Any, offset: int) -> np.ndarray:
    at = np.asarray(offset, np.int64)
    for n, s in zip(shape, stride, strict=True):
        at = at[..., None] + np.arange(n) * s
    return at


def _as_strided_infer(x: Aval, shape: Any, stride: Any, offset: int) -> Aval:
    if len(shape) != len(stride):
        raise ShapeMismatch("shape and stride must have the same length")
    last = offset + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    if 0 not in shape and (last < 0 or surely(lambda: last >= math.prod(x.shape))):
        raise InvalidArgument(f"the view reaches element {last} of {math.prod(x.shape)}")
    return aval(shape, x.dtype)


def _as_strided_vjp(xp: Any, grad: Any, types: Any, shape: Any, stride: Any, offset: int) -> Any:
    spots = _strided_indices(shape, stride, offset)
    total = math.prod(types[0].shape)
    flat = scatter_add(xp, xp.zeros(total, grad.dtype), spots, grad)
    return (xp.reshape(flat, types[0].shape),)


@op(name="as_strided", infer=_as_strided_infer, vjp=_as_strided_vjp, exact=True)
def _as_strided(xp, x, shape=(), stride=(), offset=0):
    """Elements picked from the memory of x by strides."""
    return xp.reshape(x, (-1,))[_strided_indices(shape, stride, offset)]


def _as_strided_write(base: Tensor, view: Tensor, shape: Any, stride: Any, offset: int) -> Tensor:
    return _strided_write(base, view, shape, stride, offset)


@op(name="as_strided_write", infer=_same, differentiable=False, exact=True)
def _strided_write(xp, x, value, shape=(), stride=(), offset=0):
    """A copy of x with the elements that strides name replaced."""
    spots = _strided_indices(shape, stride, offset)
    flat = xp.reshape(x, (-1,))
    if xp is np:
        flat = flat.copy()
        flat[spots] = value
    else:
        flat = flat.at[spots].set(value)
    return xp.reshape(flat, x.shape)


def _strided_layout(array: np.ndarray, shape: Any, stride: Any, offset: int) -> np.ndarray:
    steps = [s * array.itemsize for s in stride]
    return np.lib.stride_tricks.as_strided(array.reshape(-1)[offset:], shape, steps)


AS_STRIDED = Step(_as_strided, _as_strided_write, _strided_layout)


@public
def as_strided(
    x: Tensor, shape: Sequence[int], stride: Sequence[int], offset: int = 0, name: str | None = None
) -> Tensor:
    """A view of the memory of `x` by explicit strides (in elements) and an offset (in bytes)."""
    start, rest = divmod(number(offset, "offset"), x.dtype.itemsize)
    if rest:
        raise InvalidArgument(
            f"[as_strided] the offset counts bytes and must be a multiple of the element size, "
            f"{x.dtype.itemsize}. Received: {offset}"
        )
    args = (ints(shape), ints(stride, "stride"), start)
    return as_view(_as_strided(x, *args), x, AS_STRIDED, args)


@public(also={"dimension": "axis"})
def unfold(x: Tensor, axis: int, size: int, step: int, name: str | None = None) -> Tensor:
    """Windows of `size` elements along `axis`, `step` apart, as a new last dimension; a view."""
    at = dimension_in(axis, x.ndim, "unfold")
    length = x._value.aval.shape[at]
    if size <= 0 or surely(lambda: size > length) or step <= 0:
        raise InvalidArgument(
            f"[unfold] size must be in [1, {length}] and step positive. Received: size={size}, "
            f"step={step}"
        )
    args = (at, size, step)
    return as_view(_unfold(x, *args), x, UNFOLD, args)


def _unfold_infer(x: Aval, axis: int, size: int, step: int) -> Aval:
    count = (x.shape[axis] - size) // step + 1
    return aval((*x.shape[:axis], count, *x.shape[axis + 1 :], size), x.dtype)


def _window_spots(length: int, size: int, step: int) -> np.ndarray:
    count = (length - size) // step + 1
    return np.arange(count)[:, None] * step + np.arange(size)


def _unfold_vjp(xp: Any, grad: Any, types: Any, axis: int, size: int, step: int) -> tuple[Any]:
    shape = types[0].shape
    spot: Any = (slice(None),) * axis + (_window_spots(shape[axis], size, step),)
    grad = xp.moveaxis(grad, -1, axis + 1)
    return (scatter_add(xp, xp.zeros(shape, grad.dtype), spot, grad),)


@op(name="unfold", infer=_unfold_infer, vjp=_unfold_vjp, exact=True)
def _unfold(xp, x, axis=0, size=1, step=1):
    """Sliding windows along a dimension."""
    spot = (slice(None),) * axis + (_window_spots(x.shape[axis], size, step),)
    return xp.moveaxis(x[spot], axis + 1, -1)


@op(name="unfold_write", infer=_same, differentiable=False)
def _unfold_write(xp, x, value, axis=0, size=1, step=1):
    """A copy of x with its windows replaced."""
    spot = (slice(None),) * axis + (_window_spots(x.shape[axis], size, step),)
    value = xp.moveaxis(value, -1, axis + 1)
    if xp is np:
        out = x.copy()
        out[spot] = value
        return out
    return x.at[spot].set(value)


def _unfold_layout(array: np.ndarray, axis: int, size: int, step: int) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(array, size, axis)
    return windows[(slice(None),) * axis + (slice(None, None, step),)]


UNFOLD = Step(_unfold, _unfold_write, _unfold_layout)


# --- unbind -------------------------------------------------------------------------------------


@public(also={"dim": "axis"})
def unbind(input: Tensor, axis: int = 0) -> list[Tensor]:
    """The slices of `input` along `axis`, each without that dimension; views."""
    at = axis_in(axis, input.ndim, "unbind")
    # One op, whose gradient is one stack; as slices, each would have a padded gradient.
    lead = (FULL,) * at
    parts = unstack_at(input, at)
    return [as_view(part, input, GETITEM, ((*lead, i),)) for i, part in enumerate(parts)]


# --- repetition and pieces ------------------------------------------------------------------------


def _repeat_infer(x: Aval, repeats: Any, axis: int) -> Aval:
    size = x.shape[axis] * repeats if type(repeats) is int else sum(repeats)
    return aval((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)


def _repeat_vjp(xp: Any, grad: Any, types: Any, repeats: Any, axis: int) -> tuple[Any]:
    shape = types[0].shape
    if type(repeats) is int:
        split = xp.reshape(grad, (*shape[: axis + 1], repeats, *shape[axis + 1 :]))
        return (xp.sum(split, axis=axis + 1),)
    where = np.repeat(np.arange(shape[axis]), repeats)
    spot: Any = (slice(None),) * axis + (where,)
    return (scatter_add(xp, xp.zeros(shape, grad.dtype), spot, grad),)


@op(name="repeat_interleave", infer=_repeat_infer, vjp=_repeat_vjp)
def _repeat_interleave(xp, x, repeats=1, axis=0):
    """Each element repeated along a dimension."""
    if type(repeats) is int:
        return xp.repeat(x, repeats, axis=axis)
    return xp.take(x, np.repeat(np.arange(x.shape[axis]), repeats), axis=axis)


@public(also={"input": "x", "dim": "axis"})
def repeat_interleave(
    x: Tensor,
    repeats: Ints,
    axis: int | None = None,
    name: str | None = None,
    *,
    output_size: int | None = None,
) -> Tensor:
    """Each slice of `x` along `axis` repeated; `repeats` is one number or one per slice."""
    if axis is None:
        x, axis = flatten(x), 0
    at = axis_in(axis, x.ndim, "repeat_interleave")
    if isinstance(repeats, Tensor) or not isinstance(repeats, int):
        counts = ints(repeats, "repeats")
        size = x._value.aval.shape[at]
        if len(counts) == 1:
            repeats = counts[0]
        elif len(counts) != size:
            raise InvalidArgument(
                f"[repeat_interleave] repeats must be one number or {size}, one for each slice "
                f"along axis {at}. Received: {len(counts)} numbers"
            )
        else:
            repeats = counts
    counts = repeats if isinstance(repeats, tuple) else (repeats,)
    if any(isinstance(n, int) and n < 0 for n in counts):
        raise InvalidArgument(
            f"[repeat_interleave] repeats must not be negative. Received: {repeats}"
        )
    made = _repeat_interleave(x, repeats, at)
    if output_size is not None and output_size != made._value.aval.shape[at]:
        raise InvalidArgument(
            f"[repeat_interleave] output_size must be {made._value.aval.shape[at]}, the sum of "
            f"the repeats. Received: {output_size}"
        )
    return made


@op(name="shard_index", infer=_same, differentiable=False)
def _shard_index(xp, x, index_num=1, nshards=1, shard_id=0, ignore_value=-1):
    """Global row numbers as row numbers within one shard."""
    size = (index_num + nshards - 1) // nshards
    mine = x // size == shard_id
    return xp.where(mine, x % size, xp.asarray(ignore_value, x.dtype))


@public(takes="ifc")
def shard_index(
    input: Tensor, index_num: int, nshards: int, shard_id: int, ignore_value: int = -1
) -> Tensor:
    """Row numbers of a table cut into `nshards`, as rows of shard `shard_id`.

    Rows of other shards become `ignore_value`.
    """
    if not 0 <= shard_id < nshards:
        raise InvalidArgument(
            f"[shard_index] shard_id must be in [0, {nshards - 1}]. Received: {shard_id}"
        )
    return _shard_index(input, index_num, nshards, shard_id, ignore_value)
