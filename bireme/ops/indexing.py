"""Picking and placing elements by index tensors: gather, scatter and their relatives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.api.keywords import second_name
from bireme.api.public import another_name, public
from bireme.api.types import IntOrTensor, Operand, Scalar, Shape
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import (
    InvalidArgument,
    PositionOutOfRange,
    ShapeMismatch,
    TypeMismatch,
    not_a_tensor,
)
from bireme.core.op import TENSOR_TYPES, broadcast_shapes, op
from bireme.core.requirements import InRange, positions
from bireme.core.tensor import Tensor, constant
from bireme.ops.axes import axis_in, each_place, ints
from bireme.ops.dimensions import dimensions
from bireme.ops.manipulation import _expand, reshape
from bireme.ops.nn_support import like, wide
from bireme.ops.open_sizes import surely
from bireme.ops.slice_ops import pick_set
from bireme.ops.slicing import _parse, in_range

# --- shared ---------------------------------------------------------------------------------------


def scatter_into(xp: Any, x: Any, spot: Any, values: Any, how: str = "set") -> Any:
    """A copy of `x` with `values` set, added, multiplied … at `spot`; half precision is added and
    multiplied in float32 and rounded once."""
    if xp is not np:
        if how in ("add", "multiply"):
            return like(getattr(wide(xp, x).at[spot], how)(wide(xp, values)), x)
        return getattr(x.at[spot], how)(values)
    out = np.array(x)
    if how == "set":
        out[spot] = values
    else:
        _UFUNCS[how].at(out, spot, values)
    return out


_UFUNCS = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}


def _integers(*indices: Any) -> None:
    for index in indices:
        if not index.dtype.is_integer:
            raise InvalidArgument(
                f"index must hold int32 or int64, not {index.dtype.name}; cast it with "
                ".astype('int64')"
            )


def _along(axis: int, index: Any) -> tuple[Any, ...]:
    return (slice(None),) * axis + (index,)


def _take(xp: Any, x: Any, spot: Any) -> Any:
    """Out of range is an error in NumPy; a compiled program takes the nearest element."""
    return x[spot] if xp is np else x.at[spot].get(mode="clip")


# --- whole slices along one dimension ---------------------------------------------------------


def _gather_infer(x: Aval, index: Aval, axis: int) -> Aval:
    _integers(index)
    return aval((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), x.dtype)


def _gather_vjp(xp: Any, grad: Any, index: Any, types: Any, axis: int) -> tuple[Any, None]:
    zeros = xp.zeros(types[0].shape, grad.dtype)
    return scatter_into(xp, zeros, _along(axis, index), grad, "add"), None


@op(
    name="gather", infer=_gather_infer, vjp=_gather_vjp, exact=True,
    requires=lambda x, index, axis: [positions("index", x.shape[axis])],
)  # fmt: skip
def _gather(xp, x, index, axis=0):
    """Slices along a dimension, picked by number."""
    return _take(xp, x, _along(axis, index))


def _row_index(name: str, index: Any) -> Tensor:
    """A list of slice numbers as a tensor of at most one dimension."""
    if index.__class__ not in TENSOR_TYPES:
        raise TypeMismatch(f"[{name}] index must be a Tensor. Received: {type(index).__name__}")
    if index.ndim < 2:
        return index
    if index.ndim == 2 and index._value.aval.shape[1] == 1:
        return reshape(index, (-1,))
    raise ShapeMismatch(
        f"[{name}] index must have one dimension, or the shape [n, 1]. Received: {index.shape}"
    )


@public(out_at=4)
def gather(
    x: Tensor, index: Tensor, axis: IntOrTensor | None = None, name: str | None = None
) -> Tensor:
    """The slices of `x` along `axis` (the first by default) that `index` names."""
    at = 0 if axis is None else axis_in(axis, x.ndim, "gather")
    index = _row_index("gather", index)
    in_range("gather", index, x._value.aval.shape[at], at)
    return _gather(x, index, at)


@public(also={"input": "x", "dim": "axis"}, out=True)
def index_select(
    x: Tensor, index: IntOrTensor, axis: IntOrTensor = 0, name: str | None = None
) -> Tensor:
    """The slices of `x` along `axis` that `index` names."""
    if index.__class__ is int:  # index_select(x, 1, index)
        index, axis = axis, index
    at = axis_in(axis, x.ndim, "index_select")
    index = _row_index("index_select", index)
    if index.ndim == 0:
        index = reshape(index, (1,))
    in_range("index_select", index, x._value.aval.shape[at], at)
    return _gather(x, index, at)


def _scatter_check(x: Aval, index: Aval, updates: Any, **attrs: Any) -> None:
    _integers(index)
    want = (*index.shape, *x.shape[1:])
    if updates.shape != want:
        raise ShapeMismatch(
            f"updates must have shape {list(want)}, one slice of x for each index, but has "
            f"{list(updates.shape)}"
        )


def _scatter_vjp(
    xp: Any, grad: Any, index: Any, needs: Any, overwrite: bool
) -> tuple[Any, None, Any]:
    into = scatter_into(xp, grad, index, np.zeros((), grad.dtype)) if needs[0] else None
    return into, None, _take(xp, grad, index) if needs[2] else None


@op(
    name="scatter", check=_scatter_check, infer=lambda x, *_, **__: x, vjp=_scatter_vjp,
    requires=lambda x, index, *_, **__: [positions("index", x.shape[0])],
)  # fmt: skip
def _scatter(xp, x, index, updates, overwrite=True):
    """A copy of x with slices replaced, or with the sum of the updates in their place."""
    if overwrite:
        return scatter_into(xp, x, index, updates)
    cleared = scatter_into(xp, x, index, np.zeros((), x.dtype))
    return scatter_into(xp, cleared, index, updates, "add")


@public(out_at=5, inplace=True)
def scatter(
    x: Tensor, index: Tensor, updates: Tensor, overwrite: bool = True, name: str | None = None
) -> Tensor:
    """A copy of `x` whose slices named by `index` are replaced by `updates`.

    With `overwrite=False` updates of one slice are summed.
    """
    index = _row_index("scatter", index)
    in_range("scatter", index, x._value.aval.shape[0], 0)
    return _scatter(x, index, updates, overwrite)


def _index_add_check(x: Aval, index: Aval, value: Aval, alpha: Any, axis: int) -> None:
    _integers(index)
    want = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    try:
        fits = broadcast_shapes(value.shape, want) == want
    except ShapeMismatch:
        fits = False
    if not fits:
        raise ShapeMismatch(f"value must have shape {list(want)}, but has {list(value.shape)}")


def _index_add_vjp(
    xp: Any, grad: Any, index: Any, alpha: Any, axis: int
) -> tuple[Any, None, Any, None]:
    return grad, None, alpha * _take(xp, grad, _along(axis, index)), None


@op(
    name="index_add", check=_index_add_check, infer=lambda x, *_, **__: x, vjp=_index_add_vjp,
    requires=lambda x, *_, axis: [positions("index", x.shape[axis])],
)  # fmt: skip
def _index_add(xp, x, index, value, alpha, axis=0):
    """A copy of x with slices added."""
    value = (xp.asarray(alpha).astype(x.dtype) * value).astype(x.dtype)
    if xp is np:  # ufunc.at does not broadcast as assignment does
        value = np.broadcast_to(value, x[_along(axis, index)].shape)
    return scatter_into(xp, x, _along(axis, index), value, "add")


@public(
    also={"input": "x", "dim": "axis", "source": "value"},
    out=True,
    inplace=True,
    inplace_also=True,
)
def index_add(
    x: Tensor, index: IntOrTensor, axis: IntOrTensor, value: Tensor, alpha: Scalar = 1,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """A copy of `x` with `alpha * value` added to the slices along `axis` that `index` names."""
    rows: Any = index
    if rows.__class__ is int:  # index_add(x, 0, index, value)
        rows, axis = axis, rows
    at = axis_in(axis, x.ndim, "index_add")
    in_range("index_add", rows, x._value.aval.shape[at], at)
    return _index_add(x, rows, value, alpha, at)


def _index_fill_vjp(xp: Any, grad: Any, index: Any, axis: int) -> tuple[Any, None, Any]:
    spot = _along(axis, index)
    into = scatter_into(xp, grad, spot, np.zeros((), grad.dtype))
    return into, None, xp.sum(grad - into)


@op(
    name="index_fill", infer=lambda x, *_, **__: x, vjp=_index_fill_vjp,
    requires=lambda x, *_, axis: [positions("index", x.shape[axis])],
)  # fmt: skip
def _index_fill(xp, x, index, value, axis=0):
    """A copy of x with slices set to one number."""
    return scatter_into(xp, x, _along(axis, index), xp.asarray(value).astype(x.dtype))


@public(inplace=True)
def index_fill(
    x: Tensor, index: Tensor, axis: int, value: Scalar, name: str | None = None
) -> Tensor:
    """A copy of `x` whose slices along `axis` that `index` names are all `value`."""
    if isinstance(value, Tensor) and value.ndim:
        raise InvalidArgument(
            f"[index_fill] value must be a number or a 0-d tensor. Received: shape {value.shape}"
        )
    at = axis_in(axis, x.ndim, "index_fill")
    in_range("index_fill", index, x._value.aval.shape[at], at)
    return _index_fill(x, index, value, at)


# --- positions given by the last dimension of an index ----------------------------------------


def _spots(xp: Any, index: Any) -> tuple[Any, ...]:
    return tuple([index[..., i] for i in range(index.shape[-1])])


def _gather_nd_infer(x: Aval, index: Aval) -> Aval:
    _integers(index)
    depth = index.shape[-1]
    if type(depth) is not int:
        raise ShapeMismatch("the last dimension of index is open; declare its size")
    if depth > x.ndim:
        raise ShapeMismatch(
            f"the last dimension of index is {depth}, but x has only {x.ndim} dimensions"
        )
    return aval((*index.shape[:-1], *x.shape[depth:]), x.dtype)


def _gather_nd_vjp(xp: Any, grad: Any, index: Any, types: Any) -> tuple[Any, None]:
    zeros = xp.zeros(types[0].shape, grad.dtype)
    return scatter_into(xp, zeros, _spots(xp, index), grad, "add"), None


def _nd_positions(x: Aval, index: Aval, *rest: Any) -> list[InRange]:
    depth = index.shape[-1]
    return [positions("index", x.shape[i])._replace(part=i) for i in range(depth)]


@public
@op(infer=_gather_nd_infer, vjp=_gather_nd_vjp, exact=True, requires=_nd_positions)
def gather_nd(xp, x, index):
    """The elements or slices of x at the positions in the last dimension of `index`."""
    if index.shape[-1] == 0:
        return xp.broadcast_to(x, (*index.shape[:-1], *x.shape))
    return _take(xp, x, _spots(xp, index))


def _scatter_nd_check(x: Aval, index: Aval, updates: Aval) -> None:
    want = _gather_nd_infer(x, index).shape
    if updates.shape != want:
        raise ShapeMismatch(f"updates must have shape {list(want)}, not {list(updates.shape)}")


@public
@op(
    check=_scatter_nd_check, infer=lambda x, *_: x, requires=_nd_positions,
    vjp=lambda xp, grad, index: (grad, None, _take(xp, grad, _spots(xp, index))),
)  # fmt: skip
def scatter_nd_add(xp, x, index, updates):
    """A copy of x with `updates` added at the positions in the last dimension of `index`."""
    return scatter_into(xp, x, _spots(xp, index), updates, "add")


@public
def scatter_nd(index: Tensor, updates: Tensor, shape: Shape, name: str | None = None) -> Tensor:
    """`updates` summed into a tensor of zeros at the positions in the last dimension of `index`."""
    zeros = constant(np.zeros(ints(shape), updates.dtype.numpy))
    return scatter_nd_add(zeros, index, updates)


# --- one index per element along an axis ------------------------------------------------------


def _take_along_infer(x: Aval, index: Aval, axis: int) -> Aval:
    _integers(index)
    return aval(index.shape, x.dtype)


def _take_along_vjp(xp: Any, grad: Any, index: Any, types: Any, axis: int) -> tuple[Any, None]:
    zeros = xp.zeros(types[0].shape, grad.dtype)
    return scatter_into(xp, zeros, each_place(xp, index, axis), grad, "add"), None


@op(
    name="take_along_axis", infer=_take_along_infer, vjp=_take_along_vjp, exact=True,
    requires=lambda x, index, axis: [positions("index", x.shape[axis])],
)  # fmt: skip
def _take_along(xp, x, index, axis=0):
    """For each index, the element at that place along the axis."""
    return _take(xp, x, each_place(xp, index, axis))


def _aligned_index(
    name: str, x: Tensor, index: Tensor, axis: int, broadcast: bool
) -> tuple[int, Tensor]:
    at = axis_in(axis, x.ndim, name)
    have, want = index._value.aval.shape, x._value.aval.shape
    if len(have) != len(want):
        raise InvalidArgument(
            f"[{name}] indices must have as many dimensions as the tensor. Received: "
            f"{index.shape} and {x.shape}"
        )
    if broadcast:
        shape = list(
            broadcast_shapes((*have[:at], 1, *have[at + 1 :]), (*want[:at], 1, *want[at + 1 :]))
        )
        shape[at] = have[at]
        if tuple(shape) != have:
            index = _expand(index, tuple(shape))
    else:
        for i, (n, limit) in enumerate(zip(have, want, strict=True)):
            if i != at and type(n) is int and type(limit) is int and n > limit:
                raise InvalidArgument(
                    f"[{name}] dimension {i} of indices must not exceed that of the tensor. "
                    f"Received: {index.shape} and {x.shape}"
                )
    in_range(name, index, want[at], at)
    return at, index


@public(also={"input": "arr", "dim": "axis"}, out=True)
def take_along_axis(arr: Tensor, indices: Tensor, axis: int, broadcast: bool = True) -> Tensor:
    """For each entry of `indices`, the element of `arr` at that place along `axis`."""
    at, index = _aligned_index("take_along_axis", arr, indices, axis, broadcast)
    return _take_along(arr, index, at)


take_along_dim = another_name("take_along_dim", take_along_axis)


@public
def index_sample(x: Tensor, index: Tensor) -> Tensor:
    """From each row of `x`, the elements that the same row of `index` names."""
    if x.ndim != 2 or index.ndim != 2 or x.shape[0] != index.shape[0]:
        raise ShapeMismatch(
            f"[index_sample] x and index must be matrices with equally many rows. Received: "
            f"{x.shape} and {index.shape}"
        )
    in_range("index_sample", index, x._value.aval.shape[1], 1)
    return _take_along(x, index, 1)


_HOW = {"add": "add", "mul": "multiply", "amin": "min", "amax": "max", "mean": "add"}


def _neutral(reduce: str, dtype: Any) -> Any:
    if reduce in ("add", "mean"):
        return np.zeros((), dtype)
    if reduce == "mul":
        return np.ones((), dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return np.asarray(limits.max if reduce == "amin" else limits.min, dtype)
    return np.asarray(np.inf if reduce == "amin" else -np.inf).astype(dtype)


def _hits(xp: Any, x: Any, spots: Any, include_self: bool) -> Any:
    """How many values meet at each element, itself included where it counts."""
    ones = xp.ones(x.shape, x.dtype)
    if not include_self:
        ones = scatter_into(xp, ones, spots, np.zeros((), x.dtype))
    return scatter_into(xp, ones, spots, np.ones((), x.dtype), "add")


def _put_along_vjp(
    xp: Any, grad: Any, x: Any, index: Any, value: Any, out: Any, needs: Any, axis: int,
    reduce: str, include_self: bool,
) -> tuple[Any, None, Any]:  # fmt: skip
    spots = each_place(xp, index, axis)
    grad = wide(xp, grad)
    zero = np.zeros((), grad.dtype)
    if reduce == "assign":
        return scatter_into(xp, grad, spots, zero), None, _take(xp, grad, spots)
    own = value_grad = None
    if reduce in ("add", "mean"):
        share = grad / _hits(xp, grad, spots, include_self) if reduce == "mean" else grad
        own, value_grad = share, _take(xp, share, spots)
    elif reduce == "mul":
        share = grad * out
        own = xp.where(xp.asarray(x == 0), zero, share / xp.where(x == 0, np.ones((), x.dtype), x))
        touched = _hits(xp, grad, spots, True) > 1
        own = xp.where(touched, own, grad)
        value_grad = _take(xp, share, spots) / value
    else:
        same_x = (x == out).astype(grad.dtype)
        same_v = (value == _take(xp, out, spots)).astype(grad.dtype)
        base = same_x if include_self else scatter_into(xp, same_x, spots, zero)
        ties = scatter_into(xp, base, spots, same_v, "add")
        share = grad / xp.where(ties == 0, np.ones((), grad.dtype), ties)
        own, value_grad = share * same_x, _take(xp, share, spots) * same_v
    if not include_self:
        own = scatter_into(xp, own, spots, zero)
    return own, None, value_grad


@op(
    name="put_along_axis", infer=lambda x, *_, **__: x, vjp=_put_along_vjp,
    requires=lambda x, *_, axis, **__: [positions("index", x.shape[axis])],
)  # fmt: skip
def _put_along(xp, x, index, value, axis=0, reduce="assign", include_self=True):
    """A copy of x with values placed, or combined, at one index per element."""
    spots = each_place(xp, index, axis)
    value = xp.broadcast_to(xp.asarray(value).astype(x.dtype), index.shape)
    if reduce == "assign":
        return scatter_into(xp, x, spots, value)
    start, value = wide(xp, x), wide(xp, value)
    base = start if include_self else scatter_into(xp, start, spots, _neutral(reduce, start.dtype))
    out = scatter_into(xp, base, spots, value, _HOW[reduce])
    if reduce == "mean":
        hits = _hits(xp, out, spots, include_self)
        out = out // hits if x.dtype.kind in "iu" else out / hits
    return like(out, x)


_REDUCTIONS = {
    "assign": "assign", "add": "add", "mul": "mul", "multiply": "mul", "mean": "mean",
    "amin": "amin", "amax": "amax",
}  # fmt: skip


@public(inplace="method")
def put_along_axis(
    arr: Tensor, indices: Tensor, values: Operand, axis: int, reduce: str = "assign",
    include_self: bool = True, broadcast: bool = True,
) -> Tensor:  # fmt: skip
    """A copy of `arr` with `values` at the places along `axis` that `indices` name.

    `reduce` says what happens to the element that is there: 'assign', 'add', 'mul', 'mean',
    'amin' or 'amax'; without `include_self` it does not take part.
    """
    if reduce not in _REDUCTIONS:
        raise InvalidArgument(
            f"[put_along_axis] reduce must be one of {sorted(_REDUCTIONS)}. Received: {reduce!r}"
        )
    if not indices.dtype.is_integer:
        raise TypeMismatch(f"[put_along_axis] indices must be integers, not {indices.dtype.name}")
    at, index = _aligned_index("put_along_axis", arr, indices, axis, broadcast)
    shape = index._value.aval.shape
    if not isinstance(values, Tensor):
        values = constant(np.asarray(values).astype(arr.dtype.numpy))
    if values._value.aval.shape != shape:
        if not broadcast and values.ndim:
            have = values._value.aval.shape
            if len(have) != len(shape) or any(
                type(m) is int and type(n) is int and m < n
                for m, n in zip(have, shape, strict=True)
            ):
                raise ShapeMismatch(
                    f"[put_along_axis] there must be a value for each index. Received: values of "
                    f"shape {values.shape} for indices of shape {indices.shape}"
                )
            index_shape = tuple(slice(n) for n in shape)
            values = values[index_shape]
        else:
            values = _expand(values, shape)
    return _put_along(arr, index, values, at, _REDUCTIONS[reduce], include_self)


@public(inplace=True, takes="ifc")
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy of `input` with `src` added at the places along `dim` that `index` names."""
    return put_along_axis(input, index, src, dim, "add", True, False)


