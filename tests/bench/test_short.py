"""The short programs run, in one process and with few steps."""

from __future__ import annotations

import itertools
import math

import pytest

import bireme as paddle
from bench.short import measuring
from bench.short.programs import PROGRAMS
from bireme.backends import numpy_backend, worth
from bireme.core import checks, executor, stats
from bireme.host import config, jax_door


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_something_without_jax(name, monkeypatch):
    """Importing JAX takes a second, and a program of one op is compiled for each size."""
    needed: list[str] = []
    one_op, types = numpy_backend._one_op, jax_door.abstract_eval
    monkeypatch.setattr(config, "compile_mode", "never")
    monkeypatch.setattr(
        numpy_backend, "_one_op", lambda call: (needed.append(call.op.name), one_op(call))[1]
    )
    monkeypatch.setattr(
        jax_door, "abstract_eval", lambda run, given: (needed.append("types"), types(run, given))[1]
    )
    assert math.isfinite(PROGRAMS[name](paddle, 2))
    assert needed == []


@pytest.mark.parametrize(("name", "runs"), [("gpt", 13), ("llama", 1), ("beam_search", 1)])
def test_a_word_is_one_run_at_most(name, runs, monkeypatch):
    """Nothing is read but what the program itself reads: `gpt` looks for the end of its text."""
    counted: list[int] = []
    monkeypatch.setattr(config, "compile_mode", "never")
    monkeypatch.setattr(checks, "counters", [lambda calls, _: counted.append(len(calls))])
    PROGRAMS[name](paddle, 12)
    assert len(counted) == runs


def test_sizes_that_are_seen_once_are_never_compiled(monkeypatch):
    """Even if each run takes an hour."""
    hours = itertools.count(0, 3600)
    monkeypatch.setattr(worth, "clock", lambda: next(hours))
    monkeypatch.setattr(config, "compile_mode", "auto")
    executor.clear_programs()
    with stats.count_compiles() as compiled:
        PROGRAMS["batch_sizes"](paddle, 6)
        executor.wait_for_compilation()
    assert compiled == [0]


def test_rows_and_ratios(monkeypatch, capsys):
    spent = {"bireme": measuring.Spent(1.0, 2.0), "paddle": measuring.Spent(2.0, 8.0)}
    seen = []
    monkeypatch.setattr(
        measuring, "timed", lambda name, peer, cache: (seen.append(cache), spent[peer])[1]
    )
    ratios = measuring.main(["bireme", "paddle"], ["gan"], 2, False)
    assert ratios == {"wall": [0.5], "cpu": [0.25]}
    assert len(set(seen)) == 4  # each process has a cache of its own
    assert "geometric mean: wall 0.50, cpu 0.25" in capsys.readouterr().out
    seen.clear()
    measuring.main(["bireme"], ["gan"], 2, True)
    assert len(set(seen)) == 1
