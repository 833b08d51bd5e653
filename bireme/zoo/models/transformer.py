"""Blocks of encoders and encoder-decoders: attention, two products, and a residual around each.

Sequences are [batch, tokens, width]. A mask is boolean, True where a query may read a key, or
numbers that are added to the scores; it broadcasts to [batch, heads, queries, keys].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import bireme as paddle
from bireme import nn
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.zoo.blocks import linear
from bireme.zoo.rope import Rope, turn

if TYPE_CHECKING:
    from bireme.nn.generation.memory import MemoryCache


class Attention(nn.Layer):
    """Every query of a sequence reads the keys of its own sequence or of another one.

    `bias` says which of the products q, k, v and o have one. `size` is a head's, `scale` what
    scores are multiplied with.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        size: int | None = None,
        bias: tuple[bool, bool, bool, bool] = (True, True, True, True),
        scale: float | None = None,
        dropout: float = 0.0,
        index: int = 0,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.size = size or width // heads
        self.scale = scale or self.size**-0.5
        self.dropout = dropout
        self.index = index
        inner = heads * self.size
        self.q = linear(width, inner, bias[0])
        self.k = linear(width, inner, bias[1])
        self.v = linear(width, inner, bias[2])
        self.o = linear(inner, width, bias[3])

    def _heads(self, x: Tensor) -> Tensor:
        return x.reshape([x.shape[0], x.shape[1], self.heads, self.size])

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        cache: MemoryCache | None = None,
    ) -> Tensor:
        query, key, value = self._heads(self.q(x)), self._heads(self.k(x)), self._heads(self.v(x))
        if cache is not None:
            found = cache.attend_with(self.index, query, key, value, mask, self.scale)
        else:
            found = self.mix(query, key, value, mask, causal)
        return self.o(found.reshape([x.shape[0], x.shape[1], self.heads * self.size]))

    def read(
        self,
        x: Tensor,
        memory: Tensor | None,
        mask: Tensor | None = None,
        cache: MemoryCache | None = None,
    ) -> Tensor:
        """The attention of x to `memory`, another sequence. A cache that has its keys and values
        needs no memory."""

        def pair() -> tuple[Tensor, Tensor]:
            return self._heads(self.k(memory)), self._heads(self.v(memory))

        key, value = pair() if cache is None else cache.memory(self.index, pair)
        found = self.mix(self._heads(self.q(x)), key, value, mask, False)
        return self.o(found.reshape([x.shape[0], x.shape[1], self.heads * self.size]))

    def mix(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool
    ) -> Tensor:
        """Scaled dot-product attention with this layer's scale and dropout."""
        return F.scaled_dot_product_attention(
            query, key, value, mask, self.dropout, causal, self.training, scale=self.scale
        )


class TurnedAttention(Attention):
    """Attention whose queries and keys are turned by their places."""

    def __init__(self, rope: Rope, width: int, heads: int, **settings: Any) -> None:
        super().__init__(width, heads, **settings)
        self.rope = rope

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        cache: Any = None,
    ) -> Tensor:
        places = paddle.arange(x.shape[1]).unsqueeze(0)
        cos, sin = self.rope.tables(places, None)
        query, key = turn(self._heads(self.q(x)), cos, sin), turn(self._heads(self.k(x)), cos, sin)
        found = self.mix(query, key, self._heads(self.v(x)), mask, causal)
        return self.o(found.reshape([x.shape[0], x.shape[1], -1]))


class Feed(nn.Layer):
    """Two products with an activation between them; with `gated`, a third one scales it."""

    def __init__(
        self,
        width: int,
        inner: int,
        act: Callable[[Tensor], Tensor],
        *,
        bias: bool = True,
        gated: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.act = act
        self.up = linear(width, inner, bias)
        self.gate = linear(width, inner, bias) if gated else None
        self.down = linear(inner, width, bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.act(self.up(x)) if self.gate is None else self.act(self.gate(x)) * self.up(x)
        return self.down(self.dropout(inner))


class Block(nn.Layer):
    """Attention and products, with attention to another sequence between them where there is
    `cross`. Norms stand `before` each of them, or after its residual."""

    def __init__(
        self,
        attention: nn.Layer,
        feed: nn.Layer,
        norm: Callable[[], nn.Layer],
        *,
        before: bool,
        cross: Attention | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.before = before
        self.attention = attention
        self.norm1 = norm()
        self.cross = cross
        self.norm_cross = norm() if cross is not None else None
        self.feed = feed
        self.norm2 = norm()
        self.dropout = nn.Dropout(dropout)

    def _around(self, x: Tensor, norm: Any, inner: Callable[[Tensor], Tensor]) -> Tensor:
        if self.before:
            return x + self.dropout(inner(norm(x)))
        return norm(x + self.dropout(inner(x)))

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: MemoryCache | None = None,
    ) -> Tensor:
        x = self._around(
            x, self.norm1, lambda h: self.attention(h, mask, causal=causal, cache=cache)
        )
        cross = self.cross
        if cross is not None:
            x = self._around(
                x, self.norm_cross, lambda h: cross.read(h, memory, memory_mask, cache)
            )
        return self._around(x, self.norm2, self.feed)


def keep_mask(attention_mask: Tensor | None) -> Tensor | None:
    """A mask of tokens [batch, tokens], 0 for padding, as one of keys [batch, 1, 1, tokens]."""
    if attention_mask is None:
        return None
    return attention_mask.astype("bool").unsqueeze(1).unsqueeze(1)


def added(mask: Tensor | None, scores: Tensor) -> Tensor:
    """`scores` with -inf where the boolean `mask` is False."""
    if mask is None:
        return scores
    return paddle.where(mask, scores, paddle.full([1], float("-inf"), scores.dtype))
