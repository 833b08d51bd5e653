"""Metrics against the real wheel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme

R = np.random.default_rng(2)


def test_accuracy_metric(paddle: Any) -> None:
    results = []
    batches = [(R.standard_normal((6, 5)).astype("float32"), R.integers(0, 5, (6, 1)))] * 2
    for lib in (paddle, bireme):
        metric = lib.metric.Accuracy(topk=(1, 3))
        for pred, label in batches:
            correct = metric.compute(lib.to_tensor(pred), lib.to_tensor(label))
            metric.update(correct)
        results.append((metric.name(), metric.accumulate()))
    assert results[0][0] == results[1][0]
    assert results[0][1] == pytest.approx(results[1][1])


def test_accuracy_of_one_hot_labels() -> None:
    metric = bireme.metric.Accuracy()
    pred = bireme.to_tensor([[0.1, 0.9], [0.8, 0.2]])
    metric.update(metric.compute(pred, bireme.to_tensor([[0.0, 1.0], [0.0, 1.0]])))
    assert metric.accumulate() == 0.5
    metric.reset()
    assert metric.accumulate() == 0.0


@pytest.mark.parametrize("name", ["Precision", "Recall"])
def test_binary_metrics(paddle: Any, name: str) -> None:
    preds, labels = R.uniform(size=(30, 1)).astype("float32"), R.integers(0, 2, (30, 1))
    results = []
    for lib in (paddle, bireme):
        metric = getattr(lib.metric, name)()
        metric.update(preds, labels)
        results.append(metric.accumulate())
    assert results[0] == pytest.approx(results[1])


def test_auc(paddle: Any) -> None:
    positive = R.uniform(size=(50,))
    preds = np.stack([1 - positive, positive], 1).astype("float32")
    labels = (positive + R.normal(0, 0.3, 50) > 0.5).astype("int64")[:, None]
    results = []
    for lib in (paddle, bireme):
        metric = lib.metric.Auc()
        metric.update(preds, labels)
        results.append(metric.accumulate())
    assert results[0] == pytest.approx(results[1])


@pytest.mark.filterwarnings("ignore")
def test_accuracy_function(paddle: Any) -> None:
    pred = R.standard_normal((6, 5)).astype("float32")
    label = R.integers(0, 5, (6, 1))
    results = [
        float(lib.metric.accuracy(lib.to_tensor(pred), lib.to_tensor(label), k=2).numpy())
        for lib in (paddle, bireme)
    ]
    assert results[0] == pytest.approx(results[1])
