"""What each program of the engine has run in, how often, and what that cost."""

from __future__ import annotations

from dataclasses import dataclass

from bireme.core import executor
from bireme.profiler.tables import _short, table


@dataclass(frozen=True)
class ProgramRuns:
    """A program: the line that first ran it, its ops, and its runs in each tier."""

    line: str
    ops: int
    cold_runs: int
    cold_seconds: float  # of all cold runs
    compile_seconds: float  # 0 if it is not compiled
    compiled_runs: int
    bound: int | None = None  # it is one for all sizes up to this (capture/varying.py)


def programs() -> list[ProgramRuns]:
    """The programs that the engine keeps, those that have cost most first.

    The cold tier runs a program op by op; one that has lost as much there as its compilation takes
    is compiled (docs/design.md, section 6).
    """
    from bireme.capture import varying

    shared = [p for family in varying.families() for p in family.programs]
    found = [
        ProgramRuns(p.line, p.size, p.cold_runs, p.cold_seconds, p.compile_seconds, p.runs, bound)
        for p, bound in [(p, None) for p in executor.programs()]
        + [(p, p.sizes.high) for p in shared]
        if p.outputs
    ]
    return sorted(found, key=lambda p: p.cold_seconds + p.compile_seconds, reverse=True)


def program_report(limit: int = 20) -> str:
    """`programs()` as a table, the first `limit` of them."""
    found = programs()
    head = ("ops", "cold runs", "seconds", "compiling", "compiled runs", "sizes up to", "line")
    rows = [
        (
            p.ops,
            p.cold_runs,
            p.cold_seconds,
            p.compile_seconds,
            p.compiled_runs,
            "" if p.bound is None else p.bound,
            _short(p.line),
        )
        for p in found[:limit]
    ]
    return table(f"Programs: {len(found)}", head, rows)
