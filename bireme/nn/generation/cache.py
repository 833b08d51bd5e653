"""A static key-value cache: arrays of one size, written in place as tokens come.

    class Attention(nn.Layer):
        def forward(self, x, cache=None):
            ...
            if cache is None:
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                y = cache.attend(self.index, q, k, v)

Shapes never change while tokens are added, so one compiled program serves every step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import bireme as paddle
from bireme.core import dtype as dt
from bireme.core import jax_door
from bireme.core.aval import Aval
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor


def _write_check(kept: Aval, fresh: Aval, place: Aval) -> None:
    if kept.ndim < 2 or fresh.ndim != kept.ndim or kept.dtype is not fresh.dtype:
        raise ShapeMismatch("what is written must have the cache's rank and type")
    if kept.shape[:1] + kept.shape[2:] != fresh.shape[:1] + fresh.shape[2:]:
        raise ShapeMismatch("what is written must fit the cache in all but the second dimension")
    if place.ndim != 1 or place.shape[0] not in (1, kept.shape[0]) or place.dtype is not dt.int64:
        raise ShapeMismatch("the place must be int64 of shape [1] or [batch]")


def _write_numpy(xp: Any, kept: Any, fresh: Any, place: Any) -> Any:
    out = np.array(kept)
    rows = fresh.shape[1]
    for b in range(out.shape[0]):
        at = min(max(int(place[b % len(place)]), 0), out.shape[1] - rows)
        out[b, at : at + rows] = fresh[b]
    return out


@op(name="cache_write", infer=lambda kept, fresh, place: kept, check=_write_check,
    numpy=_write_numpy)  # fmt: skip
def cache_write(xp, kept, fresh, place):
    """`kept` [batch, length, ...] with `fresh` [batch, rows, ...] from `place` [batch] or [1] on.

    As in XLA, a place from which the rows would reach over the end is moved back.
    """
    update = jax_door.jax().lax.dynamic_update_slice_in_dim
    if place.shape[0] == 1:
        return update(kept, fresh, place[0], 1)
    return jax_door.jax().vmap(lambda k, f, p: update(k, f, p, 0))(kept, fresh, place)


class KVCache:
    """Keys and values of every layer for up to `length` tokens.

    A cache starts empty and learns its layers from the first tokens that are added. `place` is
    the number of tokens that each sample has so far.
    """

    def __init__(self, length: int):
        if length < 1:
            raise InvalidArgument(f"[KVCache] length must be positive. Received: {length}")
        self.length = length
        self.place: Tensor | None = None  # int64 [batch]; None while the cache is empty
        self.layers: list[tuple[Tensor, Tensor]] = []
        self.counts: Tensor | None = None  # of the tokens that are no padding, in the first call

    def places(self, batch: int, rows: int) -> Tensor:
        """The positions of the `rows` tokens that are being added: int64 [batch, rows]."""
        columns = paddle.arange(rows, dtype="int64").reshape([1, rows])
        if self.place is None:
            return columns.expand([batch, rows])
        return self.place.reshape([-1, 1]) + columns

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Add these tokens' keys and values [batch, rows, heads, size]; returns the attention of
        `query` to all tokens up to its own."""
        attention = paddle.nn.functional.scaled_dot_product_attention
        if self.place is None:
            self._begin(layer, key, value)
            return attention(query, key, value, is_causal=True)
        if layer >= len(self.layers):
            raise InvalidArgument(
                f"[KVCache] layer {layer} was not there when the cache was filled: it has "
                f"{len(self.layers)} layers"
            )
        keys, values = self.layers[layer]
        keys = cache_write(keys, key.astype(keys.dtype), self.place)
        values = cache_write(values, value.astype(values.dtype), self.place)
        self.layers[layer] = keys, values
        seen = self.places(query.shape[0], query.shape[1]).unsqueeze([1, 3])
        mask = paddle.arange(self.length, dtype="int64").reshape([1, 1, 1, -1]) <= seen
        return attention(query, keys.astype(query.dtype), values.astype(query.dtype), mask)

    def _begin(self, layer: int, key: Tensor, value: Tensor) -> None:
        batch, rows = key.shape[:2]
        if layer != len(self.layers) or rows > self.length:
            raise InvalidArgument(
                f"[KVCache] layers are numbered 0, 1, ... in the order in which they run, and at "
                f"most {self.length} tokens fit. Received: layer {layer} after "
                f"{len(self.layers)} others, {rows} tokens"
            )
        start = paddle.zeros([1], "int64")
        made = [
            cache_write(paddle.zeros([batch, self.length, *x.shape[2:]], x.dtype), x, start)
            for x in (key, value)
        ]
        self.layers.append((made[0], made[1]))

    def last(self, x: Tensor) -> Tensor:
        """Of x [batch, rows, ...] each sample's last token that is no padding: [batch, 1, ...].

        A model that applies its output layer to this instead of to all tokens computes no scores
        that nobody reads.
        """
        if self.counts is None:
            return x[:, -1:]
        at = (self.counts - 1).reshape([-1] + [1] * (x.ndim - 1))
        return paddle.take_along_axis(x, at.expand([x.shape[0], 1, *x.shape[2:]]), 1)

    def advance(self, count: int | Tensor) -> None:
        """The tokens of a call have been added: `count` of them, or per sample int64 [batch]."""
        if not self.layers:
            raise InvalidArgument("[KVCache] nothing was added yet: call the model with the cache")
        if self.place is None:
            batch = self.layers[0][0].shape[0]
            self.place = paddle.zeros([batch], "int64")
        self.place = self.place + count
        self.counts = None
