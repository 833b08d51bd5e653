"""`paddle.save` and `paddle.load`: nested containers of tensors in one safetensors file.

The arrays are ordinary safetensors entries that other tools can read. What holds them (dicts,
lists, numbers, strings) is JSON in the file's metadata. A name that ends in `.pdparams` or
`.pdopt` asks for Paddle's own format instead (`paddle_file.py`). Loading any file runs no code.
A file appears under its name only when it is complete.
"""

from __future__ import annotations

import base64
import io
import json
import math
import mmap
import os
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import IO, Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.errors import FileFormatError, InvalidArgument, TypeMismatch
from bireme.core.random import RngState
from bireme.core.tensor import Tensor, constant
from bireme.io import atomic, lod_tensor, paddle_file, safetensors_file, torch_file
from bireme.io.foreign import read_whole

FORMAT = "bireme"
VERSION = 1
_ROOT = "value"  # the array's name when a lone tensor is saved

# Beginnings of files that people hand to `load` and what they are.
_FOREIGN = (
    (b"\x93NUMPY", "a NumPy .npy file; read it with numpy.load"),
    (b"\x89HDF", "an HDF5 file"),
    (b"GGUF", "a GGUF file"),
    (b"\x1f\x8b", "a gzip-compressed file; unpack it first"),
)


def save(
    obj: object, path: str | os.PathLike[str] | io.BytesIO, protocol: int = 4, **configs: Any
) -> None:
    """Save tensors, arrays, numbers, strings and dicts, lists, tuples and sets of them.

    The file's ending chooses the format: `.pdparams`, `.pdopt` and `.pdtensor` are Paddle's,
    readable by Paddle; everything else is safetensors. `protocol` is the pickle protocol of
    Paddle's format. `use_binary_format=True` writes one tensor as Paddle's C++ side does, and
    `safetensors=True` chooses safetensors whatever the ending.

    >>> save({"w": paddle.ones([2])}, "model.safetensors")
    """
    _check_configs("save", configs, ("use_binary_format", "pickle_protocol", "safetensors"))
    if isinstance(path, io.IOBase):
        _save(obj, path, "", protocol, configs)
        return
    name = _checked_path(path)
    with atomic.replacing(name) as file:
        _save(obj, file, name, protocol, configs)


def save_together(objects: Mapping[str, Any], protocol: int = 4, folder: str | None = None) -> None:
    """Save several objects, by path, which take the places of old files together or not at all.
    None removes a file: one of an older save that the new one does not have. All of them are in one
    folder, or below `folder`."""
    with atomic.Save(folder) as all_files:
        for path, obj in objects.items():
            name = _checked_path(path)
            if obj is None:
                all_files.remove(name)
                continue
            with all_files.file(name) as file:
                _save(obj, file, name, protocol, {})


def _save(obj: Any, file: IO[bytes], name: str, protocol: int, configs: dict[str, Any]) -> None:
    if configs.get("pickle_protocol") is not None:
        protocol = configs["pickle_protocol"]
    if configs.get("use_binary_format"):
        if not isinstance(obj, Tensor):
            raise TypeMismatch(
                "[save] use_binary_format=True saves a single Tensor. Received: "
                f"{type(obj).__name__}"
            )
        lod_tensor.write(np.asarray(obj._array()), file)
        return
    if name.endswith(paddle_file.ENDINGS) and not configs.get("safetensors"):
        paddle_file.write(obj, file, protocol)
        return
    if protocol not in (2, 3, 4, 5):
        raise InvalidArgument(f"[save] protocol must be 2, 3, 4 or 5. Received: {protocol!r}")
    encoder = _Encoder()
    structure = encoder.encode(obj, ())
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "structure": json.dumps(structure, ensure_ascii=False, separators=(",", ":")),
    }
    safetensors_file.write(encoder.arrays, metadata, file)


