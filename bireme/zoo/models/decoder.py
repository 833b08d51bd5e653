"""Decoders of Llama's shape: what differs between them is in the config, not in the code."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import bireme as paddle
from bireme import nn
from bireme.core.errors import FileFormatError
from bireme.core.tensor import Tensor
from bireme.nn.generation import KVCache
from bireme.zoo import rope as ropes
from bireme.zoo.blocks import norm, places
from bireme.zoo.config import Keys, ModelConfig
from bireme.zoo.decoder_blocks import Block
from bireme.zoo.heads import decoder_tasks
from bireme.zoo.names import Names, fused, stacked

# What a model type's config.json leaves out when it has this value.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 4096, "num_key_value_heads": 8},
    "qwen2": {"max_window_layers": 28, "sliding_window": 4096},
    "qwen3": {"max_window_layers": 28, "sliding_window": 4096, "head_dim": 128},
    "phi3": {"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096},
    "smollm3": {"tie_word_embeddings": True, "num_key_value_heads": 4, "rope_theta": 2000000.0},
    "granite": {},
    "olmo2": {"rms_norm_eps": 1e-5},
    "stablelm": {"partial_rotary_factor": 0.25},
    "ernie4_5": {
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-5,
        "head_dim": 128,
        "num_key_value_heads": 2,
        "rope_theta": 500000.0,
    },
    "helium": {"rms_norm_eps": 1e-8, "head_dim": 128, "rope_theta": 100000.0},
    "seed_oss": {"head_dim": 128, "attention_bias": True},
    "internlm3": {"head_dim": 128, "rms_norm_eps": 1e-5, "num_key_value_heads": 2},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(ModelConfig):
    """A decoder; see `read` for what comes from which key."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    act: str
    norm: str  # "rms" or "layer"
    epsilon: float
    rope: ropes.Rope
    turned: tuple[bool, ...]  # of each layer: whether positions turn its queries and keys
    windows: tuple[int, ...]  # of each layer: how many tokens a query sees; 0 for all
    pairs: bool = False  # whether rope turns neighbours and not halves
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    qk_norm: str = ""  # "head": one for all heads; "each": one per head; "width": before the split
    norm_after: bool = False  # norms after attention and MLP (olmo2), not before
    parallel: bool = False  # attention and MLP read the same
    tied: bool = False
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    attention_scale: float = 0.0  # 0: 1 / sqrt(head_dim)
    attention_cap: float = 0.0
    local_rope: ropes.Rope | None = None  # of layers with a window, where they have their own
    logits_scale: float = 1.0
    logits_cap: float = 0.0

    @property
    def output_size(self) -> int:
        """How wide the base's result is."""
        return self.hidden_size

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Config:
        """The config in a config.json; a key that is not understood is an error."""
        kind = str(raw.get("model_type"))
        keys = Keys(raw, _DEFAULTS[kind])
        width, heads = keys.number("hidden_size"), keys.number("num_attention_heads")
        layers, longest = keys.number("num_hidden_layers"), keys.number("max_position_embeddings")
        kv = keys.take("num_key_value_heads", None)
        head = keys.take("head_dim", None) or (width // heads if heads else 0)
        kv = heads if kv is None else kv
        if not heads or not kv or heads % kv or type(head) is not int:
            raise FileFormatError(f"[zoo] {heads} heads, {kv} for keys, of size {head} do not fit")
        keys.only("pretraining_tp", 1, None)
        rope = _rope(keys, kind, head, longest)
        turned = _turned(keys, layers)
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
            act=keys.take("hidden_act", "silu"),
            norm="layer" if kind == "stablelm" else "rms",
            epsilon=keys.real("layer_norm_eps", 1e-5)
            if kind == "stablelm"
            else keys.real("rms_norm_eps", 1e-6),
            rope=rope,
            turned=turned,
            windows=_windows(keys, kind, layers, turned),
            pairs=kind in ("ernie4_5", "helium"),
            norm_after=kind == "olmo2",
            tied=keys.flag("tie_word_embeddings", False),
            **_switches(keys, kind),
        )
        keys.done()
        return found


def _switches(keys: Keys, kind: str) -> dict[str, Any]:
    """What differs between model types: biases, norms of queries and keys, and scales."""
    found: dict[str, Any] = {}
    if kind in ("llama", "smollm3", "granite", "helium", "seed_oss", "qwen3", "olmo2"):
        bias = keys.flag("attention_bias", False)
        found |= {"qkv_bias": bias, "out_bias": bias and kind != "helium"}
    if kind in ("llama", "smollm3", "granite", "helium", "seed_oss"):
        found["mlp_bias"] = keys.flag("mlp_bias", False)
    if kind == "seed_oss":
        found["out_bias"] = keys.flag("attention_out_bias", False)
        keys.ignore("residual_dropout")
    elif kind == "qwen2":
        found["qkv_bias"] = True
    elif kind in ("qwen3", "olmo2"):
        found["qk_norm"] = "head" if kind == "qwen3" else "width"
    elif kind == "stablelm":
        found["qkv_bias"] = keys.flag("use_qkv_bias", False)
        found["qk_norm"] = "each" if keys.flag("qk_layernorm", False) else ""
        found["parallel"] = keys.flag("use_parallel_residual", False)
    elif kind == "ernie4_5":
        bias = keys.flag("use_bias", False)
        found |= {"qkv_bias": bias, "out_bias": bias, "mlp_bias": bias}
    elif kind == "internlm3":
        bias = keys.flag("mlp_bias", False, "bias")
        qkv = keys.flag("attention_bias", bias, "qkv_bias")
        found |= {"qkv_bias": qkv, "out_bias": bias, "mlp_bias": bias}
    elif kind == "granite":
        found["embedding_scale"] = keys.real("embedding_multiplier", 1.0)
        found["residual_scale"] = keys.real("residual_multiplier", 1.0)
        found["attention_scale"] = keys.real("attention_multiplier", 1.0)
        found["logits_scale"] = 1.0 / keys.real("logits_scaling", 1.0)
    return found


