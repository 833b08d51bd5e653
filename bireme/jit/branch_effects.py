"""Side effects of data-dependent branches and loops, which a graph cannot have.

A graph records such a part once, whatever the tensor's value will be. The code that records it
(runtime.py) handles its tensors and variables. Other effects would happen in every call and exactly
once: raised errors, and changes of lists and objects that outlive the part. Those are refused.
"""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from bireme.core import ownership
from bireme.core.errors import CaptureError, user_line
from bireme.core.tensor import Tensor
from bireme.ops.control_record import DICTS

_COPIED = (list, *DICTS)  # the containers of which a part gets copies


class _Open(threading.local):
    parts: tuple[BranchPart, ...] = ()


_open = _Open()


class BranchPart:
    """While it is open, `changing` reports to it every object that is about to change."""

    def __init__(
        self,
        names: Iterable[str] = (),
        copies: Iterable[Any] = (),
        holders: Iterable[tuple[Any, str]] = (),
    ):
        """Taken care of: the variables `names`, the lists and dicts in `copies`, and the attributes
        `holders`."""
        self.names = frozenset(names)
        self.own = {(id(c), None) for c in containers(copies)}
        self.own |= {(id(thing), name) for thing, name in holders}
        self.changed: dict[tuple[int, str | None], Any] = {}
        self.lines: dict[tuple[int, str | None], str] = {}
        self.before: tuple[BranchPart, ...] = ()

    def __enter__(self) -> BranchPart:
        self.before = _open.parts
        _open.parts = (*_open.parts, self)
        return self

    def __exit__(self, kind: Any, error: Any, tb: Any) -> None:
        _open.parts = self.before
        if isinstance(error, CaptureError) or not isinstance(error, Exception):
            return
        said = (str(error).strip() or "no message").splitlines()[0]
        raise CaptureError(
            f"a branch or loop on a tensor's value raises {type(error).__name__} ({said}), and a "
            "graph has no exceptions: check it outside, or with assert"
        ) from error

    def check(self, results: list[Any]) -> None:
        """Refuse changes of objects that outlive the part. An object that only `results` references
        was made here; the list and one variable reference each of those."""
        if not self.changed or not self._outlives(results):
            return
        gc.collect()  # functions that call themselves are held by themselves
        for key in self._outlives(results):
            thing, name = self.changed[key], key[1]
            kind = f"a {type(thing).__name__}"
            what = kind if name is None else f"the attribute {name} of {kind}"
            raise CaptureError(
                f"{what} is changed at {self.lines[key]}, in a branch or loop on a tensor's "
                "value. There a graph can change only tensors, and the variables, lists and dicts "
                "of the surrounding function; return the new contents instead"
            )

    def _outlives(self, results: list[Any]) -> list[tuple[int, str | None]]:
        known = Counter(map(id, _everything(results)))
        known.update(map(id, results))
        holders = ownership.holders_outside(self.changed)
        return [k for k, n in holders.items() if k not in self.own and n > known[k[0]]]


def changing(thing: object, name: str | None = None) -> None:
    """`thing` (or its attribute `name`) is about to change."""
    if _open.parts and not isinstance(thing, Tensor):
        part, key = _open.parts[-1], (id(thing), name)
        part.changed.setdefault(key, thing)
        part.lines.setdefault(key, user_line())


def assigning(name: str) -> None:
    """The global or closed variable `name` is about to get another value."""
    if _open.parts and name not in _open.parts[-1].names:
        raise CaptureError(
            f"the outer variable {name} gets its value at {user_line()}, in a branch or loop on a "
            "tensor's value; a graph would assign it in every call"
        )


def containers(values: Iterable[Any]) -> Iterator[Any]:
    """The lists and dicts among these, and in them."""
    for value in _everything(values):
        if value.__class__ in _COPIED:
            yield value


def _everything(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        yield value
        if value.__class__ in DICTS:
            yield from _everything(value.values())
        elif isinstance(value, list | tuple):
            yield from _everything(value)
