"""Reads and side effects of a captured function on state outside of it.

Rewritten functions (transform.py) report the globals, closure variables, attributes and elements
that they read, and those that they are about to change. Reads are compared before every later call
(guards.py). Changes are undone when the capture ends and repeated after each call with that call's
tensors; a change that cannot be repeated makes the function run eagerly.
"""

from __future__ import annotations

import itertools
import threading
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bireme.capture import tree
from bireme.core.dimension import without_dims
from bireme.core.dtype import DType
from bireme.core.errors import CaptureError, user_line
from bireme.core.place import Place
from bireme.core.tensor import Tensor
from bireme.core.trace import state

PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes))
_MISSING = object()
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
# Not followed: they hold nothing that a function computes with, or cannot change.
_OPAQUE = (
    Tensor, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType,
    types.MethodType, types.CodeType,
)  # fmt: skip

# Hold no tensors: put where they belong as they are.
_FIXED = (DType, Place, type, types.FunctionType, np.generic)

Effect = Callable[[Any], None]


class Watch:
    """The reads and changes of one capture so far."""

    def __init__(self) -> None:
        self.outer: dict[int, Any] = {}  # objects from outside, kept so that ids stay theirs
        self.arguments: dict[int, Any] = {}  # containers among the arguments: copies
        self.entries: dict[tuple[int, Any], tuple[dict[Any, Any], Any, Any]] = {}
        self.cells: dict[int, tuple[types.CellType, Any]] = {}
        self.attributes: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        self.contents: dict[int, tuple[Any, tuple[Any, ...]]] = {}
        self.stored: dict[tuple[int, Any], _Stored] = {}
        self.changed: dict[int, tuple[Any, Any]] = {}  # containers, with a copy from before
        self.lines: dict[int, str] = {}  # where they were changed first
        self.printed: list[tuple[Callable[..., Any], Any]] = []
        self.trace = state.trace
        self.refused: CaptureError | None = None  # what the user's code would have caught

    # --- reading --------------------------------------------------------------------------

    def given(self, argument: object) -> None:
        """`argument` is an argument of the function."""
        if isinstance(argument, _CONTAINERS):
            self.arguments[id(argument)] = argument
            for item in argument.values() if isinstance(argument, dict) else argument:
                self.given(item)
        else:
            self.reached(argument, False)

    def reached(self, value: object, deep: bool) -> None:
        """`value` was found outside; with `deep`, all that it contains is read."""
        if value.__class__ in PLAIN or isinstance(value, _OPAQUE):
            return
        if isinstance(value, Iterator):
            raise CaptureError(
                f"it takes items of an iterator from outside at {user_line()}, and a graph would "
                "keep them. Take them outside and pass them as arguments"
            )
        self.outer[id(value)] = value
        if deep and isinstance(value, _CONTAINERS):
            self.look(value)

    def look(self, container: object) -> None:
        if id(container) in self.contents:
            return
        # After a change by the function itself, the contents from before it count.
        items = contents(self.changed.get(id(container), (None, container))[1])
        self.contents[id(container)] = container, items
        for item in items:
            self.reached(item, True)

    def entry(self, holder: dict[Any, Any], key: object, value: object, deep: bool) -> None:
        """`holder[key]` was read: a global, an attribute or an element."""
        if not self._is_own(holder, key, value):
            self.entries.setdefault((id(holder), key), (holder, key, value))
            self.reached(value, deep)

    def cell(self, cell: types.CellType, value: object, deep: bool) -> None:
        if not self._is_own(cell, None, value):
            self.cells.setdefault(id(cell), (cell, value))
            self.reached(value, deep)

    def attribute(self, thing: object, name: str, value: object, deep: bool) -> None:
        """`thing.name` was read."""
        if not self.is_outer(thing) or isinstance(thing, _CONTAINERS):
            return
        own: Any = getattr(thing, "__dict__", None)
        if own.__class__ is dict and name in own:
            self.entry(own, name, value, deep)
        elif not self._is_own(thing, name, value) and _is_steady(thing, name, value):
            self.attributes.setdefault((id(thing), name), (thing, name, value))
            self.reached(value, deep)

    def _is_own(self, holder: Any, key: object, value: object) -> bool:
        """Whether the function has put `value` there itself."""
        stored = self.stored.get((id(holder), key))
        if stored is not None:
            return value is not stored.before
        changed = self.changed.get(id(holder))
        return changed is not None and changed[1].get(key, _MISSING) is not value

    def is_outer(self, thing: object) -> bool:
        return id(thing) in self.outer or hasattr(thing, "sublayers")

    # --- changing -------------------------------------------------------------------------

    def will_set(self, thing: object, name: str) -> None:
        """`thing.name` is about to get another value."""
        if isinstance(thing, Tensor) or not (self.is_outer(thing) or _is_named(thing)):
            return
        own = getattr(thing, "__dict__", None)
        holder = own if own.__class__ is dict else thing
        before = getattr(thing, name, _MISSING)
        self._will_store(
            holder,
            name,
            f"the attribute {name} of a {type(thing).__name__}",
            before,
            lambda value: setattr(thing, name, value),
            lambda: delattr(thing, name),
            lambda: getattr(thing, name, _MISSING),
        )

    def will_set_entry(self, holder: dict[str, Any], name: str) -> None:
        """The global `name` is about to get another value."""
        self._will_store(
            holder,
            name,
            f"the global variable {name}",
            holder.get(name, _MISSING),
            lambda value: holder.__setitem__(name, value),
            lambda: holder.pop(name, None),
            lambda: holder.get(name, _MISSING),
        )

    def will_set_cell(self, cell: types.CellType, name: str) -> None:
        def put(value: object) -> None:
            cell.cell_contents = value

        def read() -> Any:
            try:
                return cell.cell_contents
            except ValueError:
                return _MISSING

        self._will_store(cell, None, f"the outer variable {name}", read(), put, None, read)

    def _will_store(
        self, holder: Any, key: object, what: str, before: Any, put: Any, drop: Any, read: Any
    ) -> None:
        self.outer[id(holder)] = holder
        what = f"{what} at {user_line()}"
        self.stored.setdefault((id(holder), key), _Stored(what, before, put, drop, read))

    def will_change(self, container: object) -> None:
        """A container is about to get other contents."""
        if id(container) in self.arguments:
            raise CaptureError(
                f"it changes a {type(container).__name__} that it was given at {user_line()}; a "
                "captured function gets copies of its lists and dicts"
            )
        if id(container) not in self.outer or id(container) in self.changed:
            return
        if not isinstance(container, list | dict):
            raise CaptureError(
                f"it changes a {type(container).__name__} from outside at {user_line()}, which a "
                "graph cannot repeat in every call"
            )
        self.changed[id(container)] = container, container.copy()
        self.lines[id(container)] = user_line()

    def will_print(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """A call that only shows something; it is made after each run, with that run's tensors."""
        if state.trace is not self.trace:
            raise CaptureError(
                f"{function.__name__}() at {user_line()} is in a branch or loop on a tensor's "
                "value, and a graph cannot tell when to call it; call it outside"
            )
        self.printed.append((function, (args, kwargs)))

    # --- the end --------------------------------------------------------------------------

    def check(self) -> None:
        """Raise the error that made the capture fail, if the user's code has caught it."""
        if self.refused is not None:
            raise self.refused

    def effects(self) -> tuple[list[Effect], list[Any]]:
        """The actions to repeat after each call, and their values (with tensors in them)."""
        self.check()
        todo: list[Effect] = []
        values: list[Any] = []
        for key, stored in self.stored.items():
            after = stored.read()
            if after is stored.before:
                continue
            read_as = self.entries.get(key) or self.attributes.get(key) or self.cells.get(key[0])
            if after is _MISSING or (read_as is not None and not isinstance(after, Tensor)):
                raise CaptureError(f"it reads and changes {stored.what}")
            self._add(todo, values, stored.put, after, stored.what)
        for container, before in self.changed.values():
            line = self.lines[id(container)]
            what = f"a {type(container).__name__} from outside at {line}"
            if id(container) in self.contents:
                raise CaptureError(f"it reads and changes {what}")
            if isinstance(container, list):
                self._add(todo, values, container.extend, _appended(container, before, what), what)
            else:
                for key in before.keys() - container.keys():
                    raise CaptureError(f"it takes {key!r} out of {what}")
                new = {k: v for k, v in container.items() if before.get(k, _MISSING) is not v}
                for key, value in new.items():
                    if (id(container), key) in self.entries and not isinstance(value, Tensor):
                        raise CaptureError(f"it reads and changes {key!r} in {what}")
                self._add(todo, values, container.update, new, what)
        for function, arguments in self.printed:
            self._add(todo, values, lambda a, f=function: f(*a[0], **a[1]), arguments, "a printout")
        return todo, values

    @staticmethod
    def _add(todo: list[Effect], values: list[Any], act: Effect, value: object, what: str) -> None:
        """Let `act` be called with `value`, whose tensors become results of the graph."""
        if isinstance(value, _FIXED):
            todo.append(lambda _: act(value))
            values.append(None)
            return
        value = without_dims(value)
        if _holds_array(value):
            raise CaptureError(f"it puts an array of NumPy into {what}")
        tree.check_plain(tree.flatten(value)[1], what)
        todo.append(act)
        values.append(value)

    def undo(self) -> None:
        """Put everything back that the capture has changed."""
        for stored in self.stored.values():
            if stored.read() is stored.before:
                continue
            if stored.before is not _MISSING:
                stored.put(stored.before)
            elif stored.drop is not None:
                stored.drop()
        for container, before in self.changed.values():
            if isinstance(container, list):
                container[:] = before
            else:
                container.clear()
                container.update(before)


class _Stored:
    """A variable or attribute that the function assigns."""

    __slots__ = ("before", "drop", "put", "read", "what")

    def __init__(self, what: str, before: Any, put: Any, drop: Any, read: Any):
        self.what, self.before = what, before
        self.put, self.drop, self.read = put, drop, read


def _holds_array(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_array, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_array, value))
    return isinstance(value, np.ndarray)


