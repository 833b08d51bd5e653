"""The benchmark suite imports, and its Bireme side trains, on models of a few neurons."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # `bench` is run from the checkout, not installed

from bench import curves, eager, peers, report  # noqa: E402
from bench.paddle_models import bireme_trainer, double_trainer  # noqa: E402
from bench.recording import measure  # noqa: E402
from bench.workloads import (  # noqa: E402
    LSTM,
    MLP,
    WORKLOADS,
    Encoder,
    ResNet,
    make_weights,
    nudged,
)

SMALL = {
    "mlp": MLP(depth=3, width=8, batch=4),
    "encoder": Encoder(
        layers=1, width=8, heads=2, feed_forward=16, vocabulary=11, batch=2, tokens=5
    ),
    "resnet": ResNet(channels=(4, 8), blocks=1, classes=5, batch=2, pixels=16),
    "lstm": LSTM(layers=2, width=8, batch=2, steps=3, classes=4),
}


@pytest.mark.parametrize("name", SMALL)
def test_bireme_trains_one_step(name: str) -> None:
    trainer = bireme_trainer(SMALL[name])
    assert math.isfinite(trainer.read(trainer.step(0)))


def test_shorter_sequences() -> None:
    trainer = bireme_trainer(SMALL["encoder"])
    assert math.isfinite(trainer.read(trainer.step_of_length(3)))


def test_recording_cost_is_measured() -> None:
    trainer = bireme_trainer(SMALL["mlp"])
    loss = None
    for i in range(6):
        loss = trainer.step(i)
    trainer.read(loss)
    trainer.settle()
    for i in range(2):
        loss = trainer.step(i)
    trainer.read(loss)
    figures = measure(trainer, 3)
    assert figures["results"] >= figures["entries"] > 10
    assert figures["record_us_per_entry"] > 0


def test_every_workload_has_weights() -> None:
    for size in WORKLOADS.values():
        assert all(w.dtype == "float32" for w in make_weights(size).values())


def test_nudged_weights_are_next_to_the_true_ones() -> None:
    weights = make_weights(SMALL["resnet"])
    moved = nudged(weights, 1)
    for name, array in weights.items():
        away = np.abs(moved[name] - array)
        assert moved[name].dtype == array.dtype
        assert np.all(away <= np.spacing(np.abs(array)))
        assert np.array_equal(moved[name] == 0, array == 0)
    assert np.any(moved["conv1.weight"] > weights["conv1.weight"])
    assert np.any(moved["conv1.weight"] < weights["conv1.weight"])
    assert np.any(moved["conv1.weight"] == weights["conv1.weight"])
    assert not np.array_equal(moved["conv1.weight"], nudged(weights, 2)["conv1.weight"])


def test_peers_that_disagree_are_marked() -> None:
    same = {n: eager.Timing(losses=[1.0, 0.9], ms=[2.0]) for n in ("bireme", "jax", "paddle")}
    other = eager.Timing(losses=[1.0, 0.5], ms=[1.0])
    timings = same | {"torch": other}
    eager.compare_losses(timings)
    assert other.minimum is None
    assert "step 2" in other.problem
    assert same["bireme"].minimum == 2.0
    assert "n/a" in eager.render({"lstm": timings}, list(timings))


def test_documentation_sections_exist() -> None:
    for name in (
        "eager",
        "eager_no_extension",
        "eager_autocast",
        "to_static",
        "infer",
        "record",
        "cold",
        "memory",
        "curves",
        "gpu",
    ):
        changed = report.with_section(report.page_of(name).read_text(), name, "new \\1 text")
        assert "new \\1 text" in changed
    with pytest.raises(ValueError, match="no section"):
        report.with_section(report.page_of("other").read_text(), "other", "")


def test_curves_are_judged_by_torchs_own_distance() -> None:
    exact = [2.0, 1.0, 0.5, 0.25]
    both = {
        "torch_double": exact,
        "torch": exact,
        "torch_nudged": [[2.0, 1.0, 0.5, 0.2501], exact],
        "bireme_double": exact,
    }
    results = {
        "lstm": {**both, "bireme": [2.0, 1.0, 0.5, 0.2504]},
        "unet": {**both, "bireme": [2.0, 1.01, 0.5, 0.25]},
        "encoder": {"torch": exact},
    }
    assert curves.agrees_rounded(results["lstm"])
    assert not curves.agrees_rounded(results["unet"])  # early, where torch was still exact
    results["unet"]["bireme"] = [2.0, math.nan, 0.5, 0.25]
    assert not curves.agrees_rounded(results["unet"])
    results["unet"]["torch_nudged"] = [exact]
    results["unet"]["bireme"] = [2.0, 1.0, 0.5, 0.2504]  # by torch's one other run it was allowed
    assert not curves.agrees_rounded(results["unet"])
    text = curves.render(results)
    assert "| `lstm`    | 2 → 0.25 |" in text
    assert "1.6e-03" in text
    assert "**no**" in text
    assert "`encoder` was not run to its end by: Bireme, torch from nudged weights" in text


def test_curves_in_float64_must_be_the_same() -> None:
    exact = [2.0, 1.0]
    losses = dict.fromkeys(curves.NAMES, exact) | {"torch_nudged": [exact]}
    assert curves.agrees_exactly(losses)
    losses["bireme_double"] = [2.0, 1.0001]
    assert not curves.agrees_exactly(losses)
    assert curves.agrees(losses) is False
    del losses["bireme_double"]
    assert curves.agrees(losses) is None
    losses["bireme"] = [2.0, 1.1]
    assert curves.agrees(losses) is False
    assert "**no**" in curves.render({"lstm": losses})


@pytest.mark.parametrize("name", SMALL)
def test_bireme_trains_in_float64(name: str) -> None:
    trainer = double_trainer(SMALL[name])
    try:
        loss = trainer.step(0)
        assert loss.dtype == trainer.paddle.float64
        assert all(p.dtype == loss.dtype for p in trainer.model.parameters())
    finally:
        trainer.paddle.set_default_dtype("float32")


def test_a_curve_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    losses = {name: [2.0, 1.0] for name in curves.NAMES} | {"torch_nudged": [[2.0, 1.1]]}
    curves.draw({"lstm": losses}, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 1000


def test_peers_are_named() -> None:
    assert peers.label(peers.NAMES[0]) == "Bireme"
