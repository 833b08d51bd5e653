"""Ever new shapes: what the engine remembers of them is bounded."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import bireme as paddle
from bireme.core import aval, eviction, stats
from bireme.core.cache import BoundedCache
from bireme.core.graph import Graph
from bireme.core.op import CALLS
from bireme.host import config


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "compile_mode", "never")
    monkeypatch.setattr(eviction, "EVERY", 256)


def step(n: int) -> float:
    x = paddle.ones([n, 3])
    x.stop_gradient = False
    ((x * 2 + 1) * x).sum().backward()
    return x.grad.sum().item()


def test_twenty_thousand_shapes_leave_memory_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "max_programs", 8)
    x = paddle.ones([20_001])
    counts = []
    for n in range(1, 20_001):
        y = x[:n] * 2
        if n % 50 == 0:
            assert y.sum().item() == 2.0 * n
        if n % 5_000 == 0:
            gc.collect()
            counts.append((len(CALLS), len(aval._interned)))
    assert max(c for c, _ in counts) < counts[0][0] + 4 * eviction.EVERY
    assert max(c for _, c in counts) < counts[0][1] + 4 * eviction.EVERY


def test_what_is_in_use_keeps_its_program() -> None:
    wanted = step(5)
    before = _ids(5)
    for n in range(10, 200):
        assert step(n) == n * 3 * 5.0
        step(5)  # a loop that goes on meanwhile
    assert step(5) == wanted
    assert _ids(5) == before


def _ids(n: int) -> list[int]:
    """The ids of the Calls that a computation records."""
    x = paddle.ones([n, 3])
    y = x * 2 + 1
    graph = Graph.from_code(y._value.trace.code, [], [])
    y.numpy()
    return [node.call.id for node in graph.nodes]


def test_what_is_recorded_and_not_run_yet_is_kept() -> None:
    x = paddle.ones([7, 11])
    pending = (x * 3 + 2) * x
    recorded = threading.Event()
    go_on = threading.Event()
    others: list[np.ndarray] = []

    def elsewhere() -> None:
        y = paddle.full([13, 2], 2.0) * 5
        recorded.set()
        go_on.wait()
        others.append((y + 1).numpy())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    recorded.wait()
    for _ in range(4):
        eviction.evict()
        gc.collect()
    go_on.set()
    thread.join()
    np.testing.assert_array_equal(others[0], np.full((13, 2), 11.0))
    np.testing.assert_array_equal(pending.numpy(), np.full((7, 11), 5.0))


def test_a_tape_outlives_the_tables() -> None:
    x = paddle.to_tensor([1.0, 2.0, 3.0], stop_gradient=False)
    loss = (x.exp() * x).sum()
    loss.numpy()
    for _ in range(4):
        eviction.evict()
        gc.collect()
    loss.backward()
    data = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(x.grad.numpy(), np.exp(data) * (data + 1), rtol=1e-6)


def test_the_recorded_call_of_a_function_that_is_gone() -> None:
    x = paddle.to_tensor([1.0, 2.0])
    function = paddle.jit.to_static(lambda x: x * 2 + 1)
    function(x).numpy()
    for _ in range(4):
        eviction.evict()
    pending = function(x)
    del function
    gc.collect()
    np.testing.assert_array_equal(pending.numpy(), [3.0, 5.0])
    other = paddle.jit.to_static(lambda x: x * 3 + 1)
    pending = other(x)
    del other
    for _ in range(4):
        eviction.evict()
        gc.collect()
    np.testing.assert_array_equal(pending.numpy(), [4.0, 7.0])


def test_an_open_program_outlives_the_tables() -> None:
    main = paddle.static.Program()
    paddle.enable_static()
    try:
        with paddle.static.program_guard(main):
            x = paddle.static.data("x", [None, 3], "float32")
            y = paddle.nn.functional.relu(x * 2 - 1)
            for _ in range(4):
                eviction.evict()
                gc.collect()
            z = y.sum()
            data = np.array([[1.0, 2.0, 0.0]], "float32")
            (got,) = paddle.static.Executor().run(main, feed={"x": data}, fetch_list=[z])
    finally:
        paddle.disable_static()
    assert got == 4.0


def test_compilations_are_counted_beyond_what_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(config, "compile_mode", "always")
    monkeypatch.setattr(stats, "statistics", stats._Statistics())
    monkeypatch.setattr(stats.statistics, "events", stats.deque(maxlen=3))
    monkeypatch.setattr(stats.statistics, "by_line", BoundedCache(2))
    for n in range(2, 7):
        (paddle.ones([n]) * 2 + 1).numpy()
    assert stats.statistics.finished == 5
    assert len(stats.compile_events()) == 3
    assert len(stats.events_since(3)) == 2
    assert stats.events_since(5) == []
    (line,) = stats.statistics.by_line.values()
    assert line.count == 5
    assert "instead of" in stats.compile_events()[-1].reason
