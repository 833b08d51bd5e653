"""Sparse tensors: positions and values, both ordinary tensors.

The values carry the gradient through ordinary recorded ops. Positions are known when a tensor is
made: where the result's pattern depends on them they are read (and computed, if they were not
yet), and index arithmetic is done by NumPy, in time proportional to the number of stored values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bireme.api.public import method
from bireme.api.types import DTypeLike
from bireme.core.dtype import DType
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.printing import format_array
from bireme.core.tensor import Size, Tensor, constant
from bireme.ops.indexing import index_select
from bireme.ops.manipulation import reshape
from bireme.ops.segment import segment_sum


def ids(array: np.ndarray) -> Tensor:
    """Positions as a tensor for an op."""
    return constant(np.ascontiguousarray(array, np.int64))


def read(x: Tensor) -> np.ndarray:
    """The contents of a tensor of positions."""
    return np.asarray(x._array())


class SparseTensor(Tensor):
    """What both layouts share: a shape, and values that carry the gradient."""

    _values: Tensor
    _dense_shape: tuple[int, ...]

    @property
    def _value(self) -> Any:  # type: ignore[override]
        raise TypeMismatch(
            "this function takes dense tensors. Received: a sparse one; use the function of this "
            "name in paddle.sparse, or convert with x.to_dense()"
        )

    @property
    def _node(self) -> Any:  # type: ignore[override]
        return self._values._node

    def _with(self, values: Tensor) -> Any:
        """The same pattern with other values."""
        raise NotImplementedError

    # --- what it is -----------------------------------------------------------------------

    @property
    def shape(self) -> Size:
        return Size(self._dense_shape)

    @property
    def dtype(self) -> DType:
        return self._values.dtype

    @property
    def ndim(self) -> int:
        return len(self._dense_shape)

    def dim(self) -> int:
        return self.ndim

    ndimension = dim

    @property
    def size(self) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        return math.prod(self._dense_shape)

    @property
    def place(self) -> Any:
        return self._values.place

    def nnz(self) -> int:
        """How many values are stored."""
        return self._values.shape[0]

    def values(self) -> Tensor:
        """The stored values."""
        return self._values

    def is_dense(self) -> bool:
        return False

    def is_sparse(self) -> bool:
        return True

    def is_sparse_coo(self) -> bool:
        return False

    def is_sparse_csr(self) -> bool:
        return False

    def is_same_shape(self, other: Tensor) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        return list(self.shape) == list(other.shape)

    def __len__(self) -> int:
        return self._dense_shape[0]

    # --- gradients ------------------------------------------------------------------------

    @property
    def stop_gradient(self) -> bool:
        return self._values.stop_gradient

    @stop_gradient.setter
    def stop_gradient(self, stop: bool) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._values.stop_gradient = stop

    @property
    def is_leaf(self) -> bool:
        return self._values.is_leaf

    @property
    def grad(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The gradient, with the pattern of this tensor."""
        grad = self._values.grad
        return None if grad is None else self._with(grad)

    def retain_grads(self) -> None:
        """Keep the gradient in `.grad` after backward, of a tensor that is no leaf."""
        self._values.retain_grads()

    def clear_gradient(self, set_to_zero: bool = True) -> None:
        self._values.clear_gradient(set_to_zero)

    clear_grad = clear_gradient

    def backward(self, grad_tensor: Tensor | None = None, retain_graph: bool = False, *,
                 dump_backward_graph_path: str | None = None) -> None:  # fmt: skip
        """The gradient of the values; `grad_tensor` has this tensor's pattern, or is dense."""
        seed = grad_tensor
        if isinstance(grad_tensor, SparseTensor):
            seed = grad_tensor.values()
        elif grad_tensor is not None:
            seed = take_at(grad_tensor, self)
        self._values.backward(seed, retain_graph, dump_backward_graph_path=dump_backward_graph_path)

    def copy_(self, other: Any, blocking: bool = True) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Become a copy of `other`, which must have the same layout."""
        if type(other) is not type(self):
            raise TypeMismatch(
                f"[copy_] both tensors must be of one layout. Received: {type(self).__name__} and "
                f"{type(other).__name__}"
            )
        self.__dict__.update(other.clone().__dict__)
        return self

    def detach(self) -> SparseTensor:
        return self._with(self._values.detach())

    def clone(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A copy that is part of the recorded computation."""
        return self._with(self._values.clone())

    def astype(self, dtype: DTypeLike) -> SparseTensor:
        return self._with(self._values.astype(dtype))

    cast = astype

    @property
    def type(self) -> None:
        """None, as in Paddle: a program has no variable of this kind."""

    block = type  # pyright: ignore[reportIncompatibleMethodOverride]

    # --- reading --------------------------------------------------------------------------

    def to_dense(self) -> Tensor:
        raise NotImplementedError

    def numpy(self, *args: Any) -> np.ndarray:
        return self.to_dense().numpy()

    def tolist(self) -> Any:
        return self.numpy().tolist()

    def _parts(self) -> dict[str, Tensor]:
        raise NotImplementedError

    def __repr__(self) -> str:
        lines = [
            f"Tensor(shape={list(self.shape)}, dtype={self.dtype}, place={self.place}, "
            f"stop_gradient={self.stop_gradient}"
        ]
        for name, part in self._parts().items():
            body = format_array(np.asarray(part._array()), 8 + len(name))
            lines.append(f"       {name}={body}")
        return ", \n".join(lines) + ")"

    __str__ = __repr__

    def __reduce__(self) -> Any:
        parts = {name: part.numpy() for name, part in self._parts().items()}
        return (_rebuild, (type(self), parts, self._dense_shape, self.stop_gradient))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        rebuild, args = self.__reduce__()
        memo[id(self)] = made = rebuild(*args)
        return made


