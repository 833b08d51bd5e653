"""Activations of the stored values, and attention where a sparse mask allows it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

import bireme
from bireme.core.errors import ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.ops.segment import segment_sum
from bireme.ops.sparse_math import group_softmax, require_sparse
from bireme.ops.sparse_tensor import ids

if TYPE_CHECKING:
    from bireme.ops.sparse_tensor import SparseTensor


def relu(x: Tensor, name: str | None = None) -> SparseTensor:
    """max(x, 0) of each stored value."""
    given = require_sparse("relu", x)
    return given._with(F.relu(given.values()))


def relu6(x: Tensor, name: str | None = None) -> SparseTensor:
    """Each stored value kept in [0, 6]."""
    given = require_sparse("relu6", x)
    return given._with(F.relu6(given.values()))


def leaky_relu(x: Tensor, negative_slope: float = 0.01, name: str | None = None) -> SparseTensor:
    """Each stored value, times the slope where it is negative."""
    given = require_sparse("leaky_relu", x)
    return given._with(F.leaky_relu(given.values(), negative_slope))


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sparse_mask: Tensor,
    key_padding_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    name: str | None = None,
) -> Tensor:
    """Scaled dot-product attention between the pairs that `sparse_mask` has values for.

    `query`, `key` and `value` are [batch, heads, length, size] and `sparse_mask`, with compressed
    rows, [batch * heads, length, length]. Pairs are left out as well where `key_padding_mask`
    [batch, length] or `attn_mask` [length, length] is 0.
    """
    mask = require_sparse("attention", sparse_mask, "sparse_mask")
    if not mask.is_sparse_csr():
        raise TypeMismatch("[sparse.attention] sparse_mask must have compressed rows (CSR)")
    if query.ndim != 4 or list(query.shape) != list(key.shape):
        raise ShapeMismatch(
            "[sparse.attention] query and key must be [batch, heads, length, size]. Received: "
            f"{query.shape} and {key.shape}"
        )
    batch, heads, length, size = query.shape
    if list(mask.shape) != [batch * heads, length, length]:
        raise ShapeMismatch(
            f"[sparse.attention] sparse_mask must be {[batch * heads, length, length]}. Received: "
            f"{mask.shape}"
        )
    places = mask.keys()  # pyright: ignore[reportAttributeAccessIssue]
    row = places // length
    head, column = row // length, places % length
    keep = np.ones(len(places), bool)
    if key_padding_mask is not None:
        keep &= key_padding_mask.numpy()[head // heads, column] != 0
    if attn_mask is not None:
        keep &= attn_mask.numpy()[row % length, column] != 0
    row, column = row[keep], (head * length + column)[keep]
    flat = [t.reshape([-1, t.shape[-1]]) for t in (query, key, value)]
    from_, to = ids(row), ids(column)
    scores = (bireme.index_select(flat[0], from_) * bireme.index_select(flat[1], to)).sum(-1)
    kept, group = np.unique(row, return_inverse=True)
    weights = group_softmax(scores / math.sqrt(size), group, len(kept))
    parts = weights.unsqueeze(-1) * bireme.index_select(flat[2], to)
    made = segment_sum(parts, from_, batch * heads * length)
    return made.reshape([batch, heads, length, value.shape[-1]])
