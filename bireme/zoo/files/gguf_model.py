"""A GGUF file as a Source: its values as a config.json, its tensors under Hugging Face's names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bireme.core.errors import FileFormatError
from bireme.zoo.files.gguf import Gguf, read_gguf
from bireme.zoo.files.source import Source, Stored

Values = Mapping[str, Any]

_LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_norm": "post_attention_layernorm",
}
# Gemma 2 and 3 have a norm before and after each part.
_SANDWICH = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_OUTSIDE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_FACTORS = "rope_freqs.weight"


@dataclasses.dataclass(frozen=True)
class _Architecture:
    """How one `general.architecture` maps to a model type."""

    model_type: str
    head: str  # the architecture's name in a config.json
    layer: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pairs: bool = False  # rows of q and k lie as pairs that turn together
    norm_offset: float = 0.0  # what the file's norms have more than Hugging Face's
    more: Callable[[Values, str], dict[str, Any]] = lambda values, name: {}


def _gemma(values: Values, name: str) -> dict[str, Any]:
    return {"hidden_activation": "gelu_pytorch_tanh"}


def _gemma2(values: Values, name: str) -> dict[str, Any]:
    size = values.get(f"{name}.attention.key_length", 256)
    found = {
        **_gemma(values, name),
        "sliding_window": values.get(f"{name}.attention.sliding_window", 4096),
        "attn_logit_softcapping": values.get(f"{name}.attn_logit_softcapping", 50.0),
        "final_logit_softcapping": values.get(f"{name}.final_logit_softcapping", 30.0),
    }
    # The 27B model alone divides by another root than that of a head's size.
    if values.get(f"{name}.block_count") == 46:
        heads = values[f"{name}.attention.head_count"]
        size = values[f"{name}.embedding_length"] // heads
    return {**found, "query_pre_attn_scalar": size}


def _gemma3(values: Values, name: str) -> dict[str, Any]:
    size = values.get(f"{name}.attention.key_length", 256)
    if values.get(f"{name}.block_count") == 62:  # the 27B model
        size = values[f"{name}.embedding_length"] // values[f"{name}.attention.head_count"]
    return {
        **_gemma(values, name),
        "sliding_window": values.get(f"{name}.attention.sliding_window", 1024),
        "query_pre_attn_scalar": size,
        "rope_local_base_freq": 10000.0,
    }


def _qwen(values: Values, name: str) -> dict[str, Any]:
    return {"use_sliding_window": False}


def _phi3(values: Values, name: str) -> dict[str, Any]:
    start = values.get(f"{name}.rope.scaling.original_context_length")
    return {
        "sliding_window": values.get(f"{name}.attention.sliding_window") or None,
        **({} if start is None else {"original_max_position_embeddings": start}),
    }


_ARCHITECTURES = {
    "llama": _Architecture("llama", "LlamaForCausalLM", pairs=True),
    "qwen2": _Architecture("qwen2", "Qwen2ForCausalLM", more=_qwen),
    "qwen3": _Architecture("qwen3", "Qwen3ForCausalLM", more=_qwen),
    "phi3": _Architecture(
        "phi3", "Phi3ForCausalLM", {"ffn_up": "mlp.gate_up_proj"}, more=_phi3
    ),
    "gemma": _Architecture("gemma", "GemmaForCausalLM", norm_offset=1.0, more=_gemma),
    "gemma2": _Architecture(
        "gemma2", "Gemma2ForCausalLM", _SANDWICH, norm_offset=1.0, more=_gemma2
    ),
    "gemma3": _Architecture(
        "gemma3_text", "Gemma3ForCausalLM", _SANDWICH, norm_offset=1.0, more=_gemma3
    ),
}  # fmt: skip


def open_gguf(path: str) -> Source:
    """The model in a GGUF file."""
    file = read_gguf(path)
    name = str(file.values.get("general.architecture"))
    architecture = _ARCHITECTURES.get(name)
    if architecture is None:
        raise FileFormatError(
            f"[zoo] {path!r} holds a model of the architecture {name!r:.60}. Known are "
            f"{', '.join(_ARCHITECTURES)}"
        )
    try:
        config = _config(file, name, architecture)
    except (KeyError, TypeError) as e:
        raise FileFormatError(
            f"[zoo] {path!r} lacks a value of its model, or has a wrong one: {e}"
        ) from e
    tensors = {}
    for theirs, tensor in file.tensors.items():
        if theirs != _FACTORS:
            name_here = _name(path, theirs, architecture)
            tensors[name_here] = _as_saved(tensor, name_here, config, architecture)
    return Source(path, config, tensors, file.values)


def _config(file: Gguf, name: str, architecture: _Architecture) -> dict[str, Any]:
    v = file.values
    heads = v[f"{name}.attention.head_count"]
    width = v[f"{name}.embedding_length"]
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or type(heads) is not int or not heads:
        raise KeyError("token_embd.weight or head_count")
    config = {
        "architectures": [architecture.head],
        "model_type": architecture.model_type,
        "vocab_size": embedding.shape[0],
        "hidden_size": width,
        "intermediate_size": v[f"{name}.feed_forward_length"],
        "num_hidden_layers": v[f"{name}.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": v.get(f"{name}.attention.head_count_kv", heads),
        "max_position_embeddings": v[f"{name}.context_length"],
        "rms_norm_eps": v[f"{name}.attention.layer_norm_rms_epsilon"],
        "head_dim": v.get(f"{name}.attention.key_length", width // heads),
        "rope_parameters": _rope(file, name, width // heads),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        **architecture.more(v, name),
    }
    if architecture.model_type == "phi3":
        del config["head_dim"]
    for key in ("bos", "eos", "unknown", "padding"):
        if f"tokenizer.ggml.{key}_token_id" in v:
            short = {"unknown": "unk", "padding": "pad"}.get(key, key)
            config[f"{short}_token_id"] = v[f"tokenizer.ggml.{key}_token_id"]
    return config


def _rope(file: Gguf, name: str, head: int) -> dict[str, Any]:
    v = file.values
    rope: dict[str, Any] = {"rope_theta": v.get(f"{name}.rope.freq_base", 10000.0)}
    size, head = v.get(f"{name}.rope.dimension_count"), v.get(f"{name}.attention.key_length", head)
    if size is not None and size != head:
        rope["partial_rotary_factor"] = size / head
    kind = v.get(f"{name}.rope.scaling.type")
    factor = v.get(f"{name}.rope.scaling.factor", 1.0)
    if _FACTORS in file.tensors:  # what llama3 divides its frequencies by
        by = file.tensors[_FACTORS].read().astype(np.float32).tolist()
        return {
            **rope, "rope_type": "longrope", "short_factor": by, "long_factor": by,
            "attention_factor": 1.0,
        }  # fmt: skip
    if kind in (None, "none") or (kind == "linear" and factor == 1.0):
        return {**rope, "rope_type": "default"}
    if kind == "linear":
        return {**rope, "rope_type": "linear", "factor": factor}
    if kind == "yarn":
        start = v[f"{name}.rope.scaling.original_context_length"]
        return {
            **rope, "rope_type": "yarn", "factor": factor,
            "original_max_position_embeddings": start,
        }  # fmt: skip
    raise FileFormatError(f"[zoo] the rope scaling {kind!r:.60} of a GGUF file is not known")


def _name(path: str, theirs: str, architecture: _Architecture) -> str:
    stem, _, end = theirs.rpartition(".")
    if end in ("weight", "bias"):
        if stem in _OUTSIDE:
            return f"{_OUTSIDE[stem]}.{end}"
        found = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
        part = found and {**_LAYER, **architecture.layer}.get(found[2])
        if found and part:
            return f"model.layers.{found[1]}.{part}.{end}"
    raise FileFormatError(f"[zoo] {path!r} has a tensor that is not known: {theirs!r:.100}")


def _as_saved(
    tensor: Stored, name: str, config: Mapping[str, Any], architecture: _Architecture
) -> Stored:
    """The tensor as Hugging Face stores it."""
    if architecture.norm_offset and "norm" in name:
        offset = np.float32(architecture.norm_offset)
        return dataclasses.replace(tensor, read=lambda: tensor.read() - offset, blocks=None)
    if architecture.pairs and re.search(r"\.[qk]_proj\.", name):
        key = "num_attention_heads" if ".q_proj." in name else "num_key_value_heads"
        heads = config[key]
        if type(heads) is not int or not heads or tensor.shape[0] % (2 * heads):
            raise FileFormatError(f"[zoo] {name} {list(tensor.shape)} does not fit {heads} heads")

        def move(a: np.ndarray) -> np.ndarray:
            rows = a.reshape(heads, a.shape[0] // heads // 2, 2, *a.shape[1:])
            return rows.swapaxes(1, 2).reshape(a.shape)

        return tensor.by_rows(move)
    return tensor
