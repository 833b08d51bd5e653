"""Recording, look-up, donation and delivery around runs that compute nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import nn
from bireme.backends.null_backend import NullExecutable
from bireme.core import checks, executor, stats, trace


@pytest.fixture(autouse=True)
def nothing_computes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """On the null device; the executables that ran, in order."""
    ran: list[Any] = []
    monkeypatch.setattr(checks, "starting", [ran.append])
    executor.clear_programs()
    paddle.set_device("null")
    yield ran
    paddle.set_device("cpu")
    executor.clear_programs()


def test_results_are_zeros_of_their_types(nothing_computes: list[Any]) -> None:
    x = paddle.ones([2, 3])
    y = (x + 1).astype("float64")
    z = (x > 0).astype("int32").sum(axis=0)
    assert (y.shape, y.dtype, z.shape, z.dtype) == ([2, 3], paddle.float64, [3], paddle.int64)
    np.testing.assert_array_equal(y.numpy(), np.zeros((2, 3)))
    np.testing.assert_array_equal(z.numpy(), np.zeros(3, "int64"))
    assert [type(e) for e in nothing_computes] == [NullExecutable]


def make() -> tuple[Any, Any]:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return net, paddle.optimizer.Adam(0.01, parameters=net.parameters())


def test_a_training_loop_is_two_programs(nothing_computes: list[Any]) -> None:
    net, optimizer = make()
    x = paddle.ones([16, 4])
    trace.flush()
    nothing_computes.clear()
    with stats.count_compiles() as compiles:
        for _ in range(10):
            loss = net(x).mean()
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            assert loss.item() == 0.0
    assert len(nothing_computes) == 10
    assert compiles[0] == len(set(nothing_computes)) <= 3
    np.testing.assert_array_equal(net[0].weight.numpy(), np.zeros((4, 8)))


def test_what_only_the_trace_holds_is_donated(nothing_computes: list[Any]) -> None:
    held = paddle.ones([7, 5])
    trace.flush()
    x = held + 1
    trace.flush()
    x = x * 2
    x.numpy()
    y = held * 2
    y.numpy()
    donated = [p.donated for p in executor._programs.values()]
    assert donated == [(), (0,), ()]


def test_what_dies_unread_is_no_result(nothing_computes: list[Any]) -> None:
    x = paddle.ones([5, 9])
    y, z = x + 1, x * 3
    del y
    z.numpy()
    (program,) = executor._programs.values()
    assert [n.call.op.name for n in program.nodes] == ["multiply"]


def test_a_captured_step_needs_no_trace(nothing_computes: list[Any], monkeypatch: Any) -> None:
    net, optimizer = make()
    x = paddle.ones([16, 4])

    @paddle.jit.to_static
    def step(x: paddle.Tensor) -> paddle.Tensor:
        loss = net(x).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return loss

    for _ in range(8):
        step(x)
        trace.flush()
    executable = nothing_computes[-1]
    monkeypatch.setattr(checks, "starting", [])  # somebody who looks makes a step take the trace
    step(x)
    trace.flush()
    runs = executable.runs
    monkeypatch.setattr(executor, "execute", None)
    step(x), step(x)
    assert executable.runs == runs + 2
