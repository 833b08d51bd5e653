"""Decoders of GPT-2's shape: layer norms with biases, plain MLPs, positions of every kind."""

from __future__ import annotations

import bireme as paddle
from bireme import nn
from bireme.core.tensor import Tensor
from bireme.nn.generation import KVCache
from bireme.zoo import rope as ropes
from bireme.zoo.blocks import activation, attend, linear, places
from bireme.zoo.heads import decoder_tasks
from bireme.zoo.models.gpt2_config import Config
from bireme.zoo.models.gpt2_names import names as names
from bireme.zoo.rope import Turns


def _norm(config: Config, size: int) -> nn.LayerNorm:
    used = None if config.affine else False
    return nn.LayerNorm(size, config.epsilon, weight_attr=used, bias_attr=used)


class Attention(nn.Layer):
    """Attention with whatever positions the config has."""

    def __init__(self, config: Config, layer: int):
        super().__init__()
        c, self._layer = config, layer
        self._config = c
        self.q_proj = linear(c.hidden_size, c.hidden_size, c.qkv_bias)
        self.k_proj = linear(c.hidden_size, c.num_kv_heads * c.head_dim, c.qkv_bias)
        self.v_proj = linear(c.hidden_size, c.num_kv_heads * c.head_dim, c.qkv_bias)
        # GPT-NeoX has one switch for all four, GPT-J no bias in any.
        whole = c.qkv_bias if c.model_type in ("gpt_neox", "gptj") else c.bias
        self.o_proj = linear(c.hidden_size, c.hidden_size, whole)
        if c.qk_norm:
            self.q_norm, self.k_norm = _norm(c, c.head_dim), _norm(c, c.head_dim)
        root = c.head_dim**-0.5 if c.scaled else 1.0
        self._scale = root / (layer + 1) if c.by_layer else root

    def forward(
        self, x: Tensor, turns: Turns | None, mask: Tensor | None, cache: KVCache | None
    ) -> Tensor:
        c = self._config
        parts = (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        q, k, v = (t.reshape([*t.shape[:2], -1, c.head_dim]) for t in parts)
        if c.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        if turns is not None:
            turn = ropes.turn_pairs if c.pairs else ropes.turn
            q, k = turn(q, *turns), turn(k, *turns)
        y = attend(self._layer, q, k, v, mask, cache, scale=self._scale, slopes=c.slopes)
        return self.o_proj(y)


class MLP(nn.Layer):
    """fc2(act(fc1(x)))."""

    def __init__(self, config: Config):
        super().__init__()
        self.fc1 = linear(config.hidden_size, config.intermediate_size, config.bias)
        self.fc2 = linear(config.intermediate_size, config.hidden_size, config.bias)
        self._act = activation(config.act)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self._act(self.fc1(x)))


class Block(nn.Layer):
    """Attention and MLP, each added to its input."""

    def __init__(self, config: Config, layer: int):
        super().__init__()
        self._config = config
        self.self_attn, self.mlp = Attention(config, layer), MLP(config)
        self.norm1 = _norm(config, config.hidden_size)
        if not config.one_norm:
            self.norm2 = _norm(config, config.hidden_size)

    def forward(
        self, x: Tensor, turns: Turns | None, mask: Tensor | None, cache: KVCache | None
    ) -> Tensor:
        c = self._config
        if c.norm_after:
            x = self.norm1(x + self.self_attn(x, turns, mask, cache))
            return self.norm2(x + self.mlp(x))
        h = self.norm1(x)
        y = self.self_attn(h, turns, mask, cache)
        if c.parallel:
            return x + y + self.mlp(h if c.one_norm else self.norm2(x))
        x = (h if c.residual_normed else x) + y
        h = self.norm2(x)
        return (h if c.residual_normed else x) + self.mlp(h)


class GPT(nn.Layer):
    """Embedding, blocks and a norm: [batch, tokens] to [batch, tokens, embed_size]."""

    def __init__(self, config: Config):
        super().__init__()
        c = self._config = config
        self.embed_tokens = nn.Embedding(c.vocab_size, c.embed_size)
        if c.positions:
            self.embed_positions = nn.Embedding(c.positions, c.hidden_size)
        if c.norm_embeddings:
            self.embed_norm = _norm(c, c.hidden_size)
        if c.embed_size != c.hidden_size:
            self.project_in = linear(c.embed_size, c.hidden_size, False)
            self.project_out = linear(c.hidden_size, c.embed_size, False)
        self.layers = nn.LayerList([Block(c, i) for i in range(c.num_layers)])
        if c.final_norm:
            self.norm = _norm(c, c.hidden_size)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        c = self._config
        x = self.embed_tokens(input_ids)
        if c.embed_size != c.hidden_size:
            x = self.project_in(x)
        where, counts = places(input_ids, attention_mask, position_ids, cache)
        turns = None
        if c.positions:
            where = where + c.offset
            if cache is not None:  # padding may reach over the table's end, tokens may not
                where = paddle.clip(where, max=c.positions - 1)
            x = x + self.embed_positions(where)
        elif c.rope is not None:
            cos, sin = c.rope.tables(where, counts)
            turns = cos.astype(x.dtype), sin.astype(x.dtype)
        if c.norm_embeddings:
            x = self.embed_norm(x)
        for block in self.layers:
            x = block(x, turns, attention_mask, cache)
        x = self.norm(x) if c.final_norm else x
        return x if c.embed_size == c.hidden_size else self.project_out(x)


TASKS = {k: v for k, v in decoder_tasks(GPT).items() if k in ("base", "causal_lm", "classifier")}
