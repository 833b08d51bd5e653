"""What the engine did and why: compile counts, reasons, and a warning when it keeps happening."""

from __future__ import annotations

import time
import warnings
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bireme.core.graph import Graph

# One line compiling this many different programs gets a warning, once.
RECOMPILE_WARNING_AFTER = 12
# What is remembered: compilations, lines, and programs of a line to compare a new one with.
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
    by_line: OrderedDict[str, _Line] = field(default_factory=OrderedDict)
    started: int = 0

    def line(self, name: str) -> _Line:
        """What is known of a line; the one that was quiet for longest is forgotten."""
        found = self.by_line.setdefault(name, _Line())
        self.by_line.move_to_end(name)
        if len(self.by_line) > _MAX_LINES:
            self.by_line.popitem(last=False)
        return found


statistics = _Statistics()


class CompileJob:
    """Times one compilation and explains it by the nearest earlier one from the same line."""

    def __init__(self, graph: Graph, line: str):
        self.graph = graph
        self.line = line
        self.kernels: Counter[tuple[str, str]] = Counter()
        known = statistics.line(line)
        self.reason = explain(graph, known.latest)
        known.latest.append(graph)
        known.count += 1
        statistics.started += 1
        if known.count == RECOMPILE_WARNING_AFTER:
            warnings.warn(
                f"{line} has now compiled {known.count} different programs; the last one "
                f"because {self.reason}. Keep shapes and structure the same from step to step "
                "(pad or bucket inputs), or see bireme.profiler.compile_events()",
                RecompileWarning,
                stacklevel=2,
            )

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *exc: Any) -> None:
        seconds = time.perf_counter() - self.start
        statistics.events.append(
            CompileEvent(self.line, len(self.graph.nodes), seconds, self.reason, self.kernels)
        )
        statistics.finished += 1


def explain(graph: Graph, earlier: Sequence[Graph]) -> str:
    """Why `graph` is not one of `earlier`, in the user's terms."""
    if not earlier:
        return "this line runs for the first time"
    near = max(earlier, key=lambda g: _common_prefix(g, graph))
    n = _common_prefix(near, graph)
    if n == len(graph.nodes) == len(near.nodes):
        return "other results are kept alive (or other inputs dropped) than before"
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
    return f"operation {n} ({now.op.name}) takes other operands, at {now.source}"


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
    return list(statistics.events)


def events_since(count: int) -> list[CompileEvent]:
    """Those that finished after `count` had (see `statistics.finished`)."""
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
