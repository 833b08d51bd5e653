"""Paddle's binary tensor file: one tensor, as its C++ side writes it.

A version (0), level-of-detail offsets, another version (0), a small protobuf message with the
element type and the shape, and the elements.
"""

from __future__ import annotations

import math
import struct
from typing import IO

import numpy as np

from bireme.core import dtype as dt
from bireme.core.errors import FileFormatError, TypeMismatch
from bireme.io.foreign import possible_shape

# Numbers of the enumeration VarType in Paddle's framework.proto.
_CODES = {
    0: dt.bool_, 1: dt.int16, 2: dt.int32, 3: dt.int64, 4: dt.float16, 5: dt.float32,
    6: dt.float64, 20: dt.uint8, 21: dt.int8, 22: dt.bfloat16, 23: dt.complex64,
    24: dt.complex128, 32: dt.float8_e4m3fn, 33: dt.float8_e5m2,
}  # fmt: skip
_CODE_OF = {d.numpy: code for code, d in _CODES.items()}


def looks_like_one(beginning: bytes) -> bool:
    """Whether a file that begins so may be a binary tensor: version 0, few LoD levels."""
    return len(beginning) >= 8 and not any(beginning[:4]) and not any(beginning[5:8])


def write(array: np.ndarray, file: IO[bytes]) -> None:
    """Write one array without level-of-detail information."""
    code = _CODE_OF.get(array.dtype)
    if code is None:
        raise TypeMismatch(f"[save] the binary format has no code for arrays of {array.dtype}")
    message = b"\x08" + _varint(code) + b"".join(b"\x10" + _varint(d) for d in array.shape)
    file.write(struct.pack("<IQI", 0, 0, 0) + struct.pack("<i", len(message)) + message)
    file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def read(data: memoryview, name: str, at: int = 0) -> tuple[np.ndarray, int]:
    """(the array that begins at `at`, where it ends); `name` is for messages."""
    try:
        version, levels = struct.unpack_from("<IQ", data, at)
        at += 12
        if version != 0 or levels > 16:
            raise _damaged(name, f"version {version}, {levels} levels")
        for _ in range(levels):
            (length,) = struct.unpack_from("<Q", data, at)
            at += 8 + length
        version, length = struct.unpack_from("<Ii", data, at)
        at += 8
        if version != 0 or not 0 <= length <= 4096 or at + length > len(data):
            raise _damaged(name, f"version {version}, a description of {length} bytes")
        code, dims = _description(bytes(data[at : at + length]), name)
    except struct.error:
        raise _damaged(name, "it ends in the middle") from None
    at += length
    if code not in _CODES:
        raise _damaged(name, f"unknown element type {code}")
    if not possible_shape(dims):
        raise _damaged(name, f"shape {dims!r:.200}")
    kind = _CODES[code].numpy
    end = at + math.prod(dims) * kind.itemsize
    if end > len(data):
        raise _damaged(name, f"{end - len(data)} bytes are missing at its end")
    array = np.frombuffer(data[at:end], np.uint8).copy().view(kind).reshape(dims)
    return array, end


def _damaged(name: str, why: str) -> FileFormatError:
    return FileFormatError(f"[load] {name} is damaged or no tensor file: {why}")


def _varint(number: int) -> bytes:
    pieces = bytearray()
    while number > 0x7F:
        pieces.append(number & 0x7F | 0x80)
        number >>= 7
    pieces.append(number)
    return bytes(pieces)


def _description(message: bytes, name: str) -> tuple[int, list[int]]:
    """(element type, dimensions) of the TensorDesc message."""
    code, dims, at = -1, [], 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while at < len(message) and shift < 70:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value - 2**64 if value >= 2**63 else value
        raise _damaged(name, "its description ends in the middle")

    while at < len(message):
        tag = number()
        if tag == 0x08:
            code = number()
        elif tag == 0x10:
            dims.append(number())
        elif tag == 0x12:  # the same numbers, packed
            end = number() + at
            while at < min(end, len(message)):
                dims.append(number())
        else:
            raise _damaged(name, f"unknown field {tag >> 3}")
    return code, dims
