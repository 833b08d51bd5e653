"""Models of TensorFlow.js: `model.json` beside shards of weights.

A graph model is a graph written as JSON, whose constants lie in the shards. A layers model is a
configuration of Keras; it is refused.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.tensorflow.arrays import Message, dtype_of
from bireme.convert.tensorflow.schema import GRAPH, SIGNATURE, from_json
from bireme.io.foreign import possible_shape, read_whole

_MAX_WEIGHTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Found:
    """A graph, the contents of its constants, and its signatures."""

    graph: Message
    arrays: Mapping[str, np.ndarray]
    signatures: Mapping[str, Message]


def described(path: str) -> tuple[str, dict[str, Any]]:
    """(where it lies, the description) of a model, given its folder or its `model.json`."""
    name = os.path.join(path, "model.json") if os.path.isdir(path) else path
    found = json.loads(read_whole(name, "convert"))
    if not isinstance(found, dict) or not isinstance(found.get("modelTopology"), dict):
        raise ModelFileError(f"[convert] {name!r:.300} describes no model")
    return os.path.dirname(name), found


def is_layers(found: Mapping[str, Any]) -> bool:
    """Whether a model is one of Keras' layers."""
    return "model_config" in found["modelTopology"] or found.get("format") == "layers-model"


def read_graph(path: str) -> Found:
    """What is in the files of a graph model."""
    folder, found = described(path)
    topology = found["modelTopology"]
    if is_layers(found):
        raise UnsupportedModel(
            "[convert] this is a layers model of TensorFlow.js, which has no reader: give the "
            ".keras file that it was made from, or convert it to a graph model"
        )
    signature = from_json(SIGNATURE, _dict(found, "signature"), "the signature")
    arrays = dict(read_weights(folder, found))
    usable = signature.get("inputs") and signature.get("outputs")
    return Found(
        from_json(GRAPH, topology, "the graph"),
        arrays,
        {"serving_default": signature} if usable else {},
    )


def _dict(found: Mapping[str, Any], key: str) -> dict[str, Any]:
    made = found.get(key) or {}
    if not isinstance(made, dict):
        raise ModelFileError(f"[convert] {key} is damaged")
    return made


# --- weights --------------------------------------------------------------------------------


def read_weights(folder: str, found: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """(name, contents) of the weights in the shards."""
    count = 0
    for group in found.get("weightsManifest") or ():
        data = b"".join([_shard(folder, p) for p in group["paths"]])
        at = 0
        for weight in group["weights"]:
            count += 1
            if count > _MAX_WEIGHTS:
                raise ModelFileError("[convert] the model has too many weights")
            array, at = _weight(weight, data, at)
            yield str(weight["name"]), array


def _shard(folder: str, path: Any) -> bytes:
    """A file of the model's own folder."""
    parts = str(path).split("/")
    if not isinstance(path, str) or os.path.isabs(path) or ".." in parts or "\\" in path:
        raise ModelFileError(f"[convert] weights must lie beside the model, not in {path!r:.200}")
    return read_whole(os.path.join(folder, path), "convert")


def _weight(weight: Any, data: bytes, at: int) -> tuple[np.ndarray, int]:
    name, kind = str(weight["name"]), str(weight["dtype"])
    shape = tuple(weight["shape"])
    if not possible_shape(shape):
        raise ModelFileError(f"[convert] the weight {name!r:.80} cannot have the shape {shape}")
    count = math.prod(shape)
    if kind == "string":
        return _texts(name, shape, data, at)
    grid = weight.get("quantization")
    stored = dtype_of(str(grid["dtype"]) if grid else kind)
    size = count * stored.itemsize
    if size > len(data) - at:
        raise ModelFileError(f"[convert] the weight {name!r:.80} lies behind the end of its file")
    raw = np.frombuffer(data, stored, count, at).reshape(shape)
    if not grid:
        return raw, at + size
    if grid["dtype"] == "float16":
        return raw.astype(dtype_of(kind)), at + size
    scale, least = float(grid["scale"]), float(grid["min"])
    if not (math.isfinite(scale) and math.isfinite(least)) or stored.kind != "u":
        raise ModelFileError(f"[convert] the weight {name!r:.80} is quantised in an impossible way")
    real = raw.astype(np.float32) * np.float32(scale) + np.float32(least)
    whole = np.round(real) if kind == "int32" else real
    return np.asarray(whole).astype(dtype_of(kind)), at + size


def _texts(name: str, shape: tuple[int, ...], data: bytes, at: int) -> tuple[np.ndarray, int]:
    """Texts, each behind its length."""
    count = math.prod(shape)
    if count * 4 > len(data) - at:
        raise ModelFileError(f"[convert] the weight {name!r:.80} lies behind the end of its file")
    made = np.empty(count, object)
    for i in range(count):
        size = int.from_bytes(data[at : at + 4], "little")
        if at + 4 + size > len(data):
            raise ModelFileError(f"[convert] the weight {name!r:.80} is cut off")
        made[i] = data[at + 4 : at + 4 + size]
        at += 4 + size
    return made.reshape(shape), at
