"""Writes small TFLite files: every table, string and list in order, references backwards."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any


class _Writer:
    """Things are written front to back; a reference to a later one is filled in when it comes."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0\0\0\0TFL3")

    def _align(self) -> None:
        self.data += bytes(-len(self.data) % 8)

    def _refer(self, at: int) -> None:
        struct.pack_into("<I", self.data, at, len(self.data) - at)

    def raw(self, at: int, items: bytes, count: int) -> None:
        self._align()
        self.data += bytes(4)  # so that the elements, not their count, are aligned
        self._refer(at)
        self.data += struct.pack("<I", count) + items
        self._align()

    def table(self, at: int, fields: Sequence[Any]) -> None:
        """Fields in order: None, (code, number) or what is referred to."""
        self._align()
        vtable = len(self.data)
        self.data += struct.pack("<HH", 4 + 2 * len(fields), 4 + 8 * len(fields))
        for i, value in enumerate(fields):
            self.data += struct.pack("<H", 0 if value is None else 8 + 8 * i)
        self._align()
        start = len(self.data)
        self._refer(at)
        self.data += struct.pack("<i", start - vtable) + bytes(4 + 8 * len(fields))
        for i, value in enumerate(fields):
            place = start + 8 + 8 * i
            if isinstance(value, tuple):
                struct.pack_into("<" + value[0], self.data, place, value[1])
            elif value is not None:
                value(place)

    def ints(self, items: Sequence[int]) -> Any:
        return lambda at: self.raw(at, struct.pack(f"<{len(items)}i", *items), len(items))

    def bytes_(self, items: bytes) -> Any:
        return lambda at: self.raw(at, items, len(items))

    def inner(self, fields: Sequence[Any]) -> Any:
        return lambda at: self.table(at, fields)

    def tables(self, rows: Sequence[Sequence[Any]]) -> Any:
        def write(at: int) -> None:
            self._align()
            self.data += bytes(4)
            self._refer(at)
            start = len(self.data) + 4
            self.data += struct.pack("<I", len(rows)) + bytes(4 * len(rows))
            for i, fields in enumerate(rows):
                self.table(start + 4 * i, fields)

        return write


def model(
    codes: Sequence[tuple[int, str]], tensors: Sequence[tuple[Any, ...]],
    operators: Sequence[tuple[int, list[int], list[int]]], inputs: list[int], outputs: list[int],
    buffers: Sequence[bytes],
) -> bytes:  # fmt: skip
    """Tensors are (shape, type, buffer, name) and perhaps a scale."""
    w = _Writer()

    def tensor(shape: Any, kind: int, buffer: int, name: str, scale: float | None = None) -> Any:
        grid = None
        if scale is not None:
            numbers = struct.pack("<f", scale)
            grid = w.inner([None, None, lambda at: w.raw(at, numbers, 1)])
        return [w.ints(shape), ("b", kind), ("I", buffer), w.bytes_(name.encode()), grid]

    graph = [
        w.tables([tensor(*t) for t in tensors]), w.ints(inputs), w.ints(outputs),
        w.tables([[("I", code), w.ints(a), w.ints(b)] for code, a, b in operators]),
    ]  # fmt: skip
    rows = [[("b", min(c, 127)), w.bytes_(n.encode()), None, ("i", c)] for c, n in codes]
    held = [[w.bytes_(b)] if b else [None] for b in buffers]
    w.table(0, [("I", 3), w.tables(rows), w.tables([graph]), None, w.tables(held)])
    return bytes(w.data)
