"""A small, strict reader of HDF5, as far as Keras writes it: groups, whole arrays, attributes.

Every address is checked before it is followed. What the format has beyond that (chunks, filters,
the newer kinds of groups) is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.io.foreign import possible_shape

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MAX_DEPTH = 64
_MAX_ENTRIES = 1_000_000


class File:
    """An HDF5 file in memory."""

    def __init__(self, data: bytes):
        self.data = memoryview(data)
        if data[:8] != SIGNATURE:
            raise ModelFileError("this is no HDF5 file")
        if self.number(8, 1) > 1 or self.number(13, 1) != 8 or self.number(14, 1) != 8:
            raise UnsupportedModel("this HDF5 file is of a newer version; save it with h5py's own")
        self.count = 0  # entries that were read
        root = 24 + (4 if self.number(8, 1) == 1 else 0) + 32
        self.root = Node(self, self.number(root + 8, 8), 0)

    def part(self, at: int, size: int) -> memoryview:
        if at < 0 or size < 0 or at + size > len(self.data):
            raise ModelFileError("the file is damaged: an address leads outside of it")
        return self.data[at : at + size]

    def number(self, at: int, width: int) -> int:
        return int.from_bytes(self.part(at, width), "little")

    def tick(self) -> None:
        self.count += 1
        if self.count > _MAX_ENTRIES:
            raise ModelFileError("the file is damaged, or has too many parts")

    def heap_object(self, at: int, index: int) -> memoryview:
        """A piece of the global heap."""
        if self.part(at, 4) != b"GCOL":
            raise ModelFileError("the file is damaged: there is no heap where it should be")
        end = at + self.number(at + 8, 8)
        at += 16
        while at + 16 <= end:
            self.tick()
            found, size = self.number(at, 2), self.number(at + 8, 8)
            if found == index and index:
                return self.part(at + 16, size)
            if not found:
                break
            at += 16 + (size + 7) // 8 * 8
        raise ModelFileError("the file is damaged: a text is missing")


class Node:
    """A group, or an array."""

    def __init__(self, file: File, at: int, depth: int):
        if depth > _MAX_DEPTH:
            raise ModelFileError(f"groups are nested more than {_MAX_DEPTH} deep")
        self._file, self._depth = file, depth
        self._messages = list(_messages(file, at))

    def _first(self, kind: int) -> memoryview | None:
        return next((m for k, m in self._messages if k == kind), None)

    @property
    def is_group(self) -> bool:
        return self._first(0x11) is not None

    def children(self) -> dict[str, Node]:
        """The members of a group by name."""
        table = self._first(0x11)
        if table is None:
            if self._first(0x02) is not None or self._first(0x06) is not None:
                raise UnsupportedModel("groups of newer versions of HDF5 have no reader")
            return {}
        file = self._file
        tree, heap = _u(table, 0, 8), _u(table, 8, 8)
        if file.part(heap, 4) != b"HEAP":
            raise ModelFileError("the file is damaged: there is no heap where it should be")
        names = file.part(file.number(heap + 24, 8), file.number(heap + 8, 8))
        made: dict[str, Node] = {}
        for offset, at in _entries(file, tree, 0):
            end = bytes(names[offset : offset + 4096]).find(b"\0")
            if offset >= len(names) or end < 0:
                raise ModelFileError("the file is damaged: a name is missing")
            made[_text(names[offset : offset + end])] = Node(file, at, self._depth + 1)
        return made

    def array(self) -> np.ndarray:
        """The contents of an array of numbers."""
        space, kind, layout = self._first(0x01), self._first(0x03), self._first(0x08)
        if space is None or kind is None or layout is None:
            raise ModelFileError("the file is damaged: this is no array")
        if self._first(0x0B) is not None:
            raise UnsupportedModel("compressed arrays have no reader")
        shape, dtype = _shape(space), _dtype(kind)
        if dtype is None:
            raise UnsupportedModel("an array of something else than numbers has no reader")
        size = math.prod(shape) * dtype.itemsize
        if _u(layout, 0, 1) != 3 or _u(layout, 1, 1) == 2:
            raise UnsupportedModel("arrays in chunks have no reader")
        if _u(layout, 1, 1) == 0:
            data = layout[4 : 4 + _u(layout, 2, 2)]
        elif not size:
            data = memoryview(b"")
        else:
            data = self._file.part(_u(layout, 2, 8), _u(layout, 10, 8))
        if len(data) != size:
            raise ModelFileError(f"an array of the shape {shape} has {len(data)} bytes")
        return np.frombuffer(data, dtype).reshape(shape)

    def texts(self, name: str) -> list[str] | None:
        """An attribute of texts; None if there is none of this name."""
        for kind, message in self._messages:
            if kind == 0x0C:
                found = self._attribute(message)
                if found is not None and found[0] == name:
                    return found[1]
        return None

    def _attribute(self, m: memoryview) -> tuple[str, list[str]] | None:
        version = _u(m, 0, 1)
        sizes = [_u(m, i, 2) for i in (2, 4, 6)]
        at = 9 if version == 3 else 8
        parts = []
        for size in sizes:
            parts.append(m[at : at + size])
            at += (size + 7) // 8 * 8 if version == 1 else size
        name = _text(parts[0]).rstrip("\0")
        kind, shape = _u(parts[1], 0, 1) & 15, _shape(parts[2])
        count, width = math.prod(shape), _u(parts[1], 4, 4)
        if kind not in (3, 9) or count * max(width, 1) > len(m):
            return (name, []) if kind not in (3, 9) else None
        rows = [m[at + i * width : at + (i + 1) * width] for i in range(count)]
        if kind == 3:
            return name, [_text(r).rstrip("\0") for r in rows]
        return name, [
            _text(self._file.heap_object(_u(r, 4, 8), _u(r, 12, 4))[: _u(r, 0, 4)]) for r in rows
        ]


def _u(data: memoryview, at: int, width: int) -> int:
    if at + width > len(data):
        raise ModelFileError("the file is damaged: a message is cut off")
    return int.from_bytes(data[at : at + width], "little")


def _text(data: memoryview | bytes) -> str:
    return bytes(data).decode("utf-8", "replace")


def _messages(file: File, at: int) -> Iterator[tuple[int, memoryview]]:
    """(kind, contents) of what an object's header says."""
    if file.number(at, 1) != 1:
        raise UnsupportedModel("objects of newer versions of HDF5 have no reader")
    left = file.number(at + 2, 2)
    blocks = [(at + 16, file.number(at + 8, 4))]
    while blocks and left > 0:
        start, size = blocks.pop(0)
        end = start + len(file.part(start, size))
        while start + 8 <= end and left > 0:
            file.tick()
            left -= 1
            kind, length = file.number(start, 2), file.number(start + 2, 2)
            contents = file.part(start + 8, length)
            if kind == 0x10:
                blocks.append((_u(contents, 0, 8), _u(contents, 8, 8)))
            elif file.number(start + 4, 1) & 2:
                raise UnsupportedModel("shared parts of an HDF5 file have no reader")
            else:
                yield kind, contents
            start += 8 + length


