"""Attention and transformer layers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import bireme
from bireme.core.dtype import DType
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.attributes import ParamAttrLike, as_param_attr
from bireme.nn.layer.common import Linear
from bireme.nn.layer.container import LayerList
from bireme.nn.layer.dropout import Dropout
from bireme.nn.layer.layer import Layer
from bireme.nn.layer.norm import LayerNorm


def _attr_list(attr: ParamAttrLike | None, n: int) -> list[Any]:
    """`n` parameter attributes from one, from a bool, or from a list of them."""
    if isinstance(attr, list | tuple):
        return [_one_attr(a) for a in attr]
    if attr is False:
        return [False] * n
    made = []
    for i in range(n):
        each = copy.copy(as_param_attr(attr))
        if each is not None and each.name:
            each.name = f"{each.name}_{i}"
        made.append(each)
    return made


def _one_attr(attr: ParamAttrLike | None) -> Any:
    return False if attr is False else as_param_attr(attr)


def _additive_mask(mask: Tensor | None, dtype: DType) -> Tensor | None:
    """A mask to add to the scores: False or 0 becomes -1e9, floats stay as they are."""
    if mask is None or mask.dtype is dtype:
        return mask
    if mask.dtype.is_floating:
        return mask.astype(dtype)
    return (mask.astype(dtype) - 1.0) * 1e9


# Programs with attention of their own import these two by Paddle's names.
_convert_attention_mask = _additive_mask
_convert_param_attr_to_list = _attr_list


class MultiHeadAttention(Layer):
    """Attention of several heads over [batch, time, embed_dim]."""

    class Cache(NamedTuple):
        """Keys and values so far, [batch, heads, time, head_dim]; grows with each call."""

        k: Tensor
        v: Tensor

    class StaticCache(NamedTuple):
        """Keys and values of a fixed memory."""

        k: Tensor
        v: Tensor

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        kdim: int | None = None,
        vdim: int | None = None,
        need_weights: bool = False,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise InvalidArgument(
                "[MultiHeadAttention] embed_dim must be a positive multiple of num_heads. "
                f"Received: embed_dim={embed_dim}, num_heads={num_heads}"
            )
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.need_weights = need_weights
        self.q_proj = Linear(embed_dim, embed_dim, weight_attr, bias_attr)
        self.k_proj = Linear(self.kdim, embed_dim, weight_attr, bias_attr)
        self.v_proj = Linear(self.vdim, embed_dim, weight_attr, bias_attr)
        self.out_proj = Linear(embed_dim, embed_dim, weight_attr, bias_attr)

    def _heads(self, x: Tensor) -> Tensor:
        """[batch, time, embed_dim] as [batch, time, heads, head_dim]."""
        return bireme.reshape(x, (0, 0, self.num_heads, self.head_dim))

    def compute_kv(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Projected keys and values, [batch, heads, time, head_dim]."""
        k, v = self._heads(self.k_proj(key)), self._heads(self.v_proj(value))
        return bireme.transpose(k, (0, 2, 1, 3)), bireme.transpose(v, (0, 2, 1, 3))

    def gen_cache(
        self,
        key: Tensor,
        value: Tensor | None = None,
        type: type[Cache] | type[StaticCache] = Cache,
    ) -> Cache | StaticCache:
        """A cache: empty, from given keys and values, or of a fixed memory (StaticCache)."""
        if type is MultiHeadAttention.StaticCache:
            return self.StaticCache(*self.compute_kv(key, key if value is None else value))
        if value is not None:
            return self.Cache(key, value)
        shape = [key.shape[0], self.num_heads, 0, self.head_dim]
        return self.Cache(bireme.zeros(shape, key.dtype), bireme.zeros(shape, key.dtype))

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        attn_mask: Tensor | None = None,
        cache: Cache | StaticCache | None = None,
    ) -> Tensor | tuple[Any, ...]:
        key = query if key is None else key
        value = query if value is None else value
        if cache is None and not self.need_weights:
            return self._fused(query, key, value, attn_mask)
        q = bireme.transpose(self._heads(self.q_proj(query)), (0, 2, 1, 3))
        if isinstance(cache, self.StaticCache):
            k, v = cache.k, cache.v
        else:
            k, v = self.compute_kv(key, value)
        if isinstance(cache, self.Cache):
            k = bireme.concat([cache.k, k], axis=2)
            v = bireme.concat([cache.v, v], axis=2)
            cache = self.Cache(k, v)
        scores = bireme.matmul(q * self.head_dim**-0.5, k, transpose_y=True)
        mask = _additive_mask(attn_mask, scores.dtype)
        if mask is not None:
            scores = scores + mask
        weights = F.softmax(scores)
        if self.dropout:
            weights = F.dropout(weights, self.dropout, training=self.training)
        mixed = bireme.transpose(bireme.matmul(weights, v), (0, 2, 1, 3))
        out = self.out_proj(bireme.reshape(mixed, (0, 0, self.embed_dim)))
        extras = ((weights,) if self.need_weights else ()) + (() if cache is None else (cache,))
        return (out, *extras) if extras else out

    def _fused(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """One attention op: the weights are never written to memory."""
        q = self._heads(self.q_proj(query))
        mixed = F.scaled_dot_product_attention(
            q,
            self._heads(self.k_proj(key)),
            self._heads(self.v_proj(value)),
            _additive_mask(mask, q.dtype),
            self.dropout,
            False,
            self.training,
        )
        return self.out_proj(bireme.reshape(mixed, (0, 0, self.embed_dim)))


class _Block(Layer):
    """What encoder and decoder layers share: the feed-forward part and the residual rule."""

    linear1: Linear
    linear2: Linear
    dropout: Dropout
    normalize_before: bool
    activation: Any

    def _residual(self, x: Tensor, inner: Any, norm: LayerNorm, dropout: Dropout) -> Any:
        """x + dropout(inner(x)) with the norm before or after; `inner` may return extras."""
        result = inner(norm(x) if self.normalize_before else x)
        extras = ()
        if isinstance(result, tuple):
            result, *extras = result
        out = x + dropout(result)
        if not self.normalize_before:
            out = norm(out)
        return (out, *extras) if extras else out

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Block):
    """Self attention and a feed-forward network, each with a residual connection."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int,
        dropout: float = 0.1,
        activation: str = "relu",
        attn_dropout: float | None = None,
        act_dropout: float | None = None,
        normalize_before: bool = False,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        layer_norm_eps: float = 1e-5,
    ) -> None:
        config = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        super().__init__()
        self._config = config
        attn_dropout = dropout if attn_dropout is None else attn_dropout
        act_dropout = dropout if act_dropout is None else act_dropout
        weights, biases = _attr_list(weight_attr, 2), _attr_list(bias_attr, 2)
        self.normalize_before = normalize_before
        self.self_attn = MultiHeadAttention(
            d_model, nhead, attn_dropout, weight_attr=weights[0], bias_attr=biases[0]
        )
        self.linear1 = Linear(d_model, dim_feedforward, weights[1], biases[1])
        self.dropout = Dropout(act_dropout)
        self.linear2 = Linear(dim_feedforward, d_model, weights[1], biases[1])
        self.norm1 = LayerNorm(d_model, layer_norm_eps)
        self.norm2 = LayerNorm(d_model, layer_norm_eps)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = getattr(F, activation)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        cache: MultiHeadAttention.Cache | None = None,
    ) -> Tensor | tuple[Any, ...]:
        mask = _additive_mask(src_mask, src.dtype)

        def attend(x: Tensor) -> Any:
            return self.self_attn(x, x, x, mask, cache)

        out = self._residual(src, attend, self.norm1, self.dropout1)
        new_cache = ()
        if cache is not None:
            out, *new_cache = out
        out = self._residual(out, self._feed_forward, self.norm2, self.dropout2)
        return (out, *new_cache) if new_cache else out

    def gen_cache(self, src: Tensor) -> MultiHeadAttention.Cache | MultiHeadAttention.StaticCache:
        """An empty cache for step-by-step use."""
        return self.self_attn.gen_cache(src)


def _stack(layer: Layer, count: int) -> LayerList:
    """The given layer and `count` - 1 fresh ones of the same settings."""
    return LayerList([layer, *(type(layer)(**layer._config) for _ in range(count - 1))])


class TransformerEncoder(Layer):
    """A stack of encoder layers."""

    def __init__(self, encoder_layer: Layer, num_layers: int, norm: Layer | None = None) -> None:
        super().__init__()
        self.layers = _stack(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, cache: Sequence[Any] | None = None
    ) -> Tensor | tuple[Any, ...]:
        mask = _additive_mask(src_mask, src.dtype)
        out = src
        caches = []
        for i, layer in enumerate(self.layers):
            if cache is None:
                out = layer(out, src_mask=mask)
            else:
                out, new = layer(out, src_mask=mask, cache=cache[i])
                caches.append(new)
        if self.norm is not None:
            out = self.norm(out)
        return out if cache is None else (out, caches)

    def gen_cache(self, src: Tensor) -> list[Any]:
        """An empty cache per layer."""
        return [layer.gen_cache(src) for layer in self.layers]


class TransformerDecoderLayer(_Block):
    """Self attention, attention to a memory, and a feed-forward network."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int,
        dropout: float = 0.1,
        activation: str = "relu",
        attn_dropout: float | None = None,
        act_dropout: float | None = None,
        normalize_before: bool = False,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        layer_norm_eps: float = 1e-5,
    ) -> None:
        config = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        super().__init__()
        self._config = config
        attn_dropout = dropout if attn_dropout is None else attn_dropout
        act_dropout = dropout if act_dropout is None else act_dropout
        weights, biases = _attr_list(weight_attr, 3), _attr_list(bias_attr, 3)
        self.normalize_before = normalize_before
        self.self_attn = MultiHeadAttention(
            d_model, nhead, attn_dropout, weight_attr=weights[0], bias_attr=biases[0]
        )
        self.cross_attn = MultiHeadAttention(
            d_model, nhead, attn_dropout, weight_attr=weights[1], bias_attr=biases[1]
        )
        self.linear1 = Linear(d_model, dim_feedforward, weights[2], biases[2])
        self.dropout = Dropout(act_dropout)
        self.linear2 = Linear(dim_feedforward, d_model, weights[2], biases[2])
        self.norm1 = LayerNorm(d_model, layer_norm_eps)
        self.norm2 = LayerNorm(d_model, layer_norm_eps)
        self.norm3 = LayerNorm(d_model, layer_norm_eps)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.dropout3 = Dropout(dropout)
        self.activation = getattr(F, activation)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: Sequence[Any] | None = None,
    ) -> Tensor | tuple[Any, ...]:
        tgt_mask = _additive_mask(tgt_mask, tgt.dtype)
        memory_mask = _additive_mask(memory_mask, memory.dtype)
        own_cache, memory_cache = (None, None) if cache is None else cache

        def attend(x: Tensor) -> Any:
            return self.self_attn(x, x, x, tgt_mask, own_cache)

        def attend_memory(x: Tensor) -> Any:
            return self.cross_attn(x, memory, memory, memory_mask, memory_cache)

        out = self._residual(tgt, attend, self.norm1, self.dropout1)
        if cache is not None:
            out, own_cache = out
        out = self._residual(out, attend_memory, self.norm2, self.dropout2)
        if cache is not None:
            out, memory_cache = out
        out = self._residual(out, self._feed_forward, self.norm3, self.dropout3)
        return out if cache is None else (out, (own_cache, memory_cache))

    def gen_cache(self, memory: Tensor) -> tuple[Any, Any]:
        """(an empty cache, the memory's keys and values)."""
        static = self.cross_attn.gen_cache(memory, memory, MultiHeadAttention.StaticCache)
        return self.self_attn.gen_cache(memory), static


