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

from collections.abc import Sequence
from typing import Any

import bireme as paddle
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn.generation.attention import causal_attention
from bireme.nn.generation.ops import cache_attend, cache_write


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
        settings: Any = {"scale": scale, "window": window, "cap": cap, "slopes": tuple(slopes)}
        if self.place is None:
            self._begin(layer, key, value)
            return causal_attention(query, key, value, **settings)
        if layer >= len(self.layers):
            raise InvalidArgument(
                f"[KVCache] layer {layer} was not there when the cache was filled: it has "
                f"{len(self.layers)} layers"
            )
        keys, values = self.layers[layer]
        out, keys, values = cache_attend(
            query,
            key.astype(keys.dtype),
            value.astype(values.dtype),
            keys,
            values,
            self.place,
            **settings,
        )
        self.layers[layer] = keys, values
        return out

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
            return x if x.shape[1] == 1 else x[:, -1:]
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