def _rope(keys: Keys, kind: str, head: int, longest: int) -> ropes.Rope:
    if kind == "phi3":
        # Older files of this family call longrope "su" or "yarn".
        for name in ("rope_scaling", "rope_parameters"):
            given = keys.raw.get(name)
            if isinstance(given, Mapping) and "yarn" in (given.get("type"), given.get("rope_type")):
                keys.raw[name] = {**given, "rope_type": "longrope"}
    return ropes.read_rope(keys, head, longest)


def _turned(keys: Keys, layers: int) -> tuple[bool, ...]:
    """Which layers have rope: smollm3 leaves it out of every fourth."""
    if keys.model_type != "smollm3":
        return (True,) * layers
    every = keys.number("no_rope_layer_interval", 4)
    listed = keys.take("no_rope_layers", None)
    if listed is None:
        listed = [bool((i + 1) % every) if every else True for i in range(layers)]
    if not isinstance(listed, list) or len(listed) != layers:
        raise keys.bad("no_rope_layers", listed, f"a list of {layers}")
    return tuple(bool(x) for x in listed)


def _windows(keys: Keys, kind: str, layers: int, turned: tuple[bool, ...]) -> tuple[int, ...]:
    window = keys.take("sliding_window", None)
    types = keys.take("layer_types", None)
    first = keys.take("max_window_layers", 0)
    if kind in ("qwen2", "qwen3", "smollm3") and not keys.flag("use_sliding_window", False):
        window = None
    if types is None:
        # Of qwen2 and qwen3 the layers from `max_window_layers` on, of smollm3 those without rope.
        has = [i >= first if kind in ("qwen2", "qwen3") else True for i in range(layers)]
        has = [not t for t in turned] if kind == "smollm3" else has
    else:
        has = window_layers(keys, types, layers)
        if kind not in ("qwen2", "qwen3", "smollm3"):
            keys.only("layer_types", ["full_attention"] * layers, ["sliding_attention"] * layers)
    if not window or not any(has):
        if any(has) and types is not None:
            raise keys.bad("sliding_window", window, "a number: layer_types asks for windows")
        return (0,) * layers
    if type(window) is not int or window < 1:
        raise keys.bad("sliding_window", window, "a positive number")
    return tuple(window if w else 0 for w in has)


def window_layers(keys: Keys, types: object, layers: int) -> list[bool]:
    """Which layers see a window only, from the list `layer_types`."""
    known = ("full_attention", "sliding_attention")
    if not isinstance(types, list) or len(types) != layers or any(t not in known for t in types):
        raise keys.bad("layer_types", types, f"a list of {layers}, each of them {known}")
    return [t == "sliding_attention" for t in types]


class Decoder(nn.Layer):
    """Embedding, blocks and a norm: [batch, tokens] to [batch, tokens, hidden_size]."""

    block = Block

    def __init__(self, config: Config):
        super().__init__()
        self._config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        blocks = [type(self).block(config, i) for i in range(config.num_layers)]
        self.layers = nn.LayerList(blocks)
        self.norm = norm(config.norm, config.hidden_size, config.epsilon)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        x = self.embed_tokens(input_ids)
        c = self._config
        if c.embedding_scale != 1.0:
            x = x * paddle.full([1], c.embedding_scale, x.dtype)
        where = places(input_ids, attention_mask, position_ids, cache)
        both = [r and [t.astype(x.dtype) for t in r.tables(*where)] for r in (c.rope, c.local_rope)]
        for block, window in zip(self.layers, c.windows, strict=True):
            x = block(x, both[bool(window and c.local_rope)], attention_mask, cache)
        return self.norm(x)


TASKS = decoder_tasks(Decoder)


# Types whose question answering calls the base "transformer", as it once was.
_OLD_BASE = {"llama", "qwen2", "qwen3", "seed_oss", "smollm3"}


def names(config: Config, task: str) -> Names:
    """Their names where they differ from ours."""
    c = config
    old = task == "question_answering" and c.model_type in _OLD_BASE
    own = "layers.*.self_attn"
    rules = []
    if c.model_type == "phi3":
        parts = [f"{own}.{n}_proj.weight" for n in "qkv"]
        sizes = [c.num_heads * c.head_dim, *[c.num_kv_heads * c.head_dim] * 2]
        rules.append(fused(parts, f"{own}.qkv_proj.weight", sizes))
        parts = [f"layers.*.mlp.{n}_proj.weight" for n in ("gate", "up")]
        sizes = [c.intermediate_size] * 2
        rules.append(fused(parts, "layers.*.mlp.gate_up_proj.weight", sizes))
    if c.qk_norm == "each":
        for n, heads in (("q", c.num_heads), ("k", c.num_kv_heads)):
            theirs = f"{own}.{n}_layernorm.norms.{{}}.weight"
            rules.append(stacked(f"{own}.{n}_norm.weight", theirs, heads))
    copies = {"lm_head.weight": "model.embed_tokens.weight"} if c.tied else {}
    ignored = ("rotary_emb.inv_freq",)
    base = "transformer" if old else "model"
    return Names(base=base, rules=tuple(rules), copies=copies, ignored=ignored)