@public(takes="ifc")
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """As `scatter_add`, combining by 'sum', 'prod', 'mean', 'amin' or 'amax'."""
    names = {"sum": "add", "prod": "mul", "mean": "mean", "amin": "amin", "amax": "amax"}
    if reduce not in names:
        raise InvalidArgument(
            f"[scatter_reduce] reduce must be one of {list(names)}. Received: {reduce!r}"
        )
    return put_along_axis(input, index, src, dim, names[reduce], include_self, False)


@public
def take(x: Tensor, index: Tensor, mode: str = "raise", name: str | None = None) -> Tensor:
    """The elements of `x`, counted in order, that `index` names.

    Beyond the ends: 'raise' an error, 'wrap' around, or 'clip' to the nearest element.
    """
    if mode not in ("raise", "wrap", "clip"):
        raise InvalidArgument(f"[take] mode is 'raise', 'wrap' or 'clip'. Received: {mode!r}")
    if not index.dtype.is_integer:
        raise TypeMismatch(f"[take] index must hold integers. Received: {index.dtype.name}")
    flat = reshape(x, (-1,))
    if mode == "raise":
        size = flat._value.aval.shape[0]
        found = index.numpy()
        if found.size and (found.min() < -size or found.max() >= size):
            raise PositionOutOfRange(
                f"[take] index must be in [{-size}, {size - 1}] for {size} elements. Received: "
                f"values from {found.min()} to {found.max()}; use mode='wrap' or 'clip'"
            )
        return _gather(flat, index, 0)
    return _take_mode(flat, index, mode)


