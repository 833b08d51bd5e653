"""Sparse tensors from positions and values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bireme.api.types import DTypeLike, PlaceLike, TensorLike
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.ops import creation
from bireme.ops.axes import ints
from bireme.ops.sparse_tensor import SparseCooTensor, SparseCsrTensor, read


def _positions(function: str, name: str, given: Any) -> Tensor:
    made = given if isinstance(given, Tensor) else creation.to_tensor(given)
    if made.dtype not in (dt.int8, dt.int16, dt.int32, dt.int64):
        raise TypeMismatch(
            f"[{function}] {name} must be int8, int16, int32 or int64. Received: {made.dtype.name}"
        )
    return made


def _stored(given: Any, dtype: Any, place: Any, stop_gradient: bool) -> Tensor:
    if not isinstance(given, Tensor):
        return creation.to_tensor(given, dtype, place, stop_gradient)
    values = given if dtype is None else given.astype(dtype)
    if stop_gradient:
        return values.detach()
    if values.stop_gradient:
        values = values.detach()
        values.stop_gradient = False
    return values


def sparse_coo_tensor(
    indices: TensorLike,
    values: TensorLike,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    place: PlaceLike | None = None,
    stop_gradient: bool = True,
) -> SparseCooTensor:
    """A tensor from coordinates [sparse dimensions, count] and values [count, ...].

    paddle.sparse.sparse_coo_tensor([[0, 1], [2, 0]], [1.0, 2.0], [2, 3])
    """
    where = _positions("sparse_coo_tensor", "indices", indices)
    stored = _stored(values, dtype, place, stop_gradient)
    if where.ndim != 2 or stored.ndim < 1 or where.shape[1] != stored.shape[0]:
        raise ShapeMismatch(
            "[sparse_coo_tensor] indices must be [sparse dimensions, count] and values [count, "
            f"...]. Received: shapes {where.shape} and {stored.shape}"
        )
    array = read(where)
    if array.size and array.min() < 0:
        raise InvalidArgument("[sparse_coo_tensor] indices must be 0 or more. Received: negatives")
    least = [*(array.max(axis=1) + 1 if array.shape[1] else [0] * len(array)), *stored.shape[1:]]
    full = [int(d) for d in least] if shape is None else list(ints(shape))
    if len(full) != len(least) or any(d < low for d, low in zip(full, least, strict=True)):
        raise InvalidArgument(
            f"[sparse_coo_tensor] the shape must be {[int(d) for d in least]} or larger. "
            f"Received: {full}"
        )
    return SparseCooTensor(where, stored, full)


def sparse_csr_tensor(
    crows: TensorLike,
    cols: TensorLike,
    values: TensorLike,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    place: PlaceLike | None = None,
    stop_gradient: bool = True,
) -> SparseCsrTensor:
    """A matrix, or a batch of them, from the starts of its rows, the columns and the values.

    paddle.sparse.sparse_csr_tensor([0, 1, 2], [2, 0], [1.0, 2.0], [2, 3])
    """
    starts = _positions("sparse_csr_tensor", "crows", crows)
    columns = _positions("sparse_csr_tensor", "cols", cols)
    stored = _stored(values, dtype, place, stop_gradient)
    if (starts.ndim, columns.ndim, stored.ndim) != (1, 1, 1) or len(columns) != len(stored):
        raise ShapeMismatch(
            "[sparse_csr_tensor] crows, cols and values must be vectors, the last two of one "
            f"length. Received: shapes {starts.shape}, {columns.shape} and {stored.shape}"
        )
    array = read(starts)
    if shape is None:
        batches = int((array[:-1] > array[1:]).sum()) + 1
        rows = len(array) // batches - 1
        width = int(read(columns).max()) + 1 if len(columns) else 0
        full = [rows, width] if batches == 1 else [batches, rows, width]
    else:
        full = list(ints(shape))
        if len(full) not in (2, 3):
            raise ShapeMismatch(
                f"[sparse_csr_tensor] the shape must have 2 or 3 dimensions. Received: {full}"
            )
    rows, batches = full[-2], math.prod(full[:-2])
    if len(array) != batches * (rows + 1):
        raise InvalidArgument(
            f"[sparse_csr_tensor] crows needs {rows} + 1 numbers for each matrix. Received: "
            f"{len(array)} for shape {full}"
        )
    table = array.reshape(batches, rows + 1)
    if (table[:, 0] != 0).any() or table[:, -1].sum() != len(stored):
        raise InvalidArgument(
            "[sparse_csr_tensor] crows must start with 0 and end with the number of values. "
            f"Received: {array.tolist()} for {len(stored)} values"
        )
    return SparseCsrTensor(starts, columns, stored, full)
