"""A small, strict reader of the protobuf wire format.

    SIZE = message(name=(1, "string"), dims=(2, "[int64"))
    decode(SIZE, data)["dims"]

A schema maps field names to (number, kind): a scalar kind, a nested schema, or `[` in front for
a repeated one. `enum:NAMES` is a number that stands for one of these names, and `floats` and
`doubles` are repeated numbers as one NumPy array. Fields that a schema does not name are skipped,
as the format asks. Every length is checked against the bytes that are there before anything is
made from it.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from bireme.convert.errors import ModelFileError

Schema = dict[int, tuple[str, Any, bool]]
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIRE = {"float": _FIXED32, "double": _FIXED64, "string": _BYTES, "bytes": _BYTES}
_ARRAYS = {"floats": (_FIXED32, np.dtype("<f4")), "doubles": (_FIXED64, np.dtype("<f8"))}
MAX_DEPTH = 100  # of messages inside messages
IGNORED = "ignored"  # the kind of a field that the text form has and nobody needs


def message(**fields: tuple[int, Any]) -> Schema:
    """A schema: {number: (name, kind, is it repeated)}."""
    made: Schema = {}
    for name, (number, kind) in fields.items():
        repeated = isinstance(kind, list) or (isinstance(kind, str) and kind.startswith("["))
        if isinstance(kind, list):
            kind = kind[0]
        elif repeated:
            kind = kind[1:]
        made[number] = (name, kind, repeated)
    return made


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """(an unsigned integer of up to 64 bits, where the next byte is)."""
    value = shift = 0
    while True:
        if at >= len(data):
            raise ModelFileError("the file ends inside a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise ModelFileError("a number of more than 64 bits")


def decode(
    schema: Schema, data: memoryview, what: str = "message", depth: int = 0
) -> dict[str, Any]:
    """The fields of one message by name; repeated ones are lists, absent ones are missing."""
    if depth > MAX_DEPTH:
        raise ModelFileError(f"{what:.200}: messages are nested more than {MAX_DEPTH} deep")
    found: dict[str, Any] = {}
    arrays: dict[str, list[memoryview]] = {}
    at, end = 0, len(data)
    while at < end:
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise ModelFileError(f"{what}: field number 0")
        part, value, at = _raw(data, at, wire, what)
        entry = schema.get(number)
        if entry is None:
            continue
        name, kind, repeated = entry
        if not isinstance(kind, dict) and kind in _ARRAYS:
            _check_array(kind, part, wire, f"{what}.{name}")
            arrays.setdefault(name, []).append(part)
            continue
        expected = _BYTES if isinstance(kind, dict) else _WIRE.get(kind, _VARINT)
        items: list[Any] | None = found.setdefault(name, []) if repeated else None
        if items is not None and wire == _BYTES and expected != _BYTES:
            items += _packed(str(kind), part, what)
            continue
        if wire != expected:
            raise ModelFileError(f"{what}: field '{name}' has wire type {wire}, not {expected}")
        made = _value(kind, part, value, f"{what}.{name}", depth)
        if items is not None:
            items.append(made)
        else:
            found[name] = made
    for name, kind, _ in schema.values():
        if name in arrays:
            joined = arrays[name][0] if len(arrays[name]) == 1 else b"".join(arrays[name])
            found[name] = np.frombuffer(joined, _ARRAYS[kind][1])
    return found


def _check_array(kind: str, part: memoryview, wire: int, what: str) -> None:
    expected, dtype = _ARRAYS[kind]
    if wire not in (_BYTES, expected) or len(part) % dtype.itemsize:
        raise ModelFileError(f"{what}: this is no list of numbers")


def _raw(data: memoryview, at: int, wire: int, what: str) -> tuple[memoryview, int, int]:
    """(the bytes of a field, its value where it is a varint, where the next field is)."""
    if wire == _VARINT:
        value, after = varint(data, at)
        return data[at:after], value, after
    if wire == _BYTES:
        size, at = varint(data, at)
    elif wire in (_FIXED64, _FIXED32):
        size = 8 if wire == _FIXED64 else 4
    else:
        raise ModelFileError(f"{what}: unknown wire type {wire}")
    if size > len(data) - at:
        raise ModelFileError(f"{what}: {size} bytes are announced and {len(data) - at} are there")
    return data[at : at + size], 0, at + size


def _packed(kind: str, part: memoryview, what: str) -> list[Any]:
    if kind in ("float", "double"):
        width, code = (4, "f") if kind == "float" else (8, "d")
        if len(part) % width:
            raise ModelFileError(f"{what}: a packed list ends inside a number")
        return list(struct.unpack(f"<{len(part) // width}{code}", part))
    values, at = [], 0
    while at < len(part):
        value, at = varint(part, at)
        values.append(_integer(kind, value))
    return values


def _value(kind: Any, part: memoryview, value: int, what: str, depth: int) -> Any:
    if isinstance(kind, dict):
        return decode(kind, part, what, depth + 1)
    if kind == "string":
        try:
            return str(part, "utf-8")
        except UnicodeDecodeError:
            raise ModelFileError(f"{what}: text that is not UTF-8") from None
    if kind == "bytes":
        return part
    if kind == "float":
        return struct.unpack("<f", part)[0]
    if kind == "double":
        return struct.unpack("<d", part)[0]
    return _integer(kind, value)


def _integer(kind: str, value: int) -> int | bool | str:
    if kind == "bool":
        return value != 0
    if kind.startswith("enum:"):
        names = kind[5:].split(",")
        return names[value] if value < len(names) else str(value)
    if kind == "int32":  # negative ones are written as 64 bits
        value &= 0xFFFFFFFF
        return value - (1 << 32) if value >= 1 << 31 else value
    return value - (1 << 64) if value >= 1 << 63 else value


def without_ignored(schema: Schema) -> Schema:
    """The schema for the binary form, whose reader skips what is not named."""
    made: Schema = {}
    for number, (name, kind, repeated) in schema.items():
        if kind != IGNORED:
            inner = without_ignored(kind) if isinstance(kind, dict) else kind
            made[number] = (name, inner, repeated)
    return made
