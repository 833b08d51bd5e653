"""What a TorchScript program handles besides tensors, numbers, strings and containers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import ast


# What a program handles: tensors, numbers, strings, containers, and the classes below.
Value: TypeAlias = Any


class Function(NamedTuple):
    """A function or method: its parameters, their defaults and its statements."""

    name: str  # with the module
    parameters: tuple[str, ...]
    types: tuple[str, ...]
    defaults: tuple[Value, ...]  # expressions, of the last parameters
    body: tuple[ast.stmt, ...]
    result: str  # the type of the result


class ScriptClass:
    """A class of a program."""

    __slots__ = ("buffers", "constants", "fields", "kind", "methods", "name", "parameters")

    def __init__(self, name: str, kind: str):
        self.name, self.kind = name, kind  # kind: "Module", "NamedTuple", "" …
        self.fields: dict[str, str] = {}  # attribute -> type, as text
        self.constants: dict[str, Value] = {}
        self.parameters: tuple[str, ...] = ()
        self.buffers: tuple[str, ...] = ()
        self.methods: dict[str, Function] = {}


class ScriptObject:
    """An object of a program: a module, or what the program itself makes."""

    __slots__ = ("attributes", "kind")

    def __init__(self, kind: str):
        self.kind = kind  # the name of its class
        self.attributes: dict[str, Value] = {}


class Record(tuple[Value, ...]):
    """A tuple with names for its items."""

    _fields: tuple[str, ...]

    def __new__(cls, fields: tuple[str, ...], values: tuple[Value, ...]) -> Record:
        made = super().__new__(cls, values)
        made._fields = fields
        return made

    def __getattr__(self, name: str) -> Value:
        if name in self.__dict__.get("_fields", ()):
            return self[self._fields.index(name)]
        raise AttributeError(name)

    def with_items(self, values: tuple[Value, ...]) -> Record:
        return Record(self._fields, values)


@dataclass(frozen=True)
class Device:
    """Where PyTorch had a tensor; it changes nothing here."""

    type: str
    index: int | None = None

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


class Count(NamedTuple):
    """A number that a traced program holds in a tensor without dimensions: most are sizes.

    Kept apart from tensors, sizes stay known, or open, on their way through arithmetic."""

    value: Value  # an integer, a real number, or the expression of an open size
    dtype: str


class Bound(NamedTuple):
    """A method of an object."""

    target: ScriptObject
    name: str


class Address(NamedTuple):
    """A dotted name: `torch.add`, `ops.prim.dtype`, `__torch__.Net`."""

    name: str


class Uninitialized:
    """A value that the program promises not to use."""

    __slots__ = ()


UNSET = Uninitialized()


def leaves(value: Value) -> Iterator[Value]:
    """What a nested value holds."""
    if isinstance(value, list | tuple) and not isinstance(value, Count | Bound | Address):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    else:
        yield value
