"""`x[...]` and `x[...] = v`, and the slicing functions.

An index is cut in two. The basic part (ints, slices, None, ...) becomes a `spec`, one entry
per dimension, which is an attribute; the integer tensors, lists and masks that are left are
inputs. Paddle applies the basic part first; the rest follows NumPy's rules.

Positions that may change from step to step are run-time inputs, so that `x[i]` and
`x[i : i + n]` in a loop do not compile again and again:

- an int is static where the number of different programs is bounded anyway: at the first and
  last position, and along short dimensions (`qkv[0]`);
- a slice with both ends given has a run-time start and a static length; with an open end, or a
  step, all of it is static, because the length, and so the program, changes with it.
"""

from __future__ import annotations

import operator
from builtins import slice as span  # `slice` is a public function here
from typing import Any

import numpy as np

from bireme.api.public import public
from bireme.api.types import Ints, Shape
from bireme.core.errors import (
    IndexOutOfRange,
    InvalidArgument,
    PositionOutOfRange,
    ShapeMismatch,
    TypeMismatch,
)
from bireme.core.op import TENSOR_TYPES, broadcast_shapes
from bireme.core.tensor import Tensor, constant
from bireme.core.views import Step, as_view, assign, check_inplace
from bireme.ops.axes import axis_in, dimension_in, ints, number
from bireme.ops.contents import Result, reads_contents_if_given
from bireme.ops.open_sizes import surely
from bireme.ops.slice_ops import (
    AT,
    FULL,
    Run,
    Spec,
    mask_set,
    numpy_index,
    pick,
    pick_set,
    put_at,
    put_part,
    take_at,
    take_part,
)

_SHORT = 4  # along dimensions up to this size every position is static


# --- reading an index -------------------------------------------------------------------------


class Index:
    """A user's index: the basic part, and the index tensors by result dimension."""

    __slots__ = ("advanced", "spec", "starts")

    def __init__(self) -> None:
        self.spec: list[Any] = []
        self.starts: list[Any] = []
        self.advanced: list[tuple[int, Any]] = []  # (dimension after the basic part, tensor)


def _parse(shape: tuple[Any, ...], index: Any) -> Index:
    items = index if index.__class__ is tuple else (index,)
    found = Index()
    spec = found.spec
    dim = 0  # dimension of x
    for position, item in enumerate(items):
        kind = item.__class__
        if kind is int:
            if dim >= len(shape):
                raise _too_many(shape)
            _add_int(found, item, shape[dim], dim)
            dim += 1
        elif kind is span:
            if dim >= len(shape):
                raise _too_many(shape)
            _add_slice(found, item, shape[dim])
            dim += 1
        elif item is None:
            spec.append(None)
        elif item is Ellipsis:
            rest = sum(map(_consumed, items[position + 1 :]))
            if any(i is Ellipsis for i in items[position + 1 :]):
                raise InvalidArgument("an index can have only one ellipsis ('...')")
            while dim < len(shape) - rest:
                spec.append(FULL)
                dim += 1
        else:
            dim = _add_other(found, item, shape, dim)
    return found


def _too_many(shape: tuple[Any, ...]) -> IndexOutOfRange:
    return IndexOutOfRange(
        f"too many indices for a tensor of {len(shape)} dimensions with shape {list(shape)}"
    )


def _consumed(item: Any) -> int:
    if item is None or item.__class__ is bool:
        return 0
    if item.__class__ in TENSOR_TYPES:
        return item.ndim if item.dtype.name == "bool" else 1
    if isinstance(item, np.ndarray | list):
        array = np.asarray(item) if not _holds_tensors(item) else None
        return array.ndim if array is not None and array.dtype == bool else 1
    return 1


def _add_int(found: Index, i: int, size: Any, dim: int) -> None:
    if type(size) is not int:
        found.spec.append(i)
        return
    if not -size <= i < size:
        raise IndexOutOfRange(
            f"index {i} is out of range for dimension {dim} of size {size}; it must be in "
            f"[{-size}, {size - 1}]"
        )
    if i < 0:
        i += size
    if i == 0 or i == size - 1 or size <= _SHORT:
        found.spec.append(i)
    else:
        found.spec.append(AT)
        found.starts.append(i)


