"""The architectures of GGUF files: which model type each is, and how its tensors are named.

One table for reading and writing. `settings` says what a config.json would hold beside what all
decoders have (`gguf_model`); what it leaves out has the model type's default, as in llama.cpp.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

Values = Mapping[str, Any]

_DENSE = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_norm": "post_attention_layernorm",
}
_QK_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_PHI3 = {
    **_DENSE,
    "attn_qkv": "self_attn.qkv_proj",
    "ffn_up": "mlp.gate_up_proj",
}
# Gemma 2 and 3 have a norm before and after each part, OLMo 2 only after.
_AFTER = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_GEMMA2 = {**_DENSE, **_AFTER, "ffn_norm": "pre_feedforward_layernorm"}
_ROUTER = {**_DENSE, "ffn_gate_inp": "mlp.gate"}
_EXPERTS = {f"ffn_{n}_exps": f"mlp.experts.{{}}.{n}_proj" for n in ("gate", "up", "down")}
_MIXTRAL = {
    f"ffn_{ours}_exps": f"block_sparse_moe.experts.{{}}.{theirs}"
    for ours, theirs in (("gate", "w1"), ("up", "w3"), ("down", "w2"))
}
_SHARED = {
    **{f"ffn_{n}_shexp": f"mlp.shared_expert.{n}_proj" for n in ("gate", "up", "down")},
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
}


def _nothing(values: Values, name: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {}


@dataclasses.dataclass(frozen=True)
class Architecture:
    """How one `general.architecture` maps to a model type.

    `layer` has the tensors of a layer, `stacks` those that hold several of Hugging Face's, whose
    names have `{}` for the number.
    """

    model_type: str
    head: str  # the architecture's name in a config.json
    layer: Mapping[str, str] = dataclasses.field(default_factory=lambda: _DENSE)
    stacks: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pairs: bool = False  # rows of q and k lie as pairs that turn together
    norm_offset: float = 0.0  # what the file's norms have more than Hugging Face's
    layer_norms: bool = False  # norms have a mean, and another key for their epsilon
    settings: Callable[[Values, str, Mapping[str, Any]], dict[str, Any]] = _nothing


def _gemma(values: Values, name: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {"hidden_activation": "gelu_pytorch_tanh"}


def _gemma2(values: Values, name: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    size = values.get(f"{name}.attention.key_length", 256)
    # The 27B model alone divides by another root than that of a head's size.
    if values.get(f"{name}.block_count") == 46:
        size = values[f"{name}.embedding_length"] // values[f"{name}.attention.head_count"]
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": values.get(f"{name}.attention.sliding_window", 4096),
        "attn_logit_softcapping": values.get(f"{name}.attn_logit_softcapping", 50.0),
        "final_logit_softcapping": values.get(f"{name}.final_logit_softcapping", 30.0),
        "query_pre_attn_scalar": size,
    }


def _gemma3(values: Values, name: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    size = values.get(f"{name}.attention.key_length", 256)
    if values.get(f"{name}.block_count") == 62:  # the 27B model
        size = values[f"{name}.embedding_length"] // values[f"{name}.attention.head_count"]
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": values.get(f"{name}.attention.sliding_window", 1024),
        "query_pre_attn_scalar": size,
        "rope_local_base_freq": values.get(f"{name}.rope.freq_base_swa", 10000.0),
        "final_logit_softcapping": values.get(f"{name}.final_logit_softcapping"),
    }


def _llama(values: Values, name: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "attention_bias": "blk.0.attn_output.bias" in tensors,
        "mlp_bias": "blk.0.ffn_gate.bias" in tensors,
    }


def _mixtral(values: Values, name: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "num_local_experts": values[f"{name}.expert_count"],
        "num_experts_per_tok": values[f"{name}.expert_used_count"],
        "sliding_window": None,
    }


def _qwen(values: Values, name: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {"use_sliding_window": False}


def _experts(values: Values, name: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of experts; llama.cpp makes their weights sum to one for qwen3moe alone."""
    found = {
        "num_experts": values[f"{name}.expert_count"],
        "num_experts_per_tok": values[f"{name}.expert_used_count"],
        "norm_topk_prob": name == "qwen3moe",
    }
    if name != "olmoe":
        size = tensors["blk.0.ffn_gate_exps.weight"].shape[-2]
        found["moe_intermediate_size"] = values.get(f"{name}.expert_feed_forward_length", size)
        found["use_sliding_window"] = False
    if name == "qwen2moe":
        size = tensors["blk.0.ffn_gate_shexp.weight"].shape[0]
        found["shared_expert_intermediate_size"] = size
    return found


