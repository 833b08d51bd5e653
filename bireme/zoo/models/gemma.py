"""Gemma 1 to 3: norms that lack one, scaled embeddings, norms around both parts, capped scores, and
layers that see a window with rotary positions of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from bireme.core.tensor import Tensor
from bireme.nn.generation import KVCache
from bireme.zoo import decoder_blocks
from bireme.zoo import rope as ropes
from bireme.zoo.blocks import norm
from bireme.zoo.config import Keys
from bireme.zoo.heads import decoder_tasks
from bireme.zoo.models import decoder
from bireme.zoo.models.decoder import window_layers
from bireme.zoo.names import Names
from bireme.zoo.rope import Turns

_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma": {"head_dim": 256, "num_key_value_heads": 16, "max_position_embeddings": 8192},
    "gemma2": {
        "head_dim": 256, "num_key_value_heads": 4, "max_position_embeddings": 8192,
        "query_pre_attn_scalar": 256, "sliding_window": 4096, "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
    "gemma3_text": {
        "head_dim": 256, "num_key_value_heads": 4, "max_position_embeddings": 131072,
        "query_pre_attn_scalar": 256, "sliding_window": 4096, "vocab_size": 262208,
    },
}  # fmt: skip
_ACTS = ("gelu_pytorch_tanh", "gelu", None)  # the first is meant whichever is written
_TYPES = ("full_attention", "sliding_attention")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(decoder.Config):
    """A Gemma; `sandwich` is whether norms stand after both parts too."""

    sandwich: bool = False

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Config:
        """The config in a config.json; a key that is not understood is an error."""
        kind = str(raw.get("model_type"))
        keys = Keys(raw, _DEFAULTS[kind])
        layers, head = keys.number("num_hidden_layers"), keys.number("head_dim")
        longest, width = keys.number("max_position_embeddings"), keys.number("hidden_size")
        heads, kv = keys.number("num_attention_heads"), keys.number("num_key_value_heads")
        keys.only("use_bidirectional_attention", False, None)
        for name in ("hidden_act", "hidden_activation"):
            keys.only(name, *_ACTS)
        if not heads or not kv or heads % kv:
            raise keys.bad("num_key_value_heads", kv, f"a divisor of {heads}")
        windows = _windows(keys, kind, layers)
        rope, local = _ropes(keys, kind, head, longest)
        if kind == "gemma3_text":  # its reference has the key and does not cap
            keys.only("attn_logit_softcapping", None)
        caps = [keys.take(f"{n}_logit_softcapping", None) or 0.0 for n in ("attn", "final")]
        caps = [0.0, 0.0] if kind == "gemma" else caps
        found = cls(
            model_type=kind,
            raw=dict(raw),
            vocab_size=keys.number("vocab_size"),
            hidden_size=width,
            intermediate_size=keys.number("intermediate_size"),
            num_layers=layers,
            num_heads=heads,
            num_kv_heads=kv,
            head_dim=head,
            act="gelu_pytorch_tanh",
            norm="offset",
            epsilon=keys.real("rms_norm_eps", 1e-6),
            rope=rope,
            local_rope=local,
            turned=(True,) * layers,
            windows=windows,
            qkv_bias=(bias := keys.flag("attention_bias", False)),
            out_bias=bias,
            qk_norm="head" if kind == "gemma3_text" else "",
            tied=keys.flag("tie_word_embeddings", True),
            embedding_scale=width**0.5,
            attention_scale=0.0 if kind == "gemma" else keys.real("query_pre_attn_scalar") ** -0.5,
            attention_cap=float(caps[0]),
            logits_cap=float(caps[1]),
            sandwich=kind != "gemma",
        )
        keys.done()
        return found


def _windows(keys: Keys, kind: str, layers: int) -> tuple[int, ...]:
    """Every second layer of Gemma 2 sees all tokens, every sixth of Gemma 3."""
    if kind == "gemma":
        return (0,) * layers
    types, window = keys.take("layer_types", None), keys.take("sliding_window")
    every = keys.take(
        "sliding_window_pattern", 2 if kind == "gemma2" else 6, "_sliding_window_pattern"
    )
    if type(every) is not int or every < 1:
        raise keys.bad("sliding_window_pattern", every, "a positive number")
    has = [bool((i + 1) % every) for i in range(layers)]
    has = has if types is None else window_layers(keys, types, layers)
    if any(has) and (type(window) is not int or window < 1):
        raise keys.bad("sliding_window", window, "a positive number")
    return tuple(window if w else 0 for w in has)


def _ropes(keys: Keys, kind: str, head: int, longest: int) -> tuple[ropes.Rope, ropes.Rope | None]:
    if kind != "gemma3_text":
        return ropes.read_rope(keys, head, longest), None
    given = keys.take("rope_parameters", None) or {}
    theta = keys.real("rope_theta", 1_000_000.0)
    near = keys.real("rope_local_base_freq", 10_000.0)
    if any(name in given for name in _TYPES):
        if set(given) - set(_TYPES):
            raise keys.bad("rope_parameters", given, f"a dictionary of {_TYPES}")
        full, local = (given.get(name) or {} for name in _TYPES)
    else:
        full, local = {**(keys.take("rope_scaling", None) or {}), **given}, {}
    keys.ignore("rope_scaling")
    return (
        ropes.make_rope(keys, full, head, longest, theta),
        ropes.make_rope(keys, local, head, longest, near),
    )


class Block(decoder_blocks.Block):
    """Attention and MLP; from Gemma 2 on what is added is normed too."""

    def __init__(self, config: Config, layer: int):
        super().__init__(config, layer)
        self._sandwich = config.sandwich
        if config.sandwich:
            size, epsilon = config.hidden_size, config.epsilon
            self.pre_feedforward_layernorm = norm("offset", size, epsilon)
            self.post_feedforward_layernorm = norm("offset", size, epsilon)

    def forward(
        self, x: Tensor, turns: Turns, mask: Tensor | None, cache: KVCache | None
    ) -> Tensor:
        if not self._sandwich:
            return super().forward(x, turns, mask, cache)
        y = self.self_attn(self.input_layernorm(x), turns, mask, cache)
        x = x + self.post_attention_layernorm(y)
        y = self.mlp(self.pre_feedforward_layernorm(x))
        return x + self.post_feedforward_layernorm(y)


class Gemma(decoder.Decoder):
    """Embedding, blocks and a norm."""

    block = Block


TASKS = decoder_tasks(Gemma)


def names(config: Config, task: str) -> Names:
    """Their names are ours."""
    copies = {"lm_head.weight": "model.embed_tokens.weight"} if config.tied else {}
    return Names(copies=copies, ignored=("rotary_emb.inv_freq",))
