"""Tensors of the Open Inference Protocol: names of types, declared shapes, JSON and bytes.

A declared shape comes from a stranger. It is compared with the bytes that came before anything of
its size is made.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

from bireme.serving.errors import BadRequest, ModelFailed

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "BYTES": np.dtype(object),
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_MOST_DIMENSIONS = 32
_MOST_ELEMENTS = 1 << 48
_NOT_IN_JSON = ("FP16", "BF16")


def datatype_of(dtype: DTypeLike) -> str:
    """The protocol's name of a NumPy dtype."""
    found = _NAMES.get(np.dtype(dtype))
    if found is None:
        raise BadRequest(f"the protocol has no type for {dtype}")
    return found


def dtype_of(name: str, datatype: object) -> np.dtype[Any]:
    """The dtype of the input `name`, which its request calls `datatype`."""
    found = DTYPES.get(datatype) if isinstance(datatype, str) else None
    if found is None:
        raise BadRequest(
            f"the input {name!r} has the datatype {datatype!r}. Known: {', '.join(DTYPES)}"
        )
    return found


def checked_shape(name: str, shape: object) -> tuple[int, ...]:
    """A declared shape as a tuple of sizes."""
    if not isinstance(shape, Sequence) or isinstance(shape, str) or len(shape) > _MOST_DIMENSIONS:
        raise BadRequest(f"the shape of {name!r} must be a list of sizes. Received: {shape!r:.100}")
    sizes = tuple(shape)
    if any(type(s) is not int or not 0 <= s < 1 << 62 for s in sizes):
        raise BadRequest(f"the shape of {name!r} must be a list of sizes. Received: {shape!r:.100}")
    if count_of([s for s in sizes if s]) > _MOST_ELEMENTS:  # also where another size is 0
        raise BadRequest(f"the shape of {name!r} has more elements than can be sent")
    return sizes


def count_of(shape: Sequence[int]) -> int:
    """How many elements a shape has: a Python number, which cannot overflow."""
    count = 1
    for size in shape:
        count *= size
    return count


def from_bytes(name: str, datatype: object, shape: object, data: bytes | memoryview) -> np.ndarray:
    """The array in the bytes of a request; it reads them where they are."""
    dtype, sizes = dtype_of(name, datatype), checked_shape(name, shape)
    view = memoryview(data)
    if dtype.kind == "O":
        return _strings(name, sizes, view)
    needed = count_of(sizes) * dtype.itemsize
    if needed != len(view):
        raise BadRequest(
            f"the input {name!r} of {datatype}{list(sizes)} has {needed} bytes. "
            f"Received: {len(view)}"
        )
    array = np.frombuffer(view, np.uint8 if dtype.kind == "b" else dtype).reshape(sizes)
    return array != 0 if dtype.kind == "b" else array


def _strings(name: str, sizes: tuple[int, ...], view: memoryview) -> np.ndarray:
    """Strings, each after its length in four bytes."""
    count = count_of(sizes)
    if count * 4 > len(view):
        raise BadRequest(f"the input {name!r} declares {count} strings in {len(view)} bytes")
    found = np.empty(count, object)
    at = 0
    for i in range(count):
        (length,) = struct.unpack_from("<I", view, at) if at + 4 <= len(view) else (1 << 32,)
        at += 4
        if at + length > len(view):
            raise BadRequest(f"the strings of {name!r} end inside the string number {i}")
        found[i] = bytes(view[at : at + length])
        at += length
    if at != len(view):
        raise BadRequest(f"the strings of {name!r} take {at} bytes. Received: {len(view)}")
    return found.reshape(sizes)


def to_bytes(array: np.ndarray) -> bytes:
    """The bytes of an array, as `from_bytes` reads them."""
    if array.dtype.kind != "O":
        return array.tobytes()
    parts = []
    for item in array.reshape(-1):
        encoded = _encoded(item)
        parts += [struct.pack("<I", len(encoded)), encoded]
    return b"".join(parts)


def _encoded(item: Any) -> bytes:
    if isinstance(item, bytes):
        return item
    if isinstance(item, str):
        return item.encode()
    raise ModelFailed(f"a result of BYTES holds {type(item).__name__}, neither str nor bytes")


def from_json(name: str, datatype: object, shape: object, data: object) -> np.ndarray:
    """The array in the lists of a request: flat, or nested as the shape says."""
    dtype, sizes = dtype_of(name, datatype), checked_shape(name, shape)
    if datatype in _NOT_IN_JSON:
        raise BadRequest(f"the input {name!r} of {datatype} must be sent as binary data")
    flat: list[Any] = []
    _flatten(name, data, flat, _MOST_DIMENSIONS)
    if len(flat) != count_of(sizes):
        raise BadRequest(
            f"the input {name!r} of {datatype}{list(sizes)} has {count_of(sizes)} elements. "
            f"Received: {len(flat)}"
        )
    return from_elements(name, dtype, sizes, flat)


def _flatten(name: str, data: object, into: list[Any], depth: int) -> None:
    if not isinstance(data, list):
        raise BadRequest(f"the data of {name!r} must be a list. Received: {type(data).__name__}")
    if not data or not isinstance(data[0], list):
        into.extend(data)
        return
    if not depth:
        raise BadRequest(f"the data of {name!r} is nested deeper than a shape can be")
    for part in data:
        _flatten(name, part, into, depth - 1)


def from_elements(
    name: str, dtype: np.dtype[Any], sizes: tuple[int, ...], flat: Sequence[Any]
) -> np.ndarray:
    """An array of elements that must fit the dtype as they are: nothing is rounded or cut."""
    if dtype.kind == "O":
        if not all(isinstance(x, str | bytes) for x in flat):
            raise BadRequest(f"the data of {name!r} must be strings")
        found = np.empty(len(flat), object)
        found[:] = [x.encode() if isinstance(x, str) else x for x in flat]
        return found.reshape(sizes)
    if not len(flat):
        return np.zeros(sizes, dtype)
    try:
        plain = np.array(flat)
    except (ValueError, OverflowError):
        plain = np.array(None)
    takes = {"b": "b", "i": "iu", "u": "iu", "f": "iuf", "V": "iuf"}[dtype.kind]
    fits = plain.ndim == 1 and plain.dtype.kind in takes
    if fits and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        fits = limits.min <= int(plain.min()) and int(plain.max()) <= limits.max
    if not fits:
        raise BadRequest(f"the data of {name!r} does not fit the type {datatype_of(dtype)}")
    with np.errstate(over="ignore"):
        return plain.astype(dtype).reshape(sizes)


def to_json(name: str, array: np.ndarray) -> list[Any]:
    """The elements of an array as a flat list."""
    flat = array.reshape(-1)
    if array.dtype.kind == "O":
        try:
            return [_encoded(x).decode() for x in flat]
        except UnicodeDecodeError:
            raise BadRequest(
                f"the output {name!r} is no text; ask for it with binary_data"
            ) from None
    if datatype_of(array.dtype) in _NOT_IN_JSON:
        raise BadRequest(
            f"the output {name!r} of {datatype_of(array.dtype)} does not fit JSON; ask for it with "
            "binary_data"
        )
    if array.dtype.kind == "f" and not np.isfinite(flat).all():
        raise BadRequest(
            f"the output {name!r} has values that are not finite, which JSON cannot hold; ask for "
            "it with binary_data"
        )
    return flat.tolist()