def _phi3(values: Values, name: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    start = values.get(f"{name}.rope.scaling.original_context_length")
    return {
        "sliding_window": values.get(f"{name}.attention.sliding_window") or None,
        **({} if start is None else {"original_max_position_embeddings": start}),
    }


def _granite(values: Values, name: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    heads, width = values[f"{name}.attention.head_count"], values[f"{name}.embedding_length"]
    size = values.get(f"{name}.attention.key_length", width // heads)
    return {
        "embedding_multiplier": values.get(f"{name}.embedding_scale") or 1.0,
        "residual_multiplier": values.get(f"{name}.residual_scale") or 1.0,
        "attention_multiplier": values.get(f"{name}.attention.scale") or size**-0.5,
        "logits_scaling": values.get(f"{name}.logit_scale") or 1.0,
    }


def _stablelm(values: Values, name: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "use_qkv_bias": "blk.0.attn_q.bias" in tensors,
        "qk_layernorm": "blk.0.attn_q_norm.weight" in tensors,
        "use_parallel_residual": "blk.0.ffn_norm.weight" not in tensors,
    }


def _seed_oss(values: Values, name: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {"attention_bias": "blk.0.attn_q.bias" in tensors}


ARCHITECTURES = {
    "llama": Architecture("llama", "LlamaForCausalLM", pairs=True, settings=_llama),
    "qwen2": Architecture("qwen2", "Qwen2ForCausalLM", settings=_qwen),
    "qwen3": Architecture("qwen3", "Qwen3ForCausalLM", {**_DENSE, **_QK_NORMS}, settings=_qwen),
    "phi3": Architecture("phi3", "Phi3ForCausalLM", _PHI3, settings=_phi3),
    "smollm3": Architecture("smollm3", "SmolLM3ForCausalLM", pairs=True),
    "granite": Architecture("granite", "GraniteForCausalLM", pairs=True, settings=_granite),
    "olmo2": Architecture("olmo2", "Olmo2ForCausalLM", {**_DENSE, **_QK_NORMS, **_AFTER}),
    "stablelm": Architecture(
        "stablelm", "StableLmForCausalLM", layer_norms=True, settings=_stablelm,
        stacks={f"attn_{n}_norm": f"self_attn.{n}_layernorm.norms.{{}}" for n in "qk"},
    ),
    "ernie4_5": Architecture("ernie4_5", "Ernie4_5ForCausalLM"),
    "seed_oss": Architecture(
        "seed_oss", "SeedOssForCausalLM",
        {**_DENSE, "post_attention_norm": "post_attention_layernorm"}, settings=_seed_oss,
    ),
    "gemma": Architecture("gemma", "GemmaForCausalLM", norm_offset=1.0, settings=_gemma),
    "gemma2": Architecture(
        "gemma2", "Gemma2ForCausalLM", _GEMMA2, norm_offset=1.0, settings=_gemma2
    ),
    "gemma3": Architecture(
        "gemma3_text", "Gemma3ForCausalLM", {**_GEMMA2, **_QK_NORMS}, norm_offset=1.0,
        settings=_gemma3,
    ),
    "qwen2moe": Architecture(
        "qwen2_moe", "Qwen2MoeForCausalLM", {**_ROUTER, **_SHARED}, _EXPERTS, settings=_experts
    ),
    "qwen3moe": Architecture(
        "qwen3_moe", "Qwen3MoeForCausalLM", {**_ROUTER, **_QK_NORMS}, _EXPERTS, settings=_experts
    ),
    "olmoe": Architecture(
        "olmoe", "OlmoeForCausalLM", {**_ROUTER, **_QK_NORMS}, _EXPERTS, settings=_experts
    ),
}  # fmt: skip
# A llama with experts.
MIXTRAL = Architecture(
    "mixtral",
    "MixtralForCausalLM",
    {**_DENSE, "ffn_gate_inp": "block_sparse_moe.gate"},
    _MIXTRAL,
    pairs=True,
    settings=_mixtral,
)

# The architecture that holds a model type, where it is not the one with the type in the table.
_ALSO = {"mistral": "llama", "internlm3": "llama", "mixtral": "llama"}


def architecture_in(values: Values) -> tuple[str, Architecture | None]:
    """(name, what it is) of the architecture that a file's values name."""
    name = str(values.get("general.architecture"))
    if name == "llama" and values.get("llama.expert_count"):
        return name, MIXTRAL
    return name, ARCHITECTURES.get(name)


def architecture_of(model_type: str) -> str | None:
    """The architecture that a model type is written as."""
    own = {a.model_type: name for name, a in ARCHITECTURES.items()}
    return {**own, **_ALSO}.get(model_type)
