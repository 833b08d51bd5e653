"""Making tensors.

A small constant is a NumPy buffer made at once. A large one, or one with a symbolic dimension,
is a recorded op, so that it is made on the device and never copied there; the fill value is a
run-time input.
"""

from __future__ import annotations

import builtins
import itertools
import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.api.public import public
from bireme.api.types import (
    DeviceLike,
    DTypeLike,
    IntOrTensor,
    Scalar,
    Shape,
    TensorLike,
)
from bireme.core import dtype as dt
from bireme.core.aval import aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.place import as_place, default_place, keep_on_host
from bireme.core.tensor import Tensor, constant, on_device
from bireme.core.trace import state
from bireme.ops.axes import ints
from bireme.ops.contents import Result, reads_contents

_indices = builtins.range  # the name `range` is Paddle's below
_SMALL = 64 * 1024  # bytes up to which a constant is a host buffer


@public(also={"device": "place"})
def to_tensor(
    data: TensorLike,
    dtype: DTypeLike | None = None,
    place: DeviceLike | None = None,
    stop_gradient: bool = True,
) -> Tensor:
    """A tensor with a copy of `data`: numbers, nested lists, NumPy arrays or tensors."""
    want = None if dtype is None else dt.as_dtype(dtype)
    if isinstance(data, Tensor):
        if place is None and _has_no_contents(data):
            return _recorded_copy(data, want, stop_gradient)
        array = data.numpy()
    else:
        array = _as_array(data)
        if want is None:
            want = _natural_dtype(data, array)
    if want is not None and array.dtype != want.numpy:
        array = array.astype(want.numpy)
    where = None if place is None else as_place(place)
    if where is None or where.is_cpu_place():
        if where is not None:
            keep_on_host(array)
        made = constant(array)
    else:
        made = on_device(array, where)
    if not stop_gradient:
        made.stop_gradient = False
    return made


def _has_no_contents(data: Tensor) -> bool:
    """Whether only a run of the graph that is recorded will know them."""
    from bireme.ops.control_record import is_symbolic

    return is_symbolic(data) and not state.trace.fold(data._value)


def _recorded_copy(data: Tensor, want: dt.DType | None, stop_gradient: bool) -> Tensor:
    from bireme.ops.math_unary import assign_value, cast

    made = assign_value(data.detach())
    if want is not None and want is not made.dtype:
        made = cast(made, want)
    if not stop_gradient:
        made.stop_gradient = False
    return made


def _as_array(data: Any) -> np.ndarray:
    if isinstance(data, list | tuple):
        data = _without_tensors(data)
    try:
        array = np.array(data)  # always a copy: later changes of `data` must not show
    except ValueError as e:
        raise TypeMismatch(
            f"[to_tensor] nested lists must be rectangular: every row of one length. {e}"
        ) from None
    if array.dtype.kind in "OUS":
        raise TypeMismatch(
            f"[to_tensor] data must be numbers, nested lists of numbers, NumPy arrays or tensors. "
            f"Received: {type(data).__name__} of {array.dtype}"
        )
    return array


def _without_tensors(data: Any) -> Any:
    if isinstance(data, Tensor):
        return data.numpy()
    if isinstance(data, list | tuple):
        return [_without_tensors(d) for d in data]
    return data


def _natural_dtype(data: Any, array: np.ndarray) -> dt.DType | None:
    """NumPy arrays keep their dtype; numbers, and lists of anything, take the defaults."""
    if isinstance(data, np.ndarray | np.generic):
        return None
    if isinstance(data, numbers.Number | list | tuple):
        if isinstance(data, list | tuple) and any(isinstance(d, Tensor) for d in data):
            return None  # tensors in a list keep their dtype
        if array.dtype == np.int32:
            return dt.int64
        if array.dtype.kind == "f":
            return dt.default_float()
        if array.dtype.kind == "c":
            return dt.default_complex()
    return None


# --- filled with one value --------------------------------------------------------------------


@op(name="full", inputs=("value",), of_numbers=True, differentiable=False,
    infer=lambda value, shape, dtype: aval(shape, dt.as_dtype(dtype)))  # fmt: skip
def _full(xp, value, shape=(), dtype="float32"):
    """A tensor of one value."""
    return xp.full(shape, xp.asarray(value).astype(dt.as_dtype(dtype).numpy))


@op(name="ones_like", infer="elementwise", differentiable=False)
def ones_of(xp, x):
    """Ones in x's shape and type: the gradient that a backward pass starts from."""
    return xp.ones_like(x)