class TransformerDecoder(Layer):
    """A stack of decoder layers."""

    def __init__(self, decoder_layer: Layer, num_layers: int, norm: Layer | None = None) -> None:
        super().__init__()
        self.layers = _stack(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: Sequence[Any] | None = None,
    ) -> Tensor | tuple[Any, ...]:
        tgt_mask = _additive_mask(tgt_mask, tgt.dtype)
        memory_mask = _additive_mask(memory_mask, memory.dtype)
        out = tgt
        caches = []
        for i, layer in enumerate(self.layers):
            if cache is None:
                out = layer(out, memory, tgt_mask=tgt_mask, memory_mask=memory_mask)
            else:
                out, new = layer(
                    out, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, cache=cache[i]
                )
                caches.append(new)
        if self.norm is not None:
            out = self.norm(out)
        return out if cache is None else (out, caches)

    def gen_cache(self, memory: Tensor, do_zip: bool = False) -> list[Any]:
        """A cache per layer, or with `do_zip` the layers' caches by kind."""
        caches = [layer.gen_cache(memory) for layer in self.layers]
        return list(zip(*caches, strict=True)) if do_zip else caches


def _attrs_for_both(attr: ParamAttrLike | None, name: str) -> tuple[Any, Any]:
    """(for encoder layers, for decoder layers) from up to three attributes."""
    if not isinstance(attr, list | tuple):
        return attr, attr
    if len(attr) == 1:
        return [attr[0]] * 2, [attr[0]] * 3
    if len(attr) == 2:
        return attr, [attr[0], attr[0], attr[-1]]
    if len(attr) == 3:
        return [attr[0], attr[-1]], attr
    raise InvalidArgument(
        f"[Transformer] {name} takes 1, 2 or 3 attributes in a list. Received: {len(attr)}"
    )


