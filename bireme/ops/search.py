"""Sorting, searching and selecting."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bireme.api.public import public
from bireme.api.types import DTypeLike, IntOrTensor, Operand
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch, not_a_tensor
from bireme.core.op import broadcast_shapes, op
from bireme.core.requirements import InRange
from bireme.core.tensor import Tensor, constant
from bireme.host import jax_door
from bireme.ops.axes import axis_in, each_place, number
from bireme.ops.contents import Result, reads_contents
from bireme.ops.open_sizes import surely

# --- where ------------------------------------------------------------------------------------


def _where_vjp(xp: Any, grad: Any, condition: Any, needs: Any) -> tuple[None, Any, Any]:
    none = xp.zeros_like(grad)
    return (
        None,
        xp.where(condition, grad, none) if needs[1] else None,
        xp.where(condition, none, grad) if needs[2] else None,
    )


def _where_type(condition: Aval, x: Any, y: Any) -> Aval:
    return aval(broadcast_shapes(condition.shape, x.shape, y.shape), x.dtype)


@op(name="where", vjp=_where_vjp, infer=_where_type, exact=True)
def select(xp, condition, x, y):
    """x where the condition holds, y elsewhere; x and y have one type."""
    return xp.where(condition, x, y)


@public(also={"input": "x", "other": "y"}, out=True)
def where(
    condition: Tensor, x: Operand | None = None, y: Operand | None = None, name: str | None = None
) -> Any:
    """x where the condition holds, y elsewhere; without x and y, the indices where it holds."""
    if x is None and y is None:
        return nonzero(condition, as_tuple=True)
    if x is None or y is None:
        raise InvalidArgument("[where] give both x and y, or neither. Received: one of them")
    if condition.dtype is not dt.bool_:
        raise InvalidArgument(
            f"[where] condition must be a bool tensor. Received: {condition.dtype.name}; compare "
            "it with something first, as in x > 0"
        )
    if (
        x.__class__ is y.__class__
        and isinstance(x, Tensor)
        and isinstance(y, Tensor)
        and x.dtype is y.dtype
    ):
        return select(condition, x, y)
    return select(condition, *_one_type(x, y))


def _one_type(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Both as tensors of one type."""
    from bireme.ops.math_unary import cast

    x_type, y_type = _type_of(x), _type_of(y)
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        both = dt.promote(x_type, y_type)
        if both is None and 0 in (x.ndim, y.ndim):
            both = dt.promote_any(x_type, y_type)
        if both is None:
            raise TypeMismatch(
                f"[where] cannot mix {x_type.name} and {y_type.name}; cast one of them first"
            )
    elif isinstance(x, Tensor) or isinstance(y, Tensor):
        tensor, other = (x_type, y) if isinstance(x, Tensor) else (y_type, x)
        both = dt.with_number(tensor, type(other))
        if isinstance(other, float) and both.is_floating:  # unlike arithmetic, as Paddle does
            both = dt.promote(both, dt.default_float()) or both
    else:
        both = dt.promote_any(x_type, y_type)
    made = [v if isinstance(v, Tensor) else constant(np.asarray(v, both.numpy)) for v in (x, y)]
    first, second = (v if v.dtype is both else cast(v, both) for v in made)
    return first, second


def _type_of(value: Any) -> dt.DType:
    if isinstance(value, Tensor):
        return value.dtype
    if isinstance(value, bool):
        return dt.bool_
    if isinstance(value, int):
        return dt.int64
    if isinstance(value, float):
        return dt.default_float()
    if isinstance(value, complex):
        return dt.default_complex()
    return dt.as_dtype(np.asarray(value).dtype)


# --- sorting ----------------------------------------------------------------------------------


def _order(xp: Any, x: Any, axis: int, descending: bool) -> Any:
    """A stable order along an axis; from large to small, equal elements keep their order too."""
    if not descending:
        return xp.argsort(x, axis=axis, stable=True)
    reverse = xp.flip(xp.argsort(xp.flip(x, axis), axis=axis, stable=True), axis)
    return x.shape[axis] - 1 - reverse


