"""`paddle.save` and `paddle.load`: nested containers of tensors in one safetensors file.

The arrays are ordinary safetensors entries that other tools can read. What holds them (dicts,
lists, numbers, strings) is JSON in the file's metadata. No pickle: loading a file cannot run
code. A file appears under its name only when it is complete.
"""

from __future__ import annotations

import base64
import io
import json
import math
import os
from collections import OrderedDict
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor, constant
from bireme.io import safetensors_file
from bireme.io.safetensors_file import FileFormatError

FORMAT = "bireme"
VERSION = 1
_ROOT = "value"  # the array's name when a lone tensor is saved

# Beginnings of files that people hand to `load` and what they are.
_FOREIGN = (
    (b"PK\x03\x04", "a zip archive, such as a PyTorch checkpoint or an .npz file"),
    (b"\x93NUMPY", "a NumPy .npy file; read it with numpy.load"),
    (b"\x89HDF", "an HDF5 file"),
    (b"GGUF", "a GGUF file"),
    (b"\x1f\x8b", "a gzip-compressed file; unpack it first"),
)


def save(obj: Any, path: str | os.PathLike[str] | io.BytesIO, protocol: int = 4) -> None:
    """Save tensors, arrays, numbers, strings and dicts, lists and tuples of them.

    `protocol` is Paddle's pickle protocol; this format has none, and 2 to 5 are accepted.
    """
    if protocol not in (2, 3, 4, 5):
        raise InvalidArgument(f"[save] protocol must be 2, 3, 4 or 5. Received: {protocol!r}")
    encoder = _Encoder()
    structure = encoder.encode(obj, ())
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "structure": json.dumps(structure, ensure_ascii=False, separators=(",", ":")),
    }
    if isinstance(path, io.IOBase):
        safetensors_file.write(encoder.arrays, metadata, path)  # type: ignore[arg-type]
        return
    with safetensors_file.replacing(_checked_path(path)) as file:
        safetensors_file.write(encoder.arrays, metadata, file)


def load(path: str | os.PathLike[str] | io.BytesIO, return_numpy: bool = False) -> Any:
    """Load what `save` wrote, or any safetensors file (as a dict of tensors).

    `return_numpy` gives NumPy arrays instead of tensors.
    """
    if isinstance(path, io.IOBase):
        start = path.tell()
        data = io.BytesIO(path.read())  # type: ignore[arg-type]
        path.seek(start + data.getbuffer().nbytes)
        return _load(data, data.getbuffer().nbytes, "the buffer", return_numpy)
    name = os.fspath(path)
    if os.path.isdir(name):
        raise InvalidArgument(f"[load] {name!r} is a folder; give the file in it")
    try:
        with open(name, "rb") as file:
            return _load(file, os.path.getsize(name), repr(name), return_numpy)
    except FileNotFoundError:
        raise InvalidArgument(f"[load] there is no file {name!r}{_near(name)}") from None


def _near(name: str) -> str:
    """A hint at files beside `name` that may have been meant."""
    import difflib

    folder = os.path.dirname(name) or "."
    files = os.listdir(folder) if os.path.isdir(folder) else []
    near = difflib.get_close_matches(os.path.basename(name), files, 3)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def _checked_path(path: str | os.PathLike[str]) -> str:
    name = os.fspath(path)
    if not isinstance(name, str) or not os.path.basename(name) or os.path.isdir(name):
        raise InvalidArgument(f"[save] path must name a file, not a folder. Received: {path!r}")
    return name


def _load(file: IO[bytes], size: int, name: str, return_numpy: bool) -> Any:
    beginning = file.read(9)
    file.seek(0)
    # A header length can look like another format's first bytes; a header starts with "{".
    if beginning[8:] != b"{":
        _reject_foreign(beginning, name)
    arrays, metadata = safetensors_file.read(file, size, name)
    decoder = _Decoder(arrays, name, return_numpy)
    if metadata.get("format") != FORMAT:
        return {key: decoder.array(key, "tensor", None) for key in arrays}
    version = metadata.get("version", "")
    if not version.isdigit() or int(version) > VERSION:
        raise FileFormatError(
            f"[load] {name} has format version {version!r}; this Bireme reads up to {VERSION}. "
            "Update Bireme to load it"
        )
    try:
        structure = json.loads(metadata["structure"])
        return decoder.decode(structure)
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as e:
        if isinstance(e, FileFormatError):
            raise
        raise FileFormatError(f"[load] {name} is damaged: its structure cannot be read") from e


def _reject_foreign(beginning: bytes, name: str) -> None:
    if len(beginning) >= 2 and beginning[0] == 0x80 and 2 <= beginning[1] <= 5:
        raise FileFormatError(
            f"[load] {name} is a pickle file, as Paddle's .pdparams and .pdopt files are. Bireme "
            "does not read Paddle's pickle format yet; convert it where Paddle is installed, for "
            "example with safetensors.numpy.save_file({k: v.numpy() for k, v in "
            "paddle.load(path).items()}, 'model.safetensors')"
        )
    for start, what in _FOREIGN:
        if beginning.startswith(start):
            raise FileFormatError(f"[load] {name} is {what}, not a safetensors file")


