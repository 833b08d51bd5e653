"""Functions of sparse tensors: elementwise, reductions, rearranging, products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bireme.api.types import Axis, DTypeLike, Ints, Operand, Shape
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor, constant
from bireme.ops import manipulation, math_unary, slicing
from bireme.ops import math as dense
from bireme.ops import reduction as reductions
from bireme.ops.axes import ints
from bireme.ops.indexing import index_select
from bireme.ops.segment import segment_extreme, segment_sum
from bireme.ops.sparse_tensor import (
    SparseCooTensor,
    SparseCsrTensor,
    SparseTensor,
    as_coo,
    from_keys,
    ids,
    like,
    read,
    take_at,
)


def require_sparse(function: str, x: object, name: str = "x") -> SparseTensor:
    if not isinstance(x, SparseTensor):
        raise TypeMismatch(
            f"[sparse.{function}] {name} must be a sparse tensor. Received: {type(x).__name__}; "
            "make one with x.to_sparse_coo(dims) or paddle.sparse.sparse_coo_tensor(...)"
        )
    return x


# --- elementwise ------------------------------------------------------------------------------


def _unary(name: str, function: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def apply(x: Tensor, name: str | None = None) -> Any:
        given = require_sparse(apply.__name__, x)
        return given._with(function(given.values()))

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"{name} of each stored value."
    return apply


def _float_values(x: Tensor) -> Tensor:
    return x if x.dtype.differentiable else x.astype("float32")


sin = _unary("sin", math_unary.sin)
tan = _unary("tan", math_unary.tan)
asin = _unary("asin", math_unary.asin)
atan = _unary("atan", math_unary.atan)
sinh = _unary("sinh", math_unary.sinh)
tanh = _unary("tanh", math_unary.tanh)
asinh = _unary("asinh", math_unary.asinh)
atanh = _unary("atanh", math_unary.atanh)
sqrt = _unary("sqrt", math_unary.sqrt)
square = _unary("square", math_unary.square)
log1p = _unary("log1p", math_unary.log1p)
abs = _unary("abs", math_unary.abs)
neg = _unary("neg", math_unary.neg)
expm1 = _unary("expm1", math_unary.expm1)
isnan = _unary("isnan", math_unary.isnan)
rad2deg = _unary("rad2deg", lambda v: _float_values(v) * (180.0 / math.pi))
deg2rad = _unary("deg2rad", lambda v: _float_values(v) * (math.pi / 180.0))


def pow(x: Tensor, factor: float, name: str | None = None) -> SparseTensor:
    """Each stored value to the power of `factor`."""
    given = require_sparse("pow", x)
    return given._with(dense.pow(given.values(), factor))


def cast(
    x: Tensor,
    index_dtype: DTypeLike | None = None,
    value_dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Any:
    """The tensor with another dtype of the positions, of the values, or both."""
    given = require_sparse("cast", x)
    made = given if value_dtype is None else given._with(given.values().astype(value_dtype))
    if index_dtype is None:
        return made
    if isinstance(made, SparseCooTensor):
        indices = made.indices().astype(index_dtype)
        return SparseCooTensor(indices, made.values(), made.shape, made.is_coalesced())
    csr = made.to_sparse_csr()  # type: ignore[attr-defined]
    crows, cols = (part.astype(index_dtype) for part in (csr.crows(), csr.cols()))
    return SparseCsrTensor(crows, cols, made.values(), made.shape)


def _scatter(values: Tensor, keys: np.ndarray, onto: np.ndarray) -> Tensor:
    """Values at `keys` among the sorted positions `onto`, zeros elsewhere."""
    place = np.searchsorted(onto, keys)
    return segment_sum(values, ids(place), len(onto))


def _combine(
    name: str, function: Callable[..., Tensor], x: Any, y: Any, everywhere: bool = False
) -> Any:
    """A function of two sparse tensors of one layout, at the places of either."""
    a, b = require_sparse(name, x), require_sparse(name, y, "y")
    if a.is_sparse_csr() != b.is_sparse_csr():
        raise TypeMismatch(
            f"[sparse.{name}] both tensors must have the same layout. Received: one with "
            "coordinates and one with compressed rows; convert with x.to_sparse_csr()"
        )
    if list(a.shape) != list(b.shape):
        raise ShapeMismatch(
            f"[sparse.{name}] both tensors must have the same shape. Received: {a.shape} and "
            f"{b.shape}"
        )
    p, q = as_coo(a), as_coo(b)
    if p.sparse_dim() != q.sparse_dim():
        raise ShapeMismatch(
            f"[sparse.{name}] both tensors must have the same number of sparse dimensions. "
            f"Received: {p.sparse_dim()} and {q.sparse_dim()}"
        )
    mine, theirs = p.keys(), q.keys()
    if not everywhere and np.array_equal(mine, theirs):
        return a._with(function(a.values(), b.values()))
    shape = tuple(p.shape[: p.sparse_dim()])
    onto = np.arange(math.prod(shape)) if everywhere else np.union1d(mine, theirs)
    values = function(_scatter(p.values(), mine, onto), _scatter(q.values(), theirs, onto))
    return like(a, from_keys(onto, values, shape, p.indices().dtype))


def _is_bias(x: Any, y: Any) -> bool:
    """Whether y is a dense vector for the last, dense dimension of x, as convolutions add it."""
    return (
        isinstance(x, SparseCooTensor)
        and isinstance(y, Tensor)
        and not isinstance(y, SparseTensor)
        and x.dense_dim() > 0
        and y.ndim == 1
    )


def add(x: Tensor, y: Tensor, name: str | None = None) -> SparseTensor:
    """x + y; y may be a dense vector for the dense last dimension of x."""
    if _is_bias(x, y):
        return x._with(x.values() + y)  # type: ignore[attr-defined]
    return _combine("add", dense.add, x, y)


def subtract(x: Tensor, y: Tensor, name: str | None = None) -> SparseTensor:
    """x - y."""
    return _combine("subtract", dense.subtract, x, y)


def multiply(x: Tensor, y: Operand, name: str | None = None) -> Any:
    """x * y, for a number or a sparse tensor y."""
    if isinstance(y, int | float):
        given = require_sparse("multiply", x)
        return given._with(given.values() * float(y))
    return _combine("multiply", dense.multiply, x, y)


def divide(x: Tensor, y: Operand, name: str | None = None) -> Any:
    """x / y. Between two sparse tensors every place gets a value, as 0 / 0 is not zero."""
    if isinstance(y, int | float):
        given = require_sparse("divide", x)
        return given._with(given.values() / float(y))
    return _combine("divide", dense.divide, x, y, everywhere=True)


def is_same_shape(x: Tensor, y: Tensor) -> bool:
    """Whether both tensors, dense or sparse, have the same shape."""
    return list(x.shape) == list(y.shape)


def mask_as(x: Tensor, mask: Tensor, name: str | None = None) -> SparseTensor:
    """The values of a dense tensor at the places of a sparse one."""
    pattern = require_sparse("mask_as", mask, "mask")
    if list(x.shape) != list(pattern.shape):
        raise ShapeMismatch(
            f"[sparse.mask_as] both tensors must have the same shape. Received: {x.shape} and "
            f"{pattern.shape}"
        )
    return pattern._with(take_at(x, pattern))


def coalesce(x: Tensor, name: str | None = None) -> SparseCooTensor:
    """Sorted coordinates; values at the same place are added."""
    given = require_sparse("coalesce", x)
    if not isinstance(given, SparseCooTensor):
        raise TypeMismatch("[sparse.coalesce] takes a tensor with coordinates. Received: CSR")
    return given.coalesce()


# --- reductions -------------------------------------------------------------------------------


def _axes(function: str, axis: Any, rank: int) -> list[int]:
    made = []
    for a in [axis] if isinstance(axis, int) else ints(axis, "axis"):
        if not -rank <= a < rank:
            raise InvalidArgument(
                f"[sparse.{function}] the tensor has {rank} dimensions. Received: axis {a}"
            )
        made.append(a % rank)
    return made


def sum(
    x: Tensor,
    axis: Axis | None = None,
    dtype: DTypeLike | None = None,
    keepdim: bool = False,
    name: str | None = None,
) -> Any:
    """The sum over some axes, or over all: again a sparse tensor."""
    given = require_sparse("sum", x)
    if dtype is not None:
        given = given._with(given.values().astype(dtype))
    rank = given.ndim
    coo = as_coo(given)
    axes = list(range(rank)) if axis is None else _axes("sum", axis, rank)
    # A matrix with compressed rows stays one.
    keep = keepdim or (given.is_sparse_csr() and (rank == 2 or len(axes) == rank))
    if len(axes) == rank:
        total = reductions.sum(coo.values()).reshape([1])
        shape = [1] * (2 if given.is_sparse_csr() else rank if keepdim else 1)
        return like(given, from_keys(np.zeros(1, np.int64), total, shape, coo.indices().dtype))
    return like(given, _sum_over(coo, axes, keep))


def _sum_over(x: SparseCooTensor, axes: list[int], keepdim: bool) -> SparseCooTensor:
    n = x.sparse_dim()
    inside = [a - n + 1 for a in axes if a >= n]
    values = reductions.sum(x.values(), inside, keepdim=keepdim) if inside else x.values()
    over = [a for a in axes if a < n]
    if not over:
        return x._with(values)
    left = [i for i in range(n) if i not in over]
    sizes = [1 if i in over else x.shape[i] for i in range(n)]
    indices = read(x.indices()).copy()
    indices[over] = 0
    keys = np.ravel_multi_index(tuple(indices), tuple(sizes))
    kept, place = np.unique(keys, return_inverse=True)
    values = segment_sum(values, ids(place), len(kept))
    shape = sizes if keepdim else [x.shape[i] for i in left]
    if not shape:  # what is left is dense: its first dimension becomes the sparse one
        rest = segment_sum(values, ids(np.zeros(len(kept))), 1)
        rest = manipulation.squeeze(rest, 0)
        return from_keys(np.arange(rest.shape[0]), rest, [rest.shape[0]], x.indices().dtype)
    return from_keys(kept, values, shape, x.indices().dtype)


def softmax(x: Tensor, axis: int = -1, name: str | None = None) -> SparseTensor:
    """The softmax of the stored values along an axis; what is not stored counts as -infinity."""
    given = require_sparse("softmax", x)
    rank = given.ndim
    [which] = _axes("softmax", axis, rank)
    if given.is_sparse_csr() and which != rank - 1:
        raise InvalidArgument(
            f"[sparse.softmax] with compressed rows only axis -1 is possible. Received: {axis}"
        )
    coo = as_coo(given)
    if which >= coo.sparse_dim():
        from bireme.ops.softmax import softmax as dense_softmax

        return given._with(dense_softmax(given.values(), which - coo.sparse_dim() + 1))
    indices = read(coo.indices()).copy()
    indices[which] = 0
    keys = np.ravel_multi_index(tuple(indices), tuple(coo.shape[: coo.sparse_dim()]))
    kept, place = np.unique(keys, return_inverse=True)
    return given._with(group_softmax(given.values(), place, len(kept)))


def group_softmax(values: Tensor, place: np.ndarray, groups: int) -> Tensor:
    """The softmax among values of one group."""
    where = ids(place)
    peak = segment_extreme(values.detach(), where, groups, True)
    grown = math_unary.exp(values - index_select(peak, where, 0))
    return grown / index_select(segment_sum(grown, where, groups), where, 0)


# --- rearranging ------------------------------------------------------------------------------


def transpose(x: Tensor, perm: Sequence[int], name: str | None = None) -> SparseTensor:
    """The dimensions in another order."""
    given = require_sparse("transpose", x)
    coo = as_coo(given)
    n, rank = coo.sparse_dim(), coo.ndim
    order = _axes("transpose", list(perm), rank)
    if sorted(order) != list(range(rank)):
        raise InvalidArgument(
            f"[sparse.transpose] perm must name each of {rank} dimensions once. Received: "
            f"{list(perm)}"
        )
    if any(a >= n for a in order[:n]):
        raise InvalidArgument(
            f"[sparse.transpose] sparse and dense dimensions cannot change places: the first {n} "
            f"are sparse. Received: perm {list(perm)}"
        )
    values = coo.values()
    if order[n:] != list(range(n, rank)):
        values = manipulation.transpose(values, [0, *(a - n + 1 for a in order[n:])])
    indices = constant(np.ascontiguousarray(read(coo.indices())[order[:n]]))
    return like(given, SparseCooTensor(indices, values, [coo.shape[a] for a in order]))


def reshape(x: Tensor, shape: Shape, name: str | None = None) -> SparseTensor:
    """Another shape of the same size; dense dimensions stay as they are."""
    given = require_sparse("reshape", x)
    coo = as_coo(given)
    n, blocks = coo.sparse_dim(), coo.dense_dim()
    want = [coo.shape[i] if d == 0 and i < coo.ndim else d for i, d in enumerate(ints(shape))]
    if want.count(-1) == 1:
        known = math.prod(d for d in want if d != -1)
        want[want.index(-1)] = coo.size // known if known else 0
    cut = len(want) - blocks
    old = tuple(coo.shape[:n])
    fits = cut > 0 and math.prod(want) == coo.size and want[cut:] == list(coo.shape[n:])
    if not fits:
        raise ShapeMismatch(
            f"[sparse.reshape] a tensor of shape {coo.shape} with {blocks} dense dimensions "
            f"cannot get this shape. Received: {list(ints(shape))}"
        )
    coordinates = np.stack(np.unravel_index(coo.keys(), tuple(want[:cut])))
    indices = constant(coordinates.astype(coo.indices().dtype.numpy))
    made = SparseCooTensor(indices, coo.values(), want, coo.is_coalesced() and bool(old))
    return like(given, made)


def slice(x: Tensor, axes: Ints, starts: Ints, ends: Ints, name: str | None = None) -> SparseTensor:
    """A range of some dimensions."""
    given = require_sparse("slice", x)
    coo = as_coo(given)
    n = coo.sparse_dim()
    which = _axes("slice", list(ints(axes, "axes")), coo.ndim)
    from_, to = ints(starts, "starts"), ints(ends, "ends")
    if not len(which) == len(from_) == len(to):
        raise InvalidArgument(
            "[sparse.slice] axes, starts and ends must have the same length. Received: "
            f"{len(which)}, {len(from_)} and {len(to)}"
        )
    shape = list(coo.shape)
    indices = read(coo.indices()).copy()
    keep = np.ones(indices.shape[1], bool)
    values = coo.values()
    for a, low, high in zip(which, from_, to, strict=True):
        low, high, _ = _RANGE(low, high).indices(shape[a])
        high = max(low, high)
        if a < n:
            keep &= (indices[a] >= low) & (indices[a] < high)
            indices[a] -= low
        else:
            values = slicing.slice(values, [a - n + 1], [low], [high])
        shape[a] = high - low
    if not keep.all():
        values = index_select(values, ids(np.flatnonzero(keep)), 0)
    made = constant(np.ascontiguousarray(indices[:, keep]))
    return like(given, SparseCooTensor(made, values, shape, coo.is_coalesced()))


_RANGE = type(np.s_[:])  # the built-in, which this module's own function hides


# --- operators --------------------------------------------------------------------------------


def attach() -> None:
    """Give sparse tensors their operators and methods."""
    from bireme.ops.sparse_linalg import matmul

    for name, function in {
        "__add__": add, "__sub__": subtract, "__mul__": multiply, "__rmul__": multiply,
        "__truediv__": divide, "__matmul__": matmul, "__neg__": neg, "__abs__": abs,
        "__pow__": pow, "sum": sum, "transpose": transpose, "reshape": reshape, "matmul": matmul,
        "add": add, "subtract": subtract, "multiply": multiply, "divide": divide, "abs": abs,
        "pow": pow, "neg": neg,
    }.items():  # fmt: skip
        setattr(SparseTensor, name, function)
    SparseTensor.T = property(  # type: ignore[attr-defined]
        lambda self: transpose(self, list(range(self.ndim))[::-1])
    )