def _unsort(xp: Any, grad: Any, order: Any, length: Any, axis: int) -> Any:
    """Put gradients of sorted (or picked) elements back to where these came from."""
    shape = tuple([length if i == axis % grad.ndim else d for i, d in enumerate(grad.shape)])
    full = xp.zeros(shape, grad.dtype)
    if xp is np:
        np.put_along_axis(full, order, grad, axis)
        return full
    return full.at[each_place(xp, order, axis % grad.ndim)].set(grad)


def _sort_vjp(xp: Any, grads: Any, out: Any, types: Any, axis: int, descending: bool) -> tuple[Any]:
    if grads[0].ndim == 0:
        return (grads[0],)
    return (_unsort(xp, grads[0], out[1], types[0].shape[axis], axis),)


def _check_axis(x: Any, axis: int, **_: Any) -> None:
    if x.dtype.is_complex:
        raise TypeMismatch("complex numbers have no order")
    axis_in(axis, x.ndim, "sort")


@op(
    name="sort",
    vjp=_sort_vjp,
    check=_check_axis,
    infer=lambda x, axis, descending: (x, aval(x.shape, dt.int64)),
)
def _sort(xp, x, axis=-1, descending=False):
    """(the elements in order, where they came from)."""
    if x.ndim == 0:
        return x, xp.zeros_like(x).astype(np.int64)
    order = _order(xp, x, axis, descending)
    return xp.take_along_axis(x, order, axis=axis), order.astype(np.int64)


@public
def sort(
    x: Tensor,
    axis: int = -1,
    descending: bool = False,
    stable: bool = False,
    name: str | None = None,
) -> Tensor:
    """The elements in order along `axis`. The order is always stable, whatever `stable` says."""
    return _sort(x, axis, descending)[0]


@public(also={"input": "x", "dim": "axis"})
def argsort(
    x: Tensor,
    axis: int = -1,
    descending: bool = False,
    stable: bool = False,
    name: str | None = None,
) -> Tensor:
    """Where the elements in order come from. The order is always stable."""
    return _sort(x, axis, descending)[1]


@public(out=True)
def msort(input: Tensor) -> Tensor:
    """The elements in order along the first axis."""
    return _sort(input, 0, False)[0]


def _topk_types(x: Aval, k: int, axis: int, largest: bool) -> tuple[Aval, Aval]:
    shape = tuple([k if i == axis else d for i, d in enumerate(x.shape)])
    return aval(shape, x.dtype), aval(shape, dt.int64)


def _topk_vjp(xp: Any, grads: Any, out: Any, types: Any, axis: int) -> tuple[Any]:
    if grads[0].ndim == 0:
        return (grads[0],)
    return (_unsort(xp, grads[0], out[1], types[0].shape[axis], axis),)


def _topk_numpy(xp: Any, x: Any, k: int = 1, axis: int = -1, largest: bool = True) -> Any:
    if x.ndim == 0:
        return x, np.zeros((), np.int64)
    order = np.take(_order(np, x, axis, largest), np.arange(k), axis=axis)
    return np.take_along_axis(x, order, axis=axis), order.astype(np.int64)


@op(name="topk", vjp=_topk_vjp, infer=_topk_types, numpy=_topk_numpy)
def _topk(xp, x, k=1, axis=-1, largest=True):
    """The k largest (or smallest) elements, in order, and where they are."""
    if x.ndim == 0:
        return x, xp.zeros((), np.int64)
    if not largest:
        order = xp.take(_order(xp, x, axis, False), xp.arange(k), axis=axis)
        return xp.take_along_axis(x, order, axis=axis), order.astype(np.int64)
    values, index = jax_door.jax().lax.top_k(xp.moveaxis(x, axis, -1), k)
    return xp.moveaxis(values, -1, axis), xp.moveaxis(index, -1, axis).astype(np.int64)


class TopKRetType(NamedTuple):
    """What `topk` returns."""

    values: Tensor
    indices: Tensor


