"""The numeric matrices of a MATLAB 5 file, which is how Flowers keeps its labels."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator

import numpy as np

from bireme.io.foreign import read_whole, reading, unfolded_limit

_TYPES = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8",
}  # fmt: skip
_MATRIX, _COMPRESSED, _INT32 = 14, 15, 5
_NUMERIC = range(6, 16)  # the classes double to uint64


def read_matrices(path: str | os.PathLike[str], owner: str) -> dict[str, np.ndarray]:
    """Every matrix of numbers by name; other contents are left out."""
    data = read_whole(path, owner)
    found: dict[str, np.ndarray] = {}
    with reading(owner, os.fspath(path)):
        if len(data) < 128 or data[126:128] not in (b"IM", b"MI"):
            raise ValueError("it does not begin as a MATLAB 5 file does")
        order = "<" if data[126:128] == b"IM" else ">"
        left = unfolded_limit(len(data))
        for kind, content in _elements(data[128:], order):
            if kind == _COMPRESSED:
                stream = zlib.decompressobj()
                content = stream.decompress(content, left)
                left -= len(content)
                if left <= 0 or not stream.eof:
                    raise ValueError("a compressed matrix is cut off or far too large")
                ((kind, content),) = _elements(content, order)
            if kind == _MATRIX:
                found.update(_matrix(content, order))
    return found


def _elements(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """(type, contents) of each data element."""
    at = 0
    while at < len(data):
        (tag,) = struct.unpack_from(f"{order}I", data, at)
        if tag >> 16:  # up to four bytes lie in the tag itself
            kind, size, start = tag & 0xFFFF, tag >> 16, at + 4
            after = at + 8
        else:
            (size,) = struct.unpack_from(f"{order}I", data, at + 4)
            kind, start = tag, at + 8
            after = start + size + (0 if kind == _COMPRESSED else -size % 8)
        if size > len(data) - start or (tag >> 16 and size > 4):
            raise ValueError(f"an element of {size} bytes at byte {at} of {len(data)}")
        yield kind, data[start : start + size]
        at = after


def _matrix(data: bytes, order: str) -> dict[str, np.ndarray]:
    parts = list(_elements(data, order))
    if len(parts) < 4:
        return {}
    (_, flags), (dims_kind, dims), (_, name), (kind, content) = parts[:4]
    (word,) = struct.unpack_from(f"{order}I", flags)
    if word & 0xFF not in _NUMERIC or word & 0x800:
        return {}  # a cell, a structure, text, complex numbers
    shape = struct.unpack(f"{order}{len(dims) // 4}i", dims)
    if dims_kind != _INT32 or len(shape) != 2 or min(shape) < 0:
        raise ValueError(f"a matrix of shape {shape[:8]}")
    array = np.frombuffer(content, f"{order}{_TYPES[kind]}")
    if array.size != shape[0] * shape[1]:
        raise ValueError(f"a matrix of shape {shape} with {array.size} numbers")
    return {name.decode("latin-1"): array.reshape(shape, order="F")}
