"""Pipelines over real processes train as one process does, and how they are cut and ordered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bireme
from bireme import nn
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.distributed import fleet, mesh
from bireme.distributed.fleet.meta_parallel import (
    LayerDesc,
    PipelineLayer,
    PipelineParallel,
    SharedLayerDesc,
)
from bireme.distributed.fleet.meta_parallel.pp_layers import SegmentLayers
from bireme.distributed.fleet.meta_parallel.schedules import forward_only, order_of


@pytest.fixture(autouse=True)
def _no_mesh(monkeypatch) -> None:
    monkeypatch.setattr(mesh, "_global", None)


@pytest.mark.parametrize(
    ("processes", "stages", "virtual"),
    [
        (2, 2, 2),
        (4, 2, 1),
        pytest.param(2, 2, 1, marks=pytest.mark.slow),
        pytest.param(4, 4, 1, marks=pytest.mark.slow),
    ],
)
def test_stages_train_as_one_process(launched, tmp_path: Path, processes, stages, virtual) -> None:
    done = launched("pipeline_worker.py", processes, arguments=(str(stages), str(virtual)))
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in range(processes):
        log = (tmp_path / "log" / f"workerlog.{rank}").read_text()
        assert f"rank {rank}: 4 steps of" in log


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_orders_never_wait_for_each_other(stages, chunks) -> None:
    """Run all stages' orders step by step, as far as their inputs are there."""
    batches = 8
    orders = [order_of(s, stages, batches, chunks) for s in range(stages)]
    places, done = [0] * stages, set()
    last = stages * chunks - 1
    while any(p < len(o) for p, o in zip(places, orders, strict=True)):
        moved = False
        for stage, order in enumerate(orders):
            while places[stage] < len(order):
                each = order[places[stage]]
                part = each.chunk * stages + stage
                if each.forward:
                    needs = (True, part - 1, each.batch) if part else None
                elif part == last:
                    needs = (True, part, each.batch)
                else:
                    needs = (False, part + 1, each.batch)
                if needs is not None and needs not in done:
                    break
                done.add((each.forward, part, each.batch))
                places[stage] += 1
                moved = True
        assert moved, f"all stages wait, at {places}"
    assert len(done) == 2 * stages * chunks * batches
    for stage, order in enumerate(orders):
        assert len(order) == 2 * chunks * batches
        held = peak = 0
        for each in order:
            held += 1 if each.forward else -1
            peak = max(peak, held)
        if chunks == 1:
            assert peak == min(stages - stage, batches)  # what 1F1B is for
    assert forward_only(2, 2)[1].chunk == 1
    with pytest.raises(InvalidArgument, match="multiple"):
        order_of(0, 3, 4, 2)


def named(module, classes: str) -> list:
    kinds = {"L": module.nn.Linear, "R": module.nn.ReLU}
    pp = module.distributed.fleet.meta_parallel
    return [pp.LayerDesc(kinds[c], *((2, 2) if c == "L" else ())) for c in classes]


@pytest.mark.parametrize("classes", ["LRLRLRL", "LLLL", "RRLLRRLLR", "LRLRLRLRLRL"])
@pytest.mark.parametrize("parts", [1, 2, 3, 4])
@pytest.mark.parametrize("method", ["uniform", "layer:Linear", [0, 1, 3]])
def test_cuts_are_paddles(paddle, classes, parts, method) -> None:
    from paddle.distributed.fleet.meta_parallel.parallel_layers.pp_layers import (
        SegmentLayers as Theirs,
    )

    try:
        want = Theirs(named(paddle, classes), parts, method).do_segment()
    except (AssertionError, ValueError):
        with pytest.raises(InvalidArgument):
            SegmentLayers(named(bireme, classes), parts, method).do_segment()
        return
    assert SegmentLayers(named(bireme, classes), parts, method).do_segment() == want


def test_one_process_is_a_pipeline_of_one_stage() -> None:
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 1}
    strategy.pipeline_configs = {"accumulate_steps": 2, "micro_batch_size": 3}
    fleet.init(is_collective=True, strategy=strategy)
    shared = SharedLayerDesc("twice", nn.Linear, None, "weight", 4, 4)
    layers = PipelineLayer(
        [shared, nn.ReLU(), shared, lambda x: x.sum(-1)], num_stages=1, loss_fn=nn.MSELoss()
    )
    assert list(layers.state_dict()) == ["shared_layers.twice.weight", "shared_layers.twice.bias"]
    model = fleet.distributed_model(layers)
    assert isinstance(model, PipelineParallel)
    opt = bireme.optimizer.SGD(0.001, parameters=layers.parameters())
    rng = np.random.RandomState(0)
    x = bireme.to_tensor(rng.randn(6, 4).astype("float32"))
    y = bireme.to_tensor(rng.randn(6).astype("float32"))
    before = nn.functional.mse_loss(layers(x), y).item()
    scaler = bireme.amp.GradScaler(init_loss_scaling=8.0)
    np.testing.assert_allclose(model.train_batch((x, y), opt, scaler=scaler).item(), before, 1e-5)
    each = model.train_batch((x, y), opt, return_micro_batch_loss=True)
    assert each.shape == [2]
    assert each.mean().item() < before
    halves = iter([(x[:3], y[:3]), (x[3:], y[3:])])
    last = model.eval_batch(halves, compute_loss=True).item()
    np.testing.assert_allclose(last, nn.functional.mse_loss(layers(x), y).item(), 1e-5)
    with pytest.raises(InvalidArgument, match="train_batch"):
        model(x)
    with pytest.raises(InvalidArgument, match="Received: 5 rows"):
        model.train_batch((x[:5], y[:5]), opt)


def test_what_pipelines_are_made_of() -> None:
    with pytest.raises(TypeMismatch, match="class of Layers"):
        LayerDesc(len, 3)  # type: ignore[arg-type]
    assert repr(LayerDesc(nn.Linear, 2, out_features=3)) == "Linear(2, out_features=3)"
    with pytest.raises(InvalidArgument, match="num_stages or topology"):
        PipelineLayer([nn.ReLU()])
    with pytest.raises(InvalidArgument, match="do not make"):
        PipelineLayer([nn.ReLU()], num_stages=2)
    with pytest.raises(InvalidArgument, match="DualPipeV"):
        PipelineLayer([nn.ReLU()], num_stages=1, use_dualpipev=True)
    with pytest.raises(TypeMismatch, match="functions"):
        PipelineLayer([3], num_stages=1)
    layers = PipelineLayer([nn.Linear(2, 2), nn.ReLU()], num_stages=1, recompute_interval=1)
    x = bireme.ones([1, 2])
    layers(x).sum().backward()
    assert layers.parameters()[0].grad is not None
    assert layers.get_stage_from_index(1) == 0
    with pytest.raises(InvalidArgument, match="0 to 1"):
        layers.get_stage_from_index(2)