def _take_mode_vjp(xp: Any, grad: Any, index: Any, types: Any, mode: str) -> tuple[Any, None]:
    size = types[0].shape[0]
    zeros = xp.zeros((size,), grad.dtype)
    return scatter_into(xp, zeros, _bounded(xp, index, size, mode), grad, "add"), None


def _bounded(xp: Any, index: Any, size: Any, mode: str) -> Any:
    return index % size if mode == "wrap" else xp.clip(index, 0, size - 1)


@op(
    name="take", infer=lambda x, index, mode: aval(index.shape, x.dtype), vjp=_take_mode_vjp,
    exact=True,
)  # fmt: skip
def _take_mode(xp, x, index, mode="wrap"):
    """Elements of a flat tensor by position, kept within its ends."""
    return x[_bounded(xp, index, x.shape[0], mode)]


# --- by index tuples and masks ----------------------------------------------------------------


def _index_put_add_vjp(xp: Any, grad: Any, indices: Any, types: Any) -> tuple[Any, Any, None]:
    return grad, _take(xp, grad, tuple(indices)), None


@op(
    name="index_put_add", inputs=("x", "value", "*indices"), infer=lambda x, *_: x,
    vjp=_index_put_add_vjp,
    requires=lambda x, value, indices: [
        positions("indices", x.shape[i], i) for i, t in enumerate(indices) if t.dtype.is_integer
    ],
)  # fmt: skip
def _index_put_add(xp, x, value, indices):
    """A copy of x with values added at index tuples."""
    spot = tuple(indices)
    if xp is np:
        value = np.broadcast_to(value, x[spot].shape)
    return scatter_into(xp, x, spot, value, "add")


