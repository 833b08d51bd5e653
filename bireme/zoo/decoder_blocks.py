"""Blocks of decoders of Llama's shape, for the families whose configs have its fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bireme import nn
from bireme.core.tensor import Tensor
from bireme.nn.generation import KVCache
from bireme.zoo import rope as ropes
from bireme.zoo.blocks import GatedMLP, attend, linear, norm

if TYPE_CHECKING:
    from bireme.zoo.models.decoder import Config


class HeadNorms(nn.Layer):
    """A norm without bias for each head, as one parameter [heads, size]."""

    def __init__(self, heads: int, size: int, epsilon: float):
        super().__init__()
        one = nn.initializer.Constant(1.0)
        self.weight = self.create_parameter([heads, size], default_initializer=one)
        self._size, self._epsilon = size, epsilon

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, self._size, epsilon=self._epsilon) * self.weight


class Attention(nn.Layer):
    """Grouped attention with rotary positions."""

    def __init__(self, config: Config, layer: int):
        super().__init__()
        c = self._config = config
        self._layer = layer
        heads, kv, size = c.num_heads, c.num_kv_heads, c.head_dim
        self.q_proj = linear(c.hidden_size, heads * size, c.qkv_bias)
        self.k_proj = linear(c.hidden_size, kv * size, c.qkv_bias)
        self.v_proj = linear(c.hidden_size, kv * size, c.qkv_bias)
        self.o_proj = linear(heads * size, c.hidden_size, c.out_bias)
        if c.qk_norm == "each":
            self.q_norm = HeadNorms(heads, size, c.epsilon)
            self.k_norm = HeadNorms(kv, size, c.epsilon)
        elif c.qk_norm:
            whole = c.qk_norm == "width"
            self.q_norm = norm(c.norm, heads * size if whole else size, c.epsilon)
            self.k_norm = norm(c.norm, kv * size if whole else size, c.epsilon)

    def forward(
        self, x: Tensor, turns: ropes.Turns, mask: Tensor | None, cache: KVCache | None
    ) -> Tensor:
        c = self._config
        q, k = self.q_proj(x), self.k_proj(x)
        if c.qk_norm == "width":
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (t.reshape([*t.shape[:2], -1, c.head_dim]) for t in (q, k, self.v_proj(x)))
        if c.qk_norm in ("head", "each"):
            q, k = self.q_norm(q), self.k_norm(k)
        if c.turned[self._layer]:
            turn = ropes.turn_pairs if c.pairs else ropes.turn
            q, k = turn(q, *turns), turn(k, *turns)
        settings = {
            "scale": c.attention_scale,
            "window": c.windows[self._layer],
            "cap": c.attention_cap,
        }
        return self.o_proj(attend(self._layer, q, k, v, mask, cache, **settings))


class Block(nn.Layer):
    """Attention and MLP, each added to its input."""

    def __init__(self, config: Config, layer: int):
        super().__init__()
        c = self._config = config
        self.self_attn = Attention(c, layer)
        self.mlp = self.make_mlp(c, layer)
        if not c.norm_after:
            self.input_layernorm = norm(c.norm, c.hidden_size, c.epsilon)
        if not c.parallel:
            self.post_attention_layernorm = norm(c.norm, c.hidden_size, c.epsilon)
        if c.norm_after:
            self.post_feedforward_layernorm = norm(c.norm, c.hidden_size, c.epsilon)

    def make_mlp(self, config: Config, layer: int) -> nn.Layer:
        """The block's MLP; mixtures of experts have others."""
        c = config
        return GatedMLP(c.hidden_size, c.intermediate_size, c.act, c.mlp_bias)

    def forward(
        self, x: Tensor, turns: ropes.Turns, mask: Tensor | None, cache: KVCache | None
    ) -> Tensor:
        if self._config.norm_after:
            x = x + self.post_attention_layernorm(self.self_attn(x, turns, mask, cache))
            return x + self.post_feedforward_layernorm(self.mlp(x))
        h = self.input_layernorm(x)
        y = self.self_attn(h, turns, mask, cache)
        if self._config.parallel:
            return x + y + self.mlp(h)
        scale = self._config.residual_scale
        if scale == 1.0:
            x = x + y
            return x + self.mlp(self.post_attention_layernorm(x))
        x = x + y * scale
        return x + self.mlp(self.post_attention_layernorm(x)) * scale