def _filled(shape: tuple[Any, ...], value: Any, dtype: dt.DType) -> Tensor:
    size = math.prod(shape)
    small = type(size) is int and size * dtype.itemsize <= _SMALL
    if small and value.__class__ in (bool, int, float, complex):
        return constant(np.full(shape, value, dtype.numpy))
    return _full(value, shape, dtype.name)


def _shape(shape: Any, name: str) -> tuple[Any, ...]:
    dims = ints(shape, "shape")
    for d in dims:
        if type(d) is int and d < 0:
            raise InvalidArgument(
                f"[{name}] every dimension must be 0 or more. Received: shape {list(dims)}"
            )
    return dims


def _dtype(dtype: Any) -> dt.DType:
    return dt.default_float() if dtype is None else dt.as_dtype(dtype)


class CannotPin(InvalidArgument):
    """pin_memory=True without an accelerator; a RuntimeError as in Paddle."""


def placed(
    made: Tensor, device: DeviceLike | None, requires_grad: bool, pin_memory: bool = False
) -> Tensor:
    """A new tensor as the keywords of a creating function want it."""
    if pin_memory:
        made = _pinned(made, device)
    elif device is not None and as_place(device) != default_place():
        made = to_tensor(made, place=device)
    if requires_grad:
        made.stop_gradient = False
    return made


def _pinned(made: Tensor, device: Any) -> Tensor:
    """In host memory, as `Tensor.pin_memory()`: only a device with memory of its own gains."""
    where = default_place() if device is None else as_place(device)
    if where.is_cpu_place():
        raise CannotPin(
            "pinned memory is for copies to an accelerator; leave pin_memory out. Received: "
            f"pin_memory=True for a tensor on {where}"
        )
    return to_tensor(made, place="cpu")


