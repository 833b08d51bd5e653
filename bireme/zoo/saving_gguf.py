"""Writing decoders as GGUF files, which llama.cpp reads."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.io import atomic
from bireme.nn.layer.layer import Layer
from bireme.zoo.config import UnknownSetting
from bireme.zoo.files.gguf import Gguf
from bireme.zoo.files.gguf_architectures import (
    ARCHITECTURES,
    MIXTRAL,
    Architecture,
    architecture_of,
)
from bireme.zoo.files.gguf_model import as_source, file_names
from bireme.zoo.files.gguf_writer import write_gguf
from bireme.zoo.files.quants import FORMATS, Format
from bireme.zoo.files.source import Stored
from bireme.zoo.loading import read_config
from bireme.zoo.rope import Rope
from bireme.zoo.saving import checked, their_arrays

# `general.file_type` by the type of the matrices.
_FILE_TYPES = {"F32": 0, "F16": 1, "BF16": 32, "Q8_0": 7, "Q4_0": 2}
_FORMATS = {form.name: form for form in FORMATS.values()}
# Matrices that lose much in four bits and are few.
_FINER = ("token_embd.weight", "output.weight")


def save_gguf(
    model: Layer, path: str | os.PathLike[str], tokenizer: Any = None, *, dtype: str = "F16"
) -> None:
    """Write a decoder from the zoo, and its tokenizer and chat template, as one GGUF file.

    `dtype` is the format of its matrices: "F32", "F16", "BF16", "Q8_0" or "Q4_0". Vectors stay
    float32; rows that are no whole number of blocks become F16; with Q4_0 the words' vectors
    become Q8_0. A model that GGUF cannot describe is an error that says what is lost.
    """
    kind = str(dtype).upper()
    if kind not in _FILE_TYPES:
        raise InvalidArgument(
            f"[save_gguf] dtype must be one of {', '.join(_FILE_TYPES)}. Received: {dtype!r}"
        )
    checked(model, "save_gguf")
    config: Any = model.config
    name = architecture_of(config.model_type) if model.task == "causal_lm" else None
    if name is None:
        raise InvalidArgument(
            f"[save_gguf] GGUF has no place for a {config.model_type!r} model for the task "
            f"{model.task!r}. Write a folder: zoo.save_pretrained"
        )
    if name == "olmoe" and config.num_kv_heads != config.num_heads:
        raise InvalidArgument(
            "[save_gguf] llama.cpp reads 'olmoe' models only with as many heads for keys as for "
            f"queries. Received: {config.num_kv_heads} and {config.num_heads}"
        )
    values = _values(config, name)
    tensors = _tensors(model, values)
    _compare(config, values, tensors)
    values["general.file_type"] = _FILE_TYPES[kind]
    if kind.startswith("Q"):
        values["general.quantization_version"] = 2
    if tokenizer is not None:
        from bireme.zoo.tokenizer_to_gguf import tokenizer_values

        values |= tokenizer_values(tokenizer, config.vocab_size)
    forms = {n: (t, _form(n, t, kind)) for n, t in tensors.items()}
    with atomic.replacing(path) as out:
        write_gguf(values, forms, out)


def _form(name: str, tensor: Stored, kind: str) -> Format:
    if len(tensor.shape) < 2 or "norm" in name or "_inp" in name or name.startswith("rope_"):
        return _FORMATS["F32"]
    if kind == "Q4_0" and name in _FINER:
        kind = "Q8_0"
    form = _FORMATS[kind]
    return _FORMATS["F16"] if tensor.shape[-1] % form.count else form


def _values(config: Any, name: str) -> dict[str, Any]:
    """What the file says of the model; llama.cpp knows the rest by the architecture's name."""
    c, raw = config, config.raw
    longest = int(raw.get("max_position_embeddings") or c.rope.longest)
    # Windows that llama.cpp does not know change nothing as long as no text is longer.
    narrow = min((w for w in c.windows if w), default=longest)
    if not name.startswith(("gemma", "phi3")):
        longest = min(longest, narrow)
    found: dict[str, Any] = {
        "block_count": c.num_layers,
        "context_length": longest,
        "embedding_length": c.hidden_size,
        "feed_forward_length": c.intermediate_size,
        "vocab_size": c.vocab_size,
        "attention.head_count": c.num_heads,
        "attention.head_count_kv": c.num_kv_heads,
        "attention.key_length": c.head_dim,
        "attention.value_length": c.head_dim,
        "rope.dimension_count": c.rope.size,
        "rope.freq_base": float(c.rope.theta),
        f"attention.layer_norm_{'' if c.norm == 'layer' else 'rms_'}epsilon": c.epsilon,
        **_scaling(c),
    }
    if name.startswith(("gemma2", "gemma3", "phi3")) and any(c.windows):
        found["attention.sliding_window"] = narrow
    if name in ("gemma2", "gemma3"):
        caps = {"attn": c.attention_cap, "final": c.logits_cap}
        found |= {f"{n}_logit_softcapping": float(cap) for n, cap in caps.items() if cap}
    if c.local_rope is not None:
        found["rope.freq_base_swa"] = float(c.local_rope.theta)
    if name == "granite":
        found |= {
            "embedding_scale": c.embedding_scale,
            "residual_scale": c.residual_scale,
            "attention.scale": c.attention_scale,
            "logit_scale": 1 / c.logits_scale,
        }
    if name == "stablelm":
        found["use_parallel_residual"] = c.parallel
    if hasattr(c, "experts"):
        found |= {"expert_count": c.experts, "expert_used_count": c.chosen}
        if name != "olmoe" and c.model_type != "mixtral":
            found["expert_feed_forward_length"] = c.expert_size
        if c.shared_size:
            found["expert_shared_feed_forward_length"] = c.shared_size
    about = {"general.architecture": name}
    return {**about, **{f"{name}.{key}": value for key, value in found.items()}}


