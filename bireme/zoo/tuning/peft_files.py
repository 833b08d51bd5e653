"""Adapters in the files that the library peft writes and reads: adapter_config.json and
adapter_model.safetensors, with its names.

A key of the config that would change numbers and is not understood is an error that names it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.io import atomic, safetensors_file
from bireme.io.foreign import open_regular, read_json
from bireme.nn.layer.layer import Layer
from bireme.zoo.config import UnknownSetting
from bireme.zoo.loading import names_of
from bireme.zoo.tuning import adapters
from bireme.zoo.tuning.adapters import Lora

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."

# Keys that are read here, and keys that change nothing once the adapter is trained.
_READ = ("peft_type", "r", "lora_alpha", "lora_dropout", "use_rslora", "rank_pattern",
         "alpha_pattern", "bias", "target_modules")  # fmt: skip
_HARMLESS = frozenset(
    """
    task_type auto_mapping peft_version base_model_name_or_path revision inference_mode
    exclude_modules fan_in_fan_out init_lora_weights layers_to_transform layers_pattern
    megatron_config megatron_core loftq_config eva_config corda_config lora_ga_config velora_config
    qalora_group_size runtime_config ensure_weight_tying target_parameters
    """.split()  # noqa: SIM905 (twenty quoted words are harder to read)
)
_MOST = 1 << 20  # bytes of a config


def load_adapter(model: Layer, folder: str | os.PathLike[str], *, train: bool = False) -> Layer:
    """Attach the adapters in a folder that `finetune` or peft wrote to their model.

    With `train` they can be trained further; else nothing of the model is. Returns the model.
    """
    if adapters.adapters(model):
        raise InvalidArgument("[load_adapter] the model has adapters already: merge or remove them")
    where = os.fspath(folder)
    path, weights = os.path.join(where, CONFIG), os.path.join(where, WEIGHTS)
    for name in (path, weights):
        if not os.path.isfile(name):
            raise FileNotFoundError(2, "an adapter's folder has this file", name)
    if os.path.getsize(path) > _MOST:
        raise FileFormatError(f"[load_adapter] {path!r} is too large for a config")
    config = _read_config(read_json(path, "load_adapter"), path)
    with open_regular(weights, "load_adapter") as file:
        found, _ = safetensors_file.read(file, os.path.getsize(weights), weights)
    pairs, theirs = _pairs(model, found, weights), _theirs(model)
    scales = {p: config.scale(theirs[p], a.shape[0]) for p, (a, _) in pairs.items()}
    for ours, (a, b) in pairs.items():
        layer = adapters.owner_of(model, ours)
        wide, out = adapters.shape_of(layer)
        rank = a.shape[0]
        if a.shape != (rank, wide) or b.shape != (out, rank) or not rank:
            raise FileFormatError(
                f"[load_adapter] matrices {list(a.shape)} and {list(b.shape)} do not fit the layer "
                f"{ours} of {wide} inputs and {out} outputs"
            )
    for ours, (a, b) in pairs.items():
        layer = adapters.owner_of(model, ours)
        adapter = adapters.put(layer, a.shape[0], scales[ours], config.dropout)
        adapter.A.set_value(np.ascontiguousarray(a.T.astype(np.float32)))
        adapter.B.set_value(np.ascontiguousarray(b.T.astype(np.float32)))
    adapters.freeze(model)
    if not train:
        for adapter in adapters.adapters(model).values():
            adapter.A.stop_gradient = adapter.B.stop_gradient = True
    model.train() if model.training else model.eval()
    return model


class _Config:
    """What an adapter_config.json says about numbers."""

    def __init__(self, raw: Mapping[str, Any]):
        self.rank, self.alpha = raw.get("r", 8), raw.get("lora_alpha", 8)
        self.dropout = float(raw.get("lora_dropout") or 0.0)
        self._root = bool(raw.get("use_rslora"))
        self.ranks = raw.get("rank_pattern") or {}
        self.alphas = raw.get("alpha_pattern") or {}

    def scale(self, name: str, rank: int) -> float:
        """The factor of the adapter of a layer, by peft's name of it."""
        expected = _by_pattern(self.ranks, name, self.rank)
        if rank != expected:
            raise FileFormatError(
                f"[load_adapter] the adapter of {name} has rank {rank}; the config says {expected}"
            )
        alpha = _by_pattern(self.alphas, name, self.alpha)
        return Lora(rank, root_scale=self._root).scale_of(rank, float(alpha))


def _by_pattern(patterns: Mapping[str, Any], name: str, default: Any) -> Any:
    for pattern, value in patterns.items():
        if re.match(rf"(.*\.)?({pattern})$", name):
            return value
    return default


def _read_config(raw: Any, path: str) -> _Config:
    if not isinstance(raw, dict) or raw.get("peft_type") != "LORA":
        kind = raw.get("peft_type") if isinstance(raw, dict) else type(raw).__name__
        raise UnknownSetting(f"[load_adapter] {path!r} describes {kind!r}, not a LORA adapter")
    known = {*_READ, *_HARMLESS}
    left = {k: v for k, v in raw.items() if k not in known and v not in (None, False, {}, [])}
    if raw.get("bias", "none") != "none":
        left["bias"] = raw["bias"]
    if raw.get("target_parameters"):
        left["target_parameters"] = raw["target_parameters"]
    if left:
        shown = ", ".join(f"{k}={v!r:.60}" for k, v in sorted(left.items())[:8])
        raise UnknownSetting(
            f"[load_adapter] {path!r} has settings that may change numbers and that Bireme does "
            f"not know: {shown}"
        )
    for patterns in (raw.get("rank_pattern"), raw.get("alpha_pattern")):
        if patterns and not _are_plain(patterns):
            raise UnknownSetting(
                f"[load_adapter] {path!r}: patterns of ranks and alphas may hold names and numbers "
                f"only. Received: {patterns!r:.200}"
            )
    numbers = (raw.get("r", 8), raw.get("lora_alpha", 8), raw.get("lora_dropout") or 0.0)
    real = all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers)
    if not real or not 0 <= numbers[2] < 1 or not abs(numbers[1]) < 1e6:
        raise FileFormatError(
            f"[load_adapter] {path!r}: r, lora_alpha and lora_dropout cannot be {numbers!r:.200}"
        )
    return _Config(raw)


