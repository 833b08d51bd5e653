"""Mixtures of experts on decoders of Llama's shape: every token goes through a few of many MLPs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import bireme as paddle
from bireme import nn
from bireme.core.errors import FileFormatError
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.zoo import decoder_blocks
from bireme.zoo.blocks import GatedMLP, activation, linear
from bireme.zoo.config import Keys
from bireme.zoo.heads import decoder_tasks
from bireme.zoo.models import decoder
from bireme.zoo.names import Arrays, Names, Rule, stacked

# model_type: the dense type whose attention it has.
_BASES = {
    "mixtral": "mistral",
    "qwen2_moe": "qwen2",
    "qwen3_moe": "qwen3",
    "ernie4_5_moe": "ernie4_5",
    "olmoe": "olmo2",
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "mixtral": {"rms_norm_eps": 1e-5, "sliding_window": None, "rope_theta": 1e6},
    "qwen3_moe": {"head_dim": None},
    "ernie4_5_moe": {"head_dim": None, "num_key_value_heads": 4},
}
_OWN = frozenset(
    {
        "num_local_experts", "num_experts", "moe_num_experts", "num_experts_per_tok", "moe_k",
        "moe_intermediate_size", "shared_expert_intermediate_size", "norm_topk_prob",
        "decoder_sparse_step", "mlp_only_layers", "moe_num_shared_experts", "moe_norm_min",
        "moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval", "clip_qkv",
        "output_router_logits", "router_aux_loss_coef", "router_jitter_noise", "qkv_bias",
    }
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(decoder.Config):
    """A decoder with experts in some of its layers."""

    experts: int
    chosen: int  # experts of a token
    expert_size: int
    sparse: tuple[bool, ...]  # of each layer: whether it has experts
    shared_size: int = 0  # of the MLP that every token goes through as well
    shared_gate: bool = False
    rescaled: bool = True  # whether the chosen experts' weights sum to one
    least: float = 0.0  # what their sum is at least when they are divided by it
    corrected: bool = False  # whether a bias takes part in the choice

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Config:
        """The config in a config.json; a key that is not understood is an error."""
        kind = str(raw.get("model_type"))
        base = _BASES[kind]
        dense = {k: v for k, v in raw.items() if k not in _OWN}
        common = decoder.Config.read({**_DEFAULTS.get(kind, {}), **dense, "model_type": base})
        keys = Keys({k: v for k, v in raw.items() if k in _OWN or k == "model_type"})
        keys.ignore("output_router_logits", "router_aux_loss_coef", "router_jitter_noise")
        keys.only("clip_qkv", None)
        keys.only("qkv_bias", True)
        found = _experts(keys, kind, common)
        if not 0 < found["chosen"] <= found["experts"]:
            raise FileFormatError(
                f"[zoo] {found['chosen']} of {found['experts']} experts cannot be chosen"
            )
        keys.done()
        fields = {f.name: getattr(common, f.name) for f in dataclasses.fields(decoder.Config)}
        fields |= {"model_type": kind, "raw": dict(raw)}
        if kind == "olmoe":  # norms stand before attention and MLP
            fields["norm_after"] = False
        if kind == "ernie4_5_moe":
            fields["head_bias"] = common.mlp_bias
        return cls(**fields, **found)


def _experts(keys: Keys, kind: str, common: decoder.Config) -> dict[str, Any]:
    layers = common.num_layers
    if kind == "ernie4_5_moe":
        size = keys.number("moe_intermediate_size", 1536)
        first, last = keys.number("moe_layer_start_index", 1), keys.take("moe_layer_end_index", -1)
        last = layers - 1 if last == -1 else last
        every = keys.number("moe_layer_interval", 1) or 1
        return {
            "experts": keys.number("moe_num_experts", 64),
            "chosen": keys.number("moe_k", 6, "num_experts_per_tok"),
            "expert_size": size,
            "sparse": tuple(not (i + 1) % every and first <= i <= last for i in range(layers)),
            "shared_size": size * keys.number("moe_num_shared_experts", 2),
            "least": keys.real("moe_norm_min", 1e-12),
            "corrected": True,
        }
    if kind == "mixtral":
        found: dict[str, Any] = {"experts": keys.number("num_local_experts", 8)}
    else:
        found = {"experts": keys.number("num_experts", 64, "num_local_experts")}
        found["rescaled"] = keys.flag("norm_topk_prob", False)
    found["chosen"] = keys.number("num_experts_per_tok", 2)
    found["expert_size"] = common.intermediate_size
    found["sparse"] = (True,) * layers
    if kind in ("qwen2_moe", "qwen3_moe"):
        found["expert_size"] = keys.number("moe_intermediate_size")
        every, without = keys.number("decoder_sparse_step", 1), keys.take("mlp_only_layers", None)
        found["sparse"] = tuple(
            i not in (without or ()) and bool(every) and not (i + 1) % every for i in range(layers)
        )
    if kind == "qwen2_moe":
        found["shared_size"] = keys.number("shared_expert_intermediate_size", 5632)
        found["shared_gate"] = True
    return found


class Experts(nn.Layer):
    """Gated MLPs side by side: weights [experts, in, out]."""

    def __init__(self, config: Config):
        super().__init__()
        c = config
        shape = [c.experts, c.hidden_size, c.expert_size]
        self.gate_proj = self.create_parameter(shape)
        self.up_proj = self.create_parameter(shape)
        self.down_proj = self.create_parameter([c.experts, c.expert_size, c.hidden_size])
        self._act, self._chosen = activation(c.act), c.chosen

    def forward(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """The sum of what the `chosen` experts [tokens, k] make of x [tokens, width], weighted."""
        experts = self.gate_proj.shape[0]
        if x.shape[0] * self._chosen < experts:  # fewer weights are read than all experts have
            gate, up, down = (
                paddle.gather(w, chosen.reshape([-1])).reshape([*chosen.shape, *w.shape[1:]])
                for w in (self.gate_proj, self.up_proj, self.down_proj)
            )
            row = x.reshape([x.shape[0], 1, 1, x.shape[1]])
            h = self._act(paddle.matmul(row, gate)) * paddle.matmul(row, up)
            return (paddle.matmul(h, down).squeeze(2) * weights.unsqueeze(-1)).sum(1)
        share = (F.one_hot(chosen, experts).astype(weights.dtype) * weights.unsqueeze(-1)).sum(1)
        row = x.unsqueeze(0)
        h = self._act(paddle.matmul(row, self.gate_proj)) * paddle.matmul(row, self.up_proj)
        return (paddle.matmul(h, self.down_proj) * share.transpose([1, 0]).unsqueeze(-1)).sum(0)


class SparseMLP(nn.Layer):
    """A router, experts, and perhaps an MLP for every token."""

    def __init__(self, config: Config):
        super().__init__()
        c = self._config = config
        self.gate = linear(c.hidden_size, c.experts, False)
        self.experts = Experts(c)
        if c.corrected:
            zero = nn.initializer.Constant(0.0)
            self.correction = self.create_parameter([c.experts], default_initializer=zero)
        if c.shared_size:
            self.shared_expert = GatedMLP(c.hidden_size, c.shared_size, c.act, c.mlp_bias)
        if c.shared_gate:
            self.shared_expert_gate = linear(c.hidden_size, 1, False)

    def forward(self, x: Tensor) -> Tensor:
        c = self._config
        flat = x.reshape([-1, x.shape[-1]])
        shares = F.softmax(self.gate(flat).astype("float32"), -1)
        scores = shares + self.correction.astype("float32") if c.corrected else shares
        chosen = paddle.topk(scores.detach(), c.chosen, axis=-1)[1]
        weights = paddle.take_along_axis(shares, chosen, 1)
        if c.rescaled:
            total = weights.sum(-1, keepdim=True)
            weights = weights / (paddle.clip(total, min=c.least) if c.least else total)
        y = self.experts(flat, chosen, weights.astype(x.dtype))
        if c.shared_size:
            shared = self.shared_expert(flat)
            y = y + (F.sigmoid(self.shared_expert_gate(flat)) * shared if c.shared_gate else shared)
        return y.reshape(x.shape)


class Block(decoder_blocks.Block):
    """A block whose MLP may be a mixture."""

    def make_mlp(self, config: Config, layer: int) -> nn.Layer:  # pyright: ignore[reportIncompatibleMethodOverride]
        return SparseMLP(config) if config.sparse[layer] else super().make_mlp(config, layer)


class Mixture(decoder.Decoder):
    """Embedding, blocks and a norm."""

    block = Block


TASKS = decoder_tasks(Mixture)


def _flat(arrays: Arrays) -> Arrays:
    return [a.reshape(-1) for a in arrays]


def _row(arrays: Arrays) -> Arrays:
    return [a[None] for a in arrays]


def names(config: Config, task: str) -> Names:
    """Files have every expert's tensors apart."""
    dense = decoder.names(dataclasses.replace(config, model_type=_BASES[config.model_type]), task)
    ours, theirs, layers = "layers.*.mlp", "layers.*.mlp", {}
    parts = {"gate_proj": "gate_proj", "up_proj": "up_proj", "down_proj": "down_proj"}
    if config.model_type == "mixtral":
        theirs = "layers.*.block_sparse_moe"
        layers = {f"{ours}.gate": f"{theirs}.gate"}
        parts = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    rules: list[Rule] = [
        stacked(f"{ours}.experts.{a}", f"{theirs}.experts.{{}}.{b}.weight", config.experts)
        for a, b in parts.items()
    ]
    if config.model_type == "ernie4_5_moe":
        layers = {f"{ours}.shared_expert": f"{ours}.shared_experts"}
        bias = f"{ours}.moe_statics.e_score_correction_bias"
        rules.append(Rule((f"{ours}.correction",), (bias,), _flat, _row))
    return dataclasses.replace(dense, layers=layers, rules=(*dense.rules, *rules))