def _entries(file: File, at: int, depth: int) -> Iterator[tuple[int, int]]:
    """(offset of the name, address) of the members of a group."""
    if depth > _MAX_DEPTH:
        raise ModelFileError("the file is damaged: a tree is too deep")
    file.tick()
    kind = bytes(file.part(at, 4))
    if kind == b"TREE":
        for i in range(file.number(at + 6, 2)):
            yield from _entries(file, file.number(at + 32 + 16 * i, 8), depth + 1)
    elif kind == b"SNOD":
        for i in range(file.number(at + 6, 2)):
            file.tick()
            place = at + 8 + 40 * i
            yield file.number(place, 8), file.number(place + 8, 8)
    else:
        raise ModelFileError("the file is damaged: there is no tree where it should be")


def _shape(space: memoryview) -> tuple[int, ...]:
    version, rank = _u(space, 0, 1), _u(space, 1, 1)
    start = 8 if version == 1 else 4
    shape = tuple([_u(space, start + 8 * i, 8) for i in range(rank)])
    if not possible_shape(shape):
        raise ModelFileError(f"an array cannot have the shape {shape!r:.200}")
    return shape


def _dtype(kind: memoryview) -> np.dtype | None:
    code, order, width = _u(kind, 0, 1) & 15, "<>"[_u(kind, 1, 1) & 1], _u(kind, 4, 4)
    if code == 1 and width in (2, 4, 8):
        return np.dtype(f"{order}f{width}")
    if code == 0 and width in (1, 2, 4, 8):
        return np.dtype(f"{order}{'i' if _u(kind, 1, 1) & 8 else 'u'}{width}")
    return None
