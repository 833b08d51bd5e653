"""Which public names the rows call: recorders around them, while the rows run."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import bireme
from tests.parity.test_signatures import MODULES, find, has, methods, public

HERE = os.path.dirname(os.path.abspath(__file__))


def public_names(paddle: Any) -> list[str]:
    """Functions, classes and Tensor methods of the wheel that are here, below `paddle`."""
    names = [n for m in MODULES for n in public(paddle, m)]
    names += methods(paddle, "Tensor")
    return [n for n in dict.fromkeys(names) if has(n) and _is_called(thing(n))]


def thing(name: str) -> Any:
    """What a name stands for, without binding a method or reading a property."""
    owner, _, last = name.rpartition(".")
    holder = find(bireme, owner) if owner else bireme
    if isinstance(holder, type):
        return inspect.getattr_static(holder, last, None)
    return getattr(holder, last, None)


def _is_called(found: Any) -> bool:
    if isinstance(found, property):
        return True
    if isinstance(found, ModuleType) or not callable(found):
        return False  # dtypes, constants
    return not (isinstance(found, type) and issubclass(found, BaseException))


@contextmanager
def recorded(names: list[str]) -> Iterator[set[int]]:
    """The things (by id) that files of this folder call directly, while this lasts."""
    used: set[int] = set()
    undo: list[Callable[[], None]] = []
    seen: set[int] = set()
    for name in names:
        found = thing(name)
        owner_name, _, last = name.rpartition(".")
        owner = find(bireme, owner_name) if owner_name else bireme
        if isinstance(found, type):
            if id(found) in seen:
                continue
            seen.add(id(found))
            undo.append(_watch(found, "__init__", found.__init__, id(found), used, exactly=found))
        else:
            undo.append(_watch(owner, last, found, id(found), used))
    try:
        yield used
    finally:
        for step in reversed(undo):
            step()


def _watch(
    owner: Any, name: str, found: Any, key: int, used: set[int], exactly: type | None = None
) -> Callable[[], None]:
    """Put a recorder in the place of an attribute; returns what undoes it."""
    plain: Any = found.fget if isinstance(found, property) else found

    @functools.wraps(plain)
    def watched(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1).f_code.co_filename
        if caller.startswith(HERE) and (exactly is None or type(args[0]) is exactly):
            used.add(key)
        return plain(*args, **kwargs)

    mine = name in vars(owner)
    setattr(owner, name, property(watched, found.fset) if isinstance(found, property) else watched)

    def undo() -> None:
        if mine:
            setattr(owner, name, found)
        else:
            delattr(owner, name)

    return undo