def _scaling(config: Any) -> dict[str, Any]:
    """The scaling of the rope, where values say it and no tensor."""
    rope: Rope = config.rope
    given = {**(config.raw.get("rope_scaling") or {}), **(config.raw.get("rope_parameters") or {})}
    given = given.get("full_attention", given)
    if rope.kind == "linear":
        return {"rope.scaling.type": "linear", "rope.scaling.factor": float(given["factor"])}
    start = given.get("original_max_position_embeddings") or config.raw.get(
        "original_max_position_embeddings"
    )
    if rope.kind == "yarn":
        longest = config.raw["max_position_embeddings"]
        factor = given.get("factor") or longest / (start or longest)
        return {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": float(factor),
            "rope.scaling.original_context_length": start or longest,
        }
    if rope.kind == "longrope":
        return {
            "rope.scaling.original_context_length": rope.longest,
            "rope.scaling.attn_factor": rope.scale,
        }
    return {}


def _tensors(model: Any, values: Mapping[str, Any]) -> dict[str, Stored]:
    """The model's tensors with GGUF's names and in its layout."""
    name = values["general.architecture"]
    architecture = MIXTRAL if model.config.model_type == "mixtral" else ARCHITECTURES[name]
    arrays = their_arrays(model)
    found: dict[str, Stored] = {}
    for theirs, parts in file_names(arrays, architecture).items():
        own = [_laid_out(arrays[n], n, model.config, architecture) for n in parts]
        stacked = len(parts) > 1 or theirs.split(".")[-2] in architecture.stacks
        shape = (len(own), *own[0].shape) if stacked else own[0].shape

        def read(own: list[np.ndarray] = own, stacked: bool = stacked) -> np.ndarray:
            plain = [a.astype(np.float32, copy=False) for a in own]
            return np.stack(plain) if stacked else plain[0]

        found[theirs] = Stored(tuple(shape), dt.float32, read)
    for theirs, factors in _factors(model.config.rope, name).items():
        found[theirs] = Stored(factors.shape, dt.float32, lambda factors=factors: factors)
    return found


def _laid_out(array: np.ndarray, name: str, config: Any, architecture: Architecture) -> np.ndarray:
    """A tensor of a Hugging Face folder as GGUF stores it."""
    if architecture.norm_offset and "norm" in name:
        return array.astype(np.float32) + np.float32(architecture.norm_offset)
    if architecture.pairs and (".q_proj." in name or ".k_proj." in name):
        heads = config.num_heads if ".q_proj." in name else config.num_kv_heads
        rows = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
        return rows.swapaxes(1, 2).reshape(array.shape)
    return array


def _factors(rope: Rope, name: str) -> dict[str, np.ndarray]:
    """What the frequencies of a rope are divided by, for ropes that values cannot say."""
    powers = np.arange(0, rope.size, 2, dtype=np.float32) / np.float32(rope.size)
    usual = 1 / np.power(np.float32(rope.theta), powers, dtype=np.float32)
    by = usual / np.asarray(rope.inverse, np.float32)
    if rope.kind == "llama3" and name in ("llama", "granite", "smollm3"):
        return {"rope_freqs.weight": by}
    if rope.kind == "longrope" and name == "phi3":
        beyond = usual / np.asarray(rope.inverse_beyond, np.float32)
        return {"rope_factors_long.weight": beyond, "rope_factors_short.weight": by}
    return {}


def _compare(config: Any, values: Mapping[str, Any], tensors: Mapping[str, Stored]) -> None:
    """Raise if the file does not say all that the model's config says."""
    try:
        source = as_source(Gguf(dict(values), dict(tensors)), "the new file")
        read: Any = read_config(source.config)
    except (FileFormatError, UnknownSetting) as e:
        raise InvalidArgument(
            f"[save_gguf] GGUF cannot describe this {config.model_type!r} model: {e}"
        ) from e
    longest = values[f"{values['general.architecture']}.context_length"]
    wrong = []
    for field in dataclasses.fields(config):
        if field.name in ("raw", "model_type"):
            continue
        want: Any = getattr(config, field.name)
        got: Any = getattr(read, field.name, None)
        if field.name == "windows":  # what no text reaches changes nothing
            want, got = (tuple(w if w < longest else 0 for w in of) for of in (want, got))
        if not _same(want, got):
            wrong.append(f"{field.name} is {want!r:.80} and would be read as {got!r:.80}")
    if wrong:
        raise InvalidArgument(
            f"[save_gguf] GGUF cannot describe this {config.model_type!r} model: "
            f"{'; '.join(wrong)}. Write a folder: zoo.save_pretrained"
        )


def _same(want: Any, got: Any) -> bool:
    if isinstance(want, Rope) and isinstance(got, Rope):
        far = [np.asarray(r.inverse_beyond or r.inverse) for r in (want, got)]
        near = [np.asarray(r.inverse) for r in (want, got)]
        bends = not np.allclose(near[0], far[0], rtol=1e-6, atol=0)
        return (
            want.size == got.size
            and _same(want.scale, got.scale)
            and np.allclose(*near, rtol=1e-5, atol=0)
            and np.allclose(*far, rtol=1e-5, atol=0)
            and (not bends or want.longest == got.longest)
            and (want.kind == "dynamic") == (got.kind == "dynamic")
        )
    if isinstance(want, float) and isinstance(got, int | float):
        return abs(want - got) <= 1e-6 * abs(want)  # the file has float32
    return want == got
