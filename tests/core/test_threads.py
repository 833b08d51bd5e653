"""Several threads record at the same time, on tensors that they share."""

from __future__ import annotations

import sys
import threading
import warnings
from typing import Any

import numpy as np

import bireme as paddle
from bireme.core.stats import RecompileWarning
from bireme.host import config
from tests.core.threads import (
    THREADS,
    in_threads,
    shared_layers,
    switching_often,
    trainings,
)


class Other:
    """A thread that uses a tensor each time it is asked, while the asking thread waits."""

    def __init__(self, use: Any):
        self._use = use
        self._asked, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._over = False
        self.results: list[Any] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            self._asked.acquire()
            if self._over:
                return
            self.results.append(self._use())
            self._done.release()

    def ask(self) -> None:
        self._asked.release()
        self._done.acquire()

    def end(self) -> list[Any]:
        self._over = True
        self._asked.release()
        self._thread.join()
        return self.results


def _with_a_switch_at_every_line(work: Any, switch: Any) -> Any:
    """`work()`, with a call of `switch()` before every line of Bireme that it runs."""

    def trace(frame: Any, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        if "bireme" not in name or "tests" in name:
            return None
        if event == "line":
            sys.settrace(None)
            switch()
            sys.settrace(trace)
        return trace

    sys.settrace(trace)
    try:
        return work()
    finally:
        sys.settrace(None)


def test_a_switch_at_any_line_leaves_both_threads_their_results(monkeypatch: Any) -> None:
    monkeypatch.setattr(config, "compile_mode", "never")
    w = paddle.to_tensor(np.arange(6, dtype="float32").reshape(2, 3))
    x = paddle.to_tensor(np.ones((2, 2), "float32"))
    want = x.numpy() @ w.numpy() + 1
    other = Other(lambda: w * 2 + x.sum())
    try:
        _with_a_switch_at_every_line(lambda: x @ w + 1, other.ask)  # what is made once
        for _ in range(3):
            got = _with_a_switch_at_every_line(lambda: x @ w + 1, other.ask)
            np.testing.assert_array_equal(got.numpy(), want)
    finally:
        results = other.end()
    assert len(results) > 20
    for r in results:
        np.testing.assert_array_equal(r.numpy(), w.numpy() * 2 + 4)


def test_trainings_in_threads_are_those_of_one_thread(tier: str) -> None:
    alone = [trainings(t, 3) for t in range(THREADS)]
    with switching_often():
        together = in_threads([lambda t=t: trainings(t, 3) for t in range(THREADS)])
    assert together == alone


def test_threads_read_shared_layers_in_different_orders(tier: str) -> None:
    read = shared_layers()
    wanted = [[read(o) for o in range(t, t + 6)] for t in range(THREADS)]
    with switching_often():
        got = in_threads([lambda t=t: [read(o) for o in range(t, t + 6)] for t in range(THREADS)])
    assert got == wanted


def test_a_program_that_several_threads_meet_is_compiled_once(monkeypatch: Any) -> None:
    monkeypatch.setattr(config, "compile_mode", "sync")
    x = paddle.to_tensor(np.ones((17, 3), "float32"))

    def work() -> list[bytes]:
        return [(paddle.nn.functional.relu(x) * 3 - x).numpy().tobytes() for _ in range(20)]

    with paddle.profiler.count_compiles() as compiled, switching_often():
        results = in_threads([work] * THREADS)
    assert compiled == [1]
    assert all(r == results[0] for r in results)


def test_a_pending_result_is_read_by_many_threads() -> None:
    for _ in range(20):
        y = paddle.to_tensor(np.ones((3, 3), "float32")) * 5
        with switching_often():
            got = in_threads([lambda y=y: (y + 1).numpy()] * 4)
        for g in got:
            np.testing.assert_array_equal(g, 6.0)


def test_threads_that_compile_at_one_line(monkeypatch: Any) -> None:
    """Each compilation is explained by the earlier ones of its line, which others add to."""
    monkeypatch.setattr(config, "compile_mode", "always")

    def work(width: int) -> float:
        return (paddle.ones([width, 2]) * 3 - 1).sum().item()

    with warnings.catch_warnings(), switching_often():
        warnings.simplefilter("ignore", RecompileWarning)
        got = in_threads([lambda t=t: [work(40 * t + i + 1) for i in range(6)] for t in range(4)])
    assert got == [[4.0 * (40 * t + i + 1) for i in range(6)] for t in range(4)]
