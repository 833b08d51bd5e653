"""Checkpoints of PyTorch (`.pt`, `.bin`): a zip file of a pickle and one file per storage.

The pickle goes through the guarded reader of `bireme.io.unpickle`, with the few names that tensors
need: nothing that a file names is called.
"""

from __future__ import annotations

import math
import os
from typing import IO, Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.errors import FileFormatError
from bireme.io.foreign import Zip, open_regular, reading
from bireme.io.unpickle import _Finisher
from bireme.io.unpickle.machine import ArrayShell, Damaged, Known, Machine
from bireme.io.unpickle.names import KNOWN
from bireme.io.unpickle.opcodes import OPCODES

_GLOBAL, _STACK_GLOBAL, _PERSISTENT = 0x63, 0x93, 0x51
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
}


class _Storage:
    """The bytes of one storage."""

    def __init__(self, array: np.ndarray):
        self.array = array


def _tensor(machine: Machine, args: tuple[Any, ...]) -> ArrayShell:
    if len(args) < 4:
        raise Damaged("a tensor is incomplete")
    storage, offset, shape, strides = args[:4]
    whole = (*((shape, strides) if isinstance(shape, tuple) else ()), offset)
    numbers = [n for part in whole for n in (part if isinstance(part, tuple) else (part,))]
    if not isinstance(storage, _Storage) or not all(type(n) is int and n >= 0 for n in numbers):
        raise machine.refuse("an unusual tensor")
    if len(shape) != len(strides):
        raise Damaged("a tensor's shape and strides do not fit")
    flat = storage.array
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    count = math.prod(shape)
    if count == 0:
        return ArrayShell(np.zeros(shape, flat.dtype))
    if last >= flat.size or count > 4 * flat.size:
        raise Damaged("a tensor reaches over the end of its storage")
    size = flat.itemsize
    view = np.lib.stride_tricks.as_strided(
        flat[offset:], shape, [s * size for s in strides], writeable=False
    )
    return ArrayShell(view)


def _parameter(machine: Machine, args: tuple[Any, ...]) -> Any:
    return args[0]


_NAMES = {
    **{k: v for k, v in KNOWN.items() if k[0] in ("collections", "builtins", "__builtin__")},
    **{("torch", name): Known(f"torch.{name}", None) for name in _STORAGES},
    ("torch._utils", "_rebuild_tensor_v2"): Known("torch.tensor", _tensor),
    ("torch._utils", "_rebuild_parameter"): Known("torch.parameter", _parameter),
}
_NAMES.pop(("builtins", "eval"), None)
_NAMES.pop(("__builtin__", "eval"), None)


def _push_name(machine: Machine, module: Any, name: Any) -> None:
    known = (
        _NAMES.get((module, name)) if isinstance(module, str) and isinstance(name, str) else None
    )
    if known is None:
        raise machine.refuse(f"'{str(module)[:80]}.{str(name)[:80]}'")
    machine.push(known)


def read(path: str | os.PathLike[str], owner: str = "load") -> object:
    """What `torch.save` wrote to `path`: containers, numbers, and tensors as NumPy arrays."""
    with open_regular(path, owner) as file:
        return read_opened(file, os.fspath(path), owner)


def read_opened(file: IO[bytes], name: str, owner: str = "load") -> object:
    """`read` for a file that is open; `name` is for messages."""
    with reading(owner, name):
        return _Checkpoint(Zip(file, owner, name), name, owner).read()


class _Checkpoint:
    """A pickle and its storages in a zip archive."""

    def __init__(self, archive: Zip, name: str, owner: str):
        self.archive, self.name, self.owner = archive, name, owner
        root = [n for n in archive.names() if n.endswith("/data.pkl") or n == "data.pkl"]
        if len(root) != 1:
            raise FileFormatError(f"[{owner}] {name!r} is no checkpoint of PyTorch 1.6 or later")
        self.pickle = root[0]
        self.storages: dict[str, _Storage] = {}

    def read(self) -> Any:
        table = dict(OPCODES)
        table[_GLOBAL] = lambda machine: _push_name(machine, machine.line(), machine.line())
        table[_STACK_GLOBAL] = _push_stacked
        table[_PERSISTENT] = self._push_storage
        try:
            machine = Machine(memoryview(self.archive.read(self.pickle)), self.name)
            return _Finisher(self.name).finish(machine.run(table), 0)
        except Damaged as e:
            raise FileFormatError(f"[{self.owner}] {self.name!r} is damaged: {e}") from None

    def _push_storage(self, machine: Machine) -> None:
        what = machine.pop()
        if not isinstance(what, tuple) or len(what) < 5 or what[0] != "storage":
            raise machine.refuse("an unusual storage")
        kind, key = what[1], what[2]
        known = kind.name.removeprefix("torch.") if isinstance(kind, Known) else ""
        if known not in _STORAGES or not isinstance(key, str) or not key.isdigit():
            raise machine.refuse("an unusual storage")
        if key not in self.storages:
            data = self.archive.read(f"{self.pickle.removesuffix('data.pkl')}data/{key}")
            self.storages[key] = _Storage(np.frombuffer(data, _STORAGES[known].numpy))
        machine.push(self.storages[key])


def _push_stacked(machine: Machine) -> None:
    name, module = machine.pop(), machine.pop()
    _push_name(machine, module, name)
