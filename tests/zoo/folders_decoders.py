"""Made-up models of the families gemma, moe and gpt2."""

from __future__ import annotations

from typing import Any

from tests.zoo.folders import rope, tiny


def _old(model_type: str, **more: Any) -> dict[str, Any]:
    """GPT-2's names of sizes."""
    return {
        "model_type": model_type, "vocab_size": 37, "n_embd": 24, "n_layer": 2, "n_head": 4,
        "n_positions": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, **more,
    }  # fmt: skip


_CLASSIFY = {"head": "AutoModelForSequenceClassification", "num_labels": 3, "inputs": "masked"}
_OPT = {
    "model_type": "opt", "vocab_size": 37, "hidden_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "ffn_dim": 20, "max_position_embeddings": 32, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_BLOOM = {
    "model_type": "bloom", "vocab_size": 37, "hidden_size": 24, "n_layer": 2, "n_head": 4,
    "pad_token_id": 0,
}  # fmt: skip

FOLDERS: dict[str, dict[str, Any]] = {
    "gemma": tiny("gemma", head_dim=8, tie_word_embeddings=True),
    "gemma-bias": tiny("gemma", head_dim=6, attention_bias=True, num_key_value_heads=1),
    "gemma-classifier": tiny("gemma", head_dim=8, **_CLASSIFY),
    "gemma2": tiny(
        "gemma2", head_dim=8, query_pre_attn_scalar=5, sliding_window=4, tie_word_embeddings=True
    ),
    "gemma2-nocap": tiny(
        "gemma2", head_dim=6, attn_logit_softcapping=None, final_logit_softcapping=None,
        sliding_window=3, query_pre_attn_scalar=9,
    ),
    "gemma2-caps": tiny(
        "gemma2", head_dim=6, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
        sliding_window=6, query_pre_attn_scalar=4, num_hidden_layers=3, attention_bias=True,
    ),
    "gemma3": tiny(
        "gemma3_text", head_dim=8, query_pre_attn_scalar=8, sliding_window=4,
        num_hidden_layers=3, sliding_window_pattern=3, tie_word_embeddings=True,
    ),
    "gemma3-rope": tiny(
        "gemma3_text", head_dim=6, query_pre_attn_scalar=5, sliding_window=5,
        layer_types=["full_attention", "sliding_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        },
    ),
    "gemma3-bias": tiny(
        "gemma3_text", head_dim=8, attention_bias=True, num_key_value_heads=4, sliding_window=2,
        final_logit_softcapping=4.0,
    ),
    "mixtral": tiny("mixtral", num_local_experts=3),
    "mixtral-window": tiny("mixtral", num_local_experts=4, num_experts_per_tok=1,
                            sliding_window=4, head_dim=8),
    "mixtral-tied": tiny("mixtral", num_local_experts=2, tie_word_embeddings=True),
    "qwen2_moe": tiny(
        "qwen2_moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
        shared_expert_intermediate_size=12,
    ),
    "qwen2_moe-mixed": tiny(
        "qwen2_moe", num_experts=3, num_experts_per_tok=2, moe_intermediate_size=8,
        shared_expert_intermediate_size=12, mlp_only_layers=[1], norm_topk_prob=True,
    ),
    "qwen2_moe-steps": tiny(
        "qwen2_moe", num_experts=3, num_experts_per_tok=1, moe_intermediate_size=8,
        shared_expert_intermediate_size=4, decoder_sparse_step=2,
    ),
    "qwen3_moe": tiny("qwen3_moe", num_experts=4, num_experts_per_tok=2,
                       moe_intermediate_size=8, head_dim=8),
    "qwen3_moe-norm": tiny("qwen3_moe", num_experts=3, num_experts_per_tok=2, head_dim=6,
                            moe_intermediate_size=8, norm_topk_prob=True, attention_bias=True),
    "qwen3_moe-mixed": tiny("qwen3_moe", num_experts=3, num_experts_per_tok=3, head_dim=6,
                             moe_intermediate_size=8, mlp_only_layers=[0]),
    "ernie4_5_moe": tiny("ernie4_5_moe", moe_num_experts=4, moe_k=2, moe_intermediate_size=8),
    "ernie4_5_moe-bias": tiny("ernie4_5_moe", moe_num_experts=3, moe_k=2, use_bias=True,
                               moe_intermediate_size=8, moe_num_shared_experts=0,
                               moe_layer_start_index=0, tie_word_embeddings=True),
    "ernie4_5_moe-every": tiny("ernie4_5_moe", moe_num_experts=3, moe_k=1, num_hidden_layers=4,
                                moe_intermediate_size=8, moe_layer_interval=2,
                                moe_layer_start_index=0, moe_layer_end_index=2),
    "olmoe": tiny("olmoe", num_experts=4, num_experts_per_tok=2),
    "olmoe-norm": tiny("olmoe", num_experts=3, num_experts_per_tok=2, norm_topk_prob=True,
                        attention_bias=True),
    "olmoe-rope": tiny("olmoe", num_experts=3, num_experts_per_tok=1,
                        rope_parameters=rope("linear", factor=2.0)),
    "gpt2": _old("gpt2"),
    "gpt2-layers": _old("gpt2", scale_attn_by_inverse_layer_idx=True, n_inner=20,
                        activation_function="relu"),
    "gpt2-untied": _old("gpt2", tie_word_embeddings=False, n_inner=20, scale_attn_weights=False),
    "gpt2-classifier": _old("gpt2", n_inner=20, **_CLASSIFY),
    "gpt_neox": tiny("gpt_neox", hidden_size=32, num_key_value_heads=None),
    "gpt_neox-serial": tiny("gpt_neox", num_key_value_heads=None, attention_bias=False,
                            use_parallel_residual=False,
                             rope_parameters=rope("default", partial_rotary_factor=1.0)),
    "gpt_neox-rope": tiny(
        "gpt_neox", num_key_value_heads=None, tie_word_embeddings=True, hidden_act="gelu_new",
        rope_parameters=rope("linear", factor=2.0, partial_rotary_factor=0.7),
    ),
    "opt": dict(_OPT),
    "opt-after": {**_OPT, "do_layer_norm_before": False, "word_embed_proj_dim": 16},
    "opt-plain": {**_OPT, "enable_bias": False, "tie_word_embeddings": False,
                  "activation_function": "gelu"},
    "bloom": dict(_BLOOM),
    "bloom-six": {**_BLOOM, "n_head": 6, "apply_residual_connection_post_layernorm": True},
    "bloom-untied": {**_BLOOM, "n_head": 3, "tie_word_embeddings": False},
    "gptj": _old("gptj", rotary_dim=4, n_inner=20),
    "gptj-whole": _old("gptj", rotary_dim=6),
    "gptj-two": _old("gptj", rotary_dim=2, n_inner=20, activation_function="relu"),
    "phi": tiny("phi", hidden_size=32),
    "phi-norms": tiny("phi", hidden_size=32, qk_layernorm=True, num_key_value_heads=None),
    "phi-rope": tiny("phi", rope_parameters=rope("linear", factor=2.0,
                                                   partial_rotary_factor=1.0)),
}  # fmt: skip