def _add_slice(found: Index, item: span, size: Any) -> None:
    start, stop, step = item.start, item.stop, item.step
    if start is None and stop is None and step is None:
        found.spec.append(FULL)
        return
    start = start if start is None or start.__class__ is int else _bound(start)
    stop = stop if stop is None or stop.__class__ is int else _bound(stop)
    step = step if step is None or step.__class__ is int else _bound(step)
    if step == 0:
        raise InvalidArgument("a slice's step must not be 0")
    if start is not None and stop is not None and step in (None, 1) and type(size) is int:
        start, stop, _ = span(start, stop).indices(size)
        length = max(stop - start, 0)
        if start and length > 0 and start + length < size:
            found.spec.append(Run(length))
            found.starts.append(start)
            return
        stop = start + length
    found.spec.append((start, stop, step))


def _bound(value: Any) -> Any:
    try:
        return number(value, "a slice's bounds")
    except TypeMismatch as e:
        raise InvalidArgument(str(e)) from None


def _add_other(found: Index, item: Any, shape: tuple[Any, ...], dim: int) -> int:
    """An index that is neither a plain int, a slice, None nor an ellipsis."""
    if item.__class__ is bool or item.__class__ is np.bool_:
        picked = constant(np.zeros(1 if item else 0, np.int64))
        found.advanced.append((_result_dim(found.spec), picked))
        found.spec.append(None)
        return dim
    if isinstance(item, np.integer):
        if dim >= len(shape):
            raise _too_many(shape)
        _add_int(found, int(item), shape[dim], dim)
        return dim + 1
    tensor = _as_index_tensor(item)
    if tensor.dtype.name == "bool":
        return _add_mask(found, tensor, shape, dim)
    if dim >= len(shape):
        raise _too_many(shape)
    if tensor.ndim == 0 and tensor.dtype.is_integer:
        found.spec.append(AT)
        found.starts.append(tensor)
        return dim + 1
    in_range("index", tensor, shape[dim], dim)
    found.advanced.append((_result_dim(found.spec), tensor))
    found.spec.append(FULL)
    return dim + 1


_LOOKED_AT = 65536  # index tensors up to this size are checked when their contents are at hand


def in_range(name: str, index: Tensor, size: Any, dim: int) -> None:
    """Check an index whose contents are at hand; others are clamped by the program."""
    array = index._value.buf
    if array.__class__ is not np.ndarray or type(size) is not int or array.size > _LOOKED_AT:
        return
    if array.size and array.dtype.kind in "iu":
        low, high = array.min(), array.max()
        if low < -size or high >= size:
            raise PositionOutOfRange(
                f"[{name}] index {int(low if low < -size else high)} is out of range for "
                f"dimension {dim} of size {size}; it must be in [{-size}, {size - 1}]"
            )


def _result_dim(spec: list[Any]) -> int:
    return sum(1 for e in spec if e is None or e.__class__ is tuple or e.__class__ is Run)


def _add_mask(found: Index, mask: Tensor, shape: tuple[Any, ...], dim: int) -> int:
    if mask.ndim == 0:
        return _add_other(found, bool(mask), shape, dim)
    covered = shape[dim : dim + mask.ndim]
    if len(covered) < mask.ndim:
        raise _too_many(shape)
    have = mask._value.aval.shape
    if tuple(covered) != have:
        raise IndexOutOfRange(
            f"a boolean index of shape {list(have)} does not match the dimensions "
            f"{list(covered)} that it selects from"
        )
    for where in mask.numpy().nonzero():
        found.advanced.append((_result_dim(found.spec), constant(where)))
        found.spec.append(FULL)
    return dim + mask.ndim


def _holds_tensors(item: Any) -> bool:
    return isinstance(item, list | tuple) and any(
        i.__class__ in TENSOR_TYPES or _holds_tensors(i) for i in item
    )


def _as_index_tensor(item: Any) -> Tensor:
    if isinstance(item, Tensor):
        return item
    if isinstance(item, range):
        item = list(item)
    if isinstance(item, list | tuple | np.ndarray):
        from bireme.ops.creation import to_tensor

        if isinstance(item, np.ndarray):
            array = item.copy()
        elif _holds_tensors(item):
            return to_tensor(item)
        else:
            array = np.asarray(item)
        if array.size == 0 and array.dtype != bool:
            array = array.astype(np.int64)
        if array.dtype.kind in "biu":
            return constant(array)
    raise InvalidArgument(
        "an index must be made of integers, booleans, slices, '...', None, and lists, arrays or "
        f"tensors of integers or booleans. Received: {type(item).__name__} {item!r:.60}"
    )


# --- x[...] -----------------------------------------------------------------------------------


