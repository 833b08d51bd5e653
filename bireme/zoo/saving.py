"""Writing models as folders that Hugging Face's libraries load."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.io import atomic, safetensors_file
from bireme.nn.layer.layer import Layer
from bireme.zoo import registry
from bireme.zoo.files.folder import CONFIG, SAFETENSORS
from bireme.zoo.kept import without_blocks
from bireme.zoo.loading import names_of

_SHARD = 5_000_000_000  # bytes
_INDEX = SAFETENSORS + ".index.json"


def save_pretrained(
    model: Layer, folder: str | os.PathLike[str], tokenizer: Any = None, *, shard_size: int = _SHARD
) -> None:
    """Write a model from the zoo, and its tokenizer, as a folder.

    Files appear together when all are complete. Weights of more than `shard_size` bytes become
    several files with an index.
    """
    checked(model, "save_pretrained")
    target = os.fspath(folder)
    arrays = their_arrays(model)
    shards = _shards(arrays, shard_size)
    os.makedirs(target, exist_ok=True)
    with atomic.Save(target) as save:
        for file, names in shards.items():
            with save.file(os.path.join(target, file)) as out:
                safetensors_file.write({n: arrays[n] for n in names}, {"format": "pt"}, out)
        stale = _INDEX if len(shards) == 1 else SAFETENSORS
        if os.path.exists(os.path.join(target, stale)):
            save.remove(os.path.join(target, stale))
        if len(shards) > 1:
            total = sum(a.nbytes for a in arrays.values())
            where = {n: file for file, names in shards.items() for n in names}
            _write_json(
                save, target, _INDEX, {"metadata": {"total_size": total}, "weight_map": where}
            )
        _write_json(save, target, CONFIG, _config(model))
    if tokenizer is not None:
        tokenizer.save_pretrained(target)


def checked(model: Any, owner: str) -> None:
    """Raise if a model is not from the zoo, or has adapters that its weights do not hold."""
    if not hasattr(model, "config") or not hasattr(model, "task"):
        raise InvalidArgument(
            f"[{owner}] the model must come from bireme.zoo. Received: {type(model).__name__}"
        )
    from bireme.zoo.tuning.adapters import adapters

    if any(a.original is None for a in adapters(model).values()):
        raise InvalidArgument(
            f"[{owner}] the model has adapters. Add them to its weights (zoo.merge), or write "
            "them alone (zoo.save_adapter)"
        )


def _config(model: Any) -> dict[str, Any]:
    raw = model.config.to_dict()
    known = raw.get("architectures")
    if isinstance(known, list) and known and isinstance(known[0], str):
        raw["architectures"] = [registry.architecture_of(known[0], model.task)]
    kinds = [p.dtype.name for p in model.parameters()]
    raw.pop("torch_dtype", None)
    raw["dtype"] = max(set(kinds), key=kinds.count) if kinds else "float32"
    return raw


def their_arrays(model: Any) -> dict[str, np.ndarray]:
    """The parameters under the names and in the layout of the files."""
    ours: dict[str, Any] = model.state_dict()
    packed = without_blocks(model)
    arrays: dict[str, np.ndarray] = {}
    for entry in names_of(model).entries(model):
        if entry.ours[0].endswith((".lora.A", ".lora.B")):  # merged into the weights
            continue
        own = [packed[n] if n in packed else np.asarray(ours[n].numpy()) for n in entry.ours]
        made = entry.save(own)
        arrays.update(zip(entry.theirs, made, strict=True))
    return arrays


def _shards(arrays: dict[str, np.ndarray], limit: int) -> dict[str, list[str]]:
    groups: list[list[str]] = [[]]
    size = 0
    for name, array in arrays.items():
        if groups[-1] and size + array.nbytes > limit:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += array.nbytes
    if len(groups) == 1:
        return {SAFETENSORS: groups[0]}
    stem = SAFETENSORS.removesuffix(".safetensors")
    count = len(groups)
    return {f"{stem}-{i + 1:05}-of-{count:05}.safetensors": g for i, g in enumerate(groups)}


def _write_json(save: atomic.Save, folder: str, name: str, value: Any) -> None:
    with save.file(os.path.join(folder, name)) as out:
        out.write((json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())
