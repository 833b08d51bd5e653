"""OpenAI's Whisper checkpoints (`tiny.en.pt`): their names and sizes as Hugging Face's."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.errors import FileFormatError
from bireme.io import torch_file
from bireme.zoo.files.source import Source, Stored

_PARTS = {
    "attn": "self_attn",
    "attn_ln": "self_attn_layer_norm",
    "cross_attn": "encoder_attn",
    "cross_attn_ln": "encoder_attn_layer_norm",
    "mlp_ln": "final_layer_norm",
    "mlp.0": "fc1",
    "mlp.2": "fc2",
}
_PRODUCTS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "out_proj"}
_OTHERS = {
    "encoder.positional_embedding": "encoder.embed_positions.weight",
    "decoder.positional_embedding": "decoder.embed_positions.weight",
    "decoder.token_embedding.weight": "decoder.embed_tokens.weight",
}
_NORMS = {"encoder.ln_post": "encoder.layer_norm", "decoder.ln": "decoder.layer_norm"}


def _renamed(name: str) -> str:
    if name in _OTHERS:
        return f"model.{_OTHERS[name]}"
    block = re.fullmatch(r"(encoder|decoder)\.blocks\.(\d+)\.(.+)\.(weight|bias)", name)
    if block is None:
        stem, _, kind = name.rpartition(".")
        return f"model.{_NORMS.get(stem, stem)}.{kind}"
    side, number, part, kind = block.groups()
    stem, _, last = part.rpartition(".")
    if last in _PRODUCTS and stem in _PARTS:
        part = f"{_PARTS[stem]}.{_PRODUCTS[last]}"
    else:
        part = _PARTS.get(part, part)
    return f"model.{side}.layers.{number}.{part}.{kind}"


def open_openai_whisper(path: str | os.PathLike[str]) -> Source:
    """The model in a checkpoint with `dims` and `model_state_dict`."""
    found = torch_file.read(path, "zoo")
    dims = found.get("dims") if isinstance(found, dict) else None
    tensors = found.get("model_state_dict") if isinstance(found, dict) else None
    if not isinstance(dims, Mapping) or not isinstance(tensors, Mapping):
        raise FileFormatError(f"[zoo] {os.fspath(path)!r} is no checkpoint of OpenAI's Whisper")
    return Source(os.fspath(path), _config(dims, path), _stored(tensors, path))


def _config(dims: Mapping[Any, Any], path: Any) -> dict[str, Any]:
    def size(name: str) -> int:
        value = dims.get(name)
        if type(value) is not int or not 0 < value < 2**24:
            raise FileFormatError(f"[zoo] {os.fspath(path)!r} has no size {name!r}")
        return value

    width = size("n_audio_state")
    return {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "vocab_size": size("n_vocab"),
        "num_mel_bins": size("n_mels"),
        "d_model": width,
        "encoder_layers": size("n_audio_layer"),
        "decoder_layers": size("n_text_layer"),
        "encoder_attention_heads": size("n_audio_head"),
        "decoder_attention_heads": size("n_text_head"),
        "encoder_ffn_dim": 4 * width,
        "decoder_ffn_dim": 4 * width,
        "max_source_positions": size("n_audio_ctx"),
        "max_target_positions": size("n_text_ctx"),
        "activation_function": "gelu",
    }


def _stored(tensors: Mapping[Any, Any], path: Any) -> dict[str, Stored]:
    made = {}
    for name, array in tensors.items():
        if not isinstance(name, str) or not isinstance(array, np.ndarray):
            raise FileFormatError(f"[zoo] {os.fspath(path)!r} holds {name!r:.80}, no tensor")
        made[_renamed(name)] = Stored(array.shape, dt.as_dtype(array.dtype), lambda a=array: a)
    return made