def contents(container: object) -> tuple[Any, ...]:
    """The items that are compared to detect a change of a container."""
    return tuple(each(container))


def each(container: Any) -> Iterable[Any]:
    """All that a container holds, one by one, without a copy of it."""
    if isinstance(container, dict):
        return itertools.chain(container.keys(), container.values())
    return container


def count(container: Any) -> int:
    """How many things `each` gives."""
    return 2 * len(container) if isinstance(container, dict) else len(container)


def _appended(after: list[Any], before: list[Any], what: str) -> list[Any]:
    if len(after) < len(before) or any(a is not b for a, b in zip(after, before, strict=False)):
        raise CaptureError(f"it changes {what} in other ways than by appending to it")
    return after[len(before) :]


def _is_steady(thing: object, name: str, value: object) -> bool:
    """Whether an attribute that is not in its object's dict (a slot, a class's, a property) can be
    compared with what it was."""
    if value.__class__ in PLAIN:
        return True
    if value.__class__ is types.MethodType or isinstance(getattr(type(thing), name, 0), property):
        return False
    return getattr(thing, name, None) is value


def _is_named(thing: object) -> bool:
    return isinstance(thing, type | types.ModuleType)


class _Current(threading.local):
    watch: Watch | None = None


_current = _Current()


def current() -> Watch | None:
    """The watch of the capture that this thread is in."""
    return _current.watch


@contextmanager
def watching() -> Iterator[Watch]:
    """Watch a capture; whatever it changed outside is put back at the end."""
    outer, watch = _current.watch, Watch()
    _current.watch = watch
    try:
        yield watch
    finally:
        _current.watch = outer
        watch.undo()
