"""Names of parameters in files of GPT-2's family: every model type has its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bireme.zoo.names import Names, fused, interleaved

if TYPE_CHECKING:
    from bireme.zoo.models.gpt2_config import Config

_OWN = "layers.*.self_attn"
_QKV = [f"{_OWN}.{n}_proj" for n in "qkv"]
# base, then our paths and theirs.
_NAMES: dict[str, tuple[str, dict[str, str]]] = {
    "gpt2": ("transformer", {
        "embed_tokens": "wte", "embed_positions": "wpe", "norm": "ln_f",
        "layers.*.norm1": "h.*.ln_1", "layers.*.norm2": "h.*.ln_2",
        f"{_OWN}.o_proj": "h.*.attn.c_proj", "layers.*.mlp.fc1": "h.*.mlp.c_fc",
        "layers.*.mlp.fc2": "h.*.mlp.c_proj",
    }),
    "gpt_neox": ("gpt_neox", {
        "embed_tokens": "embed_in", "norm": "final_layer_norm", "lm_head": "embed_out",
        "layers.*.norm1": "layers.*.input_layernorm", f"{_OWN}.o_proj": "layers.*.attention.dense",
        "layers.*.norm2": "layers.*.post_attention_layernorm",
        "layers.*.mlp.fc1": "layers.*.mlp.dense_h_to_4h",
        "layers.*.mlp.fc2": "layers.*.mlp.dense_4h_to_h",
    }),
    "opt": ("model", {
        "embed_tokens": "decoder.embed_tokens", "embed_positions": "decoder.embed_positions",
        "norm": "decoder.final_layer_norm", "project_in": "decoder.project_in",
        "project_out": "decoder.project_out",
        f"{_OWN}.o_proj": "decoder.layers.*.self_attn.out_proj",
        "layers.*.norm1": "decoder.layers.*.self_attn_layer_norm",
        "layers.*.norm2": "decoder.layers.*.final_layer_norm",
        "layers.*.mlp": "decoder.layers.*", "layers": "decoder.layers",
    }),
    "bloom": ("transformer", {
        "embed_tokens": "word_embeddings", "embed_norm": "word_embeddings_layernorm",
        "norm": "ln_f", "layers.*.norm1": "h.*.input_layernorm",
        "layers.*.norm2": "h.*.post_attention_layernorm",
        f"{_OWN}.o_proj": "h.*.self_attention.dense",
        "layers.*.mlp.fc1": "h.*.mlp.dense_h_to_4h", "layers.*.mlp.fc2": "h.*.mlp.dense_4h_to_h",
    }),
    "gptj": ("transformer", {
        "embed_tokens": "wte", "norm": "ln_f", "layers.*.norm1": "h.*.ln_1",
        f"{_OWN}.o_proj": "h.*.attn.out_proj", _OWN: "h.*.attn",
        "layers.*.mlp.fc1": "h.*.mlp.fc_in", "layers.*.mlp.fc2": "h.*.mlp.fc_out",
    }),
    "phi": ("model", {
        "norm": "final_layernorm", "layers.*.norm1": "layers.*.input_layernorm",
        f"{_OWN}.o_proj": f"{_OWN}.dense", f"{_OWN}.q_norm": f"{_OWN}.q_layernorm",
        f"{_OWN}.k_norm": f"{_OWN}.k_layernorm",
    }),
}  # fmt: skip


def names(config: Config, task: str) -> Names:
    """Their names: every type has its own."""
    kind = config.model_type
    base, layers = _NAMES[kind]
    rules, plain = [], ()
    weights, biases = [f"{n}.weight" for n in _QKV], [f"{n}.bias" for n in _QKV]
    if kind == "gpt2":
        plain, sizes = (f"{_OWN}.o_proj", "layers.*.mlp"), [config.hidden_size] * 3
        rules = [
            fused(weights, "h.*.attn.c_attn.weight", sizes, turned=False, axis=1),
            fused(biases, "h.*.attn.c_attn.bias", sizes),
        ]
    elif kind in ("gpt_neox", "bloom"):
        theirs = "layers.*.attention" if kind == "gpt_neox" else "h.*.self_attention"
        theirs += ".query_key_value"
        rules = [
            interleaved(weights, f"{theirs}.weight", config.num_heads),
            interleaved(biases, f"{theirs}.bias", config.num_heads),
        ]
    token = {"gpt2": "wte", "gptj": "wte", "gpt_neox": "embed_in", "bloom": "word_embeddings",
             "opt": "decoder.embed_tokens", "phi": "embed_tokens"}[kind]  # fmt: skip
    head = "embed_out" if kind == "gpt_neox" else "lm_head"
    copies = {f"{head}.weight": f"{base}.{token}.weight"} if config.tied else {}
    ignored = ("attn.bias", "attn.masked_bias", "attention.bias", "attention.masked_bias",
               "rotary_emb.inv_freq")  # fmt: skip
    return Names(
        base=base, layers=layers, plain=plain, rules=tuple(rules), copies=copies, ignored=ignored
    )
