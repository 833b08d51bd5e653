"""The made-up models that are compared with transformers: name of the folder -> config."""

from __future__ import annotations

from typing import Any


def tiny(model_type: str, **more: Any) -> dict[str, Any]:
    return {
        "model_type": model_type, "vocab_size": 37, "hidden_size": 24, "intermediate_size": 20,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "tie_word_embeddings": False, **more,
    }  # fmt: skip


def rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_type": kind, "rope_theta": 10000.0, **more}


_LLAMA3 = rope(
    "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
    original_max_position_embeddings=8,
)  # fmt: skip
_YARN = rope("yarn", factor=4.0, original_max_position_embeddings=16)
_WINDOWS = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}

FOLDERS: dict[str, dict[str, Any]] = {
    "llama": tiny("llama", rope_parameters=_LLAMA3),
    "llama-bias": tiny(
        "llama", attention_bias=True, mlp_bias=True, head_dim=10, tie_word_embeddings=True,
        rope_parameters=rope("linear", factor=3.0),
    ),
    "llama-yarn": tiny("llama", rope_parameters=_YARN, head_dim=8, hidden_act="gelu"),
    "llama-dynamic": tiny(
        "llama", rope_parameters=rope("dynamic", factor=2.0), max_position_embeddings=8
    ),
    "llama-classifier": tiny(
        "llama", head="AutoModelForSequenceClassification", num_labels=3, inputs="masked"
    ),
    "llama-tokens": tiny("llama", head="AutoModelForTokenClassification", num_labels=3),
    "llama-answers": tiny("llama", head="AutoModelForQuestionAnswering"),
    "llama-base": tiny("llama", head="AutoModel"),
    "mistral": tiny("mistral", sliding_window=4),
    "mistral-wide": tiny("mistral", sliding_window=None, head_dim=16, num_key_value_heads=1),
    "qwen2": tiny("qwen2", **_WINDOWS),
    "qwen2-tied": tiny("qwen2", tie_word_embeddings=True, num_key_value_heads=4),
    "qwen3": tiny("qwen3", head_dim=12),
    "qwen3-window": tiny("qwen3", head_dim=6, attention_bias=True, **_WINDOWS),
    "phi3": tiny("phi3", sliding_window=3),
    "phi3-long": tiny(
        "phi3", original_max_position_embeddings=8, max_position_embeddings=32,
        rope_parameters=rope(
            "longrope", short_factor=[1.0, 1.1, 1.2], long_factor=[2.0, 3.0, 4.0],
            original_max_position_embeddings=8,
        ),
    ),
    "smollm3": tiny("smollm3", num_hidden_layers=4, no_rope_layer_interval=2),
    "smollm3-window": tiny(
        "smollm3", attention_bias=True, tie_word_embeddings=True, use_sliding_window=True,
        sliding_window=4, no_rope_layers=[1, 0],
    ),
    "granite": tiny(
        "granite", embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.5,
        attention_multiplier=0.3,
    ),
    "olmo2": tiny("olmo2"),
    "olmo2-bias": tiny("olmo2", attention_bias=True, rope_parameters=_YARN),
    "stablelm": tiny("stablelm", hidden_size=32, num_attention_heads=4),
    "stablelm-norms": tiny(
        "stablelm", hidden_size=32, use_qkv_bias=True, qk_layernorm=True,
        use_parallel_residual=True, rope_parameters=rope("default", partial_rotary_factor=0.5),
    ),
    "ernie4_5": tiny("ernie4_5", head_dim=8, tie_word_embeddings=True),
    "ernie4_5-bias": tiny("ernie4_5", head_dim=6, use_bias=True),
    "helium": tiny("helium", head_dim=6),
    "helium-bias": tiny("helium", head_dim=6, attention_bias=True, mlp_bias=True),
    "seed_oss": tiny("seed_oss", head_dim=8),
    "seed_oss-bias": tiny(
        "seed_oss", head_dim=6, attention_bias=False, attention_out_bias=True, mlp_bias=True
    ),
    "internlm3": tiny("internlm3", head_dim=6),
    "internlm3-bias": tiny("internlm3", bias=True, qkv_bias=True, rope_parameters=_YARN),
}  # fmt: skip