@public(also={"input": "x", "dim": "axis"}, out=True, takes="ifc")
def topk(
    x: Tensor,
    k: IntOrTensor,
    axis: int | None = None,
    largest: bool = True,
    sorted: bool = True,
    name: str | None = None,
) -> TopKRetType:
    """The k largest (or smallest) elements along `axis` and where they are, always in order."""
    count = number(k, "k")
    where_ = axis_in(-1 if axis is None else axis, x.ndim, "topk")
    length = x._value.aval.shape[where_] if x.ndim else 1
    if count < 1 or (x.ndim and type(length) is int and count > length):
        raise InvalidArgument(
            f"[topk] k must be from 1 to the length {length} of axis {where_}. Received: k={count}"
        )
    return TopKRetType(*_topk(x, count, where_, bool(largest)))


@public(takes="ifc")
def kthvalue(
    x: Tensor, k: int, axis: int | None = None, keepdim: bool = False, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """The k-th smallest element along `axis` and where it is."""
    where_ = axis_in(-1 if axis is None else axis, x.ndim, "kthvalue")
    length = x.shape[where_] if x.ndim else 1
    if k < 1 or surely(lambda: k > length):
        raise InvalidArgument(
            f"[kthvalue] k must be from 1 to the length {length} of axis {where_}. Received: k={k}"
        )
    return tuple(_kth(x, k, where_, keepdim))  # type: ignore[return-value]


def _kth_types(x: Aval, k: int, axis: int, keepdim: bool) -> tuple[Aval, Aval]:
    if x.ndim == 0:
        return x, aval((), dt.int64)
    middle = (1,) if keepdim else ()
    shape = (*x.shape[:axis], *middle, *x.shape[axis + 1 :])
    return aval(shape, x.dtype), aval(shape, dt.int64)


def _kth_vjp(xp: Any, grads: Any, out: Any, types: Any, axis: int, keepdim: bool) -> tuple[Any]:
    grad, index = grads[0], out[1]
    if types[0].ndim == 0:
        return (grad,)
    if not keepdim:
        grad, index = xp.expand_dims(grad, axis), xp.expand_dims(index, axis)
    return (_unsort(xp, grad, index, types[0].shape[axis], axis),)


@op(name="kthvalue", vjp=_kth_vjp, infer=_kth_types)
def _kth(xp, x, k=1, axis=-1, keepdim=False):
    """The k-th smallest element and where it is."""
    if x.ndim == 0:
        return x, xp.zeros((), np.int64)
    order = xp.take(_order(xp, x, axis, False), xp.asarray([k - 1]), axis=axis)
    value = xp.take_along_axis(x, order, axis=axis)
    if not keepdim:
        value, order = xp.squeeze(value, axis), xp.squeeze(order, axis)
    return value, order.astype(np.int64)


@op(name="mode", vjp=_kth_vjp, infer=lambda x, axis, keepdim: _kth_types(x, 1, axis, keepdim))
def _mode(xp, x, axis=-1, keepdim=False):
    """The most frequent element (the smallest of several) and its last place."""
    if x.ndim == 0:
        return x, xp.zeros((), np.int64)
    lines = xp.moveaxis(x, axis, -1)
    same = lines[..., :, None] == lines[..., None, :]
    frequency = xp.sum(same, axis=-1)
    often = frequency == xp.max(frequency, axis=-1, keepdims=True)
    order = _order(xp, lines, -1, False)
    ranked = xp.take_along_axis(often, order, axis=-1)
    first = xp.take_along_axis(order, xp.argmax(ranked, axis=-1, keepdims=True), axis=-1)
    value = xp.take_along_axis(lines, first, axis=-1)
    places = xp.arange(lines.shape[-1])
    index = xp.max(xp.where(lines == value, places, 0), axis=-1, keepdims=True)
    if keepdim:
        return xp.moveaxis(value, -1, axis), xp.moveaxis(index, -1, axis).astype(np.int64)
    return value[..., 0], index[..., 0].astype(np.int64)


@public(takes="ifc")
def mode(
    x: Tensor, axis: int = -1, keepdim: bool = False, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """The most frequent element along `axis` and its last place."""
    return tuple(_mode(x, axis_in(axis, x.ndim, "mode"), keepdim))  # type: ignore[return-value]


# --- sorted sequences -------------------------------------------------------------------------


def _check_searchsorted(sorted_sequence: Any, values: Any, **_: Any) -> None:
    if sorted_sequence.ndim == 0:
        raise ShapeMismatch("sorted_sequence must have at least one dimension")
    if sorted_sequence.ndim > 1 and sorted_sequence.shape[:-1] != values.shape[:-1]:
        raise ShapeMismatch(
            "all dimensions of sorted_sequence but the last must be those of values"
        )


@op(name="searchsorted", promote="compare", check=_check_searchsorted, differentiable=False,
    infer=lambda s, v, right, dtype: aval(v.shape, dt.as_dtype(dtype)))  # fmt: skip
def _searchsorted(xp, sorted_sequence, values, right=False, dtype="int64"):
    """Where each value would be inserted to keep the order."""
    side = "right" if right else "left"
    to = dt.as_dtype(dtype).numpy
    if sorted_sequence.ndim == 1:
        return xp.searchsorted(sorted_sequence, values, side=side).astype(to)
    line = sorted_sequence[..., None, :]
    below = line <= values[..., None] if right else line < values[..., None]
    return xp.sum(below, axis=-1).astype(to)


@public(also={"input": "values"}, out=True, method=False, takes="ifc")
def searchsorted(
    sorted_sequence: Tensor,
    values: Operand,
    out_int32: bool = False,
    right: bool = False,
    name: str | None = None,
    *,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where each value would be inserted into the sorted last dimension to keep its order."""
    if side is not None:
        if side not in ("left", "right"):
            raise InvalidArgument(
                f"[searchsorted] side must be 'left' or 'right'. Received: {side!r}"
            )
        right = right or side == "right"
    if sorter is not None:
        sorted_sequence = _along(sorted_sequence, sorter)
    if isinstance(values, str):
        raise not_a_tensor("searchsorted", "values", values)
    if not isinstance(values, Tensor):
        values = constant(np.asarray(values, sorted_sequence.dtype.numpy))
    return _searchsorted(sorted_sequence, values, right, "int32" if out_int32 else "int64")


@op(
    name="take_last",
    differentiable=False,
    exact=True,
    requires=lambda x, index: [InRange("index", 0, x.shape[-1] - 1)],
)
def _along(xp, x, index):
    """x reordered along its last dimension."""
    return xp.take_along_axis(x, index, axis=-1)


@public(also={"input": "x", "boundaries": "sorted_sequence"}, out=True, takes="ifc")
def bucketize(
    x: Tensor,
    sorted_sequence: Tensor,
    out_int32: bool = False,
    right: bool = False,
    name: str | None = None,
) -> Tensor:
    """The bucket of each element between the sorted boundaries."""
    if sorted_sequence.ndim != 1:
        raise ShapeMismatch(
            f"[bucketize] sorted_sequence must be a vector. Received: {sorted_sequence.shape}"
        )
    return searchsorted(sorted_sequence, x, out_int32, right)


# --- results whose size depends on the contents: these read the tensor ------------------------


def _nonzero_results(x: Tensor, as_tuple: bool = False) -> Any:
    if as_tuple:
        return tuple([Result([None], dt.int64)] * max(x.ndim, 1))
    return Result([None, x.ndim], dt.int64)


@public(also={"input": "x"}, out=True)
@reads_contents(_nonzero_results)
def nonzero(x: Tensor, as_tuple: bool = False) -> Any:
    """The indices of the elements that are not zero: one row each, or one vector per axis."""
    found = np.nonzero(np.atleast_1d(x.numpy()))
    if as_tuple:
        return tuple(constant(f.astype(np.int64)) for f in found)
    rows = np.stack(found, axis=-1).astype(np.int64)
    return constant(rows if x.ndim else rows[:, :0])


@public
def argwhere(input: Tensor) -> Tensor:
    """The indices of the elements that are not zero, one row each."""
    return nonzero(input)


@public(also={"input": "x"}, out=True)
@reads_contents(lambda x, mask, name=None: Result([None], x.dtype))
def masked_select(x: Tensor, mask: Tensor, name: str | None = None) -> Tensor:
    """The elements of x where the mask holds, in one dimension."""
    if mask.dtype is not dt.bool_:
        raise TypeMismatch(
            f"[masked_select] mask must be a bool tensor. Received: {mask.dtype.name}"
        )
    shape = broadcast_shapes(x._value.aval.shape, mask._value.aval.shape)
    places = np.flatnonzero(np.broadcast_to(mask.numpy(), shape))
    return _take_flat(x, constant(places.astype(np.int64)), shape)


def _take_flat_vjp(xp: Any, grad: Any, index: Any, shape: tuple[Any, ...]) -> tuple[Any, None]:
    size = int(np.prod(shape))
    full = xp.zeros((size,), grad.dtype)
    if xp is np:
        full[index] = grad
        return full.reshape(shape), None
    return full.at[index].set(grad).reshape(shape), None


@op(
    name="masked_select",
    vjp=_take_flat_vjp,
    infer=lambda x, index, shape: aval(index.shape, x.dtype),
    exact=True,
)
def _take_flat(xp, x, index, shape=()):
    """Elements of the broadcast x by flat index, each taken at most once."""
    return xp.broadcast_to(x, shape).reshape((-1,))[index]


def _unique_results(
    x: Tensor,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    dtype: Any = "int64",
    sorted: bool = True,
    name: str | None = None,
) -> Any:
    shape = [None]
    if axis is not None:
        shape = [*x._value.aval.shape]
        shape[axis_in(axis, x.ndim, "unique")] = None
    number = Result([None], dt.as_dtype(dtype))
    found = [Result(shape, x.dtype)]
    found += [number] * (bool(return_index) + bool(return_inverse) + bool(return_counts))
    return found[0] if len(found) == 1 else tuple(found)


@public
@reads_contents(_unique_results)
def unique(
    x: Tensor,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    dtype: DTypeLike = "int64",
    sorted: bool = True,
    name: str | None = None,
) -> Any:
    """The distinct elements (or slices along `axis`) in order, and on request where they are.

    They come in order also with sorted=False, which permits any order.
    """
    index_type = _index_type(dtype, "unique")
    found = np.unique(x.numpy(), True, True, True, axis=_plain_axis(axis, x, "unique"))
    values, index, inverse, counts = found
    wanted = [values]
    for array, asked in ((index, return_index), (inverse, return_inverse), (counts, return_counts)):
        if asked:
            wanted.append(array.reshape(-1).astype(index_type))
    tensors = [constant(np.ascontiguousarray(w)) for w in wanted]
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


def _plain_axis(axis: int | None, x: Tensor, name: str) -> int | None:
    return None if axis is None else axis_in(axis, x.ndim, name)


def _index_type(dtype: Any, name: str) -> np.dtype:
    want = dt.as_dtype(dtype)
    if want not in (dt.int32, dt.int64):
        raise TypeMismatch(f"[{name}] dtype must be 'int32' or 'int64'. Received: {want.name}")
    return want.numpy


def _consecutive_results(
    x: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    dtype: Any = "int64",
    name: str | None = None,
) -> Any:
    return _unique_results(x, False, return_inverse, return_counts, axis, dtype)


@public(also={"input": "x", "dim": "axis"})
@reads_contents(_consecutive_results)
def unique_consecutive(
    x: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    dtype: DTypeLike = "int64",
    name: str | None = None,
) -> Any:
    """x without elements (or slices along `axis`) that repeat the one before."""
    index_type = _index_type(dtype, "unique_consecutive")
    array = x.numpy()
    where_ = _plain_axis(axis, x, "unique_consecutive")
    lines = array.reshape(-1, 1) if where_ is None else np.moveaxis(array, where_, 0)
    flat = lines.reshape(lines.shape[0], -1)
    new = np.ones(lines.shape[0], bool)
    if lines.shape[0] > 1:
        new[1:] = (flat[1:] != flat[:-1]).any(axis=1)
    kept = lines[new]
    values = kept.reshape(-1) if where_ is None else np.moveaxis(kept, 0, where_)
    result = [constant(np.ascontiguousarray(values))]
    starts = np.flatnonzero(new)
    if return_inverse:
        result.append(constant((np.cumsum(new) - 1).astype(index_type)))
    if return_counts:
        result.append(constant(np.diff(np.append(starts, new.size)).astype(index_type)))
    return result[0] if len(result) == 1 else tuple(result)
