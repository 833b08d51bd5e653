"""The files of a checkpoint.

    0.checkpoint.json       written last: which processes took part, so all of it is there
    3_0.parts.json          what process 3 has saved: names, shapes, types, blocks
    3_0.safetensors         the blocks

The second number is the checkpoint's: a folder holds several, and the newest is loaded. All files
of one take their places together, those of all processes (`io/atomic.py`).
"""

from __future__ import annotations

import json
import os
import re
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.distributed.checkpoint.tiling import Box, Irregular, tiles
from bireme.io import atomic, foreign, safetensors_file

VERSION = 1
_DTYPES = {d.name for d in dt.ALL}
_LAST = re.compile(r"(\d+)\.checkpoint\.json")
_PART = re.compile(r"(\d+)_(\d+)\.(parts\.json|safetensors)")


def write_json(save: atomic.Save, path: str, value: object) -> None:
    with save.file(path) as file:
        file.write(json.dumps(value, indent=1).encode())


def read_json(file: IO[bytes], path: str) -> dict[str, Any]:
    with foreign.reading("checkpoint", path):
        value = json.loads(file.read().decode())
    if not isinstance(value, dict) or value.get("version") != VERSION:
        raise FileFormatError(f"{path} is damaged or newer than this program")
    return value


def checkpoints(folder: str) -> list[int]:
    """The numbers of the complete checkpoints in a folder."""
    return atomic.together(lambda files: _numbers(files, folder))


def _numbers(files: atomic.Files, folder: str) -> list[int]:
    if not os.path.isdir(folder):
        return []
    return sorted(int(m[1]) for m in map(_LAST.fullmatch, files.names(folder)) if m)


def others(folder: str, number: int, world: int) -> list[str]:
    """Files of a checkpoint that were saved by a larger job than one of `world` processes."""
    found = []
    for name in os.listdir(folder):
        part = _PART.fullmatch(name)
        if part and int(part[2]) == number and int(part[1]) >= world:
            found.append(os.path.join(folder, name))
    return found


def last_path(folder: str, number: int) -> str:
    return os.path.join(folder, f"{number}.checkpoint.json")


def parts_path(folder: str, rank: int, number: int) -> str:
    return os.path.join(folder, f"{rank}_{number}.parts.json")


def data_name(rank: int, number: int) -> str:
    return f"{rank}_{number}.safetensors"


class Blocks:
    """The arrays of one safetensors file, read where they are asked for."""

    def __init__(self, file: IO[bytes], path: str):
        self._path = path
        size = os.fstat(file.fileno()).st_size
        header, self._start = safetensors_file._header(file, size, path)
        # The pages stay those of this file, whatever takes its name during a long load.
        self._bytes = np.memmap(file, np.uint8, "r")
        header.pop("__metadata__", None)
        self._spans = {k: safetensors_file._span(k, v, path) for k, v in header.items()}
        spans = [s[2:] for s in self._spans.values()]
        safetensors_file._check_cover(spans, size - self._start, path)

    def read(self, key: str, shape: tuple[int, ...], dtype: dt.DType) -> np.ndarray:
        """A block, which must be what the index says of it."""
        if key not in self._spans:
            raise FileFormatError(f"{self._path} is damaged: it has no block {key!r}")
        own_dtype, own_shape, begin, end = self._spans[key]
        if own_shape != shape or own_dtype is not dtype:
            raise FileFormatError(
                f"{self._path} is damaged, or belongs to another checkpoint: its block {key!r} is "
                f"{own_dtype.name}{list(own_shape)}, and should be {dtype.name}{list(shape)}"
            )
        raw = self._bytes[self._start + begin : self._start + end]
        return raw.view(dtype.numpy).reshape(shape)


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a tensor: where it belongs, and where it is stored."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]
    file: str
    key: str

    @property
    def box(self) -> Box:
        return tuple([(o, o + n) for o, n in zip(self.offset, self.shape, strict=True)])


@dataclass(slots=True)
class Entry:
    """What a checkpoint says of a tensor."""

    shape: tuple[int, ...]
    dtype: dt.DType
    blocks: list[Block]
    checked: bool = False


def _entry(name: str, raw: Any, path: str) -> Entry:
    """One tensor of an index, with every size and name checked."""

    def sizes(value: Any) -> tuple[int, ...]:
        if not isinstance(value, list) or not foreign.possible_shape(value):
            raise ValueError(f"the sizes {value!r:.200}")
        return tuple(value)

    with foreign.reading("checkpoint", f"{path}: {name}"):
        shape = sizes(raw["shape"])
        blocks = []
        for b in raw["blocks"]:
            block = Block(sizes(b["offset"]), sizes(b["shape"]), b["file"], b["key"])
            if len(block.offset) != len(shape) or len(block.shape) != len(shape):
                raise ValueError(f"a block of {len(block.shape)} dimensions in {list(shape)}")
            if not isinstance(block.key, str) or not isinstance(block.file, str):
                raise ValueError("a block without a place")
            inside = os.path.basename(block.file) == block.file and "\0" not in block.file
            if not inside or block.file in ("", ".", ".."):
                raise ValueError(f"a block in the file {block.file!r:.200}, outside of the folder")
            blocks.append(block)
        if raw["dtype"] not in _DTYPES:
            raise ValueError(f"the dtype {raw['dtype']!r:.40}")
        return Entry(shape, dt.as_dtype(raw["dtype"]), blocks)


