"""Checkpoints of PyTorch (`.pt`, `.pth`, `.bin`, `.ckpt`): a zip file of a pickle and one file per
storage, or, before PyTorch 1.6, pickles with the storages behind them.

The pickles go through the guarded reader of `bireme.io.unpickle`, with the few names that tensors
need: nothing that a file names is called.
"""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from collections.abc import Callable
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np

from bireme.core import dtype as dt
from bireme.core.errors import BiremeError, FileFormatError
from bireme.io.foreign import Zip, open_regular, possible_shape, reading
from bireme.io.unpickle import _Finisher
from bireme.io.unpickle.machine import ArrayShell, Damaged, Known, Machine
from bireme.io.unpickle.names import KNOWN
from bireme.io.unpickle.opcodes import OPCODES

_GLOBAL, _STACK_GLOBAL, _PERSISTENT, _BUILD = 0x63, 0x93, 0x51, 0x62
_STORAGES = {
    "FloatStorage": dt.float32,
    "HalfStorage": dt.float16,
    "BFloat16Storage": dt.bfloat16,
    "DoubleStorage": dt.float64,
    "LongStorage": dt.int64,
    "IntStorage": dt.int32,
    "ShortStorage": dt.int16,
    "CharStorage": dt.int8,
    "ByteStorage": dt.uint8,
    "BoolStorage": dt.bool_,
    "ComplexFloatStorage": dt.complex64,
    "ComplexDoubleStorage": dt.complex128,
}
_DTYPES = {
    "float": "float32",
    "half": "float16",
    "double": "float64",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "cfloat": "complex64",
    "cdouble": "complex128",
    **{
        n: n
        for n in (
            "float32",
            "float16",
            "bfloat16",
            "float64",
            "int64",
            "int32",
            "int16",
            "int8",
            "uint8",
            "bool",
            "complex64",
            "complex128",
            "float8_e4m3fn",
            "float8_e5m2",
        )
    },
}
# The first pickle of a file of PyTorch before 1.6: a number that says so.
LEGACY = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
_PROTOCOL = 1001

Found: TypeAlias = Any  # what a pickle holds


class Storage:
    """The elements of one storage; `array` is None until they are read."""

    def __init__(self, key: str, dtype: dt.DType | None, count: int):
        self.key, self.dtype, self.count = key, dtype, count  # no dtype: bytes
        self.array: np.ndarray | None = None


class _Part(NamedTuple):
    """Elements of another storage, as old files have them."""

    whole: Storage
    offset: int
    elements: int