@public(also={"input": "x"}, inplace=True)
def index_put(
    x: Tensor, indices: Sequence[Tensor], value: Operand | None = None, accumulate: bool = False,
    name: str | None = None, *, values: Operand | None = None,
) -> Tensor:  # fmt: skip
    """A copy of `x` with `value` set, or added, at `x[indices]`."""
    if values is not None:
        value = second_name("index_put", "value", value, "values", values)
    if value is None:
        raise not_a_tensor("index_put", "value", value)
    found = _parse(x._value.aval.shape, tuple(indices))
    tensors = [t for _, t in found.advanced]
    if len(tensors) < len(indices):  # 0-d index tensors count as basic indices elsewhere
        tensors = [reshape(t, (1,)) if t.ndim == 0 else t for t in indices]
    if accumulate:
        return _index_put_add(x, value, tensors)
    return pick_set(x, value, tensors, tuple(range(len(tensors))))


def _masked_fill_vjp(xp: Any, grad: Any, mask: Any, needs: Any) -> tuple[Any, None, Any]:
    zero = np.zeros((), grad.dtype)
    into = xp.where(mask, zero, grad) if needs[0] else None
    return into, None, xp.where(mask, grad, zero) if needs[2] else None


def _masked_fill_infer(x: Aval, mask: Aval, value: Any) -> Aval:
    if mask.dtype is not dt.bool_:
        raise TypeMismatch(f"mask must hold booleans, not {mask.dtype.name}")
    return aval(broadcast_shapes(x.shape, mask.shape), x.dtype)