@public(also={"size": "shape"}, out=True)
def full(
    shape: Shape,
    fill_value: Scalar,
    dtype: DTypeLike | None = None,
    name: str | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of one value; the type is the default float unless the value is bool or complex."""
    if dtype is not None:
        want = dt.as_dtype(dtype)
    elif isinstance(fill_value, bool):
        want = dt.bool_
    elif isinstance(fill_value, complex):
        want = dt.complex128
    else:
        want = dt.default_float()
    made = _filled(_shape(shape, "full"), _plain(fill_value), want)
    return placed(made, device, requires_grad, pin_memory)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return float(value)
    return value.item() if isinstance(value, np.generic | np.ndarray) else value


@public(also={"size": "shape"}, out=True, spread=0)
def zeros(
    shape: Shape,
    dtype: DTypeLike | None = None,
    name: str | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of zeros."""
    return placed(
        _filled(_shape(shape, "zeros"), 0, _dtype(dtype)), device, requires_grad, pin_memory
    )


@public(also={"size": "shape"}, out=True, spread=0)
def ones(
    shape: Shape,
    dtype: DTypeLike | None = None,
    name: str | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of ones."""
    return placed(
        _filled(_shape(shape, "ones"), 1, _dtype(dtype)), device, requires_grad, pin_memory
    )


@public(also={"size": "shape"}, out=True, spread=0)
def empty(
    shape: Shape,
    dtype: DTypeLike | None = None,
    name: str | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor whose contents do not matter yet; here they are zeros."""
    return placed(
        _filled(_shape(shape, "empty"), 0, _dtype(dtype)), device, requires_grad, pin_memory
    )


@public(also={"input": "x"}, method=False)
def full_like(
    x: Tensor,
    fill_value: Scalar,
    dtype: DTypeLike | None = None,
    name: str | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of one value in x's shape, and type unless `dtype` is given."""
    have = x._value.aval
    want = have.dtype if dtype is None else dt.as_dtype(dtype)
    return placed(_filled(have.shape, _plain(fill_value), want), device, requires_grad, pin_memory)


@public(also={"input": "x"}, method=False)
def zeros_like(
    x: Tensor,
    dtype: DTypeLike | None = None,
    name: str | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Zeros in x's shape."""
    return full_like(x, 0, dtype, device=device, requires_grad=requires_grad, pin_memory=pin_memory)


@public(also={"input": "x"}, method=False)
def ones_like(
    x: Tensor,
    dtype: DTypeLike | None = None,
    name: str | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Ones in x's shape."""
    return full_like(x, 1, dtype, device=device, requires_grad=requires_grad, pin_memory=pin_memory)


@public(also={"input": "x"}, method=False)
def empty_like(
    x: Tensor,
    dtype: DTypeLike | None = None,
    name: str | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor in x's shape whose contents do not matter yet; here they are zeros."""
    return full_like(x, 0, dtype, device=device, requires_grad=requires_grad, pin_memory=pin_memory)


# --- sequences --------------------------------------------------------------------------------


@op(name="arange", inputs=("start", "step"), of_numbers=True, differentiable=False,
    infer=lambda start, step, count, dtype: aval((count,), dt.as_dtype(dtype)))  # fmt: skip
def _sequence(xp, start, step, count=0, dtype="int64"):
    """start, start + step, start + 2 * step …"""
    to = dt.as_dtype(dtype)
    work = np.int64 if to.is_integer else np.float64
    places = xp.arange(count).astype(work)
    return (xp.asarray(start).astype(work) + places * xp.asarray(step).astype(work)).astype(
        to.numpy
    )


def _number(value: Any, name: str, what: str) -> Any:
    if isinstance(value, Tensor):
        return value.item()
    value = value if isinstance(value, str) else _plain(value)
    if not isinstance(value, numbers.Real) and not hasattr(value, "dimension_as_value"):
        raise TypeMismatch(f"[{name}] {what} must be a number. Received: {value!r}")
    return value


def _natural_sequence_dtype(bounds: Sequence[Any]) -> dt.DType:
    tensors = [b.dtype for b in bounds if isinstance(b, Tensor)]
    for d in tensors:
        if d.is_floating:
            return d
    if any(isinstance(b, float | np.floating) for b in bounds):
        return dt.default_float()
    return tensors[0] if tensors else dt.int64


def _arange_result(
    start: Any = 0, end: Any = None, step: Any = 1, dtype: Any = None, **options: Any
) -> Result:
    numbers = (start, step) if end is None else (start, end, step)
    want = dt.as_dtype(dtype) if dtype is not None else _natural_sequence_dtype(numbers)
    return Result([None], want)


@public(out=True)
@reads_contents(_arange_result)
def arange(
    start: Scalar = 0,
    end: Scalar | None = None,
    step: Scalar = 1,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    name: str | None = None,
) -> Tensor:
    """start, start + step … up to but without `end`; int64 for integers."""
    if end is None:
        start, end = 0, start
    want = dt.as_dtype(dtype) if dtype is not None else _natural_sequence_dtype((start, end, step))
    first, last, by = (
        _number(v, "arange", w)
        for v, w in zip((start, end, step), ("start", "end", "step"), strict=True)
    )
    if by == 0:
        raise InvalidArgument("[arange] step must not be 0. Received: step=0")
    return placed(_arithmetic(first, last, by, want), device, requires_grad, pin_memory)


def _arithmetic(first: Any, last: Any, by: Any, want: dt.DType) -> Tensor:
    plain = all(type(v) in (int, float) for v in (first, last, by))
    if plain and all(type(v) is int for v in (first, last, by)):
        count: Any = max(0, -(-(last - first) // by))
    elif plain:
        count = max(0, math.ceil((last - first) / by))
    else:  # a symbolic dimension is the end of a unit-step sequence
        count = last - first if by == 1 else (last - first + by - 1) // by
    if plain and count * want.itemsize <= _SMALL:
        return constant(_sequence.op.body(np, first, by, count, want.name))
    return _sequence(first, by, count, want.name)


@public(out=True)
def range(
    start: Scalar = 0,
    end: Scalar | None = None,
    step: Scalar = 1,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    name: str | None = None,
) -> Tensor:
    """start, start + step … up to and with `end`; floats unless `dtype` says otherwise."""
    if end is None:
        start, end = 0, start
    first, last, by = (
        _number(v, "range", w)
        for v, w in zip((start, end, step), ("start", "end", "step"), strict=True)
    )
    if by == 0:
        raise InvalidArgument("[range] step must not be 0. Received: step=0")
    count = max(0, math.floor((last - first) / by) + 1)
    made = constant(_sequence.op.body(np, first, by, count, _dtype(dtype).name))
    return placed(made, device, requires_grad)


def _even(start: Any, stop: Any, num: Any, name: str) -> np.ndarray:
    count = _number(num, name, "num")
    if count != int(count) or count < 0:
        raise InvalidArgument(f"[{name}] num must be an integer from 0. Received: {num!r}")
    return np.linspace(_number(start, name, "start"), _number(stop, name, "stop"), int(count))


def _spaced_result(
    start: Any, stop: Any, num: Any, dtype: Any = None, *rest: Any, **options: Any
) -> Result:
    return Result([None if isinstance(num, Tensor) else num], _dtype(dtype))


@public(also={"end": "stop", "steps": "num"}, out=True)
@reads_contents(_spaced_result)
def linspace(
    start: Scalar,
    stop: Scalar,
    num: IntOrTensor,
    dtype: DTypeLike | None = None,
    name: str | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`num` numbers at equal distances from start to stop, both included."""
    want = _one_of(dtype, "linspace", "is_integer is_floating")
    made = constant(_even(start, stop, num, "linspace").astype(want.numpy))
    return placed(made, device, requires_grad)


def _logspace_result(
    start: Any, stop: Any, num: Any, base: Any = 10.0, dtype: Any = None, name: Any = None
) -> Result:
    return _spaced_result(start, stop, num, dtype)


@public
@reads_contents(_logspace_result)
def logspace(
    start: Scalar,
    stop: Scalar,
    num: IntOrTensor,
    base: float = 10.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """base to the powers from start to stop."""
    want = _one_of(dtype, "logspace", "is_integer is_floating")
    powers = _even(start, stop, num, "logspace")
    return constant((_number(base, "logspace", "base") ** powers).astype(want.numpy))


def _one_of(dtype: Any, where: str, kinds: str) -> dt.DType:
    """The dtype that was asked for, if it is of these kinds; Paddle has no others there."""
    want = _dtype(dtype)
    known = not want.is_integer or want in (dt.int32, dt.int64)
    if not known or not any(getattr(want, k) for k in kinds.split()):
        raise TypeMismatch(
            f"[{where}] dtype must be int32, int64"
            + (" or a floating type" if "floating" in kinds else "")
            + (" or a complex one" if "complex" in kinds else "")
            + f"; write .astype('{want.name}') behind the call. Received: {want.name}"
        )
    return want


# --- grids and combinations -------------------------------------------------------------------


def _grid_vjp(xp: Any, grads: Any, types: Any) -> tuple[list[Any]]:
    rank = len(types[0])
    return (
        [
            xp.sum(g, axis=tuple(a for a in _indices(rank) if a != i)).reshape(types[0][i].shape)
            for i, g in enumerate(grads)
        ],
    )


@op(name="meshgrid", inputs=("*xs",), vjp=_grid_vjp)
def _meshgrid(xp, xs):
    """Every combination of the vectors' elements, one tensor per vector."""
    shape = tuple(x.size for x in xs)
    made = []
    for i, x in enumerate(xs):
        line = x.reshape(tuple(-1 if a == i else 1 for a in _indices(len(xs))))
        made.append(xp.broadcast_to(line, shape))
    return made


@public
def meshgrid(*args: Any, indexing: str = "ij", name: str | None = None) -> list[Tensor]:
    """Every combination of the given vectors' elements, one tensor per vector."""
    vectors = args[0] if len(args) == 1 and isinstance(args[0], list | tuple) else args
    for v in vectors:
        if v.ndim > 1:
            raise ShapeMismatch(f"[meshgrid] takes vectors. Received: shape {v.shape}")
    if indexing not in ("ij", "xy"):
        raise InvalidArgument(f"[meshgrid] indexing must be 'ij' or 'xy'. Received: {indexing!r}")
    grids = list(_meshgrid(tuple(vectors)))
    if indexing == "xy" and len(grids) > 1:
        from bireme.ops.manipulation import swapaxes

        grids = [swapaxes(g, 0, 1) for g in grids]
    return grids


@public
def cartesian_prod(x: Sequence[Tensor], name: str | None = None) -> Tensor:
    """Every combination of one element of each vector, one per row."""
    vectors = list(x)
    if len(vectors) == 1:
        return vectors[0]
    from bireme.ops.joining import stack
    from bireme.ops.scan import _flatten_all

    return stack([_flatten_all(g) for g in _meshgrid(tuple(vectors))], axis=1)


@public
def combinations(
    x: Tensor, r: int = 2, with_replacement: bool = False, name: str | None = None
) -> Tensor:
    """Every choice of r elements of a vector, one per row."""
    if x.ndim != 1:
        raise ShapeMismatch(f"[combinations] takes a vector. Received: {x.shape}")
    if r < 0:
        raise InvalidArgument(f"[combinations] r must be 0 or more. Received: {r}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = np.array(list(choose(np.arange(x.shape[0]), r)), np.int64)
    if r == 0 or rows.size == 0:
        return zeros([0, r], x.dtype)
    return _take(x, constant(rows))


@op(name="take_elements", exact=True)
def _take(xp, x, index):
    """x at each index, in the index's shape."""
    return xp.take(x, index, axis=0)


@public
def numel(x: Tensor, name: str | None = None) -> Tensor:
    """How many elements x has, as a 0-d int64 tensor."""
    if not isinstance(x, Tensor):
        raise TypeMismatch(f"[numel] takes a Tensor. Received: {type(x).__name__}")
    size = x._value.aval.size
    return constant(np.array(size, np.int64)) if type(size) is int else _full(size, (), "int64")