class Checkpoint:
    """A complete checkpoint, ready to be read in pieces."""

    def __init__(self, folder: str, number: int | None):
        self._folder = folder
        self.tensors: dict[str, Entry] = {}
        self.values: dict[str, Any] = {}
        self._files: dict[str, Blocks] = {}
        self._places: dict[tuple[str, str], tuple[str, tuple[int, ...]]] = {}
        opened = atomic.together(lambda files: _Opened(files, folder, number))
        self.number = opened.number
        with ExitStack() as stack:
            for file in (opened.last, *opened.parts.values(), *opened.data.values()):
                stack.enter_context(file)
            for rank, file in opened.parts.items():
                path = parts_path(folder, rank, self.number)
                self._add(read_json(file, path), path)
            for name, file in opened.data.items():
                self._files[name] = Blocks(file, os.path.join(folder, name))

    def _add(self, part: dict[str, Any], path: str) -> None:
        tensors, values = part.get("tensors"), part.get("values")
        if not isinstance(tensors, dict) or not isinstance(values, dict):
            raise FileFormatError(f"{path} is damaged: it lists no tensors or no values")
        self.values.update(values)
        for name, raw in tensors.items():
            entry = _entry(name, raw, path)
            known = self.tensors.setdefault(name, Entry(entry.shape, entry.dtype, []))
            if known.shape != entry.shape or known.dtype is not entry.dtype:
                raise FileFormatError(
                    f"checkpoint {self.number} in {self._folder!r} is damaged: the processes "
                    f"disagree on the type of {name!r}"
                )
            for block in entry.blocks:
                here = (name, block.offset)
                if self._places.setdefault((block.file, block.key), here) != here:
                    raise FileFormatError(
                        f"{path} is damaged: it uses {block.key!r} of {block.file!r} twice"
                    )
            known.blocks += entry.blocks

    def dtype(self, name: str) -> dt.DType:
        return self.tensors[name].dtype

    def shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[name].shape

    def _checked(self, name: str) -> Entry:
        """The tensor, whose blocks fill it: each element is in exactly one of them."""
        entry = self.tensors[name]
        if entry.checked:
            return entry
        distinct: dict[tuple[int, ...], Block] = {}
        for block in [b for b in entry.blocks if 0 not in b.shape]:
            first = distinct.setdefault(block.offset, block)  # the others are copies
            if first.shape != block.shape:
                raise self._not_filled(name, f"two blocks at {list(block.offset)} differ in shape")
        blocks = list(distinct.values())
        try:
            filled = 0 in entry.shape or tiles(entry.shape, [b.box for b in blocks])
        except Irregular:
            raise self._not_filled(name, "its blocks lie in no regular way") from None
        if not filled:
            raise self._not_filled(name, "its blocks overlap, leave a gap or lie outside of it")
        entry.blocks, entry.checked = blocks, True
        return entry

    def _not_filled(self, name: str, why: str) -> FileFormatError:
        return FileFormatError(
            f"checkpoint {self.number} in {self._folder!r} is incomplete or damaged: {name!r} of "
            f"shape {list(self.shape(name))} cannot be put together; {why}"
        )

    def read(self, name: str, index: tuple[slice, ...]) -> np.ndarray:
        """The elements of a tensor at `index`, put together from the blocks that have them."""
        entry = self._checked(name)
        bounds = [s.indices(n)[:2] for s, n in zip(index, entry.shape, strict=True)]
        pieces = []
        for block in entry.blocks:
            overlap = [
                (max(a, o), min(b, o + n))
                for (a, b), o, n in zip(bounds, block.offset, block.shape, strict=True)
            ]
            if any(a >= b for a, b in overlap):
                continue
            data = self._blocks(block.file).read(block.key, block.shape, entry.dtype)
            into = tuple(
                [slice(a - s, b - s) for (a, b), (s, _) in zip(overlap, bounds, strict=True)]
            )
            out_of = tuple(
                [slice(a - o, b - o) for (a, b), o in zip(overlap, block.offset, strict=True)]
            )
            pieces.append((into, data[out_of]))
        # All blocks are there, so memory is taken for what the files hold.
        out = np.empty([b - a for a, b in bounds], entry.dtype.numpy)
        for into, piece in pieces:
            out[into] = piece
        return out

    def _blocks(self, file: str) -> Blocks:
        if file not in self._files:
            raise FileFormatError(
                f"checkpoint {self.number} in {self._folder!r} is damaged: {file!r} is not one of "
                "its files"
            )
        return self._files[file]


class _Opened:
    """All files of a checkpoint, open, so that a save to its number cannot come between."""

    def __init__(self, files: atomic.Files, folder: str, number: int | None):
        found = _numbers(files, folder)
        if not found:
            raise InvalidArgument(f"there is no complete checkpoint in {folder!r}")
        self.number = found[-1] if number is None else number
        if self.number not in found:
            raise InvalidArgument(
                f"{folder!r} has no checkpoint {self.number}; it has {', '.join(map(str, found))}"
            )
        path = last_path(folder, self.number)
        self.last = files.need(path)
        ranks: Any = read_json(self.last, path).get("ranks")
        good = isinstance(ranks, list) and all(type(r) is int and r >= 0 for r in ranks)
        if not good or len(set(ranks)) != len(ranks):
            raise FileFormatError(f"{path} is damaged: the processes are {ranks!r:.200}")
        self.parts = {r: self._need(files, parts_path(folder, r, self.number)) for r in ranks}
        names = [data_name(r, self.number) for r in ranks]
        self.data = {n: self._need(files, os.path.join(folder, n)) for n in names}

    def _need(self, files: atomic.Files, path: str) -> IO[bytes]:
        file = files.open(path)
        if file is None:
            raise FileFormatError(f"checkpoint {self.number} is incomplete: {path!r} is missing")
        return file


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
