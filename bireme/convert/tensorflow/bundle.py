"""Weights of TensorFlow: checkpoints of the second version (an index and shards of raw data), and
of the first (one file of packed slices)."""

from __future__ import annotations

import math
import os

import numpy as np

from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.tensorflow.arrays import array_of, dtype_of, known_sizes
from bireme.convert.tensorflow.schema import (
    BUNDLE_ENTRY,
    BUNDLE_HEADER,
    SHAPE,
    TENSOR,
    TYPE,
    kind_of,
)
from bireme.convert.tensorflow.table import MAGIC, entries
from bireme.convert.wire import decode, message
from bireme.io.foreign import open_regular, read_whole

_MAX_SHARDS = 10_000
_SLICED = message(name=(1, "string"), shape=(2, SHAPE), type=(3, TYPE))
_SLICES = message(
    meta=(1, message(tensor=(1, [_SLICED]))),
    data=(
        2,
        message(name=(1, "string"), slice=(2, message(extent=(1, "[bytes"))), data=(3, TENSOR)),
    ),
)


class Bundle:
    """The weights behind a prefix such as `variables/variables`; arrays are read when asked for."""

    def __init__(self, prefix: str):
        self._prefix = prefix
        self._entries: dict[str, dict] = {}
        header: dict | None = None
        for key, value in entries(read_whole(prefix + ".index", "convert")):
            if not key:
                header = decode(BUNDLE_HEADER, value, "the header of the weights")
            else:
                self._entries[key.decode("utf-8", "replace")] = decode(
                    BUNDLE_ENTRY, value, "weight"
                )
        if header is None:
            raise ModelFileError("[convert] the index of weights has no header")
        if header.get("endianness"):
            raise UnsupportedModel("[convert] weights with the largest byte first have no reader")
        self._shards = header.get("num_shards", 0)
        if not 0 <= self._shards <= _MAX_SHARDS:
            raise ModelFileError(f"[convert] weights cannot lie in {self._shards} files")

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def names(self) -> list[str]:
        return list(self._entries)

    def raw(self, name: str) -> tuple[str, tuple[int, ...], bytes]:
        """(kind of elements, shape, bytes) of one entry."""
        entry = self._entries[name]
        if entry.get("slices"):
            raise UnsupportedModel(
                f"[convert] the variable {name!r:.80} is kept in slices, which has no reader"
            )
        kind, shape = kind_of(entry.get("dtype")), known_sizes(entry.get("shape"))
        shard, offset, size = (entry.get(k, 0) for k in ("shard_id", "offset", "size"))
        if not 0 <= shard < self._shards or offset < 0 or size < 0:
            raise ModelFileError(f"[convert] the place of the variable {name!r:.80} is damaged")
        path = f"{self._prefix}.data-{shard:05d}-of-{self._shards:05d}"
        with open_regular(path, "convert") as file:
            if offset + size > os.fstat(file.fileno()).st_size:
                raise ModelFileError(
                    f"[convert] the variable {name!r:.80} lies behind the end of {path!r:.200}"
                )
            file.seek(offset)
            return kind, shape, file.read(size)

    def array(self, name: str) -> np.ndarray:
        kind, shape, data = self.raw(name)
        dtype = dtype_of(kind)
        if kind == "string":
            raise UnsupportedModel(f"[convert] the variable {name!r:.80} holds text")
        if len(data) != math.prod(shape) * dtype.itemsize:
            raise ModelFileError(
                f"[convert] the variable {name!r:.80} of {kind}{shape} has {len(data)} bytes"
            )
        return np.frombuffer(data, dtype).reshape(shape)


class Slices:
    """The weights in a checkpoint of the first version, whose variables are whole."""

    def __init__(self, path: str):
        self._arrays: dict[str, np.ndarray] = {}
        declared: dict[str, dict] = {}
        for key, value in entries(read_whole(path, "convert")):
            found = decode(_SLICES, value, "weights")
            if not key:
                declared = {str(t.get("name")): t for t in found.get("meta", {}).get("tensor", ())}
                continue
            piece = found.get("data", {})
            name = str(piece.get("name", ""))
            if name not in declared:
                raise ModelFileError(f"[convert] the variable {name!r:.80} was not declared")
            extents = piece.get("slice", {}).get("extent", ())
            if name in self._arrays or any(len(e) for e in extents):
                raise UnsupportedModel(
                    f"[convert] the variable {name!r:.80} is kept in slices, which has no reader"
                )
            whole = {"dtype": declared[name].get("type")}
            whole["tensor_shape"] = declared[name].get("shape")
            self._arrays[name] = array_of({**piece.get("data", {}), **whole})

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def names(self) -> list[str]:
        return list(self._arrays)

    def array(self, name: str) -> np.ndarray:
        return self._arrays[name]


Weights = Bundle | Slices


def open_weights(prefix: str) -> Weights:
    """The weights of a checkpoint, whichever version it has."""
    if os.path.isfile(prefix + ".index"):
        return Bundle(prefix)
    if os.path.isfile(prefix):
        with open_regular(prefix, "convert") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(size - 8, 0))
            if file.read(8) == MAGIC:
                return Slices(prefix)
    raise ModelFileError(f"[convert] there are no weights {prefix + '.index'!r:.300}")