class SparseCooTensor(SparseTensor):
    """Coordinates [sparse dimensions, stored values] and a value (or a dense block) for each."""

    def __init__(
        self, indices: Tensor, values: Tensor, shape: Sequence[Any], coalesced: bool = False
    ) -> None:
        self._indices = indices
        self._values = values
        self._dense_shape = tuple(shape)
        self._coalesced = coalesced
        self._rulebooks: dict[Any, Any] = {}  # convolutions' neighbours, shared by equal patterns

    def _with(self, values: Tensor) -> SparseCooTensor:
        shape = (*self._dense_shape[: self.sparse_dim()], *values.shape[1:])
        made = SparseCooTensor(self._indices, values, shape, self._coalesced)
        made._rulebooks = self._rulebooks
        return made

    def is_sparse_coo(self) -> bool:
        return True

    def indices(self) -> Tensor:
        """The coordinates, [sparse dimensions, stored values]."""
        return self._indices

    def sparse_dim(self) -> int:
        """How many dimensions are stored as coordinates."""
        return self._indices.shape[0]

    def dense_dim(self) -> int:
        """How many dimensions each stored value has."""
        return len(self._dense_shape) - self.sparse_dim()

    def keys(self) -> np.ndarray:
        """The positions as numbers in row-major order over the sparse dimensions."""
        shape = self._dense_shape[: self.sparse_dim()]
        return np.asarray(np.ravel_multi_index(tuple(read(self._indices)), shape))

    def is_coalesced(self) -> bool:
        """Whether the coordinates are known to be sorted and without repeats."""
        return self._coalesced

    def coalesce(self, name: str | None = None) -> SparseCooTensor:
        """Sorted coordinates; values at the same place are added."""
        if self._coalesced:
            return self
        keys = self.keys()
        kept, place = np.unique(keys, return_inverse=True)
        if len(kept) == len(keys) and (place == np.arange(len(keys))).all():
            made = SparseCooTensor(self._indices, self._values, self._dense_shape, True)
            made._rulebooks = self._rulebooks
            return made
        values = segment_sum(self._values, ids(place), len(kept))
        return from_keys(kept, values, self._dense_shape[: self.sparse_dim()])

    def to_dense(self) -> Tensor:
        """The whole tensor; values at the same place are added."""
        sparse = self._dense_shape[: self.sparse_dim()]
        flat = segment_sum(self._values, ids(self.keys()), math.prod(sparse))
        return reshape(flat, list(self._dense_shape))

    def to_sparse_coo(self, sparse_dim: int) -> SparseCooTensor:
        """This tensor with another number of sparse dimensions."""
        if sparse_dim == self.sparse_dim():
            return self
        return dense_to_coo(self.to_dense(), sparse_dim)

    def to_sparse_csr(self) -> SparseCsrTensor:
        """This matrix, or batch of matrices, with compressed rows."""
        if self.dense_dim() or self.ndim not in (2, 3):
            raise ShapeMismatch(
                "[to_sparse_csr] only matrices and batches of matrices have compressed rows. "
                f"Received: shape {self.shape} with {self.dense_dim()} dense dimensions"
            )
        keys = self.keys()
        order = np.argsort(keys, kind="stable")
        values = self._values
        if (order != np.arange(len(keys))).any():
            values = index_select(values, ids(order), 0)
        *batch, rows, columns = self._dense_shape
        sorted_keys = keys[order]
        count = np.bincount(sorted_keys // columns, minlength=math.prod(batch) * rows)
        crows = np.zeros((math.prod(batch), rows + 1), np.int64)
        crows[:, 1:] = np.cumsum(count.reshape(-1, rows), axis=1)
        kind = self._indices.dtype.numpy
        if not values.stop_gradient:
            values.retain_grads()  # Paddle's are leaves; these hand their gradient on as well
        return SparseCsrTensor(
            constant(crows.reshape(-1).astype(kind)),
            constant((sorted_keys % columns).astype(kind)),
            values,
            self._dense_shape,
        )

    def _parts(self) -> dict[str, Tensor]:
        return {"indices": self._indices, "values": self._values}


class SparseCsrTensor(SparseTensor):
    """Matrices with compressed rows: where each row starts, the columns, the values."""

    def __init__(self, crows: Tensor, cols: Tensor, values: Tensor, shape: Sequence[Any]) -> None:
        self._crows, self._cols = crows, cols
        self._values = values
        self._dense_shape = tuple(shape)

    def _with(self, values: Tensor) -> SparseCsrTensor:
        return SparseCsrTensor(self._crows, self._cols, values, self._dense_shape)

    def is_sparse_csr(self) -> bool:
        return True

    def sparse_dim(self) -> int:
        """How many dimensions are stored as coordinates: rows and columns."""
        return 2

    def dense_dim(self) -> int:
        """How many dimensions each stored value has."""
        return 0

    def crows(self) -> Tensor:
        """Where each row starts among the values; rows + 1 numbers for each matrix."""
        return self._crows

    def cols(self) -> Tensor:
        """The column of each value."""
        return self._cols

    def keys(self) -> np.ndarray:
        """The positions as numbers in row-major order."""
        rows, columns = self._dense_shape[-2:]
        starts = read(self._crows).astype(np.int64).reshape(-1, rows + 1)
        per_row = np.diff(starts, axis=1).reshape(-1)
        return np.repeat(np.arange(len(per_row)), per_row) * columns + read(self._cols)

    def to_sparse_coo(self, sparse_dim: int | None = None) -> SparseCooTensor:
        """This tensor with coordinates."""
        made = from_keys(self.keys(), self._values, self._dense_shape, self._cols.dtype)
        return made if sparse_dim in (None, self.ndim) else made.to_sparse_coo(sparse_dim)

    def to_sparse_csr(self) -> SparseCsrTensor:
        return self

    def to_dense(self) -> Tensor:
        """The whole tensor."""
        return self.to_sparse_coo().to_dense()

    def _parts(self) -> dict[str, Tensor]:
        return {"crows": self._crows, "cols": self._cols, "values": self._values}


def _rebuild(kind: type, parts: dict[str, np.ndarray], shape: Any, stop: bool) -> SparseTensor:
    tensors = [constant(array) for array in parts.values()]
    tensors[-1].stop_gradient = stop
    return kind(*tensors, shape)


# --- conversion -------------------------------------------------------------------------------


def from_keys(
    keys: np.ndarray, values: Tensor, sparse_shape: Any, dtype: DType | None = None
) -> SparseCooTensor:
    """A tensor from sorted row-major positions over its sparse dimensions."""
    coordinates = np.stack(np.unravel_index(keys, tuple(sparse_shape))) if len(sparse_shape) else 0
    indices = constant(np.asarray(coordinates).astype("int64" if dtype is None else dtype.numpy))
    return SparseCooTensor(indices, values, (*sparse_shape, *values.shape[1:]), True)


def like(pattern: SparseTensor, made: SparseCooTensor) -> SparseTensor:
    """A result in the layout of `pattern`."""
    return made.to_sparse_csr() if pattern.is_sparse_csr() else made


def as_coo(x: SparseTensor) -> SparseCooTensor:
    return x if isinstance(x, SparseCooTensor) else x.to_sparse_coo()  # type: ignore[attr-defined]


def take_at(x: Tensor, pattern: SparseTensor) -> Tensor:
    """The values of a dense tensor at the places of a pattern."""
    coo = as_coo(pattern)
    sparse = coo._dense_shape[: coo.sparse_dim()]
    flat = reshape(x, [math.prod(sparse), *x.shape[coo.sparse_dim() :]])
    return index_select(flat, ids(coo.keys()), 0)


def dense_to_coo(x: Tensor, sparse_dim: int) -> SparseCooTensor:
    if not isinstance(sparse_dim, int) or not 1 <= sparse_dim <= x.ndim:
        raise InvalidArgument(
            f"[to_sparse_coo] sparse_dim must be from 1 to {x.ndim}, the tensor's dimensions. "
            f"Received: {sparse_dim!r}"
        )
    array = np.asarray(x._array())
    filled = array != 0
    if sparse_dim < x.ndim:
        filled = filled.any(axis=tuple(range(sparse_dim, x.ndim)))
    keys = np.flatnonzero(filled)
    flat = reshape(x, [filled.size, *x.shape[sparse_dim:]])
    return from_keys(keys, index_select(flat, ids(keys), 0), filled.shape)


# --- methods of dense tensors -----------------------------------------------------------------


@method
def to_sparse_coo(self: Tensor, sparse_dim: int) -> SparseCooTensor:
    """The nonzero places of the first `sparse_dim` dimensions, with coordinates."""
    return dense_to_coo(self, sparse_dim)


@method
def to_sparse_csr(self: Tensor) -> SparseCsrTensor:
    """The nonzero places of a matrix or a batch of matrices, with compressed rows."""
    if self.ndim not in (2, 3):
        raise ShapeMismatch(
            "[to_sparse_csr] only matrices and batches of matrices have compressed rows. "
            f"Received: shape {self.shape}"
        )
    return dense_to_coo(self, self.ndim).to_sparse_csr()


@method
def to_dense(self: Tensor) -> Tensor:
    """The tensor itself: it is dense."""
    return self


@method
def is_sparse_coo(self: Tensor) -> bool:
    """Whether the tensor is sparse, with coordinates."""
    return False


@method
def is_sparse_csr(self: Tensor) -> bool:
    """Whether the tensor is sparse, with compressed rows."""
    return False


@method
def sparse_dim(self: Tensor) -> int:
    """How many dimensions are stored as coordinates: none of a dense tensor."""
    return 0


@method
def dense_dim(self: Tensor) -> int:
    """How many dimensions each stored value has: all of a dense tensor."""
    return self.ndim


@method
def coalesce(self: Tensor, name: str | None = None) -> SparseCooTensor:
    """`coalesce` of a sparse tensor with COO layout."""
    raise _not_sparse(self, "coalesce", "coo")


def _not_sparse(x: Tensor, name: str, layout: str) -> TypeMismatch:
    kind = f"{layout} layout" if isinstance(x, SparseTensor) else "sparse tensors"
    return TypeMismatch(
        f"[{name}] is a method of {kind} only. Received: {type(x).__name__} of shape "
        f"{x.shape}; convert with x.to_sparse_{layout}(...)"
    )


def _sparse_only(name: str, layout: str) -> Callable[[Tensor], Any]:
    def refuse(self: Tensor) -> Any:
        raise _not_sparse(self, name, layout)

    refuse.__name__, refuse.__qualname__ = name, f"Tensor.{name}"
    refuse.__doc__ = f"`{name}` of a sparse tensor with {layout.upper()} layout."
    return refuse


for _name in ("indices", "values", "nnz", "is_coalesced"):
    method(_sparse_only(_name, "coo"))
for _name in ("crows", "cols"):
    method(_sparse_only(_name, "csr"))