def load(path: str | os.PathLike[str] | io.BytesIO, **configs: Any) -> Any:
    """Load what `save`, Paddle's `save` or `torch.save` wrote, or any safetensors file (a dict of
    tensors). Nothing in a file is executed.

    `return_numpy=True` gives NumPy arrays instead of tensors, `keep_name_table=True` keeps the
    table of parameter names that Paddle puts into `.pdparams`. A folder with one binary tensor
    per file (Paddle 1.x's `save_params`) gives a dict of arrays.
    """
    _check_configs(
        "load",
        configs,
        ("return_numpy", "keep_name_table", "safetensors", "model_filename", "params_filename"),
    )
    if isinstance(path, io.IOBase):
        start = path.tell()
        data = io.BytesIO(path.read())
        found, used = _load(data, data.getbuffer(), "the buffer", configs, several=True)
        path.seek(start + used)  # several objects may follow each other
        return found
    name = os.fspath(path)
    if os.path.isdir(name):
        return _load_folder(name, configs)
    try:
        with atomic.opened(name) as file:
            return _load_opened(file, name, configs)
    except FileNotFoundError:
        raise no_such_file(name) from None


def load_together(paths: Iterable[str], folder: str | None = None, **configs: Any) -> list[Any]:
    """Load files of one save, though another may be going on; None for those that are not there."""
    names = list(paths)
    opened = atomic.together(lambda files: [files.open(name) for name in names], folder)
    with ExitStack() as stack:
        for file in opened:
            if file is not None:
                stack.enter_context(file)
        return [
            None if file is None else _load_opened(file, name, configs)
            for name, file in zip(names, opened, strict=True)
        ]


def _load_opened(file: IO[bytes], name: str, configs: dict[str, Any]) -> Any:
    if os.fstat(file.fileno()).st_size == 0:
        raise FileFormatError(f"[load] {name!r} is truncated: it is empty")
    # Pages come from the file itself: a large checkpoint is in memory once, not twice.
    # They are let go with the last view on them, which a traceback may still hold.
    view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return _load(file, view, repr(name), configs)[0]


def _check_configs(function: str, configs: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in configs:
        if key not in known:
            raise InvalidArgument(
                f"[{function}] unknown option {key!r}; the options are {', '.join(known)}"
            )


def _load_folder(name: str, configs: dict[str, Any]) -> dict[str, np.ndarray]:
    """Paddle 1.x's layout: a file per parameter, named after it."""
    if configs.get("params_filename"):
        raise InvalidArgument(
            "[load] parameters that were combined in one file are named by the program beside "
            f"them; load the model itself. Received: params_filename in folder {name!r}"
        )
    skipped = configs.get("model_filename") or "__model__"
    found = {}
    for folder, _, files in sorted(os.walk(name)):
        for entry in sorted(files):
            whole = os.path.join(folder, entry)
            key = os.path.relpath(whole, name).replace(os.sep, "/")
            if key == skipped or atomic.is_ours(entry):
                continue
            data = read_whole(whole)
            if not lod_tensor.looks_like_one(data[:9]):
                raise InvalidArgument(
                    f"[load] {name!r} is a folder and its file {key!r} is no binary tensor; give "
                    "the file to load"
                )
            found[key] = lod_tensor.read(memoryview(data), repr(whole))[0]
    if not found:
        raise InvalidArgument(f"[load] {name!r} is a folder; give the file in it")
    return found


def no_such_file(name: str) -> InvalidArgument:
    return InvalidArgument(f"[load] there is no file {name!r}{_near(name)}")


def _near(name: str) -> str:
    """A hint at files beside `name` that may have been meant."""
    import difflib

    folder = os.path.dirname(name) or "."
    files = (
        [n for n in os.listdir(folder) if not atomic.is_ours(n)] if os.path.isdir(folder) else []
    )
    near = difflib.get_close_matches(os.path.basename(name), files, 3)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def _checked_path(path: str | os.PathLike[str]) -> str:
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str) or not os.path.basename(name) or os.path.isdir(name):
        raise InvalidArgument(f"[save] path must name a file, not a folder. Received: {path!r}")
    return name


