"""Iterables of unknown length for loops in graphs: tensors, and ranges, enumerations and zips of
them. They replace the builtins in rewritten functions."""

from __future__ import annotations

import builtins
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bireme.core import dims
from bireme.core.op import TENSOR_TYPES
from bireme.core.tensor import Tensor
from bireme.jit.branch_effects import changing
from bireme.jit.watch import current
from bireme.ops.control_record import is_symbolic
from bireme.ops.creation import full
from bireme.ops.math import maximum, minimum
from bireme.ops.math_unary import cast


class Source:
    """Item i is `make(i, [row i of each of rows])`; `length` is an int, a dimension or a tensor."""

    def __init__(self, length: Any, rows: Sequence[Tensor], make: Callable[[Any, list[Any]], Any]):
        self.length = length
        self.rows = list(rows)
        self.at = make

    def items(self) -> Iterator[Any]:
        """The items of a source of known length."""
        for i in builtins.range(self.length):
            yield self.at(i, [r[i] for r in self.rows])

    __iter__ = items


def as_source(over: Any) -> Source | None:
    """A tensor or a source as a source; None for everything that Python loops over itself."""
    if isinstance(over, Source):
        return over
    if over.__class__ in TENSOR_TYPES and over.ndim > 0:
        return Source(over.shape[0], [over], lambda i, rows: rows[0])
    return None


def _is_open(x: Any) -> bool:
    return is_symbolic(x) or dims.is_dim_expression(x)


def range_(*bounds: Any) -> Any:
    """`range`, also with tensors and open dimensions as bounds."""
    if not builtins.any(_is_open(b) for b in bounds) or not 1 <= len(bounds) <= 3:
        return builtins.range(*bounds)
    start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if builtins.any(b.__class__ in TENSOR_TYPES for b in (start, stop, step)):
        start, stop, step = map(_integer, (start, stop, step))
        # Python's count: the distance over the step, rounded up, and not below zero.
        count = maximum(-((start - stop) // step), full([], 0, "int64"))
        return Source(count, [], lambda i, rows: start + i * step)
    if step == 1:
        count = stop - start if not _is_zero(start) else stop
    else:
        count = -((start - stop) // step)
    return Source(count, [], lambda i, rows: i * step + start)


def _is_zero(x: Any) -> bool:
    return x.__class__ is int and x == 0


def _integer(x: Any) -> Tensor:
    if x.__class__ in TENSOR_TYPES:
        return cast(x.reshape([]), "int64")
    return full([], x, "int64")


def enumerate_(iterable: Any, start: int = 0) -> Any:
    source = as_source(iterable)
    if source is None:
        return builtins.enumerate(iterable, start)
    return Source(source.length, source.rows, lambda i, rows: (i + start, source.at(i, rows)))


def zip_(*iterables: Any, strict: bool = False) -> Any:
    sources = [as_source(i) for i in iterables]
    if not sources or any(s is None for s in sources) or strict:
        # Next to a list, tensors are taken apart by Python.
        plain = [i if s is None else s.items() for s, i in zip(sources, iterables, strict=True)]
        return builtins.zip(*plain, strict=strict)
    length = sources[0].length  # pyright: ignore[reportOptionalMemberAccess]
    for s in sources[1:]:
        length = _shorter(length, s.length)  # pyright: ignore[reportOptionalMemberAccess]

    def at(i: Any, rows: list[Any]) -> tuple[Any, ...]:
        items, start = [], 0
        for s in sources:
            n = len(s.rows)  # pyright: ignore[reportOptionalMemberAccess]
            items.append(s.at(i, rows[start : start + n]))  # pyright: ignore[reportOptionalMemberAccess]
            start += n
        return tuple(items)

    return Source(length, [r for s in sources for r in s.rows], at)  # pyright: ignore[reportOptionalMemberAccess]


def _shorter(a: Any, b: Any) -> Any:
    if a is b or (not is_symbolic(a) and not is_symbolic(b) and a == b):
        return a
    if is_symbolic(a) or is_symbolic(b):
        return minimum(_integer(a), _integer(b))
    return min(a, b)


def len_(x: Any) -> Any:
    """`len`, which Python insists is an int, for tensors of open length too."""
    if x.__class__ in TENSOR_TYPES and x.ndim > 0:
        return x.shape[0]
    return x.length if isinstance(x, Source) else builtins.len(x)


def _number(kind: type, dtype: str) -> Callable[..., Any]:
    def convert(*given: Any) -> Any:
        if len(given) == 1 and is_symbolic(given[0]):
            # A Python number would have no gradient. As in Paddle, several elements are converted
            # one by one.
            x = given[0].detach()
            return cast(x.reshape([]) if x.size == 1 else x, dtype)
        return kind(*given)

    return convert


def next_(iterator: Any, *default: Any) -> Any:
    changing(iterator)
    return builtins.next(iterator, *default)


def setattr_(thing: object, name: str, value: object) -> None:
    tell_set(thing, name)
    builtins.setattr(thing, name, value)


def delattr_(thing: object, name: str) -> None:
    tell_set(thing, name)
    builtins.delattr(thing, name)


def tell_set(thing: object, name: str) -> None:
    """Report that `thing.name` is about to get another value."""
    changing(thing, name)
    watch = current()
    if watch is not None:
        watch.will_set(thing, name)


# Python's containers whose methods change them, and which of their methods do.
CHANGING = (list, dict, set, deque)
MUTATORS = frozenset(
    ("append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault", "add",
     "discard", "sort", "reverse", "popitem", "appendleft", "popleft", "extendleft", "rotate")
)  # fmt: skip
_FIRST = frozenset(("_heapq", "_bisect", "_operator"))  # modules that change their arguments


def tell_change(thing: object) -> None:
    """Report that a container or an array is about to get other contents."""
    changing(thing)
    watch = current()
    if watch is not None and isinstance(thing, CHANGING):
        watch.will_change(thing)


def watched(function: Callable[..., Any]) -> Any:
    """A library function that reports the container that it changes."""
    if current() is None:
        return function
    owner = getattr(function, "__self__", None)
    if isinstance(owner, CHANGING):
        if function.__name__ in MUTATORS:
            tell_change(owner)
        return function
    unbound = function.__class__ is types.MethodDescriptorType and function.__name__ in MUTATORS
    if not unbound and function.__module__ not in _FIRST:
        return function

    def run(container: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(container, CHANGING):
            tell_change(container)
        return function(container, *args, **kwargs)

    return run


BUILTINS: dict[Any, Callable[..., Any]] = {
    builtins.range: range_,
    builtins.enumerate: enumerate_,
    builtins.zip: zip_,
    builtins.len: len_,
    builtins.int: _number(int, "int64"),
    builtins.float: _number(float, "float32"),
    builtins.bool: _number(bool, "bool"),
    builtins.next: next_,
    builtins.setattr: setattr_,
    builtins.delattr: delattr_,
}
