"""Writes FlatBuffers: tables, vectors and strings, parents before what they hold."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

_SIZES = {"B": 1, "i": 4, "q": 8, "Q": 8, "d": 8}


@dataclass(slots=True)
class Table:
    """Fields by number: (struct's format, number), a Vector, a Table list or a string."""

    numbers: dict[int, tuple[str, int | float]] = field(default_factory=dict)
    children: dict[int, Vector | Sequence[Table] | Sequence[str] | str] = field(
        default_factory=dict
    )


@dataclass(slots=True)
class Vector:
    """Numbers of one struct format."""

    kind: str
    values: Sequence[int] | Sequence[float]


class _Writer:
    def __init__(self) -> None:
        self.out = bytearray()
        self.vtables: dict[bytes, int] = {}

    def align(self, size: int, ahead: int = 0) -> None:
        """Fill up so that what comes `ahead` bytes later lies at a multiple of `size`."""
        self.out.extend(bytes(-(len(self.out) + ahead) % size))

    def point(self, place: int) -> None:
        """Let the offset at `place` lead to where the writer is now."""
        struct.pack_into("<I", self.out, place, len(self.out) - place)

    def table(self, t: Table, place: int) -> None:
        fields = [(n, _SIZES[kind], kind) for n, (kind, _) in t.numbers.items()]
        fields += [(n, 4, "") for n in t.children]
        fields.sort(key=lambda f: (-f[1], f[0]))
        at, slots = 4, {}
        for number, size, _ in fields:
            at += -at % size
            slots[number] = at
            at += size
        count = max(slots, default=-1) + 1
        vtable = struct.pack(
            f"<HH{count}H", 4 + 2 * count, at, *[slots.get(n, 0) for n in range(count)]
        )
        where = self.vtables.get(vtable)
        if where is None:
            self.align(2)
            where = self.vtables[vtable] = len(self.out)
            self.out += vtable
        self.align(8)
        self.point(place)
        start = len(self.out)
        self.out += bytes(at)
        struct.pack_into("<i", self.out, start, start - where)
        for number, (kind, value) in t.numbers.items():
            struct.pack_into("<" + kind, self.out, start + slots[number], value)
        for number, child in t.children.items():
            self.child(child, start + slots[number])

    def child(self, child: Vector | Sequence[Table] | Sequence[str] | str, place: int) -> None:
        if isinstance(child, str):
            text = child.encode()
            self.align(4)
            self.point(place)
            self.out += struct.pack("<I", len(text)) + text + b"\0"
        elif isinstance(child, Vector):
            self.align(max(4, _SIZES[child.kind]), 4)
            self.point(place)
            self.out += struct.pack("<I", len(child.values))
            self.out += struct.pack(f"<{len(child.values)}{child.kind}", *child.values)
        else:
            self.align(4)
            self.point(place)
            first = len(self.out) + 4
            self.out += struct.pack("<I", len(child)) + bytes(4 * len(child))
            for i, item in enumerate(child):
                if isinstance(item, str):
                    self.child(item, first + 4 * i)
                else:
                    self.table(item, first + 4 * i)


def encode(root: Table, identifier: bytes) -> bytes:
    """The buffer of this root table."""
    writer = _Writer()
    writer.out += bytes(4) + identifier
    writer.table(root, 0)
    return bytes(writer.out)
