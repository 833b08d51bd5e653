"""What Python costs in a step of Bireme: recording, and finding the program for the trace.

The compiled programs are replaced by stand-ins that return at once, so that neither execution
nor its threads and cache misses are in the figures. The runner that the recorder calls is timed
separately: what is left of a step is recording.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np


class _Ghost:
    """A result that was never computed."""

    __slots__ = ("aval",)

    def __init__(self, aval: Any):
        self.aval = aval

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.zeros(self.aval.shape, dtype or self.aval.dtype.numpy)


class _NoExecution:
    """In place of an executable: the right number of results and nothing else."""

    def __init__(self, program: Any):
        types = program.graph.value_types()
        self.types = [types[slot] for slot in program.outputs]

    def call(self, *arguments: Any) -> list[_Ghost]:
        # Fresh objects each time: a result held elsewhere would change the cache key.
        return [_Ghost(t) for t in self.types]

    def put(self, buffer: Any) -> Any:
        return buffer

    def wait_for(self, inputs: Any) -> None:
        return

    def reserve(self) -> None:
        return

    def improve(self, wait: bool = False) -> bool:
        return False


class _TimedRunner:
    def __init__(self, run: Any):
        self.run = run
        self.seconds = 0.0
        self.codes: list[list[int]] = []

    def __call__(self, trace: Any) -> None:
        self.codes.append(trace.code)
        start = time.perf_counter()
        self.run(trace)
        self.seconds += time.perf_counter() - start


def _count(code: list[int]) -> tuple[int, int]:
    """(entries, results) of a trace. A gradient or an update of many parameters is one entry."""
    from bireme.core.aval import Aval
    from bireme.core.op import CALLS

    at = entries = results = 0
    while at < len(code):
        call = CALLS[code[at]]
        at += 1 + sum(isinstance(t, Aval) for t in call.types)
        entries += 1
        results += len(call.outs)
    return entries, results


def measure(trainer: Any, count: int) -> dict[str, float]:
    """Ops of a step and microseconds of Python, the least of `count` steps.

    The process is of no use for training afterwards: parameters hold no numbers any more.
    """
    from bireme.core import executor, trace

    programs = [p for p in executor._programs.values() if p.executable is not None]
    for program in programs:
        program.executable = _NoExecution(program)
    known = executor.program_count()
    runner = _TimedRunner(executor.run)
    trace.set_runner(runner, executor.run_for_other_thread)
    rows = []
    try:
        for i in range(count + 5):
            runner.seconds = 0.0
            runner.codes.clear()
            start = time.perf_counter()
            loss = trainer.step(i)  # noqa: F841 (kept alive: part of what the step must yield)
            total = time.perf_counter() - start
            rows.append((total - runner.seconds, runner.seconds))
    finally:
        trace.set_runner(executor.run, executor.run_for_other_thread)
    if executor.program_count() != known:
        raise RuntimeError("the measured steps were not the ones that had been warmed up")
    counts = [_count(code) for code in runner.codes]
    entries, results = (sum(column) for column in zip(*counts, strict=True))
    record = min(r for r, _ in rows[5:]) * 1e6
    run = min(r for _, r in rows[5:]) * 1e6
    return {
        "entries": entries,
        "results": results,
        "programs": len(runner.codes),
        "record_us": record,
        "record_us_per_entry": record / entries,
        "record_us_per_result": record / results,
        "lookup_us": run,
    }