@public(inplace=True)
@op(infer=_masked_fill_infer, vjp=_masked_fill_vjp, exact=True)
def masked_fill(xp, x, mask, value):
    """A copy of x that is `value` where the mask is true."""
    return xp.where(mask, xp.asarray(value).astype(x.dtype), x)


def _masked_scatter_vjp(xp: Any, grad: Any, mask: Any, types: Any) -> tuple[Any, None, Any]:
    zero = np.zeros((), grad.dtype)
    order = _order(xp, mask, grad.shape)
    flat = xp.zeros((types[2].size,), grad.dtype)
    taken = xp.where(mask, grad, zero)
    by_value = scatter_into(xp, flat, xp.reshape(order, (-1,)), xp.reshape(taken, (-1,)), "add")
    return xp.where(mask, zero, grad), None, xp.reshape(by_value, types[2].shape)


def _order(xp: Any, mask: Any, shape: Any) -> Any:
    """For each true element of the mask its number in order; 0 for leading false ones."""
    flat = xp.reshape(xp.broadcast_to(mask, shape), (-1,)).astype(np.int64)
    return xp.reshape(xp.maximum(xp.cumsum(flat) - 1, 0), shape)


@op(name="masked_scatter", infer=lambda x, *_: x, vjp=_masked_scatter_vjp)
def _masked_scatter(xp, x, mask, value):
    """A copy of x with the elements of value, in order, where the mask is true."""
    mask = xp.broadcast_to(mask, x.shape)
    order = xp.minimum(_order(xp, mask, x.shape), value.size - 1)
    return xp.where(mask, xp.reshape(value, (-1,))[order], x)


