"""Configs of GPT-2's family: which keys a model type has, and what they mean."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from bireme.core.errors import FileFormatError
from bireme.zoo import rope as ropes
from bireme.zoo.config import Keys, ModelConfig
from bireme.zoo.rope import Rope

# Older names of keys, by the one that is used here.
_OLDER = {
    "hidden_size": ("n_embd", "n_embed"),
    "num_attention_heads": ("n_head",),
    "num_hidden_layers": ("n_layer",),
    "max_position_embeddings": ("n_positions", "n_ctx"),
    "intermediate_size": ("n_inner", "ffn_dim"),
    "hidden_act": ("activation_function",),
    "layer_norm_eps": ("layer_norm_epsilon",),
}
_ACTS = {"gpt_neox": "gelu", "opt": "relu", "bloom": "gelu_pytorch_tanh"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(ModelConfig):
    """A decoder; see `read` for what comes from which key."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    act: str
    epsilon: float
    embed_size: int  # of tokens; other than hidden_size with a projection between them
    positions: int = 0  # rows of the table of learned positions
    offset: int = 0  # of the first position in that table
    rope: Rope | None = None
    pairs: bool = False  # whether rope turns neighbours and not halves
    slopes: tuple[float, ...] = ()  # of heads, that are added to scores (ALiBi)
    qkv_bias: bool = True
    bias: bool = True  # of other layers
    qk_norm: bool = False
    affine: bool = True  # whether norms have weights
    parallel: bool = False  # attention and MLP read the same
    one_norm: bool = False  # of both, if they are parallel
    norm_after: bool = False
    norm_embeddings: bool = False
    final_norm: bool = True
    residual_normed: bool = False  # what a part adds to is its normed input
    by_layer: bool = False  # scores are divided by the layer's number
    scaled: bool = True  # scores are divided by the root of a head's size
    tied: bool = True
    head_bias: bool = False
    logits_scale: float = 1.0
    logits_cap: float = 0.0

    @property
    def output_size(self) -> int:
        """How wide the base's result is."""
        return self.embed_size

    @property
    def head_dim(self) -> int:
        """The size of a head."""
        return self.hidden_size // self.num_heads

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Config:
        """The config in a config.json; a key that is not understood is an error."""
        kind = str(raw.get("model_type"))
        keys = Keys(raw)

        def number(name: str, *default: Any) -> int:
            return keys.number(name, *(default or ()), *_older(keys, name, bool(default)))

        width, heads = number("hidden_size"), number("num_attention_heads")
        if not heads or width % heads:
            raise FileFormatError(f"[zoo] {heads} heads do not divide a width of {width}")
        inner = keys.take("intermediate_size", None, *_OLDER["intermediate_size"])
        kv = keys.take("num_key_value_heads", None) if kind == "phi" else None
        if kv is not None and (type(kv) is not int or not kv or heads % kv):
            raise keys.bad("num_key_value_heads", kv, f"a divisor of {heads}")
        for name in ("use_cache", "scale_attn_weights"):
            keys.ignore(name)
        found = cls(
            model_type=kind,
            raw=dict(raw),
            vocab_size=keys.number("vocab_size"),
            hidden_size=width,
            intermediate_size=4 * width if inner is None else int(inner),
            num_layers=number("num_hidden_layers"),
            num_heads=heads,
            num_kv_heads=heads if kv is None else kv,
            act=keys.take("hidden_act", _ACTS.get(kind, "gelu_new"), *_OLDER["hidden_act"]),
            epsilon=keys.real("layer_norm_eps", 1e-5, *_OLDER["layer_norm_eps"]),
            embed_size=keys.take("word_embed_proj_dim", None) or width,
            tied=keys.flag("tie_word_embeddings", kind in ("gpt2", "opt", "bloom")),
            **_READ[kind](keys, width // heads, heads),
        )
        keys.done()
        return found


def _older(keys: Keys, name: str, has_default: bool) -> tuple[Any, ...]:
    """The arguments that name a key's older spellings; without a default a missing key fails."""
    older = _OLDER.get(name, ())
    if has_default or not older:
        return older
    present = next((o for o in older if o in keys.raw), None)
    if present is not None and name not in keys.raw:
        keys.raw[name] = keys.raw.pop(present)
    return ()


def _longest(keys: Keys, default: int) -> int:
    return keys.number("max_position_embeddings", default, *_OLDER["max_position_embeddings"])


def _gpt2(keys: Keys, head: int, heads: int) -> dict[str, Any]:
    keys.only("add_cross_attention", False)
    keys.ignore("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels")
    keys.ignore("reorder_and_upcast_attn")
    return {
        "positions": _longest(keys, 1024),
        "by_layer": keys.flag("scale_attn_by_inverse_layer_idx", False),
        "scaled": keys.raw.get("scale_attn_weights", True) is not False,
    }


def _gpt_neox(keys: Keys, head: int, heads: int) -> dict[str, Any]:
    theta = keys.real("rotary_emb_base", 10000.0)
    rope = ropes.read_rope(keys, head, _longest(keys, 2048), theta, 0.25)
    parallel = keys.flag("use_parallel_residual", True)
    bias = keys.flag("attention_bias", True)
    return {"rope": rope, "parallel": parallel, "qkv_bias": bias}


def _opt(keys: Keys, head: int, heads: int) -> dict[str, Any]:
    first = keys.flag("do_layer_norm_before", True)
    bias = keys.flag("enable_bias", True)
    removed = keys.flag("_remove_final_layer_norm", False)
    return {
        "positions": _longest(keys, 2048) + 2,
        "offset": 2,
        "qkv_bias": bias,
        "bias": bias,
        "norm_after": not first,
        "final_norm": first and not removed,
        "affine": keys.flag("layer_norm_elementwise_affine", True),
    }


def _bloom(keys: Keys, head: int, heads: int) -> dict[str, Any]:
    keys.only("pretraining_tp", 1)
    keys.ignore("slow_but_exact", "seq_length", "skip_bias_add", "skip_bias_add_qkv", "n_inner")
    keys.ignore(
        "offset_alibi", "attention_softmax_in_fp32", "masked_softmax_fusion", "unk_token_id"
    )
    normed = keys.flag("apply_residual_connection_post_layernorm", False)
    return {"slopes": _slopes(heads), "norm_embeddings": True, "residual_normed": normed}


def _gptj(keys: Keys, head: int, heads: int) -> dict[str, Any]:
    size = keys.take("rotary_dim", 64) or head
    keys.ignore("rotary", "scale_attn_weights", "summary_type", "summary_use_proj")
    keys.ignore("summary_activation", "summary_proj_to_labels")
    rope = ropes.make_rope(keys, {}, head, _longest(keys, 2048), 10000.0, size / head)
    return {"rope": rope, "pairs": True, "qkv_bias": False, "parallel": True, "one_norm": True,
            "head_bias": True}  # fmt: skip


def _phi(keys: Keys, head: int, heads: int) -> dict[str, Any]:
    rope = ropes.read_rope(keys, head, _longest(keys, 2048), partial=0.5)
    return {"rope": rope, "qk_norm": keys.flag("qk_layernorm", False), "parallel": True,
            "one_norm": True, "head_bias": True}  # fmt: skip


_READ = {
    "gpt2": _gpt2, "gpt_neox": _gpt_neox, "opt": _opt, "bloom": _bloom, "gptj": _gptj, "phi": _phi,
}  # fmt: skip


def _slopes(heads: int) -> tuple[float, ...]:
    """ALiBi's slopes: powers of a root of 2, and between them for counts that are no power of 2."""
    power = 2 ** math.floor(math.log2(heads))
    base = 2 ** -(2 ** -(math.log2(power) - 3))
    found = [base**i for i in range(1, power + 1)]
    base = 2 ** -(2 ** -(math.log2(2 * power) - 3))
    return (*found, *[base**i for i in range(1, 2 * (heads - power) + 1, 2)])
