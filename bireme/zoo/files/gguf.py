"""GGUF files: model, vocabulary and chat template in one.

A header counts tensors and values; then come the values (name, type, contents), the tensors (name,
shape, format, place), and their data. Every length is compared with the file's size before it is
followed.
"""

from __future__ import annotations

import dataclasses
import math
import mmap
import os
import struct
from typing import Any

import numpy as np

from bireme.core.errors import FileFormatError
from bireme.io.foreign import open_regular, possible_shape
from bireme.zoo.files.quants import FORMATS, Format, unpack
from bireme.zoo.files.source import Blocks, Stored

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MOST_VALUES = 100_000
_MOST_TENSORS = 1_000_000
_MOST_NAME = 65_535
_DEEPEST = 4  # arrays in arrays

_PLAIN = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8",
    11: "<i8", 12: "<f8",
}  # fmt: skip
_STRING, _ARRAY = 8, 9


@dataclasses.dataclass(frozen=True)
class Gguf:
    """The contents of a file: values by name, and tensors by GGUF's names."""

    values: dict[str, Any]
    tensors: dict[str, Stored]


def read_gguf(path: str) -> Gguf:
    """The values and tensors of a GGUF file; tensors are read from the mapped file when asked."""
    with open_regular(path, "zoo") as file:
        if os.fstat(file.fileno()).st_size < 24:
            raise FileFormatError(f"[zoo] {path!r} is truncated: it cannot hold a GGUF header")
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return _Reader(memoryview(data), path).read()


class _Reader:
    def __init__(self, data: memoryview, path: str):
        self.data, self.path, self.at = data, path, 0

    def damaged(self, what: str) -> FileFormatError:
        return FileFormatError(f"[zoo] {self.path!r} is truncated, damaged or no GGUF file: {what}")

    def take(self, count: int) -> memoryview:
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise self.damaged(f"{count} bytes are announced, {len(self.data) - self.at} are left")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def number(self, layout: str) -> int:
        return struct.unpack("<" + layout, self.take(struct.calcsize(layout)))[0]

    def text(self, most: int | None = None) -> str:
        length = self.number("Q")
        if most is not None and length > most:
            raise self.damaged(f"a name of {length} bytes")
        return str(self.take(length), "utf-8", "replace")

    def read(self) -> Gguf:
        if self.take(4) != MAGIC:
            raise self.damaged("it does not begin with GGUF")
        version = self.number("I")
        if version not in _VERSIONS:
            raise FileFormatError(
                f"[zoo] {self.path!r} is GGUF version {version}; {_VERSIONS} are read. A file of "
                "the other byte order gives huge versions"
            )
        tensors, values = self.number("Q"), self.number("Q")
        if tensors > _MOST_TENSORS or values > _MOST_VALUES:
            raise self.damaged(f"{tensors} tensors and {values} values")
        found: dict[str, Any] = {}
        for _ in range(values):
            name = self.text(_MOST_NAME)
            if name in found:
                raise self.damaged(f"the value {name!r:.100} occurs twice")
            found[name] = self.value(self.number("I"), 0)
        return Gguf(found, self.tensors(tensors, self.alignment(found)))

    def alignment(self, values: dict[str, Any]) -> int:
        step = values.get("general.alignment", 32)
        if type(step) is not int or not 1 <= step <= 1 << 20 or step & (step - 1):
            raise self.damaged(f"an alignment of {step!r:.50}")
        return step

    def value(self, kind: int, depth: int) -> Any:
        if kind in _PLAIN:
            dtype = np.dtype(_PLAIN[kind])
            return np.frombuffer(self.take(dtype.itemsize), dtype)[0].item()
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY or depth >= _DEEPEST:
            raise self.damaged(f"a value of type {kind}")
        kind, count = self.number("I"), self.number("Q")
        if kind in _PLAIN:
            dtype = np.dtype(_PLAIN[kind])
            return np.frombuffer(self.take(count * dtype.itemsize), dtype).copy()
        if count * (8 if kind == _STRING else 12) > len(self.data) - self.at:
            raise self.damaged(f"a list of {count} entries")
        return [self.value(kind, depth + 1) for _ in range(count)]

    def tensors(self, count: int, step: int) -> dict[str, Stored]:
        infos: dict[str, tuple[tuple[int, ...], Format, int]] = {}
        for _ in range(count):
            name = self.text(_MOST_NAME)
            if name in infos:
                raise self.damaged(f"the tensor {name!r:.100} occurs twice")
            rank = self.number("I")
            if rank > 8:
                raise self.damaged(f"the tensor {name!r:.100} has {rank} dimensions")
            shape = tuple([self.number("Q") for _ in range(rank)][::-1])
            code, at = self.number("I"), self.number("Q")
            if code not in FORMATS:
                raise FileFormatError(
                    f"[zoo] {self.path!r}: the tensor {name!r:.100} has the format {code}, which "
                    f"is not read. Read are {', '.join(f.name for f in FORMATS.values())}"
                )
            infos[name] = shape, FORMATS[code], at
        start = -(-self.at // step) * step
        return {name: self.stored(name, *info, start, step) for name, info in infos.items()}

    def stored(
        self, name: str, shape: tuple[int, ...], form: Format, at: int, start: int, step: int
    ) -> Stored:
        if not possible_shape(shape) or not shape:
            raise self.damaged(f"the tensor {name!r:.100} has the shape {shape!r:.200}")
        count = math.prod(shape)
        if shape[-1] % form.count or at % step:
            raise self.damaged(f"the tensor {name!r:.100} does not lie in whole blocks")
        size, begin = count // form.count * form.size, start + at
        if begin + size > len(self.data):
            raise self.damaged(f"the tensor {name!r:.100} ends behind the file's end")
        data = self.data

        def packed() -> np.ndarray:
            return np.frombuffer(data, np.uint8, size, begin)

        def read() -> np.ndarray:
            if not count:
                return np.zeros(shape, form.dtype.numpy)
            return unpack(form, packed(), count).reshape(shape)

        if form.blocks is None:
            return Stored(shape, form.dtype, read)
        row = max(form.blocks.row_bytes(shape[-1]), 1)
        return Stored(
            shape, form.dtype, read, Blocks(form.blocks, lambda: packed().reshape(-1, row))
        )