@public(inplace=True)
def masked_scatter(x: Tensor, mask: Tensor, value: Tensor, name: str | None = None) -> Tensor:
    """A copy of `x` whose elements where `mask` is true are those of `value`, in order."""
    if mask.dtype is not dt.bool_:
        raise TypeMismatch(f"[masked_scatter] mask must be boolean. Received: {mask.dtype.name}")
    if value.dtype is not x.dtype:
        raise TypeMismatch(
            f"[masked_scatter] x and value must have one dtype; write value.astype("
            f"'{x.dtype.name}'). Received: {x.dtype.name} and {value.dtype.name}"
        )
    shape = broadcast_shapes(mask._value.aval.shape, x._value.aval.shape)
    if shape != x._value.aval.shape:
        x = _expand(x, shape)
    if surely(lambda: math.prod(value.shape) < math.prod(x.shape)):
        wanted = int(np.broadcast_to(mask.numpy(), shape).sum())
        if wanted > value.size:
            raise InvalidArgument(
                f"[masked_scatter] value must have at least as many elements as the mask has "
                f"true ones. Received: {value.size} for {wanted}"
            )
    return x if not value.size else _masked_scatter(x, mask, value)


# --- what a tensor is -------------------------------------------------------------------------


@public(method=False)
def shape(input: Tensor) -> Tensor:
    """The shape, as a 1-d tensor."""
    t = input._value.aval
    if not t.is_static:
        return dimensions(t.shape, "int64")
    return constant(np.asarray(t.shape, np.int64))


@public(method=False)
def tolist(x: Tensor) -> Any:
    """The contents as nested lists of Python numbers."""
    return x.tolist()
