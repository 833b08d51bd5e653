"""A key-value cache in pages: sequences of any lengths share one pool per layer.

A page holds the keys and values of `page` tokens of one sequence. A sequence's block table names
its pages in order, so sequences grow page by page, and those that begin alike share pages. Page 0
belongs to nobody: padding is written there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import bireme as paddle
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.nn.generation.ops import attend_from


def _check(
    query: Aval,
    key: Aval,
    value: Aval,
    keys: Aval,
    values: Aval,
    tables: Aval,
    place: Aval,
    counts: Aval,
    **settings: Any,
) -> None:
    for pool, fresh in ((keys, key), (values, value)):
        if pool.ndim != 4 or fresh.ndim != 4 or pool.shape[2:] != fresh.shape[2:]:
            raise ShapeMismatch("pools are [pages, page, groups, size] as keys and values are")
        if pool.dtype is not fresh.dtype:
            raise ShapeMismatch("keys and values must have the pools' type")
    if query.ndim != 4 or query.shape[:2] != key.shape[:2] or query.shape[2] % key.shape[2]:
        raise ShapeMismatch(
            "query must be [batch, rows, heads, size] with a multiple of the pools' heads"
        )
    if tables.ndim != 2 or any(
        t.dtype is not dt.int64 or t.shape[:1] != query.shape[:1] for t in (tables, place, counts)
    ):
        raise ShapeMismatch("tables [batch, pages], place and counts [batch] must be int64")


def _infer(
    query: Aval,
    key: Aval,
    value: Aval,
    keys: Aval,
    values: Aval,
    tables: Aval,
    place: Aval,
    counts: Aval,
    **settings: Any,
) -> tuple[Aval, Aval, Aval]:
    return aval((*query.shape[:3], values.shape[3]), query.dtype), keys, values


def _stored(xp: Any, pool: Any, fresh: Any, at: Any) -> Any:
    """The pool with fresh rows at the flat positions `at`."""
    flat = xp.reshape(pool, (-1, *pool.shape[2:]))
    rows = xp.reshape(fresh, (-1, *fresh.shape[2:]))
    if xp is np:
        flat = flat.copy()
        flat[at] = rows
    else:
        flat = flat.at[at].set(rows)
    return xp.reshape(flat, pool.shape)


@op(
    name="paged_attend",
    inputs=("query", "key", "value", "keys", "values", "tables", "place", "counts"),
    infer=_infer,
    check=_check,
    differentiable=False,
)
def paged_attend(
    xp,
    query,
    key,
    value,
    keys,
    values,
    tables,
    place,
    counts,
    scale=0.0,
    window=0,
    cap=0.0,
    slopes=(),
):
    """Write `key` and `value` [batch, rows, groups, size] into the pools `keys` and `values`
    [pages, page, groups, size], at the positions from `place` [batch] on in the pages that
    `tables` [batch, pages of a sequence] name; rows from `counts` [batch] on are padding.

    Returns the attention of `query` [batch, rows, heads, size] to all tokens of its sequence up to
    its own, and the pools. The settings are those of `causal_attention`.
    """
    batch, rows = query.shape[:2]
    page = keys.shape[1]
    length = tables.shape[1] * page
    columns = xp.arange(rows)
    own = xp.reshape(place, (-1, 1)) + columns  # positions of the new tokens
    real = columns < xp.reshape(counts, (-1, 1))
    safe = xp.minimum(own, length - 1)
    pages = xp.take_along_axis(tables, safe // page, 1)
    at = xp.reshape(xp.where(real, pages * page + safe % page, 0), (-1,))
    keys, values = _stored(xp, keys, key, at), _stored(xp, values, value, at)

    def gathered(pool: Any) -> Any:
        return xp.reshape(pool[tables], (batch, length, *pool.shape[2:]))

    parts = gathered(keys), gathered(values)
    out = attend_from(xp, query, *parts, own, scale, window, cap, slopes)
    return out, keys, values


class PagedCache:
    """The cache of one call on sequences in pages, with the interface of `KVCache`.

    `layers` are the pools of keys and values. `tables` int64 [batch, pages], `place` and `counts`
    int64 [batch] say where each row's sequence lies, how many tokens it has, and how many of the
    call's tokens are new; the others are padding.
    """

    def __init__(
        self,
        layers: Sequence[tuple[Tensor, Tensor]],
        tables: Tensor,
        place: Tensor,
        counts: Tensor,
    ):
        self.layers = list(layers)
        self.tables, self.place, self.counts = tables, place, counts
        self.length = tables.shape[1] * self.layers[0][0].shape[1]

    def places(self, batch: int, rows: int) -> Tensor:
        """The positions of the tokens that are being added: int64 [batch, rows]."""
        columns = paddle.arange(rows, dtype="int64").reshape([1, rows])
        return self.place.reshape([batch, 1]) + columns

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scale: float = 0.0,
        window: int = 0,
        cap: float = 0.0,
        slopes: Sequence[float] = (),
    ) -> Tensor:
        """Add these tokens' keys and values [batch, rows, heads, size]; returns the attention of
        `query` to all tokens up to its own. The settings are those of `causal_attention`."""
        if layer >= len(self.layers):
            raise InvalidArgument(
                f"[PagedCache] the model has a layer {layer}, and there are pools for "
                f"{len(self.layers)}"
            )
        keys, values = self.layers[layer]
        out, keys, values = paged_attend(
            query,
            key.astype(keys.dtype),
            value.astype(values.dtype),
            keys,
            values,
            self.tables,
            self.place,
            self.counts,
            scale=scale,
            window=window,
            cap=cap,
            slopes=tuple(slopes),
        )
        self.layers[layer] = keys, values
        return out

    def last(self, x: Tensor) -> Tensor:
        """Of x [batch, rows, ...] each sequence's last token that is no padding."""
        if x.shape[1] == 1:
            return x
        at = paddle.clip(self.counts - 1, min=0).reshape([-1] + [1] * (x.ndim - 1))
        return paddle.take_along_axis(x, at.expand([x.shape[0], 1, *x.shape[2:]]), 1)
