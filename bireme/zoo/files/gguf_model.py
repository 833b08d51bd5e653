"""A GGUF file as a Source: its values as a config.json, its tensors under Hugging Face's names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.zoo.files.gguf import Gguf, read_gguf
from bireme.zoo.files.gguf_architectures import ARCHITECTURES, Architecture, architecture_in
from bireme.zoo.files.source import Source, Stored

_OUTSIDE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_MOST_STACKED = 65_536
_FACTORS = "rope_freqs.weight"
_LONG, _SHORT = "rope_factors_long.weight", "rope_factors_short.weight"


def open_gguf(path: str) -> Source:
    """The model in a GGUF file."""
    return as_source(read_gguf(path), path)


def as_source(file: Gguf, path: str) -> Source:
    """The contents of a GGUF file as a config and tensors with Hugging Face's names."""
    name, architecture = architecture_in(file.values)
    if architecture is None:
        raise FileFormatError(
            f"[zoo] {path!r} holds a model of the architecture {name!r:.60}. Known are "
            f"{', '.join(ARCHITECTURES)}"
        )
    try:
        config = _config(file, name, architecture)
    except (KeyError, TypeError, IndexError, ArithmeticError) as e:
        raise FileFormatError(
            f"[zoo] {path!r} lacks a value of its model, or has a wrong one: {e}"
        ) from e
    tensors: dict[str, Stored] = {}
    for theirs, tensor in file.tensors.items():
        if theirs in (_FACTORS, _LONG, _SHORT):
            continue
        for here, part in _named(path, theirs, tensor, architecture):
            if here in tensors:
                raise FileFormatError(f"[zoo] {path!r} has two tensors for {here}")
            tensors[here] = _as_saved(part, here, config, architecture)
    return Source(path, config, tensors, file.values)


def _config(file: Gguf, name: str, architecture: Architecture) -> dict[str, Any]:
    v = file.values
    heads = v[f"{name}.attention.head_count"]
    width = v[f"{name}.embedding_length"]
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or type(heads) is not int or not heads:
        raise KeyError("token_embd.weight or head_count")
    epsilon = (
        ("layer_norm_eps", "layer_norm_epsilon")
        if architecture.layer_norms
        else ("rms_norm_eps", "layer_norm_rms_epsilon")
    )
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
        epsilon[0]: v[f"{name}.attention.{epsilon[1]}"],
        "head_dim": v.get(f"{name}.attention.key_length", width // heads),
        "rope_parameters": _rope(file, name, width // heads),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        **architecture.settings(v, name, file.tensors),
    }
    if architecture.model_type in ("phi3", "stablelm", "olmo2", "olmoe", "qwen2_moe"):
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
    if _LONG in file.tensors and _SHORT in file.tensors:
        long, short = (file.tensors[n].read().astype(np.float32).tolist() for n in (_LONG, _SHORT))
        return {
            **rope,
            "rope_type": "longrope",
            "short_factor": short,
            "long_factor": long,
            "attention_factor": v.get(f"{name}.rope.scaling.attn_factor", 1.0),
        }
    factor = v.get(f"{name}.rope.scaling.factor", 1.0)
    if _FACTORS in file.tensors:  # what llama3 divides its frequencies by
        by = file.tensors[_FACTORS].read().astype(np.float32).tolist()
        return {
            **rope,
            "rope_type": "longrope",
            "short_factor": by,
            "long_factor": by,
            "attention_factor": 1.0,
        }
    if kind in (None, "none") or (kind == "linear" and factor == 1.0):
        return {**rope, "rope_type": "default"}
    if kind == "linear":
        return {**rope, "rope_type": "linear", "factor": factor}
    if kind == "yarn":
        start = v[f"{name}.rope.scaling.original_context_length"]
        return {
            **rope,
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": start,
        }
    raise FileFormatError(f"[zoo] the rope scaling {kind!r:.60} of a GGUF file is not known")


def _named(
    path: str, theirs: str, tensor: Stored, architecture: Architecture
) -> Iterator[tuple[str, Stored]]:
    """A tensor under Hugging Face's name, or the tensors that are stacked in it."""
    stem, _, end = theirs.rpartition(".")
    if end in ("weight", "bias"):
        if stem in _OUTSIDE:
            yield f"{_OUTSIDE[stem]}.{end}", tensor
            return
        found = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
        layer = found and f"model.layers.{found[1]}"
        if found and found[2] in architecture.stacks:
            part = f"{layer}.{architecture.stacks[found[2]]}.{end}"
            if len(tensor.shape) < 2 or tensor.shape[0] > _MOST_STACKED:
                raise FileFormatError(f"[zoo] {path!r}: {theirs} holds no stack of tensors")
            for i in range(tensor.shape[0]):
                yield part.replace("{}", str(i)), tensor.at(i)
            return
        if found and found[2] in architecture.layer:
            if found[2] == "ffn_gate_inp_shexp" and len(tensor.shape) == 1:  # a matrix of one row
                tensor = tensor.as_row()
            yield f"{layer}.{architecture.layer[found[2]]}.{end}", tensor
            return
    raise FileFormatError(f"[zoo] {path!r} has a tensor that is not known: {theirs!r:.100}")


def file_names(names: Iterable[str], architecture: Architecture) -> dict[str, list[str]]:
    """GGUF's names, each with those of Hugging Face's tensors that it holds, in order."""
    outside = {here: theirs for theirs, here in _OUTSIDE.items()}
    layer = {here: theirs for theirs, here in architecture.layer.items()}
    stacks = {here: theirs for theirs, here in architecture.stacks.items()}
    found: dict[str, list[str]] = {}
    for name in names:
        stem, _, end = name.rpartition(".")
        parts = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", stem)
        theirs = outside.get(stem)
        if parts:
            inner = re.sub(r"(?<=\.)\d+(?=\.|$)", "{}", parts[2])
            known = layer.get(parts[2]) or stacks.get(inner)
            theirs = known and f"blk.{parts[1]}.{known}"
        if theirs is None:
            raise InvalidArgument(
                f"[zoo] GGUF's {architecture.model_type!r} models have no place for {name}"
            )
        found.setdefault(f"{theirs}.{end}", []).append(name)
    return found


def _as_saved(
    tensor: Stored, name: str, config: Mapping[str, Any], architecture: Architecture
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
