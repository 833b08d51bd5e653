"""A pickle reader that only knows arrays and plain containers.

Python's own unpickler calls whatever the file names. This one interprets the opcodes itself: it
looks names up in a short table of its own, calls nothing else, never follows a length past the
end of the data, and gives up when the file wants more objects or more array bytes than it can
honestly need. What it returns holds dicts, lists, tuples, sets, numbers, strings, NumPy arrays
and NumPy scalars, nothing else.
"""

from __future__ import annotations

import struct
from typing import Any

from bireme.core.errors import FileFormatError
from bireme.io.unpickle.machine import (
    MAX_DEPTH,
    ArrayShell,
    Damaged,
    Known,
    Machine,
    Mark,
    TypeShell,
    UnsafePickle,
)
from bireme.io.unpickle.opcodes import OPCODES


def loads(data: bytes | bytearray | memoryview, name: str = "the pickle") -> Any:
    """The object in `data`, which may go on after it; `name` is for messages.

    >>> import pickle
    >>> loads(pickle.dumps({"a": [1, 2.5]}))
    {'a': [1, 2.5]}
    """
    return load_prefix(data, name)[0]


def load_prefix(data: bytes | bytearray | memoryview, name: str) -> tuple[Any, int]:
    """(the object, how many bytes it took)."""
    machine = Machine(memoryview(data), name)
    try:
        result = machine.run(OPCODES)
        return _Finisher(name).finish(result, 0), machine.at
    except Damaged as e:
        raise FileFormatError(f"[load] {name} is truncated or damaged: {e}") from None
    except (
        ValueError,
        TypeError,
        IndexError,
        KeyError,
        OverflowError,
        struct.error,
        AttributeError,
        RecursionError,
    ) as e:
        if isinstance(e, FileFormatError):
            raise
        raise FileFormatError(
            f"[load] {name} is damaged: its pickled contents do not fit together"
        ) from e


class _Finisher:
    """Puts arrays where their shells are. Shared objects stay shared, so the work is bounded."""

    def __init__(self, name: str):
        self.name = name
        self._done: dict[int, Any] = {}
        self._open: set[int] = set()
        self._kept: list[Any] = []  # an id stays an object's own while we work

    def finish(self, value: Any, depth: int) -> Any:
        if isinstance(value, ArrayShell):
            if value.array is None:
                raise Damaged("an array has no contents")
            return value.array
        if isinstance(value, Known | TypeShell | Mark):
            raise UnsafePickle(
                f"[load] {self.name} holds a function or a type as a value; only arrays, plain "
                "containers, numbers and strings are read"
            )
        if not isinstance(value, dict | list | tuple | memoryview):
            return value
        key = id(value)
        if key in self._done:
            return self._done[key]
        if depth >= MAX_DEPTH or key in self._open:
            raise FileFormatError(
                f"[load] {self.name} nests containers more than {MAX_DEPTH} deep, or in themselves"
            )
        self._open.add(key)
        made = self._container(value, depth + 1)
        self._open.discard(key)
        self._done[key] = made
        self._kept.append(value)
        return made

    def _container(self, value: Any, depth: int) -> Any:
        if isinstance(value, memoryview):
            return bytes(value)
        if isinstance(value, dict):
            for k, v in value.items():
                value[k] = self.finish(v, depth)
            return value
        if isinstance(value, list):
            value[:] = [self.finish(v, depth) for v in value]
            return value
        return tuple([self.finish(v, depth) for v in value])


__all__ = ["UnsafePickle", "load_prefix", "loads"]
