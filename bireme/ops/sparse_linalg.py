"""Products with sparse matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.ops import linalg, manipulation
from bireme.ops import reduction as reductions
from bireme.ops.indexing import index_select
from bireme.ops.segment import segment_sum
from bireme.ops.sparse_math import add, multiply, require_sparse, sum, transpose
from bireme.ops.sparse_tensor import (
    SparseCooTensor,
    SparseTensor,
    as_coo,
    from_keys,
    ids,
    like,
)


def _flat_matrix(x: SparseTensor) -> tuple[np.ndarray, np.ndarray, int, int, int]:
    """(rows, columns, batches, height, width) of a batch as one block-diagonal matrix."""
    *batch, height, width = x.shape
    keys = as_coo(x).keys()
    row = keys // width
    return row, keys % width + row // height * width, math.prod(batch), height, width


def _product_shapes(function: str, x: Tensor, y: Tensor) -> None:
    fits = x.ndim >= 2 and x.ndim == y.ndim and x.shape[-1] == y.shape[-2]
    if not fits or list(x.shape[:-2]) != list(y.shape[:-2]):
        raise ShapeMismatch(
            f"[sparse.{function}] x [.., m, k] and y [.., k, n] must fit. Received: {x.shape} and "
            f"{y.shape}"
        )
    for given in (x, y):
        if isinstance(given, SparseCooTensor) and given.dense_dim():
            raise ShapeMismatch(
                f"[sparse.{function}] all dimensions of a matrix must be sparse. Received: "
                f"{given.dense_dim()} dense ones"
            )


def matmul(x: Tensor, y: Tensor, name: str | None = None) -> Any:
    """x @ y, one or both of them sparse; two sparse ones have a sparse product."""
    _product_shapes("matmul", x, y)
    if not isinstance(x, SparseTensor):
        swap = [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2]
        flipped = matmul(transpose(y, swap), manipulation.transpose(x, swap))
        return manipulation.transpose(flipped, swap)
    row, column, batches, height, _ = _flat_matrix(x)
    if isinstance(y, SparseTensor):
        return _sparse_product(x, y)
    flat = manipulation.reshape(y, [-1, y.shape[-1]])
    scaled = index_select(flat, ids(column), 0) * x.values().unsqueeze(-1)
    made = segment_sum(scaled, ids(row), batches * height)
    return manipulation.reshape(made, [*x.shape[:-1], y.shape[-1]])


def _sparse_product(x: SparseTensor, y: SparseTensor) -> Any:
    """Every pair (i, k), (k, j) of stored values, added up by (i, j)."""
    row, inner, *_ = _flat_matrix(x)
    inner_y, column, _, _, width = _flat_matrix(y)
    order = np.argsort(inner_y, kind="stable")
    starts = np.searchsorted(inner_y[order], inner)
    count = np.searchsorted(inner_y[order], inner, side="right") - starts
    first = np.repeat(np.arange(len(inner)), count)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    second = order[np.repeat(starts, count) + within]
    keys = row[first] * width + column[second] % width
    kept, place = np.unique(keys, return_inverse=True)
    a = index_select(x.values(), ids(first), 0)
    b = index_select(y.values(), ids(second), 0)
    values = segment_sum(a * b, ids(place), len(kept))
    shape = [*x.shape[:-1], y.shape[-1]]
    return like(x, from_keys(kept, values, shape))


def mv(x: Tensor, vec: Tensor, name: str | None = None) -> Tensor:
    """A sparse matrix times a dense vector."""
    require_sparse("mv", x)
    if x.ndim != 2 or vec.ndim != 1:
        raise ShapeMismatch(
            f"[sparse.mv] takes a matrix and a vector. Received: shapes {x.shape} and {vec.shape}"
        )
    return manipulation.squeeze(matmul(x, manipulation.unsqueeze(vec, -1)), -1)


def masked_matmul(x: Tensor, y: Tensor, mask: Tensor, name: str | None = None) -> Any:
    """x @ y of two dense tensors, computed only where the sparse `mask` has values."""
    pattern = require_sparse("masked_matmul", mask, "mask")
    _product_shapes("masked_matmul", x, y)
    if list(pattern.shape) != [*x.shape[:-1], y.shape[-1]]:
        raise ShapeMismatch(
            f"[sparse.masked_matmul] mask must have the product's shape "
            f"{[*x.shape[:-1], y.shape[-1]]}. Received: {pattern.shape}"
        )
    row, column, *_ = _flat_matrix(pattern)
    swap = [*range(y.ndim - 2), y.ndim - 1, y.ndim - 2]
    left = manipulation.reshape(x, [-1, x.shape[-1]])
    right = manipulation.reshape(manipulation.transpose(y, swap), [-1, y.shape[-2]])
    return pattern._with(_dot_rows(left, ids(row), right, ids(column)))


def _dot_rows(x: Tensor, left: Tensor, y: Tensor, right: Tensor) -> Tensor:
    return reductions.sum(index_select(x, left, 0) * index_select(y, right, 0), -1)


def addmm(
    input: Tensor,
    x: Tensor,
    y: Tensor,
    beta: float = 1.0,
    alpha: float = 1.0,
    name: str | None = None,
) -> Any:
    """beta * input + alpha * (x @ y), with a sparse x."""
    product = matmul(require_sparse("addmm", x), y)
    if isinstance(product, SparseTensor):
        return add(multiply(input, float(beta)), multiply(product, float(alpha)))
    if isinstance(input, SparseTensor):
        raise TypeMismatch("[sparse.addmm] input must be dense where y is. Received: a sparse one")
    return input * beta + product * alpha


def pca_lowrank(
    x: Tensor, q: int | None = None, center: bool = True, niter: int = 2, name: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The first q principal components (U, S, V) of a sparse matrix, by random projections."""
    given = require_sparse("pca_lowrank", x)
    if given.ndim != 2:
        raise ShapeMismatch(f"[sparse.pca_lowrank] takes a matrix. Received: shape {x.shape}")
    m, n = given.shape
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n) or niter < 0:
        raise InvalidArgument(
            f"[sparse.pca_lowrank] q must be from 0 to {min(m, n)} and niter not negative. "
            f"Received: q={q}, niter={niter}"
        )
    from bireme.ops.decomposition import qr, svd
    from bireme.ops.random import randn

    flipped = transpose(given, [1, 0])
    middle = manipulation.reshape(sum(given, 0).to_dense() / m, [1, n]) if center else None

    def times(y: Tensor) -> Tensor:
        made = matmul(given, y)
        return made if middle is None else made - linalg.matmul(middle, y)

    def transposed_times(y: Tensor) -> Tensor:
        made = matmul(flipped, y)
        if middle is None:
            return made
        return made - middle.T * reductions.sum(y, 0, keepdim=True)

    basis = qr(times(randn([n, q], given.dtype)))[0]
    for _ in range(niter):
        basis = qr(transposed_times(basis))[0]
        basis = qr(times(basis))[0]
    u, s, v = svd(transposed_times(basis).T, full_matrices=False)
    return linalg.matmul(basis, u), s, v.T