def _load(
    file: IO[bytes], data: memoryview, name: str, configs: dict[str, Any], several: bool = False
) -> tuple[Any, int]:
    """(the object, how many bytes it took); `several` may follow each other."""
    return_numpy = bool(configs.get("return_numpy"))
    beginning = bytes(data[:9])
    # A header length can look like another format's first bytes; a header starts with "{".
    if beginning[8:] != b"{" and not configs.get("safetensors"):
        if (
            beginning.startswith(b"PK\x03\x04")
            or data[: len(torch_file.LEGACY)] == torch_file.LEGACY
        ):
            found = torch_file.read_opened(file, name.strip("'"))
            return found if return_numpy else _with_tensors(found), len(data)
        if paddle_file.looks_like_one(beginning):
            keep = bool(configs.get("keep_name_table"))
            return paddle_file.read(data, name, return_numpy, keep)
        if lod_tensor.looks_like_one(beginning):
            array, end = lod_tensor.read(data, name)
            return array if return_numpy else constant(array), end
        for start, what in _FOREIGN:
            if beginning.startswith(start):
                raise FileFormatError(f"[load] {name} is {what}, not a safetensors file")
    size = len(data)
    if several:
        first = safetensors_file.first_size(file, size, name)
        following = bytes(data[first : first + 9])
        if following[8:] == b"{" or paddle_file.looks_like_one(following):
            size = first
    arrays, metadata = safetensors_file.read(file, size, name)
    decoder = _Decoder(arrays, name, return_numpy)
    if metadata.get("format") != FORMAT:
        return {key: decoder.array(key, "tensor", None) for key in arrays}, size
    version = metadata.get("version", "")
    if not version.isdigit() or int(version) > VERSION:
        raise FileFormatError(
            f"[load] {name} has format version {version!r}; this Bireme reads up to {VERSION}. "
            "Update Bireme to load it"
        )
    try:
        structure = json.loads(metadata["structure"])
        return decoder.decode(structure), size
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as e:
        if isinstance(e, FileFormatError):
            raise
        raise FileFormatError(f"[load] {name} is damaged: its structure cannot be read") from e


def _with_tensors(found: Any) -> Any:
    """A checkpoint of PyTorch with tensors for its arrays."""
    if isinstance(found, np.ndarray):
        return constant(np.ascontiguousarray(found).reshape(found.shape))
    if isinstance(found, dict):
        return {key: _with_tensors(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return type(found)([_with_tensors(value) for value in found])
    return found


def _fields(value: Any) -> tuple[str, dict[str, Any]] | None:
    """(name, fields) of an object that is stored as its fields, None for any other object."""
    if isinstance(value, RngState):
        return "RngState", value._asdict()
    kind = type(value)
    if (kind.__module__, kind.__qualname__) == ("argparse", "Namespace"):
        return "argparse.Namespace", vars(value)
    return None


def _made_of(name: str, fields: dict[str, Any]) -> Any:
    """The reverse of `_fields`. Loading runs no code: these types and no others are made."""
    if name == "RngState":
        return RngState(**fields)
    if name == "argparse.Namespace":
        from argparse import Namespace

        return Namespace(**fields)
    raise KeyError(name)


def _sorted(values: Any) -> list[Any]:
    """A set's members in an order that does not change from run to run."""
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=repr)


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
        stored = _fields(value)
        if stored is not None:
            return {"$object": stored[0], "fields": self.encode(stored[1], path)}
        if isinstance(value, set | frozenset):
            items = [self.encode(v, (*path, str(i))) for i, v in enumerate(_sorted(value))]
            return {"$set" if isinstance(value, set) else "$frozenset": items}
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
    hint = "save tensors, arrays, numbers, strings and dicts, lists, tuples or sets of them"
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
        if tag in ("$set", "$frozenset"):
            members = [self.decode(n) for n in content]
            return set(members) if tag == "$set" else frozenset(members)
        if tag == "$object":
            return _made_of(content, self.decode(node["fields"]))
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