def _take_basic(x: Tensor, spec: Spec, starts: Any = ()) -> Tensor:
    return take_at(x, starts, spec) if starts else take_part(x, spec)


def _put_basic(x: Tensor, value: Tensor, spec: Spec, starts: Any = ()) -> Tensor:
    return put_at(x, value, starts, spec) if starts else put_part(x, value, spec)


def _layout(array: np.ndarray, spec: Spec, starts: Any = ()) -> np.ndarray:
    numbers = [np.asarray(0 if isinstance(s, Tensor) else s) for s in starts]
    return array[*numpy_index(spec, numbers, array.shape), ...]  # "...": a single element too


GETITEM = Step(_take_basic, _put_basic, _layout)


def getitem(x: Tensor, index: Any) -> Tensor:
    """`x[index]`: a view for ints and slices, a copy for lists, index tensors and masks."""
    found = _parse(x._value.aval.shape, index)
    spec = tuple(found.spec)
    if found.advanced:
        if any(e != FULL for e in spec):
            x = _take_basic(x, spec, tuple(found.starts))
        return pick(x, [t for _, t in found.advanced], tuple([a for a, _ in found.advanced]))
    if found.starts:
        # A list, which has no hash, keeps index tensors out of the layout cache.
        tensors = any(s.__class__ is not int for s in found.starts)
        starts = found.starts if tensors else tuple(found.starts)
        return as_view(take_at(x, starts, spec), x, GETITEM, (spec, starts))
    return as_view(take_part(x, spec), x, GETITEM, (spec,))


# --- x[...] = v -------------------------------------------------------------------------------


def setitem(x: Tensor, index: Any, value: Any) -> None:
    """`x[index] = value`, in place; gradients reach both."""
    check_inplace(x, "__setitem__")
    assign(x, _with_item(x, index, _as_value(x, value)), "__setitem__")


def _as_value(x: Tensor, value: Any) -> Any:
    kind = value.__class__
    if kind in TENSOR_TYPES or kind is float or kind is int:
        return value
    if kind is bool:
        return int(value)
    from bireme.ops.creation import to_tensor

    try:
        return to_tensor(value)
    except TypeMismatch:
        raise InvalidArgument(
            "the value of an assignment must be a Tensor, an array or a number. Received: "
            f"{type(value).__name__}"
        ) from None


def _with_item(x: Tensor, index: Any, value: Any) -> Tensor:
    mask = _whole_mask(x, index, value)
    if mask is not None:
        return mask_set(x, mask, value)
    found = _parse(x._value.aval.shape, index)
    spec, starts = tuple(found.spec), tuple(found.starts)
    if not found.advanced:
        return _put_basic(x, value, spec, starts)
    axes = tuple([a for a, _ in found.advanced])
    indices = [t for _, t in found.advanced]
    if all(e == FULL for e in spec):
        return pick_set(x, value, indices, axes)
    part = pick_set(_take_basic(x, spec, starts), value, indices, axes)
    return _put_basic(x, part, spec, starts)


def _whole_mask(x: Tensor, index: Any, value: Any) -> Tensor | None:
    """The mask, if `x[mask] = value` needs no look at it because the value fits everywhere."""
    if index.__class__ not in TENSOR_TYPES or index.dtype.name != "bool" or not index.ndim:
        return None
    have, mask = x._value.aval.shape, index._value.aval.shape
    if have[: len(mask)] != mask:
        return None
    if value.__class__ in TENSOR_TYPES:
        shape = value._value.aval.shape
        rest = have[len(mask) :]
        if len(shape) > len(rest):
            return None
        try:
            if broadcast_shapes(shape, rest) != rest:
                return None
        except ShapeMismatch:
            return None
    return index


# --- slicing functions --------------------------------------------------------------------------


