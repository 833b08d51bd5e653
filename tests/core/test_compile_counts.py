"""No surprise recompiles: the counts are deterministic, so they are asserted."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme import nn
from bireme.core import executor, stats
from bireme.host import config


@pytest.fixture(autouse=True)
def wait_for_the_compiler(monkeypatch):
    monkeypatch.setattr(config, "compile_mode", "sync")


def make(dropout: float = 0.1):
    paddle.seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 3))
    schedule = paddle.optimizer.lr.CosineAnnealingDecay(0.01, 1000)
    optimizer = paddle.optimizer.AdamW(
        schedule, parameters=net.parameters(), grad_clip=nn.ClipGradByGlobalNorm(1.0)
    )
    return net, schedule, optimizer


def test_a_thousand_steps_compile_a_fixed_small_number_of_programs():
    net, schedule, optimizer = make()
    rng = np.random.default_rng(0)
    losses = []

    def step(i: int) -> None:
        x = paddle.to_tensor(rng.normal(size=(4, 8)).astype("float32"))
        label = paddle.to_tensor(rng.integers(0, 3, 4))
        loss = nn.functional.cross_entropy(net(x), label) * (1.0 + 1.0 / (i + 1))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        schedule.step()
        if i % 10 == 0:
            losses.append(loss.item())

    with stats.count_compiles() as first:
        for i in range(30):
            step(i)
    with stats.count_compiles() as rest:
        for i in range(30, 1000):
            step(i)
    assert first[0] <= 3, [e.reason for e in stats.compile_events()[-first[0] :]]
    assert rest == [0], [e.reason for e in stats.compile_events()[-5:]]
    assert len(losses) == 100


def test_a_changing_python_scalar_is_an_input():
    x = paddle.ones([64, 64])

    def work(i: int) -> float:
        y = x
        for _ in range(10):
            y = y * (1.0 / (i + 1)) + i
        return y.sum().item()

    work(1), work(2)
    with stats.count_compiles() as compiles:
        for i in range(3, 40):
            work(i)
    assert compiles == [0]


def test_a_recompile_is_explained():
    def work(n: int) -> float:
        x = paddle.ones([n, 4])
        for _ in range(10):
            x = x * 2 + 1
        return x.sum().item()

    for n in (5, 6):
        work(n), work(n)
    reason = stats.compile_events()[-1].reason
    assert "float32[6, 4] instead of float32[5, 4]" in reason


def test_a_line_that_keeps_recompiling_warns_once():
    def work(n: int) -> float:
        x = paddle.ones([n])
        for _ in range(20):
            x = x + 1
        return x.sum().item()

    def many() -> None:
        for n in range(2, 18):
            work(n), work(n)

    with pytest.warns(stats.RecompileWarning, match="different programs") as caught:
        many()
    assert len(caught) == 1


def test_a_full_cache_keeps_the_program_that_is_in_use(monkeypatch):
    executor.clear_programs()
    monkeypatch.setattr(config, "max_programs", 4)

    def step() -> float:
        x = paddle.ones([3, 7])
        for _ in range(20):
            x = x * 2 + 1
        return x.sum().item()

    step(), step()
    with stats.count_compiles() as compiles:
        for n in range(2, 12):  # each a new program, read once
            (paddle.ones([n]) + 1).numpy()
            step()
    assert compiles == [0]
    assert executor.program_count() <= 4
