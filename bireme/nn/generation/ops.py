"""What a step of generation does besides ordinary layers: writing and reading the cache, and
products that share their input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import ShapeMismatch
from bireme.core.op import op
from bireme.host import jax_door
from bireme.ops.nn_support import wide


def _write_check(kept: Aval, fresh: Aval, place: Aval) -> None:
    if kept.ndim < 2 or fresh.ndim != kept.ndim or kept.dtype is not fresh.dtype:
        raise ShapeMismatch("what is written must have the cache's rank and type")
    if kept.shape[:1] + kept.shape[2:] != fresh.shape[:1] + fresh.shape[2:]:
        raise ShapeMismatch("what is written must fit the cache in all but the second dimension")
    if place.ndim != 1 or place.shape[0] not in (1, kept.shape[0]) or place.dtype is not dt.int64:
        raise ShapeMismatch("the place must be int64 of shape [1] or [batch]")


def _written(xp: Any, kept: Any, fresh: Any, place: Any) -> Any:
    """`kept` with `fresh` at `place`, in either tier."""
    if xp is np:
        out = np.array(kept)
        rows = fresh.shape[1]
        for b in range(out.shape[0]):
            at = min(max(int(place[b % len(place)]), 0), out.shape[1] - rows)
            out[b, at : at + rows] = fresh[b]
        return out
    update = jax_door.jax().lax.dynamic_update_slice_in_dim
    if place.shape[0] == 1:
        return update(kept, fresh, place[0], 1)
    return jax_door.jax().vmap(lambda k, f, p: update(k, f, p, 0))(kept, fresh, place)


@op(name="cache_write", infer=lambda kept, fresh, place: kept, check=_write_check)
def cache_write(xp, kept, fresh, place):
    """`kept` [batch, length, ...] with `fresh` [batch, rows, ...] from `place` [batch] or [1] on.

    As in XLA, a place from which the rows would reach over the end is moved back.
    """
    return _written(xp, kept, fresh, place)


def _attend_check(
    query: Aval,
    key: Aval,
    value: Aval,
    keys: Aval,
    values: Aval,
    place: Aval,
    **settings: Any,
) -> None:
    _write_check(keys, key, place)
    _write_check(values, value, place)
    if query.ndim != 4 or query.shape[:2] != key.shape[:2] or query.shape[2] % key.shape[2]:
        raise ShapeMismatch(
            "query must be [batch, rows, heads, size] with a multiple of the cache's heads"
        )


def _attend_infer(
    query: Aval,
    key: Aval,
    value: Aval,
    keys: Aval,
    values: Aval,
    place: Aval,
    **settings: Any,
) -> tuple[Aval, Aval, Aval]:
    return aval((*query.shape[:3], values.shape[3]), query.dtype), keys, values


def attend_from(
    xp: Any,
    query: Any,
    keys: Any,
    values: Any,
    own: Any,
    scale: float,
    window: int,
    cap: float,
    slopes: Any,
) -> Any:
    """The attention of `query` [batch, rows, heads, size], whose rows are the tokens at the
    positions `own` [batch or 1, rows], to `keys` and `values` [batch, length, groups, size]."""
    batch, rows, heads, size = query.shape
    length, groups = keys.shape[1:3]
    grouped = wide(xp, xp.reshape(query, (batch, rows, groups, heads // groups, size)))
    scores = xp.einsum("brgsd,blgd->bgsrl", grouped, wide(xp, keys))
    scores = scores * xp.asarray(scale or 1 / math.sqrt(size)).astype(scores.dtype)
    if cap:
        scores = xp.tanh(scores / cap) * cap
    if slopes:
        steep = xp.reshape(xp.asarray(slopes).astype(scores.dtype), (1, groups, -1, 1, 1))
        scores = scores + steep * xp.arange(length).astype(scores.dtype)
    limit = xp.reshape(own, (-1, 1, 1, rows, 1))
    seen = xp.arange(length) <= limit
    if window:
        seen = seen & (xp.arange(length) > limit - window)
    scores = xp.where(seen, scores, -np.inf)
    scores = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    scores = scores / xp.sum(scores, axis=-1, keepdims=True)
    mixed = xp.einsum("bgsrl,blgd->brgsd", scores, wide(xp, values))
    return xp.reshape(mixed.astype(query.dtype), (batch, rows, heads, values.shape[3]))


@op(
    name="cache_attend",
    inputs=("query", "key", "value", "keys", "values", "place"),
    infer=_attend_infer,
    check=_attend_check,
)
def cache_attend(
    xp, query, key, value, keys, values, place, scale=0.0, window=0, cap=0.0, slopes=()
):
    """Write new tokens' `key` and `value` [batch, rows, groups, size] into a cache of `keys` and
    `values` [batch, length, groups, size] from `place` [batch] or [1] on.

    Returns the attention of `query` [batch, rows, heads, size] to all tokens up to its own, and
    the cache. The settings are those of `causal_attention`.
    """
    keys, values = _written(xp, keys, key, place), _written(xp, values, value, place)
    own = xp.reshape(place, (-1, 1)) + xp.arange(query.shape[1])
    out = attend_from(xp, query, keys, values, own, scale, window, cap, slopes)
    return out, keys, values


def _linears_check(x: Aval, weights: list[Aval]) -> None:
    if any(w.ndim != 2 or w.shape[0] != x.shape[-1] for w in weights):
        raise ShapeMismatch("every weight must be [features of x, ...]")


def _linears_infer(x: Aval, weights: list[Aval]) -> tuple[Aval, ...]:
    return tuple(aval((*x.shape[:-1], w.shape[1]), x.dtype) for w in weights)


@op(
    name="linears",
    inputs=("x", "*weights"),
    infer=_linears_infer,
    check=_linears_check,
    differentiable=False,
)
def linears(xp, x, weights):
    """x by each weight: what the pass `merge_products` makes of layers that read the same."""
    return tuple(xp.matmul(x, w) for w in weights)
