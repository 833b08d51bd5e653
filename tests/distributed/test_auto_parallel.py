"""Layouts, plans, captured steps and the planner, on eight virtual devices."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import eight

from bireme import distributed as dist
from bireme import nn
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.distributed import mesh
from bireme.optimizer import SGD

FILE = "checks_auto_parallel.py"


@pytest.fixture(autouse=True)
def _no_mesh(monkeypatch) -> None:
    monkeypatch.setattr(mesh, "_global", None)


@pytest.mark.parametrize("name", eight.names(FILE))
def test_on_eight_devices(name) -> None:
    error = eight.results(FILE)[name]
    assert error is None, error


@pytest.mark.slow
@pytest.mark.parametrize("name", eight.names(FILE, "slow_"))
def test_slowly_on_eight_devices(name) -> None:
    error = eight.results(FILE, "slow_")[name]
    assert error is None, error


def test_stages_want_a_mesh_and_a_dimension() -> None:
    with pytest.raises(TypeMismatch, match="sharding_mesh_dim"):
        dist.ShardingStage1(None)  # type: ignore[arg-type]
    with pytest.raises(TypeMismatch, match="ProcessMesh"):
        dist.ShardingStage2("dp", [0, 1])  # type: ignore[arg-type]
    layer = nn.Linear(2, 2)
    with pytest.raises(InvalidArgument, match="no dimension 'mp'"):
        dist.shard_optimizer(
            SGD(0.1, layer.parameters()), dist.ShardingStage1("mp", dist.ProcessMesh([0], ["dp"]))
        )
    with pytest.raises(TypeMismatch, match="takes an Optimizer"):
        dist.shard_optimizer(layer)
    with pytest.raises(InvalidArgument, match="1 or more"):
        dist.shard_optimizer(SGD(0.1, layer.parameters()), None, 0)
    with pytest.raises(TypeMismatch, match="GradScaler"):
        dist.shard_scaler(layer)


def test_strategy_knows_its_settings() -> None:
    strategy = dist.Strategy({"sharding": {"enable": True, "stage": 2}})
    assert (strategy.sharding.enable, strategy.sharding.stage) == (True, 2)
    strategy.gradient_merge.k_steps = 4
    with pytest.raises(InvalidArgument, match="no setting 'stages'"):
        strategy.sharding.stages = 2
    with pytest.raises(TypeMismatch, match="type int"):
        strategy.sharding.stage = "two"
    with pytest.raises(InvalidArgument, match="no part 'pipelines'"):
        dist.Strategy({"pipelines": {}})


def test_strategy_refuses_settings_without_effect_when_they_are_used() -> None:
    strategy = dist.Strategy({"fused_passes": {"enable": True, "gemm_epilogue": True}})
    strategy.check()  # hints
    assert (strategy.pipeline.schedule_mode, strategy.recompute.checkpoints) == ("1F1B", [])
    strategy.recompute.checkpoints.append("x")
    assert dist.Strategy().recompute.checkpoints == []
    with pytest.raises(InvalidArgument, match=r"checkpoints has no effect.*recompute"):
        strategy.check()
    cut = dist.Strategy({"pipeline": {"enable": True}})
    with pytest.raises(InvalidArgument, match="PipelineLayer"):
        dist.to_static(nn.Linear(2, 2), strategy=cut)


def test_plans_name_what_there_is() -> None:
    grid = dist.ProcessMesh([[0]], ["dp", "mp"])
    model = nn.Sequential(nn.Linear(4, 4))
    with pytest.raises(InvalidArgument, match="called 'wrong'"):
        dist.parallelize(
            model,
            None,
            grid,
            {"mp_config": {"parallelize_plan": {"wrong": dist.RowWiseParallel()}}},
        )
    with pytest.raises(InvalidArgument, match="no 'pp_config'"):
        dist.parallelize(model, None, grid, {"pp_config": {}})
    with pytest.raises(TypeMismatch, match="ColWiseParallel"):
        dist.parallelize(model, None, grid, {"mp_config": {"parallelize_plan": {"0": 1}}})
    with pytest.raises(TypeMismatch, match="returns a hook"):
        dist.PrepareLayerInput()
    with pytest.raises(InvalidArgument, match="p2p"):
        dist.ContextParallel("ring")


def test_dist_model_needs_its_parts() -> None:
    model = dist.to_static(nn.Linear(2, 2))
    with pytest.raises(InvalidArgument, match="needs a loss"):
        model.train()


def test_planner_refuses_what_does_not_fit() -> None:
    model = nn.Linear(64, 64)
    grid = dist.ProcessMesh([0])
    example = [np.zeros((3, 64), "float32")]
    degrees = dist.plan(model, example, grid).rivals[0].degrees
    assert (degrees.dp, degrees.mp, degrees.pp) == (1, 1, 1)
    with pytest.raises(InvalidArgument, match="nothing fits"):
        dist.plan(model, example, grid, memory=1000.0)
    with pytest.raises(TypeMismatch, match="ProcessMesh"):
        dist.plan(model, example, [0])  # type: ignore[arg-type]