class _Encoder:
    """Python values as JSON; arrays are collected by name."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._names: dict[int, str] = {}  # a tensor met twice (tied weights) is stored once
        self._kept: list[Any] = []

    def encode(self, value: Any, path: tuple[str, ...]) -> Any:
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, int) and not isinstance(value, np.generic):
            return int(value)
        if isinstance(value, float) and not isinstance(value, np.generic):
            return value if math.isfinite(value) else {"$float": repr(value)}
        if isinstance(value, Tensor):
            return self._array(value, np.asarray(value._array()), path, "tensor", value._name)
        if isinstance(value, np.ndarray):
            return self._array(value, value, path, "array", None)
        if isinstance(value, np.generic):
            return self._array(value, np.asarray(value), path, "scalar", None)
        if isinstance(value, Mapping):
            return self._mapping(value, path)
        if isinstance(value, list | tuple):
            items = [self.encode(v, (*path, str(i))) for i, v in enumerate(value)]
            return items if isinstance(value, list) else {"$tuple": items}
        if isinstance(value, complex):
            return {"$complex": [repr(value.real), repr(value.imag)]}
        if isinstance(value, bytes | bytearray):
            return {"$bytes": base64.b64encode(value).decode()}
        if isinstance(value, dt.DType):
            return {"$dtype": value.name}
        raise TypeMismatch(_cannot_save(value, path))

    def _mapping(self, value: Mapping[Any, Any], path: tuple[str, ...]) -> Any:
        if all(isinstance(k, str) and not k.startswith("$") for k in value):
            items = {k: self.encode(v, (*path, k)) for k, v in value.items()}
            return {"$ordered": items} if isinstance(value, OrderedDict) and path else items
        pairs = [
            [self.encode(k, (*path, "key")), self.encode(v, (*path, str(k)))]
            for k, v in value.items()
        ]
        return {"$pairs": pairs}

    def _array(
        self, owner: Any, array: np.ndarray, path: tuple[str, ...], kind: str, label: str | None
    ) -> Any:
        entry: dict[str, Any] = {"$array": self._names.get(id(owner)), "kind": kind}
        if entry["$array"] is None:
            stored = array
            if array.dtype.kind == "c":
                stored = np.stack([np.real(array), np.imag(array)], axis=-1)
            if not safetensors_file.can_store(stored):
                raise TypeMismatch(_cannot_save(array, path))
            name = entry["$array"] = self._free_name(".".join(path) or _ROOT)
            self.arrays[name] = stored
            self._names[id(owner)] = name
            self._kept.append(owner)  # its id stays its own while we work
        if array.dtype.kind == "c":
            entry["complex"] = True
        if label is not None:
            entry["name"] = label
        return entry

    def _free_name(self, wanted: str) -> str:
        name, n = wanted, 1
        while name in self.arrays or name == "__metadata__":
            name, n = f"{wanted}#{n}", n + 1
        return name


def _cannot_save(value: Any, path: tuple[str, ...]) -> str:
    where = f" at {'.'.join(path)!r}" if path else ""
    hint = "save tensors, arrays, numbers, strings and dicts, lists or tuples of them"
    if hasattr(value, "state_dict"):
        hint = "save its state_dict() instead"
    kind = f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    return f"[save] cannot save this value{where}. Received: {kind}; {hint}"


class _Decoder:
    """The reverse of `_Encoder`."""

    def __init__(self, arrays: dict[str, np.ndarray], name: str, return_numpy: bool):
        self.arrays, self.file, self.return_numpy = arrays, name, return_numpy
        self._made: dict[tuple[str, str], Any] = {}

    def decode(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.decode(n) for n in node]
        if not isinstance(node, dict):
            return node
        tag = next((k for k in node if k.startswith("$")), None)
        if tag is None:
            return {k: self.decode(v) for k, v in node.items()}
        content = node[tag]
        if tag == "$array":
            return self.array(content, node["kind"], node.get("name"), bool(node.get("complex")))
        if tag == "$tuple":
            return tuple([self.decode(n) for n in content])
        if tag == "$ordered":
            return OrderedDict((k, self.decode(v)) for k, v in content.items())
        if tag == "$pairs":
            return {self.decode(k): self.decode(v) for k, v in content}
        if tag == "$float":
            return float(content)
        if tag == "$complex":
            return complex(float(content[0]), float(content[1]))
        if tag == "$bytes":
            return base64.b64decode(content, validate=True)
        if tag == "$dtype":
            return dt.as_dtype(content)
        raise FileFormatError(f"[load] {self.file} is damaged: unknown mark {tag!r}")

    def array(self, key: str, kind: str, label: str | None, is_complex: bool = False) -> Any:
        made = self._made.get((key, kind))
        if made is not None:
            return made
        if key not in self.arrays:
            raise FileFormatError(f"[load] {self.file} is damaged: array {key!r} is missing")
        array = self.arrays[key]
        if is_complex:
            wide = np.complex64 if array.dtype == np.float32 else np.complex128
            array = np.ascontiguousarray(array).view(wide)[..., 0]
        made = array
        if kind == "scalar":
            made = array[()]
        elif kind == "tensor" and not self.return_numpy:
            made = constant(array)
            made._name = label
        self._made[key, kind] = made
        return made


__all__ = ["FileFormatError", "load", "save"]
