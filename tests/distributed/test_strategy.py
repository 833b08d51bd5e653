"""Fields of DistributedStrategy, on two processes and on one with the whole batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import nn
from bireme.core.errors import InvalidArgument
from bireme.distributed import fleet
from bireme.distributed.fleet.merging import MergingOptimizer
from tests.distributed.conftest import HERE


@pytest.mark.parametrize("case", ["merge", "words", "recompute", "amp", "apart"])
def test_two_processes_train_as_one(launched: Any, tmp_path: Path, case: str) -> None:
    done = launched("strategy_worker.py", 2, arguments=(case, "2", str(tmp_path / "two.npz")))
    assert done.returncode == 0, done.stderr[-3000:]
    command = [sys.executable, str(HERE / "strategy_worker.py"), case, "2"]
    alone = subprocess.run(
        [*command, str(tmp_path / "one.npz")], capture_output=True, text=True, cwd=HERE.parents[1]
    )
    assert alone.returncode == 0, alone.stderr[-3000:]
    two, one = np.load(tmp_path / "two.npz"), np.load(tmp_path / "one.npz")
    tolerance = 2e-2 if case == "amp" else 1e-5
    assert one.files == two.files
    for name in one.files:
        np.testing.assert_allclose(two[name], one[name], rtol=tolerance, atol=tolerance)


def trained(merge: bool, k: int, avg: bool, name: str = "Adam", sparse: bool = False) -> np.ndarray:
    paddle.seed(3)
    table = nn.Embedding(20, 3, sparse=sparse)
    inner = getattr(paddle.optimizer, name)(0.1, parameters=table.parameters())
    optimizer = MergingOptimizer(inner, k, avg) if merge else inner
    for i in range(6):
        ids = paddle.to_tensor(np.random.RandomState(i).randint(0, 20, (4,)))
        loss = ((table(ids) - 1) ** 2).sum()
        if merge or not avg:
            loss.backward()
        else:
            (loss / k).backward()
        if merge or (i + 1) % k == 0:
            optimizer.step()
            optimizer.clear_grad()
    return table.weight.numpy()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", ["SGD", "Adam"])
@pytest.mark.parametrize("avg", [False, True])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_merged_gradients_are_those_of_one_step(k: int, avg: bool, name: str, sparse: bool) -> None:
    want = trained(False, k, avg, name, sparse)
    np.testing.assert_allclose(trained(True, k, avg, name, sparse), want, rtol=1e-5, atol=1e-6)


def test_merging_refuses_a_scaler() -> None:
    layer = nn.Linear(2, 2)
    optimizer = MergingOptimizer(paddle.optimizer.SGD(0.1, parameters=layer.parameters()), 2, True)
    scaler = paddle.amp.GradScaler()
    scaler.scale(layer(paddle.ones([1, 2])).sum()).backward()
    with pytest.raises(InvalidArgument, match="GradScaler"):
        scaler.step(optimizer)


def test_minimize_is_a_step(tmp_path: Path) -> None:
    layer = nn.Linear(2, 2)
    before = layer.weight.numpy()
    optimizer = MergingOptimizer(paddle.optimizer.SGD(0.1, parameters=layer.parameters()), 2, True)
    for changed in (False, True):
        loss = layer(paddle.ones([1, 2])).sum()
        loss.backward()
        optimizer.minimize(loss)
        optimizer.clear_grad()
        assert (layer.weight.numpy() != before).any() == changed


def test_settings_that_do_not_fit() -> None:
    strategy = fleet.DistributedStrategy()
    strategy.gradient_merge = True
    strategy.gradient_merge_configs = {"k_steps": 0}
    strategy.recompute = True
    strategy.recompute_configs = {"checkpoints": ["no such layer"]}
    fleet.init(is_collective=True, strategy=strategy)
    try:
        layer = nn.Linear(2, 2)
        with pytest.raises(InvalidArgument, match="no such layer"):
            fleet.distributed_model(layer)
        with pytest.raises(InvalidArgument, match="k_steps"):
            fleet.distributed_optimizer(
                paddle.optimizer.SGD(0.1, parameters=layer.parameters()), strategy
            )
    finally:
        fleet.init(is_collective=True)
