"""The list of passes, and which of them are on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from bireme.core.errors import InvalidArgument
from bireme.core.graph import Graph
from bireme.passes.report import Report

Pass = Callable[[Graph], Graph]

_passes: dict[str, Pass] = {}
_order: dict[str, int] = {}
_off: set[str] = set()
_reports: ContextVar[tuple[Report, ...]] = ContextVar("bireme_pass_reports", default=())


def register(name: str, order: int, on: bool = True) -> Callable[[Pass], Pass]:
    """Add a pass under `name`; passes with a lower `order` run first. With `on=False` it runs
    only where it is asked for or was enabled."""

    def add(function: Pass) -> Pass:
        if name in _passes:
            raise InvalidArgument(f"there is already a pass named {name!r}")
        _order[name] = order
        _passes[name] = function
        if not on:
            _off.add(name)
        return function

    return add


def names() -> list[str]:
    """Every pass in the order in which they run."""
    return sorted(_passes, key=lambda name: _order[name])


def enabled() -> list[str]:
    """The passes that `run` uses, in order."""
    return [n for n in names() if n not in _off]


def is_enabled(name: str) -> bool:
    return _known(name) not in _off


def enable(name: str) -> None:
    """Let `run` use this pass (those that keep a graph's types are on at first)."""
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


def describe() -> str:
    """The passes as a table: order, whether each is on, and its summary."""
    width = max(map(len, _passes))
    lines = []
    for name in names():
        first = " ".join((_passes[name].__doc__ or "").split()).split(". ")[0].rstrip(".")
        lines.append(f"{'on ' if is_enabled(name) else 'off'}  {name:<{width}}  {first}")
    return "\n".join(lines)


def run(graph: Graph, chosen: Sequence[str] | None = None) -> Graph:
    """The graph after these passes, or after all that are on."""
    for name in enabled() if chosen is None else chosen:
        start = time.perf_counter()
        after = _passes[_known(name)](graph)
        for report in _reports.get():
            report.add(name, graph, after, time.perf_counter() - start)
        graph = after
    return graph


@contextmanager
def reporting(report: Report | None = None) -> Iterator[Report]:
    """Collect the changes of passes inside a `with` block; print the report to see them."""
    report = Report() if report is None else report
    token = _reports.set((*_reports.get(), report))
    try:
        yield report
    finally:
        _reports.reset(token)


def _known(name: str) -> str:
    if name not in _passes:
        raise InvalidArgument(f"no pass named {name!r}. There are: {', '.join(names())}")
    return name