class _Layout(NamedTuple):
    """A tensor whose storage may still come."""

    storage: Storage | _Part
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: dt.DType | None

    def view(self) -> np.ndarray:
        storage = self.storage
        if isinstance(storage, _Part):
            flat = _filled(storage.whole)
            if storage.offset + storage.elements > flat.size:
                raise Damaged("a view reaches over the end of its storage")
            flat = flat[storage.offset : storage.offset + storage.elements]
        else:
            flat = _filled(storage)
        if self.dtype is not None:
            wanted = self.dtype.numpy
            flat = flat[: flat.size // wanted.itemsize * wanted.itemsize].view(wanted)
        last = self.offset + sum(
            [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        )
        count = math.prod(self.shape)
        if count == 0:
            return np.zeros(self.shape, flat.dtype)
        if last >= flat.size or count > 4 * flat.size:
            raise Damaged("a tensor reaches over the end of its storage")
        steps = [s * flat.itemsize for s in self.strides]
        return np.lib.stride_tricks.as_strided(
            flat[self.offset :], self.shape, steps, writeable=False
        )

    def zeros(self) -> np.ndarray:
        storage = self.storage.whole if isinstance(self.storage, _Part) else self.storage
        dtype = self.dtype or storage.dtype or dt.uint8
        return np.broadcast_to(np.zeros((), dtype.numpy), self.shape)


def _filled(storage: Storage) -> np.ndarray:
    if storage.array is None:
        raise Damaged(f"the storage {storage.key!r:.40} is missing")
    return storage.array


class Reader:
    """Reads one pickle with tensors. `fill` gives a storage its elements, as soon as it is named;
    without it, `finish` waits for the caller to do so. `names` adds to what may be asked for."""

    def __init__(
        self,
        name: str,
        owner: str,
        fill: Callable[[Storage], np.ndarray] | None = None,
        names: Callable[[str, str], Any] | None = None,
    ):
        self.name, self.owner, self._fill, self._names = name, owner, fill, names
        self.storages: dict[str, Storage] = {}
        self._waiting: list[tuple[ArrayShell, _Layout]] = []
        self.table = dict(OPCODES)
        self.table[_GLOBAL] = lambda machine: self._name(machine, machine.line(), machine.line())
        self.table[_STACK_GLOBAL] = self._stacked_name
        self.table[_PERSISTENT] = self._storage
        self.table[_BUILD] = _build
        self._known = {
            **_NAMES,
            ("torch._utils", "_rebuild_tensor"): Known("torch.tensor", self._tensor),
            ("torch._utils", "_rebuild_tensor_v2"): Known("torch.tensor", self._tensor),
            ("torch._utils", "_rebuild_tensor_v3"): Known("torch.tensor", self._tensor_of_bytes),
        }

    def run(self, data: memoryview) -> tuple[Any, int]:
        """(the unfinished object, how many bytes it took)."""
        machine = Machine(data, self.name)
        return machine.run(self.table), machine.at

    def finish(
        self, value: object, finisher: type[_Finisher] = _Finisher, contents: bool = True
    ) -> Found:
        """The object with its tensors as arrays; without contents they are zeros, which take no
        memory."""
        for shell, layout in self._waiting:
            shell.array = layout.view() if contents else layout.zeros()
        return finisher(self.name).finish(value, 0)

    # --- what a pickle may ask for ----------------------------------------------------------

    def _name(self, machine: Machine, module: Any, name: Any) -> None:
        text = isinstance(module, str) and isinstance(name, str)
        known = self._known.get((module, name)) if text else None
        if known is None and text and module == "torch" and name in _DTYPES:
            known = _DTYPES[name]
        if known is None and text and self._names is not None:
            known = self._names(module, name)
        if known is None:
            raise machine.refuse(f"'{str(module)[:80]}.{str(name)[:80]}'")
        machine.push(known)

    def _stacked_name(self, machine: Machine) -> None:
        name, module = machine.pop(), machine.pop()
        self._name(machine, module, name)

    def _storage(self, machine: Machine) -> None:
        what = machine.pop()
        if not isinstance(what, tuple) or len(what) < 5 or what[0] != "storage":
            raise machine.refuse("an unusual storage")
        kind, key, count, part = what[1], what[2], what[4], what[5:]
        known = kind.name.removeprefix("torch.") if isinstance(kind, Known) else ""
        plain = isinstance(key, str) and key.isascii() and key.isalnum() and type(count) is int
        if (known not in _STORAGES and known != "UntypedStorage") or not plain:
            raise machine.refuse("an unusual storage")
        if key not in self.storages:
            made = self.storages[key] = Storage(key, _STORAGES.get(known), count)
            if self._fill is not None:
                made.array = self._fill(made)
        storage = self.storages[key]
        if part and part[0] is not None:
            if len(part[0]) != 3 or not all(type(n) is int and n >= 0 for n in part[0][1:]):
                raise machine.refuse("an unusual view of a storage")
            machine.push(_Part(storage, *part[0][1:]))
        else:
            machine.push(storage)

    def _tensor(self, machine: Machine, args: tuple[Any, ...]) -> ArrayShell:
        return self._shell(machine, args, None)

    def _tensor_of_bytes(self, machine: Machine, args: tuple[Any, ...]) -> ArrayShell:
        if len(args) < 7 or not isinstance(args[6], str):
            raise machine.refuse("an unusual tensor")
        return self._shell(machine, args, dt.as_dtype(args[6]))

    def _shell(self, machine: Machine, args: tuple[Any, ...], dtype: dt.DType | None) -> ArrayShell:
        if len(args) < 4:
            raise Damaged("a tensor is incomplete")
        storage, offset, shape, strides = args[:4]
        whole = (*((*shape, *strides) if _tuples(shape, strides) else (None,)), offset)
        if not isinstance(storage, Storage | _Part) or not all(
            type(n) is int and n >= 0 for n in whole
        ):
            raise machine.refuse("an unusual tensor")
        if len(shape) != len(strides) or not possible_shape(shape):
            raise Damaged("a tensor's shape and strides do not fit")
        shell = ArrayShell()
        self._waiting.append((shell, _Layout(storage, offset, shape, strides, dtype)))
        return shell


def _tuples(*values: object) -> bool:
    return all(isinstance(v, tuple) for v in values)


def _parameter(machine: Machine, args: tuple[Any, ...]) -> Any:
    if not args:
        raise Damaged("a parameter has no tensor")
    return args[0]


def _size(machine: Machine, args: tuple[Any, ...]) -> tuple[int, ...]:
    if len(args) != 1 or not isinstance(args[0], list | tuple):
        raise machine.refuse("an unusual size")
    machine.copying(16 * len(args[0]))
    return tuple(args[0])


def _device(machine: Machine, args: tuple[Any, ...]) -> str:
    if not args or not isinstance(args[0], str):
        raise machine.refuse("an unusual device")
    return args[0]


def _build(machine: Machine) -> None:
    """A state dict carries the versions of its layers as an attribute."""
    state = machine.top()
    if isinstance(state, dict) and set(state) == {"_metadata"}:
        machine.pop()
        if not isinstance(machine.top(), OrderedDict):
            raise machine.refuse("attributes on an object")
        return
    OPCODES[_BUILD](machine)


_NAMES: dict[tuple[str, str], Any] = {
    **{k: v for k, v in KNOWN.items() if k[1] != "eval"},
    **{("torch", name): Known(f"torch.{name}", None) for name in _STORAGES},
    ("torch.storage", "UntypedStorage"): Known("torch.UntypedStorage", None),
    ("torch._utils", "_rebuild_parameter"): Known("torch.parameter", _parameter),
    ("torch", "Size"): Known("torch.Size", _size),
    ("torch", "device"): Known("torch.device", _device),
}


def read(path: str | os.PathLike[str], owner: str = "load") -> object:
    """What `torch.save` wrote to `path`: containers, numbers, and tensors as NumPy arrays."""
    with open_regular(path, owner) as file:
        return read_opened(file, os.fspath(path), owner)


def read_opened(file: IO[bytes], name: str, owner: str = "load") -> object:
    """`read` for a file that is open; `name` is for messages."""
    with reading(owner, name):
        try:
            start = file.read(len(LEGACY))
            file.seek(0)
            if start == LEGACY:
                return _legacy(file, name, owner)
            return _zipped(Zip(file, owner, name), name, owner)
        except Damaged as e:
            raise FileFormatError(f"[{owner}] {name!r} is damaged: {e}") from None


def _zipped(archive: Zip, name: str, owner: str) -> Any:
    root = [n for n in archive.names() if n.endswith("/data.pkl")]
    climbing = [n for n in archive.names() if n.startswith("/") or ".." in n.split("/")]
    if len(root) != 1 or climbing:
        raise FileFormatError(f"[{owner}] {name!r} is no checkpoint of PyTorch")
    folder = root[0].removesuffix("data.pkl")
    if f"{folder}constants.pkl" in archive.names():
        raise FileFormatError(
            f"[{owner}] {name!r} is a TorchScript model, not a checkpoint. Load it with "
            "bireme.convert.load"
        )
    reader = Reader(name, owner, storages_of(archive, folder, "data"))
    value, _ = reader.run(memoryview(archive.read(root[0])))
    return reader.finish(value)


def storages_of(archive: Zip, folder: str, kind: str) -> Callable[[Storage], np.ndarray]:
    """What fills the storages of a pickle in a zip archive."""
    order = f"{folder}byteorder"
    if order in archive.names() and archive.read(order) != b"little":
        raise FileFormatError(f"[{archive.owner}] {archive.name!r} holds big-endian numbers")

    def fill(storage: Storage) -> np.ndarray:
        data = archive.read(f"{folder}{kind}/{storage.key}")
        dtype = np.dtype(np.uint8) if storage.dtype is None else storage.dtype.numpy
        return np.frombuffer(data, dtype)

    return fill


def _legacy(file: IO[bytes], name: str, owner: str) -> Any:
    """Pickles of a number, a version, the system, the object and the names of its storages; then
    the storages, each behind its number of elements."""
    try:
        data = memoryview(file.read())
        at, made = 0, []
        reader = Reader(name, owner)
        for _ in range(5):
            value, size = reader.run(data[at:])
            at += size
            made.append(value)
        _, version, system, value, keys = made
        if version != _PROTOCOL or not isinstance(system, dict) or not isinstance(keys, list):
            raise Damaged(f"its version is {version!r:.40}")
        if system.get("little_endian") is not True:
            raise FileFormatError(f"[{owner}] {name!r} holds big-endian numbers")
        for key in keys:
            storage = reader.storages.get(key)
            if storage is None or storage.dtype is None or storage.array is not None:
                raise Damaged(f"it has an unknown storage {key!r:.40}")
            count = int.from_bytes(data[at : at + 8], "little", signed=True)
            end = at + 8 + count * storage.dtype.itemsize
            if count != storage.count or count < 0 or end > len(data):
                raise Damaged(f"the storage {key!r:.40} is incomplete")
            storage.array = np.frombuffer(data[at + 8 : end], storage.dtype.numpy)
            at = end
        return reader.finish(value)
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as e:
        if isinstance(e, BiremeError):
            raise
        raise Damaged("its pickled contents do not fit together") from e
