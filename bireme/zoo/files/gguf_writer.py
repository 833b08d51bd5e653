"""Writing GGUF files: values, tensors, and then their data, one tensor in memory at a time."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import IO, Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.zoo.files.gguf import MAGIC
from bireme.zoo.files.quants import Format, pack
from bireme.zoo.files.source import Stored

_STEP = 32  # data of tensors begin at multiples of it

# The type of a value in the file and how it is packed, by its type here.
_KINDS: dict[type, tuple[int, Callable[[Any], bytes]]] = {
    bool: (7, lambda v: struct.pack("<?", v)),
    int: (4, lambda v: struct.pack("<I", v)),
    float: (6, lambda v: struct.pack("<f", v)),
    str: (8, lambda v: _text(v)),
}
_ARRAY = 9
_SIGNED = 5  # lists of whole numbers are signed, as llama.cpp expects those of tokens' types


def write_gguf(
    values: Mapping[str, Any], tensors: Mapping[str, tuple[Stored, Format]], out: IO[bytes]
) -> None:
    """A file of `values` (booleans, whole numbers, floats, texts, lists of them) and tensors, each
    in its format."""
    head = [MAGIC, struct.pack("<IQQ", 3, len(tensors), len(values))]
    head += [_text(name) + _value(name, value) for name, value in values.items()]
    at, sizes = 0, []
    for name, (tensor, form) in tensors.items():
        dims = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape[::-1])
        head.append(_text(name) + dims + struct.pack("<IQ", _code(form), at))
        sizes.append(math.prod(tensor.shape) // form.count * form.size)
        at += sizes[-1] + -sizes[-1] % _STEP
    whole = b"".join(head)
    out.write(whole + b"\0" * (-len(whole) % _STEP))
    for (name, (tensor, form)), size in zip(tensors.items(), sizes, strict=True):
        data = pack(form, tensor.read())
        if data.size != size:
            raise InvalidArgument(f"[zoo] {name} has {data.size} bytes and not {size}")
        out.write(data.data)
        out.write(b"\0" * (-size % _STEP))


def _code(form: Format) -> int:
    from bireme.zoo.files.quants import FORMATS

    return next(code for code, known in FORMATS.items() if known is form)


def _text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(data)) + data


def _value(name: str, value: Any) -> bytes:
    if isinstance(value, list):
        if not value:
            raise InvalidArgument(f"[zoo] the value {name!r} is an empty list")
        kind, put = _kind(name, value[0])
        if kind == 4:
            whole = np.asarray(value, "<i4").tobytes()
            return struct.pack("<IIQ", _ARRAY, _SIGNED, len(value)) + whole
        return struct.pack("<IIQ", _ARRAY, kind, len(value)) + b"".join(put(v) for v in value)
    kind, put = _kind(name, value)
    return struct.pack("<I", kind) + put(value)


def _kind(name: str, value: Any) -> tuple[int, Callable[[Any], bytes]]:
    if type(value) not in _KINDS or (type(value) is int and not 0 <= value < 2**32):
        raise InvalidArgument(f"[zoo] the value {name!r} cannot be written: {value!r:.100}")
    return _KINDS[type(value)]