def _are_plain(patterns: Any) -> bool:
    """Whether these are names of layers with numbers. Free regular expressions from strangers may
    take forever."""
    if not isinstance(patterns, dict):
        return False
    names = all(re.fullmatch(r"\^?[\w.]{1,200}", k) for k in patterns)
    return names and all(isinstance(v, int | float) for v in patterns.values())


def _pairs(
    model: Layer, found: dict[str, np.ndarray], path: str
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """(A, B) as they lie in the file, by our layers' paths; every tensor is used or an error."""
    ours = {theirs: path for path, theirs in _theirs(model).items()}
    halves: dict[str, dict[str, np.ndarray]] = {}
    wrong = []
    for name, array in found.items():
        match = re.fullmatch(re.escape(_PREFIX) + r"(.+)\.lora_([AB])\.weight", name)
        if match is None or match[1] not in ours or array.ndim != 2:
            wrong.append(f"{name} {list(array.shape)}")
        else:
            halves.setdefault(ours[match[1]], {})[match[2]] = array
    wrong += [f"{p}: only one of two matrices" for p, both in halves.items() if len(both) != 2]
    if wrong or not halves:
        shown = "\n  ".join(sorted(wrong)[:12]) or "it is empty"
        raise FileFormatError(
            f"[load_adapter] {path!r} does not fit this model; its linear layers in files are "
            f"called {', '.join(sorted(ours)[:3])} …\n  {shown}"
        )
    return {p: (both["A"], both["B"]) for p, both in halves.items()}


def _theirs(model: Layer) -> dict[str, str]:
    """Names of layers in files, by our paths, of the linear layers that stand alone there."""
    paths = {f"{path}.weight": path for path, _ in adapters.linears(model)}
    return {
        paths[entry.ours[0]]: entry.theirs[0].removesuffix(".weight")
        for entry in names_of(model).entries(model)
        if len(entry.ours) == len(entry.theirs) == 1 and entry.ours[0] in paths
    }


def check_names(model: Layer) -> None:
    """Raise if a layer with an adapter has no name of its own in files."""
    theirs = _theirs(model)
    lacking = [path for path in adapters.adapters(model) if path not in theirs]
    if lacking:
        raise InvalidArgument(
            f"[save_adapter] in files of {model.config.model_type!r} models these layers are one "
            f"with others: {', '.join(lacking[:4])}. Choose other targets, or train all parameters"
        )


def save_adapter(model: Layer, folder: str | os.PathLike[str]) -> None:
    """Write the model's adapters as peft does. Its base model's files are not written.

    All adapters must have one rank and one scale, as `finetune` makes them.
    """
    found = adapters.adapters(model)
    if not found:
        raise InvalidArgument("[save_adapter] the model has no adapters")
    check_names(model)
    theirs = _theirs(model)
    kinds = {(a.A.shape[1], a.scale, a.dropout) for a in found.values()}
    if len(kinds) > 1:
        raise InvalidArgument(
            f"[save_adapter] the adapters differ in rank, scale or dropout: {sorted(kinds)}"
        )
    ((rank, scale, dropout),) = kinds
    arrays = {}
    for path, adapter in found.items():
        name = _PREFIX + theirs[path]
        arrays[f"{name}.lora_A.weight"] = np.ascontiguousarray(adapter.A.numpy().T)
        arrays[f"{name}.lora_B.weight"] = np.ascontiguousarray(adapter.B.numpy().T)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM" if model.task == "causal_lm" else None,
        "base_model_name_or_path": str(model.config.raw.get("_name_or_path") or ""),
        "r": int(rank),
        "lora_alpha": _alpha(scale * rank),
        "lora_dropout": dropout,
        "target_modules": _target_names([theirs[p] for p in found], list(theirs.values())),
        "bias": "none",
        "fan_in_fan_out": model.config.model_type == "gpt2",
        "use_rslora": False,
        "inference_mode": True,
    }
    target = os.fspath(folder)
    os.makedirs(target, exist_ok=True)
    with atomic.Save(target) as save:
        with save.file(os.path.join(target, WEIGHTS)) as out:
            safetensors_file.write(arrays, {"format": "pt"}, out)
        with save.file(os.path.join(target, CONFIG)) as out:
            out.write((json.dumps(config, indent=2) + "\n").encode())


def _alpha(value: float) -> float | int:
    """Whole numbers are written as such. 16 / 8 * 8 is 16; others may be off by a rounding."""
    near = round(value)
    return near if abs(value - near) < 1e-9 * max(abs(value), 1) else value


def _target_names(chosen: list[str], every: list[str]) -> list[str]:
    """The ends of names that stand for exactly these layers, or their whole names."""
    ends = sorted({name.rpartition(".")[2] for name in chosen})
    meant = [name for name in every if name.rpartition(".")[2] in ends]
    return ends if len(meant) == len(chosen) else sorted(chosen)