class Transformer(Layer):
    """An encoder and a decoder."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        attn_dropout: float | None = None,
        act_dropout: float | None = None,
        normalize_before: bool = False,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        custom_encoder: Layer | None = None,
        custom_decoder: Layer | None = None,
    ) -> None:
        super().__init__()
        weights = _attrs_for_both(weight_attr, "weight_attr")
        biases = _attrs_for_both(bias_attr, "bias_attr")
        common = (
            d_model, nhead, dim_feedforward, dropout, activation, attn_dropout, act_dropout,
            normalize_before,
        )  # fmt: skip
        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            layer = TransformerEncoderLayer(*common, weights[0], biases[0])
            self.encoder = TransformerEncoder(layer, num_encoder_layers, LayerNorm(d_model))
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            layer = TransformerDecoderLayer(*common, weights[1], biases[1])
            self.decoder = TransformerDecoder(layer, num_decoder_layers, LayerNorm(d_model))
        self.d_model = d_model
        self.nhead = nhead

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        memory = self.encoder(src, src_mask=_additive_mask(src_mask, src.dtype))
        return self.decoder(
            tgt,
            memory,
            tgt_mask=_additive_mask(tgt_mask, tgt.dtype),
            memory_mask=_additive_mask(memory_mask, memory.dtype),
        )

    @staticmethod
    def generate_square_subsequent_mask(length: int) -> Tensor:
        """A mask that hides the future: 0 up to the diagonal, -inf above it."""
        import numpy as np

        from bireme.core.dtype import default_float

        if length < 0:
            raise ShapeMismatch(f"a mask needs a length of 0 or more. Received: {length}")
        mask = np.triu(np.full((length, length), -np.inf), 1).astype(default_float().numpy)
        return bireme.to_tensor(mask)


__all__ = [
    "MultiHeadAttention",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]
