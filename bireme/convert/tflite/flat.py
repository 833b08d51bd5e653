"""A small, strict reader of FlatBuffers: every offset is checked before it is followed."""

from __future__ import annotations

import math
import struct

import numpy as np

from bireme.convert.errors import ModelFileError

_SCALARS = {
    "bool": ("<?", 1), "byte": ("<b", 1), "ubyte": ("<B", 1), "int": ("<i", 4), "uint": ("<I", 4),
    "float": ("<f", 4), "long": ("<q", 8),
}  # fmt: skip
_ARRAYS = {"int": "<i4", "ubyte": "u1", "float": "<f4", "long": "<i8", "ushort": "<u2"}


class Table:
    """A table; fields are referred to by their number."""

    __slots__ = ("_at", "_data", "_end", "_fields")

    def __init__(self, data: memoryview, at: int):
        self._data, self._at = data, at
        vtable = at - _number(data, at, "<i", 4)
        size = _number(data, vtable, "<H", 2)
        self._fields = vtable + 4
        self._end = vtable + size
        if size < 4 or self._end > len(data):
            raise ModelFileError("the file is damaged: a table's description lies outside")

    def _place(self, field: int) -> int:
        """Where a field is, 0 if it is left out."""
        at = self._fields + 2 * field
        if at + 2 > self._end:
            return 0
        offset = _number(self._data, at, "<H", 2)
        return self._at + offset if offset else 0

    def scalar(self, field: int, kind: str, default: int | float = 0) -> int | float:
        at = self._place(field)
        return _number(self._data, at, *_SCALARS[kind]) if at else default

    def integer(self, field: int, kind: str = "int", default: int = 0) -> int:
        return int(self.scalar(field, kind, default))

    def real(self, field: int, default: float = 0.0) -> float:
        made = float(self.scalar(field, "float", default))
        if not math.isfinite(made):
            raise ModelFileError("the file is damaged: a setting is not finite")
        return made

    def _target(self, field: int) -> int:
        at = self._place(field)
        return at + _number(self._data, at, "<I", 4) if at else 0

    def table(self, field: int) -> Table | None:
        at = self._target(field)
        return Table(self._data, at) if at else None

    def _vector(self, field: int, width: int) -> tuple[int, int]:
        """(where a vector's elements begin, how many there are)."""
        at = self._target(field)
        if not at:
            return 0, 0
        count = _number(self._data, at, "<I", 4)
        if count * width > len(self._data) - at - 4:
            raise ModelFileError(f"the file is damaged: a list of {count} elements is cut off")
        return at + 4, count

    def array(self, field: int, kind: str) -> np.ndarray:
        dtype = np.dtype(_ARRAYS[kind])
        at, count = self._vector(field, dtype.itemsize)
        return np.frombuffer(self._data, dtype, count, at) if count else np.zeros(0, dtype)

    def has(self, field: int) -> bool:
        return self._place(field) != 0

    def text(self, field: int) -> str:
        at, count = self._vector(field, 1)
        return str(self._data[at : at + count], "utf-8", "replace") if at else ""

    def tables(self, field: int) -> list[Table]:
        at, count = self._vector(field, 4)
        places = [at + 4 * i for i in range(count)]
        return [Table(self._data, p + _number(self._data, p, "<I", 4)) for p in places]


def _number(data: memoryview, at: int, code: str, width: int) -> int:
    if not 0 <= at <= len(data) - width:
        raise ModelFileError("the file is damaged: an offset leads outside of it")
    return struct.unpack_from(code, data, at)[0]


def root(data: bytes, identifier: bytes) -> Table:
    """The outermost table of a file with this identifier."""
    if data[4:8] != identifier:
        raise ModelFileError(f"this is no file of the kind {identifier.decode()}")
    view = memoryview(data)
    return Table(view, _number(view, 0, "<I", 4))
