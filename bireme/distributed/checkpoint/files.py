"""The files of a checkpoint.

    0.checkpoint.json       written last: which processes took part, so all of it is there
    3_0.parts.json          what process 3 has saved: names, shapes, types, blocks
    3_0.safetensors         the blocks

The second number is the checkpoint's: a folder holds several, and the newest is loaded. Nothing
is overwritten before what replaces it is complete.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument
from bireme.io import safetensors_file
from bireme.io.safetensors_file import FileFormatError

VERSION = 1
_LAST = re.compile(r"(\d+)\.checkpoint\.json")


def write_json(path: str, value: Any) -> None:
    with safetensors_file.replacing(path) as file:
        file.write(json.dumps(value, indent=1).encode())


def read_json(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (ValueError, RecursionError) as e:
        raise FileFormatError(f"{path} is damaged: it is not JSON") from e
    if not isinstance(value, dict) or value.get("version") != VERSION:
        raise FileFormatError(f"{path} is damaged or newer than this program")
    return value


def checkpoints(folder: str) -> list[int]:
    """The numbers of the complete checkpoints in a folder."""
    if not os.path.isdir(folder):
        return []
    return sorted(int(m[1]) for m in map(_LAST.fullmatch, os.listdir(folder)) if m)


def last_path(folder: str, number: int) -> str:
    return os.path.join(folder, f"{number}.checkpoint.json")


def parts_path(folder: str, rank: int, number: int) -> str:
    return os.path.join(folder, f"{rank}_{number}.parts.json")


def data_name(rank: int, number: int) -> str:
    return f"{rank}_{number}.safetensors"


class Blocks:
    """The arrays of one safetensors file, read where they are asked for."""

    def __init__(self, path: str):
        self._path = path
        with open(path, "rb") as file:
            header, self._start = safetensors_file._header(file, os.path.getsize(path), path)
        header.pop("__metadata__", None)
        self._spans = {k: safetensors_file._span(k, v, path) for k, v in header.items()}

    def __getitem__(self, key: str) -> np.ndarray:
        if key not in self._spans:
            raise FileFormatError(f"{self._path} is damaged: it has no block {key!r}")
        dtype, shape, begin, end = self._spans[key]
        if self._start + end > os.path.getsize(self._path):
            raise FileFormatError(f"{self._path} is truncated: block {key!r} is incomplete")
        if end == begin:
            return np.empty(shape, dtype.numpy)
        raw = np.memmap(self._path, np.uint8, "r", self._start + begin, (end - begin,))
        return raw.view(dtype.numpy).reshape(shape)


class Checkpoint:
    """A complete checkpoint, ready to be read in pieces."""

    def __init__(self, folder: str, number: int | None):
        found = checkpoints(folder)
        if not found:
            raise InvalidArgument(f"there is no complete checkpoint in {folder!r}")
        self.number = found[-1] if number is None else number
        if self.number not in found:
            raise InvalidArgument(
                f"{folder!r} has no checkpoint {self.number}; it has {', '.join(map(str, found))}"
            )
        self._folder = folder
        self._files: dict[str, Blocks] = {}
        self.tensors: dict[str, dict[str, Any]] = {}
        self.values: dict[str, Any] = {}
        for rank in read_json(last_path(folder, self.number))["ranks"]:
            part = read_json(parts_path(folder, rank, self.number))
            self.values.update(part["values"])
            for name, entry in part["tensors"].items():
                known = self.tensors.setdefault(name, {**entry, "blocks": []})
                if known["shape"] != entry["shape"] or known["dtype"] != entry["dtype"]:
                    raise FileFormatError(
                        f"checkpoint {self.number} in {folder!r} is damaged: the processes "
                        f"disagree on the type of {name!r}"
                    )
                known["blocks"] += entry["blocks"]

    def dtype(self, name: str) -> dt.DType:
        return dt.as_dtype(self.tensors[name]["dtype"])

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name]["shape"])

    def read(self, name: str, index: tuple[slice, ...]) -> np.ndarray:
        """The elements of a tensor at `index`, put together from the blocks that have them."""
        shape = self.shape(name)
        bounds = [s.indices(n)[:2] for s, n in zip(index, shape, strict=True)]
        out = np.empty([b - a for a, b in bounds], self.dtype(name).numpy)
        missing = out.size
        seen: set[tuple[int, ...]] = set()
        for block in self.tensors[name]["blocks"]:
            offset = tuple(block["offset"])
            if offset in seen:
                continue  # a copy
            seen.add(offset)
            overlap = [
                (max(a, o), min(b, o + n))
                for (a, b), o, n in zip(bounds, offset, block["shape"], strict=True)
            ]
            if any(a >= b for a, b in overlap):
                continue
            data = self._blocks(block["file"])[block["key"]]
            into = tuple([slice(a - s, b - s) for (a, b), (s, _) in zip(overlap, bounds,
                                                                        strict=True)])  # fmt: skip
            out_of = tuple([slice(a - o, b - o) for (a, b), o in zip(overlap, offset,
                                                                     strict=True)])  # fmt: skip
            out[into] = data.reshape(block["shape"])[out_of]
            missing -= out[into].size
        if missing:
            raise FileFormatError(
                f"checkpoint {self.number} in {self._folder!r} is incomplete: {missing} elements "
                f"of {name!r} are not in it"
            )
        return out

    def _blocks(self, file: str) -> Blocks:
        if os.path.basename(file) != file:
            raise FileFormatError(f"a checkpoint names the file {file!r}, outside of its folder")
        if file not in self._files:
            self._files[file] = Blocks(os.path.join(self._folder, file))
        return self._files[file]


def flatten(state: dict[str, Any], prefix: str = "") -> dict[str, tuple[dict[str, Any], str]]:
    """Where each entry of nested dicts is, by its dotted name."""
    found: dict[str, tuple[dict[str, Any], str]] = {}
    for key, value in state.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            found.update(flatten(value, name + "."))
        elif name in found:
            raise InvalidArgument(f"two entries of the state are called {name!r}")
        else:
            found[name] = (state, key)
    return found
