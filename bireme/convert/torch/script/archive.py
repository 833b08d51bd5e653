"""Reads a file of `torch.jit.save`: a zip file of the program's text and of pickled objects."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from bireme.convert.torch.program import TorchFileError
from bireme.convert.torch.script.source import Library
from bireme.convert.torch.script.values import Device, ScriptObject, Value
from bireme.core.errors import FileFormatError
from bireme.io.foreign import Zip, open_zip, reading
from bireme.io.torch_file import Reader, storages_of
from bireme.io.unpickle import _Finisher
from bireme.io.unpickle.machine import Damaged, Known, Machine
from bireme.io.unpickle.opcodes import OPCODES

_NEW, _BUILD = 0x81, 0x62
_NAME = re.compile(r"__torch__(\.[A-Za-z_]\w*)+")


class Script(NamedTuple):
    """A program with its objects. Tensors are NumPy arrays."""

    library: Library
    root: ScriptObject
    constants: tuple[Value, ...]
    examples: list[Value] | None  # the inputs with which a program was traced


class _Class(NamedTuple):
    """The class of an object that the pickle makes."""

    kind: str


class _Objects(_Finisher):
    def finish(self, value: Value, depth: int) -> Value:
        if isinstance(value, _Class):
            raise Damaged("a class is a value")
        if isinstance(value, ScriptObject) and id(value) not in self._done:
            self._done[id(value)] = value
            self._kept.append(value)
            value.attributes = super().finish(value.attributes, depth + 1)
            return value
        return value if isinstance(value, Device) else super().finish(value, depth)


def is_script(names: list[str]) -> bool:
    """Whether an archive with these members is a program."""
    return any(n == "constants.pkl" or n.endswith("/constants.pkl") for n in names)


def read(path: str | os.PathLike[str]) -> Script:
    """The program in a file."""
    name = os.fspath(path)
    with reading("convert", name), open_zip(path, "convert") as archive:
        try:
            return _script(archive, name)
        except Damaged as e:
            raise FileFormatError(f"[convert] {name!r} is damaged: {e}") from None


def _script(archive: Zip, name: str) -> Script:
    names = archive.names()
    found = [n for n in names if n.rpartition("/")[2] == "data.pkl" and n.count("/") <= 1]
    if len(found) != 1:
        raise TorchFileError(f"[convert] {name!r} is no program of torch.jit.save")
    folder = found[0].removesuffix("data.pkl")
    code = f"{folder}code/"
    texts = {
        n.removeprefix(code).removesuffix(".py").replace("/", "."): archive.read(n).decode()
        for n in names
        if n.startswith(code) and n.endswith(".py")
    }
    library = Library(texts, name)
    root = _pickled(archive, folder, "data", name)
    if not isinstance(root, ScriptObject):
        raise TorchFileError(f"[convert] {name!r} holds no module")
    constants = _pickled(archive, folder, "constants", name)
    if not isinstance(constants, tuple):
        raise TorchFileError(f"[convert] the constants of {name!r} are no tuple")
    examples = None
    if f"{folder}traced_inputs.pkl" in names:
        made = _pickled(archive, folder, "traced_inputs", name)
        examples = made.get("forward") if isinstance(made, dict) else None
    return Script(library, root, constants, examples if isinstance(examples, list) else None)


def _pickled(archive: Zip, folder: str, kind: str, name: str) -> Value:
    """The object in `kind.pkl`, whose storages are in the folder `kind`. Those of the inputs of a
    trace are empty."""
    contents = kind != "traced_inputs"
    fill = storages_of(archive, folder, kind) if contents else None
    reader = Reader(name, "convert", fill, _known)
    reader.table[_NEW] = _new
    built = reader.table[_BUILD]
    reader.table[_BUILD] = lambda machine: _build(machine, built)
    value, _ = reader.run(memoryview(archive.read(f"{folder}{kind}.pkl")))
    return reader.finish(value, _Objects, contents)


def _known(module: str, name: str) -> Value:
    whole = f"{module}.{name}"
    if module == "torch.jit._pickle":
        if name in ("build_intlist", "build_tensorlist", "build_doublelist", "build_boollist"):
            return Known(whole, _list)
        if name == "restore_type_tag":
            return Known(whole, _tagged)
    if module == "torch" and name == "device":
        return Known(whole, _device)
    if _NAME.fullmatch(whole) and not whole.startswith("__torch__.torch.classes."):
        return _Class(whole)
    return None


def _list(machine: Machine, args: tuple[Value, ...]) -> Value:
    if len(args) != 1 or not isinstance(args[0], list):
        raise Damaged("a list is none")
    return args[0]


def _tagged(machine: Machine, args: tuple[Value, ...]) -> Value:
    if len(args) != 2 or not isinstance(args[0], list | dict):
        raise Damaged("a typed container is none")
    return args[0]


def _device(machine: Machine, args: tuple[Value, ...]) -> Device:
    if not args or not isinstance(args[0], str):
        raise Damaged("a device has no name")
    kind, _, index = args[0].partition(":")
    return Device(kind, int(index) if index.isdigit() and len(index) < 5 else None)


def _new(machine: Machine) -> None:
    args, kind = machine.pop(), machine.pop()
    if isinstance(kind, _Class):
        if args != ():
            raise machine.refuse(f"arguments for {kind.kind!r:.200}")
        machine.push(ScriptObject(kind.kind))
        return
    machine.push(kind)
    machine.push(args)
    OPCODES[_NEW](machine)


def _build(machine: Machine, usual: Value) -> None:
    state = machine.top()
    target = machine.stack[-2] if len(machine.stack) > 1 else None
    if not isinstance(target, ScriptObject):
        usual(machine)
        return
    machine.pop()
    if not isinstance(state, dict) or not all(isinstance(k, str) for k in state):
        raise TorchFileError(
            f"[convert] {machine.name!r} holds {target.kind!r:.200}, whose state is made by code "
            "of its own (__setstate__); this has no rule"
        )
    target.attributes = state
