"""Compile statistics: counts, the reason of each compilation, and a warning for repeated ones."""

from __future__ import annotations

import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bireme.core.cache import BoundedCache
from bireme.core.graph import Graph

# One line compiling this many different programs gets a warning, once.
RECOMPILE_WARNING_AFTER = 12
# Bounds of the history: compilations, lines, and programs of a line to compare a new one with.
_MAX_EVENTS, _MAX_LINES, _MAX_EARLIER = 4096, 1024, 16


class RecompileWarning(UserWarning):
    """A line of user code keeps producing new programs."""


@dataclass
class CompileEvent:
    """One compilation: where it was triggered, how large, how long, and why it was needed."""

    line: str
    ops: int
    seconds: float
    reason: str
    kernels: Counter[tuple[str, str]] = field(default_factory=Counter)  # by op and kernel


@dataclass
class _Line:
    """The programs that one line of user code has compiled."""

    count: int = 0
    latest: deque[Graph] = field(default_factory=lambda: deque(maxlen=_MAX_EARLIER))


@dataclass
class _Statistics:
    events: deque[CompileEvent] = field(default_factory=lambda: deque(maxlen=_MAX_EVENTS))
    finished: int = 0
    by_line: BoundedCache[str, _Line] = field(default_factory=lambda: BoundedCache(_MAX_LINES))
    started: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, name: str, graph: Graph) -> tuple[str, int]:
        """Count a compilation for a line: why it is needed, and how many the line has now."""
        with self.lock:
            known = self.by_line.get(name)
            if known is None:
                known = self.by_line.add(name, _Line())
            reason = explain(graph, known.latest)
            known.latest.append(graph)
            known.count += 1
            self.started += 1
            return reason, known.count

    def end(self, event: CompileEvent) -> None:
        with self.lock:
            self.events.append(event)
            self.finished += 1


statistics = _Statistics()


class CompileJob:
    """Times one compilation and explains it by the nearest earlier one from the same line."""

    def __init__(self, graph: Graph, line: str):
        self.graph = graph
        self.line = line
        self.kernels: Counter[tuple[str, str]] = Counter()
        self.seconds = 0.0
        self.reason, count = statistics.begin(line, graph)
        if count == RECOMPILE_WARNING_AFTER:
            warnings.warn(
                f"{line} has now compiled {count} different programs; the last one "
                f"because {self.reason}. Keep shapes and structure the same from step to step "
                "(pad or bucket inputs), or see bireme.profiler.compile_events()",
                RecompileWarning,
                stacklevel=2,
            )

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *exc: Any) -> None:
        self.seconds = time.perf_counter() - self.start
        ops = len(self.graph.nodes)
        statistics.end(CompileEvent(self.line, ops, self.seconds, self.reason, self.kernels))


def explain(graph: Graph, earlier: Sequence[Graph]) -> str:
    """Why `graph` is not one of `earlier`, in the user's terms."""
    if not earlier:
        return "this line runs for the first time"
    near = max(earlier, key=lambda g: _common_prefix(g, graph))
    n = _common_prefix(near, graph)
    if n == len(graph.nodes) == len(near.nodes):
        return "other results are still referenced (or other inputs no longer) than before"
    if n >= len(graph.nodes) or n >= len(near.nodes):
        return f"{len(graph.nodes)} operations were recorded instead of {len(near.nodes)}"
    before, now = near.nodes[n].call, graph.nodes[n].call
    if before.op is not now.op:
        return f"operation {n} is {now.op.name} instead of {before.op.name}, at {now.source}"
    for name, was, is_ in zip(now.input_names(), before.types, now.types, strict=False):
        if was is not is_:
            return f"input '{name}' of {now.op.name} is {is_} instead of {was}, at {now.source}"
    for name, is_ in now.attrs.items():
        if before.attrs.get(name) != is_:
            return (
                f"attribute '{name}' of {now.op.name} is {is_!r} instead of "
                f"{before.attrs.get(name)!r}, at {now.source}"
            )
    return f"operation {n} ({now.op.name}) reads other values than before, at {now.source}"


def _common_prefix(a: Graph, b: Graph) -> int:
    n = 0
    for x, y in zip(a.nodes, b.nodes, strict=False):
        if x.call is not y.call or x.args != y.args:
            return n
        n += 1
    return n


def warn_compile_failed(graph: Graph, error: BaseException) -> None:
    warnings.warn(
        f"compiling a program of {len(graph.nodes)} operations failed and it keeps running in "
        f"the NumPy tier: {type(error).__name__}: {str(error)[:500]}",
        RuntimeWarning,
        stacklevel=2,
    )


def compile_count() -> int:
    """How many programs have been handed to the compiler so far in this process."""
    return statistics.started


def compile_events() -> list[CompileEvent]:
    """The finished compilations with their reasons, the latest 4096 of them."""
    with statistics.lock:
        return list(statistics.events)


def events_since(count: int) -> list[CompileEvent]:
    """Those that finished after `count` had (see `statistics.finished`)."""
    with statistics.lock:
        new = statistics.finished - count
        return list(statistics.events)[-new:] if new else []


@contextmanager
def count_compiles() -> Iterator[list[int]]:
    """Count the compilations inside a `with` block; the list's one element is the count."""
    counter = [0]
    before = statistics.started
    try:
        yield counter
    finally:
        counter[0] = statistics.started - before
