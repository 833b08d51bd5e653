"""The list of passes, and which of them are on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from bireme.core.errors import InvalidArgument
from bireme.core.graph import Graph

Pass = Callable[[Graph], Graph]

_passes: dict[str, Pass] = {}
_order: dict[str, int] = {}
_off: set[str] = set()


def register(name: str, order: int) -> Callable[[Pass], Pass]:
    """Add a pass under `name`; passes with a lower `order` run first."""

    def add(function: Pass) -> Pass:
        if name in _passes:
            raise InvalidArgument(f"there is already a pass named {name!r}")
        _order[name] = order
        _passes[name] = function
        return function

    return add


def names() -> list[str]:
    """Every pass in the order in which they run."""
    return sorted(_passes, key=lambda name: _order[name])


def is_enabled(name: str) -> bool:
    return _known(name) not in _off


def enable(name: str) -> None:
    """Let `run` use this pass (all passes are on at first)."""
    _off.discard(_known(name))


def disable(name: str) -> None:
    """Keep `run` from using this pass unless it is asked for by name."""
    _off.add(_known(name))


@contextmanager
def disabled(*switched_off: str) -> Iterator[None]:
    """Switch passes off inside a `with` block."""
    before = set(_off)
    _off.update(map(_known, switched_off))
    try:
        yield
    finally:
        _off.clear()
        _off.update(before)


def run(graph: Graph, chosen: Sequence[str] | None = None) -> Graph:
    """The graph after these passes, or after all that are on."""
    for name in [n for n in names() if n not in _off] if chosen is None else chosen:
        graph = _passes[_known(name)](graph)
    return graph


def _known(name: str) -> str:
    if name not in _passes:
        raise InvalidArgument(f"no pass named {name!r}. There are: {', '.join(names())}")
    return name
