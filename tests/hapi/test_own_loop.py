"""Parts of hapi for loops of one's own."""

from __future__ import annotations

import io

import pytest

import bireme as paddle
from bireme.hapi.callbacks import Callback, config_callbacks
from bireme.hapi.progressbar import ProgressBar
from bireme.vision.models._utils import IntermediateLayerGetter


def test_callbacks_of_a_loop() -> None:
    seen: list[str] = []

    class Own(Callback):
        def on_train_batch_end(self, step: int, logs: object = None) -> None:
            seen.append(f"batch {step}")

    calls = config_callbacks([Own()], batch_size=4, epochs=1, steps=2, verbose=0)
    calls.on_begin("train")
    for step in range(2):
        calls.on_batch_end("train", step, {"loss": 1.0})
    calls.on_end("train")
    assert seen == ["batch 0", "batch 1"]
    assert [c.params["batch_size"] for c in calls] == [4] * 3


def test_steps_that_are_floats() -> None:
    file = io.StringIO()
    ProgressBar(3, verbose=2, file=file).update(1e0, [("loss", 0.5)])
    assert "1/3" in file.getvalue()


def test_results_from_inside_a_network() -> None:
    net = paddle.nn.Sequential(
        ("a", paddle.nn.ReLU()), ("b", paddle.nn.Flatten()), ("c", paddle.nn.ReLU())
    )
    inside = IntermediateLayerGetter(net, {"a": "low", "b": "flat"})
    found = inside(paddle.ones([1, 2, 2]))
    assert {k: v.shape for k, v in found.items()} == {"low": [1, 2, 2], "flat": [1, 4]}
    assert list(inside) == ["a", "b"]
    with pytest.raises(ValueError, match="no child 'z'"):
        IntermediateLayerGetter(net, {"z": "z"})
