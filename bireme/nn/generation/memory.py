"""The cache of a decoder that reads another sequence: its own tokens, and the other's keys."""

from __future__ import annotations

from collections.abc import Callable

import bireme as paddle
from bireme.core.tensor import Tensor
from bireme.nn.generation.cache import KVCache
from bireme.nn.generation.ops import cache_write


class MemoryCache(KVCache):
    """Keys and values of a decoder's layers, and those that its layers made of an encoder's result.

    The latter are made in the first call and stay the same.
    """

    def __init__(self, length: int):
        super().__init__(length)
        self.memories: list[tuple[Tensor, Tensor]] = []
        self.beams = 1  # rows of tokens for each row of the other sequence

    def memory(
        self, layer: int, make: Callable[[], tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """The keys and values of the other sequence in `layer`, made when they are not there."""
        if layer == len(self.memories):
            key, value = make()
            self.memories.append((self._repeated(key), self._repeated(value)))
        return self.memories[layer]

    def _repeated(self, x: Tensor) -> Tensor:
        if self.beams == 1:
            return x
        wide = x.unsqueeze(1).expand([x.shape[0], self.beams, *x.shape[1:]])
        return wide.reshape([x.shape[0] * self.beams, *x.shape[1:]])

    def attend_with(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        scale: float,
    ) -> Tensor:
        """Add these tokens; returns the attention of `query` to all tokens up to its own.

        `bias` [.., heads, queries, keys] is added to the scores; its keys are the columns of
        the cache, or in the first call the tokens of that call.
        """
        attention = paddle.nn.functional.scaled_dot_product_attention
        rows = query.shape[1]
        if self.place is None:
            self._begin(layer, key, value)
            if bias is None:
                return attention(query, key, value, is_causal=True, scale=scale)
            columns = paddle.arange(rows)
            seen = columns.unsqueeze(0) <= columns.unsqueeze(1)
        else:
            keys, values = self.layers[layer]
            key = cache_write(keys, key.astype(keys.dtype), self.place)
            value = cache_write(values, value.astype(values.dtype), self.place)
            self.layers[layer] = key, value
            own = self.places(query.shape[0], rows)
            seen = paddle.arange(self.length) <= own.unsqueeze(-1)
            seen = seen.unsqueeze(1)
        if bias is not None:
            seen = paddle.where(seen, bias, paddle.full([1], float("-inf"), bias.dtype))
        return attention(query, key, value, seen, scale=scale)
