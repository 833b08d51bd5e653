"""Reading and writing the safetensors container: arrays by name, plus a string dictionary.

Eight bytes give the length of a JSON header, which gives each array's type, shape and place in
the bytes that follow. Everything is checked before any of it is believed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.errors import FileFormatError
from bireme.io.foreign import possible_shape

MAX_HEADER = 100_000_000
_CODES = {
    "BOOL": dt.bool_, "U8": dt.uint8, "U16": dt.uint16, "U32": dt.uint32, "U64": dt.uint64,
    "I8": dt.int8, "I16": dt.int16, "I32": dt.int32, "I64": dt.int64, "F16": dt.float16,
    "BF16": dt.bfloat16, "F32": dt.float32, "F64": dt.float64, "F8_E4M3": dt.float8_e4m3fn,
    "F8_E5M2": dt.float8_e5m2,
}  # fmt: skip
_CODE_OF = {d.numpy: code for code, d in _CODES.items()}


def can_store(array: np.ndarray) -> bool:
    return array.dtype in _CODE_OF


def write(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str], file: IO[bytes]) -> None:
    """Write arrays (of the types in `can_store`) and metadata."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    # Largest elements first keeps every array aligned to its element size.
    order = sorted(arrays, key=lambda n: (-arrays[n].dtype.itemsize, n))
    at = 0
    for name in order:
        array = arrays[name]
        header[name] = {
            "dtype": _CODE_OF[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    encoded = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    file.write(len(encoded).to_bytes(8, "little"))
    file.write(encoded)
    for name in order:
        array = np.ascontiguousarray(arrays[name])
        file.write(array.reshape(-1).view(np.uint8).data)


def read(file: IO[bytes], size: int, name: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(arrays, metadata) of an open file of `size` bytes; `name` is for messages."""
    found, metadata = _contents(file, size, name)
    arrays = {}
    for key, (dtype, shape, begin) in found.items():
        file.seek(begin)
        array = np.empty(shape, dtype.numpy)
        view = array.reshape(-1).view(np.uint8).data
        if _read_into(file, view) != view.nbytes:
            raise FileFormatError(f"{name} is truncated: array {key!r} is incomplete")
        arrays[key] = array
    return arrays, metadata


def spans(
    file: IO[bytes], size: int, name: str
) -> dict[str, tuple[dt.DType, tuple[int, ...], int]]:
    """(dtype, shape, place in the file) of each array, for those who map the file."""
    return _contents(file, size, name)[0]


def _contents(
    file: IO[bytes], size: int, name: str
) -> tuple[dict[str, tuple[dt.DType, tuple[int, ...], int]], dict[str, str]]:
    header, start = _header(file, size, name)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise FileFormatError(f"{name} is damaged: its metadata is not a dictionary of strings")
    found = {key: _span(key, entry, name) for key, entry in header.items()}
    _check_cover([s[2:] for s in found.values()], size - start, name)
    return {key: (s[0], s[1], start + s[2]) for key, s in found.items()}, metadata


def first_size(file: IO[bytes], size: int, name: str) -> int:
    """How many bytes the first of several files takes that follow each other in one buffer."""
    header, start = _header(file, size, name)
    file.seek(0)
    ends = [_span(key, entry, name)[3] for key, entry in header.items() if key != "__metadata__"]
    return min(start + max(ends, default=0), size)


def _header(file: IO[bytes], size: int, name: str) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise FileFormatError(
            f"{name} is truncated or no safetensors file: its {size} bytes cannot hold the header"
        )
    if length > MAX_HEADER:
        raise FileFormatError(
            f"{name} has a header of {length} bytes; at most {MAX_HEADER} are read"
        )
    try:
        header = json.loads(file.read(length), object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as e:
        raise FileFormatError(
            f"{name} is damaged or no safetensors file: its header is not JSON"
        ) from e
    if not isinstance(header, dict):
        raise FileFormatError(f"{name} is damaged: its header is not a JSON object")
    return header, 8 + length


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _span(key: str, entry: Any, name: str) -> tuple[dt.DType, tuple[int, ...], int, int]:
    """(dtype, shape, begin, end) of one header entry."""
    try:
        dtype = _CODES[entry["dtype"]]
        shape = tuple(entry["shape"])
        begin, end = entry["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise FileFormatError(
            f"{name} is damaged or newer than this program: the header entry of array {key!r} "
            f"cannot be understood. Received: {str(entry)[:200]}"
        ) from None
    good = possible_shape(shape) and all(type(n) is int and n >= 0 for n in (begin, end))
    if not good:
        sizes = f"{[*shape, begin, end]!r:.200}"
        raise FileFormatError(f"{name} is damaged: array {key!r} has impossible sizes {sizes}")
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise FileFormatError(
            f"{name} is damaged: array {key!r} of shape {list(shape)} and type {dtype.name} cannot "
            f"have {end - begin} bytes"
        )
    return dtype, shape, begin, end


def _check_cover(spans: list[tuple[int, int]], available: int, name: str) -> None:
    """Arrays must lie side by side and fill the file: no overlap, no hidden bytes."""
    at = 0
    for begin, end in sorted(spans):
        if begin != at:
            raise FileFormatError(f"{name} is damaged: its arrays overlap or leave gaps")
        at = end
    if at > available:
        raise FileFormatError(f"{name} is truncated: {at - available} bytes are missing at its end")
    if at < available:
        raise FileFormatError(f"{name} is damaged: {available - at} unknown bytes at its end")


def _read_into(file: IO[bytes], view: memoryview) -> int:
    done = 0
    while done < view.nbytes:
        piece = file.read(min(view.nbytes - done, 1 << 24))
        if not piece:
            break
        view[done : done + len(piece)] = piece
        done += len(piece)
    return done
