"""Programs and their tiers."""

from __future__ import annotations

import bireme as paddle
from bireme import profiler
from bireme.core import executor
from bireme.host import config


def step() -> float:
    x = paddle.ones([5, 3])
    for _ in range(9):
        x = x * 2 + 1
    return x.sum().item()


def test_runs_and_costs_of_each_tier(monkeypatch):
    monkeypatch.setattr(config, "compile_mode", "sync")
    step()  # the Calls may have been met on any line before
    executor.clear_programs()
    for _ in range(4):
        step()
    (one,) = profiler.programs()
    assert (one.ops, one.cold_runs, one.compiled_runs) == (19, 1, 3)
    assert one.cold_seconds > 0
    assert one.compile_seconds > 0
    assert one.line.startswith(f"{__file__}:")
    (paddle.ones([2]) + 1).numpy()
    assert [p.cold_runs for p in profiler.programs()].count(1) == 2
    report = profiler.program_report().splitlines()
    assert report[0] == "Programs: 2"
    assert report[3].split()[:2] == ["19", "1"]
    assert len(report) - len(profiler.program_report(limit=1).splitlines()) == 1


def test_a_program_names_the_line_that_ran_it():
    """Not the line on which its last Call was first met."""
    x = paddle.ones([7, 3])
    (x * 2 - 1).numpy()
    executor.clear_programs()
    ((x + 1) * 2 - 1).numpy()
    (one,) = profiler.programs()
    first = test_a_program_names_the_line_that_ran_it.__code__.co_firstlineno
    assert one.line == f"{__file__}:{first + 5}"