def slice_along(x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    """A copy of the part from `start` to `stop` along `axis`."""
    return take_part(x, (FULL,) * axis + ((start, stop, None),))


def _slices(
    name: str, x: Tensor, axes: Any, starts: Any, ends: Any, strides: Any = None
) -> tuple[Any, ...]:
    ndim = x._value.aval.ndim
    places = [dimension_in(a, ndim, name, "axes") for a in ints(axes, "axes")]
    first, last = ints(starts, "starts"), ints(ends, "ends")
    step = (1,) * len(places) if strides is None else ints(strides, "strides")
    if not len(places) == len(first) == len(last) == len(step):
        raise InvalidArgument(
            f"[{name}] axes, starts, ends and strides must have one length. Received: "
            f"{len(places)}, {len(first)}, {len(last)} and {len(step)}"
        )
    index: list[Any] = [span(None)] * ndim
    for axis, a, b, s in zip(places, first, last, step, strict=True):
        index[axis] = span(a, b, None if s == 1 else s)
    return tuple(index)


def _part(input: Tensor, axes: Any, *rest: Any, **options: Any) -> Result:
    shape = [*input._value.aval.shape]
    for axis in axes:
        shape[axis] = None
    return Result(shape, input.dtype)


@public
@reads_contents_if_given("starts", "ends", results=_part)
def slice(input: Tensor, axes: Ints, starts: Ints, ends: Ints) -> Tensor:
    """`input[starts:ends]` along each of `axes`."""
    return getitem(input, _slices("slice", input, axes, starts, ends))


def _strided_part(x: Tensor, axes: Any, *rest: Any, **options: Any) -> Result:
    return _part(x, axes)


@public
@reads_contents_if_given("starts", "ends", "strides", results=_strided_part)
def strided_slice(
    x: Tensor, axes: Ints, starts: Ints, ends: Ints, strides: Ints, name: str | None = None
) -> Tensor:
    """`x[starts:ends:strides]` along each of `axes`."""
    return getitem(x, _slices("strided_slice", x, axes, starts, ends, strides))


@public
def narrow(input: Tensor, dim: int, start: int | Tensor, length: int) -> Tensor:
    """`length` positions of dimension `dim`, from `start` on."""
    size = input._value.aval.shape[dimension_in(dim, input.ndim, "narrow", "dim")]
    first = number(start, "start")
    first = first + size if first < 0 else first
    if length < 0 or surely(lambda: first < 0) or surely(lambda: first > size - length):
        raise InvalidArgument(
            f"[narrow] start and length must lie within dimension {dim} of size {size}. Received: "
            f"start={start}, length={length}"
        )
    axis = axis_in(dim, input.ndim, "narrow", "dim")
    return getitem(input, (span(None),) * axis + (span(first, first + length),))


def _block(x: Tensor, *rest: Any, **options: Any) -> Result:
    return Result([None] * x.ndim, x.dtype)


@public(method=False)
@reads_contents_if_given("shape", "offsets", results=_block)
def crop(
    x: Tensor, shape: Shape | None = None, offsets: Shape | None = None, name: str | None = None
) -> Tensor:
    """A block of `shape` (-1: up to the end) out of `x`, beginning at `offsets`."""
    have = x._value.aval.shape
    begin = (0,) * len(have) if offsets is None else ints(offsets, "offsets")
    want = have if shape is None else ints(shape, "the shape")
    if not len(begin) == len(want) == len(have):
        raise InvalidArgument(
            f"[crop] shape and offsets must have {len(have)} entries, as many as x has "
            f"dimensions. Received: shape={list(want)}, offsets={list(begin)}"
        )
    spec = []
    for i, (size, o, n) in enumerate(zip(have, begin, want, strict=True)):
        n = size - o if type(n) is int and n == -1 else n
        if type(size) is int and not (o >= 0 and n >= 0 and o + n <= size):
            raise InvalidArgument(
                f"[crop] offset {o} and size {n} do not lie within dimension {i} of size {size}"
            )
        spec.append((o, o + n, None))
    return take_part(x, tuple(spec))


@public
def slice_scatter(
    x: Tensor,
    value: Tensor,
    axes: Ints,
    starts: Ints,
    ends: Ints,
    strides: Ints,
    name: str | None = None,
) -> Tensor:
    """A copy of `x` in which the slice along `axes` is replaced by `value`."""
    return _with_item(x, _slices("slice_scatter", x, axes, starts, ends, strides), value)


@public
def select_scatter(
    x: Tensor, values: Tensor, axis: int, index: int, name: str | None = None
) -> Tensor:
    """A copy of `x` in which position `index` of dimension `axis` is replaced by `values`."""
    at = dimension_in(axis, x.ndim, "select_scatter")
    shape = x._value.aval.shape
    if values._value.aval.shape != (*shape[:at], *shape[at + 1 :]):
        raise ShapeMismatch(
            f"[select_scatter] values must have the slice's shape, x's without dimension {at}. "
            f"Received: {values.shape} for x of shape {x.shape}"
        )
    return _with_item(x, (span(None),) * at + (operator.index(index),), values)
