"""Hugging Face's folders: config.json beside tensors in one file or in shards with an index."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.errors import FileFormatError
from bireme.io import safetensors_file
from bireme.io.foreign import open_regular, read_json
from bireme.zoo.files.source import Source, Stored

CONFIG = "config.json"
SAFETENSORS = "model.safetensors"
_SAFETENSORS_INDEX = "model.safetensors.index.json"


def open_folder(path: str) -> Source:
    """The model in a folder."""
    config = read_config(path)
    tensors = _tensors(path)
    return Source(path, config, tensors)


def read_config(path: str) -> dict[str, Any]:
    """The contents of a folder's config.json."""
    name = os.path.join(path, CONFIG)
    if not os.path.exists(name):
        raise FileFormatError(f"[zoo] the folder {path!r} has no {CONFIG}")
    found = read_json(name, "zoo")
    if not isinstance(found, dict):
        raise FileFormatError(f"[zoo] {name!r} is no JSON object")
    return found


def _tensors(path: str) -> Mapping[str, Stored]:
    if os.path.exists(os.path.join(path, SAFETENSORS)):
        return mapped_safetensors(os.path.join(path, SAFETENSORS))
    if os.path.exists(os.path.join(path, _SAFETENSORS_INDEX)):
        return _sharded(path, _SAFETENSORS_INDEX)
    raise FileFormatError(
        f"[zoo] the folder {path!r} has no weights: expected {SAFETENSORS} or {_SAFETENSORS_INDEX}"
    )


def shards_of(path: str, index: str) -> dict[str, list[str]]:
    """The files that an index names, each with the names of its tensors."""
    found = read_json(os.path.join(path, index), "zoo")
    table = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(table, dict) or not all(isinstance(v, str) for v in table.values()):
        raise FileFormatError(f"[zoo] {index!r} in {path!r} has no table 'weight_map'")
    files: dict[str, list[str]] = {}
    for tensor, file in table.items():
        if os.path.basename(file) != file or file in ("", ".", ".."):
            raise FileFormatError(f"[zoo] {index!r} in {path!r} names the file {file!r:.100}")
        files.setdefault(file, []).append(tensor)
    return files


def _sharded(path: str, index: str) -> dict[str, Stored]:
    tensors: dict[str, Stored] = {}
    for file, names in sorted(shards_of(path, index).items()):
        if not os.path.exists(os.path.join(path, file)):
            raise FileFormatError(f"[zoo] {path!r} has no {file!r}, which {index} names")
        found = mapped_safetensors(os.path.join(path, file))
        lacking = set(names) - found.keys()
        twice = tensors.keys() & found.keys()
        if lacking or twice:
            raise FileFormatError(
                f"[zoo] the shard {file!r} of {path!r} does not fit {index}: "
                f"missing {sorted(lacking)[:3]}, twice {sorted(twice)[:3]}"
            )
        tensors.update(found)
    return tensors


def mapped_safetensors(path: str) -> dict[str, Stored]:
    """The tensors of a safetensors file, as views of the mapped file."""
    with open_regular(path, "zoo") as file:
        size = os.fstat(file.fileno()).st_size
        spans = safetensors_file.spans(file, size, path)
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return {name: _stored(data, *span) for name, span in spans.items()}


def _stored(data: memoryview, dtype: dt.DType, shape: tuple[int, ...], at: int) -> Stored:
    def read() -> np.ndarray:
        count = int(np.prod(shape, dtype=np.int64))
        if count == 0:
            return np.zeros(shape, dtype.numpy)
        return np.frombuffer(data, dtype.numpy, count, at).reshape(shape)

    return Stored(shape, dtype, read)
