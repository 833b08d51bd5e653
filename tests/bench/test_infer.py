"""The inference and to_static benchmarks: what they compare is checked before it is timed."""

from __future__ import annotations

import math
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # `bench` is run from the checkout, not installed

from bench import cores, eager, infer, infer_models, to_static  # noqa: E402
from bench.eager import Timing  # noqa: E402
from bench.workloads import MLP  # noqa: E402


def test_engines_that_disagree_are_marked() -> None:
    good = [np.linspace(0, 1, 5, dtype="float32")]
    results = {"xla": good, "onnxruntime": [good[0] + 1e-5], "torch": [good[0] + 0.1]}
    assert list(infer.disagreements(results)) == ["torch"]
    results["torch"] = [np.zeros((5, 1), "float32")]
    assert "shape" in infer.disagreements(results)["torch"]
    assert infer.disagreements({"xla": good}) == {}
    results["torch"] = [np.full(5, np.nan, "float32")]
    assert "torch" in infer.disagreements(results)


def test_tables() -> None:
    timings = {n: Timing(ms=[2.0, 3.0]) for n in ("auto", "xla", "torch")}
    timings["torch"].problem = "no such model"
    text = infer.render({"`minilm`, 1": timings}, list(timings))
    assert "| `minilm`, 1  |         1.00 |     n/a |" in text
    assert "torch: n/a, no such model" in text
    rows = {n: Timing(ms=[1.0]) for n in to_static.NAMES}
    assert "1.00 (1.00)" in to_static.render({"mlp_tiny": rows})


def test_inputs_are_the_same_for_everybody() -> None:
    for name, model in infer_models.MODELS.items():
        a, b = infer_models.inputs(name, 2), infer_models.inputs(name, 2)
        assert a.shape == (2, *model.row)
        np.testing.assert_array_equal(a, b)


def test_files_of_other_code_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(infer_models, "FOLDER", tmp_path)
    code = tmp_path / "code.py"
    code.write_text("a = 1")
    old = infer_models.key_of([code], "1.0")
    path = infer_models._kept("net", "model", old, ".onnx")
    path.parent.mkdir()
    path.write_text("exported")
    (path.parent / "weights.npz").write_text("")
    assert infer_models._kept("net", "model", old, ".onnx").exists()
    assert infer_models.key_of([code], "1.1") != old
    code.write_text("a = 2")
    again = infer_models._kept("net", "model", infer_models.key_of([code], "1.0"), ".onnx")
    assert again != path
    assert [f.name for f in path.parent.iterdir()] == ["weights.npz"]


def test_a_captured_step_trains() -> None:
    trainer = to_static.captured_trainer(MLP(depth=3, width=8, batch=4))
    losses = [trainer.read(trainer.step(0)) for _ in range(3)]
    assert all(map(math.isfinite, losses))
    assert losses[2] < losses[0]


def test_rows_of_an_earlier_run_are_kept() -> None:
    def timings(ms: float, *names: str) -> dict[str, infer.Timing]:
        return {n: infer.Timing(ms=[ms]) for n in names}

    peers = ["auto", "torch"]
    before = {
        "`minilm`, 8": timings(1.0, *peers),
        "`resnet18`, 1": timings(2.0, *peers),
        "`resnet50`, 1": timings(3.0, "auto"),  # without a peer that is in the table now
    }
    now = {"`resnet18`, 1": timings(5.0, *peers), "`minilm`, 1": timings(6.0, *peers)}
    rows = infer.joined(before, now, peers)
    assert list(rows) == ["`resnet18`, 1", "`minilm`, 1", "`minilm`, 8"]
    assert rows["`resnet18`, 1"]["auto"].minimum == 5.0


def test_turns_while_the_cores_were_far_apart_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far at first (310 ns), so that nobody can know better; then near, and far once more."""
    trips = iter([310, 310, 310, 310, 50, 50, 50, 310] + [50] * 20)
    asked: list[str] = []
    monkeypatch.setattr(cores, "_shortest", [math.inf])
    monkeypatch.setattr(cores, "_compiled", lambda: lambda: next(trips) * 1e-9)
    monkeypatch.setattr(eager, "PAUSE_SECONDS", 0.0)

    def turn(name: str, seconds: list[float]) -> float:
        asked.append(name)
        return seconds.pop(0)

    timings = {"a": Timing(), "b": Timing()}
    left = {"a": [9.0, 1.0, 2.0, 3.0], "b": [9.0, 9.0, 4.0, 5.0]}
    turns = {n: partial(turn, n, seconds) for n, seconds in left.items()}
    eager.take_turns(timings, turns, 2)
    assert timings["a"].ms == [1000.0, 2000.0]
    assert timings["b"].ms == [4000.0, 5000.0]
    assert asked == ["a", "b", "a", "b", "a", "b", "b"]


def test_the_way_between_cores_is_measured() -> None:
    if cores._compiled() is None:
        pytest.skip("needs a C compiler and two cores")
    assert 0 < cores.round_trip_ns() < 1e9
    assert cores.is_near(cores._shortest[0])
