"""When a program of the cold tier is compiled: by a clock and costs that the tests make up."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme.backends import worth
from bireme.core import executor, program, stats
from bireme.host import config, thresholds


class Clock:
    """Each look at it is a tenth of a second later."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.1
        return self.now


@pytest.fixture(autouse=True)
def policy(monkeypatch):
    """Compilations are estimated at `cost`, nothing is on disk, and all is waited for."""
    executor.clear_programs()
    monkeypatch.setattr(config, "compile_mode", "auto")
    monkeypatch.setattr(worth, "clock", Clock())
    monkeypatch.setattr(worth, "learned", worth._Learned())
    monkeypatch.setattr(worth.jax_door, "is_loaded", lambda: True)
    monkeypatch.setattr(worth, "PER_OP", 0.0)
    monkeypatch.setattr(worth, "_is_on_disk", lambda program: False)
    monkeypatch.setattr(worth, "PER_PROGRAM", 1.02)
    submitted = []
    monkeypatch.setattr(program.background, "submit", lambda *a: submitted.append(a) or Never())
    return submitted


class Never:
    """The future of a compilation that does not end."""

    def done(self) -> bool:
        return False


def step(n: int = 3) -> float:
    x = paddle.ones([n, 7])
    for _ in range(5):
        x = x * 2 + 1
    return x.sum().item()


def test_a_program_is_compiled_when_it_has_cost_as_much(policy):
    """A run takes 0.1 s, of which 40 % would be saved; compiling takes 1.02 s."""
    for _ in range(26):
        step()
    assert not policy
    step()
    assert len(policy) == 1
    step()
    assert len(policy) == 1


def test_sizes_that_do_not_return_are_never_compiled(policy):
    for n in range(2, 100):
        step(n)
    assert not policy


def test_small_ops_save_more(policy, monkeypatch):
    monkeypatch.setattr(thresholds, "SMALL_OP", 1.0)
    for _ in range(13):
        step()
    assert not policy
    step()
    assert len(policy) == 1


def test_a_compilation_teaches_what_the_next_ones_cost(policy):
    step()
    (first,) = executor._programs.values()
    assert worth.cost(first) == pytest.approx(1.02)
    worth.learn(first, 0.25)
    step(4)
    second = next(p for p in executor._programs.values() if p is not first)
    assert worth.cost(second) == pytest.approx(0.25)  # the same ops
    (paddle.ones([3]) * 2).numpy()
    third = next(p for p in executor._programs.values() if p not in (first, second))
    assert worth.cost(third) == pytest.approx(1.02 - 0.77 / 4)


def test_what_the_disk_has_is_taken_soon(policy, monkeypatch):
    monkeypatch.setattr(worth, "_is_on_disk", lambda program: True)
    monkeypatch.setattr(worth, "PER_LOADED_OP", 0.0)
    step()
    assert not policy
    step()
    assert len(policy) == 1


def test_the_note_on_disk_stands_for_the_program(policy, monkeypatch, tmp_path):
    monkeypatch.undo()
    (tmp_path / "xla").mkdir(mode=0o700)
    monkeypatch.setattr(config, "cache_dir", str(tmp_path))
    monkeypatch.setattr(config, "compile_mode", "never")
    executor.clear_programs()
    step(), step(5)
    first, second = executor._programs.values()
    assert not worth._is_on_disk(first)
    worth.learn(first, 1.0)
    assert worth._is_on_disk(first)
    assert not worth._is_on_disk(second)


def test_waiting_for_the_compiler_counts_runs(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(config, "compile_mode", "sync")
    executor.clear_programs()
    with stats.count_compiles() as compiles:
        results = [step(11), step(11), step(11)]
    assert compiles == [1]
    assert np.unique(results).size == 1
