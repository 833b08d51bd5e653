"""Callbacks that watch a metric, next to the real ones; and those that need other packages."""

from __future__ import annotations

import os
import sys
import types

import numpy as np
import pytest

import bireme

CURVES = {
    "falling": [1.0, 0.9, 0.8, 0.7],
    "flat": [1.0] * 8,
    "rising": [0.5, 0.6, 0.7, 0.8, 0.9],
    "bumpy": [1.0, 0.5, 0.6, 0.49, 0.48, 0.7, 0.7, 0.2],
    "nan": [1.0, float("nan"), 0.9, 0.8],
}


class FakeModel:
    def __init__(self, lib):
        self.stop_training = False
        net = lib.nn.Linear(1, 1)
        self._optimizer = lib.optimizer.SGD(0.1, parameters=net.parameters())
        self.saved = []

    def save(self, path):
        self.saved.append(path)


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"patience": 2},
        {"patience": 1, "min_delta": 0.05},
        {"patience": 1, "baseline": 0.55},
        {"monitor": "acc", "patience": 2},
        {"mode": "max", "patience": 1, "verbose": 0},
    ],
    ids=str,
)
def test_early_stopping(paddle, capsys, curve, options):
    seen = []
    for lib in (paddle, bireme):
        callback, model = lib.callbacks.EarlyStopping(**options), FakeModel(lib)
        callback.save_dir = "somewhere"
        callback.set_model(model)
        callback.on_train_begin()
        stops = []
        capsys.readouterr()
        for value in CURVES[curve]:
            callback.on_eval_end({callback.monitor: [value]})
            stops.append((model.stop_training, callback.wait_epoch, float(callback.best_value)))
        seen.append((stops, model.saved, capsys.readouterr().out))
    assert seen[1] == seen[0]


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize(
    "options",
    [
        {"patience": 1},
        {"patience": 2, "cooldown": 2, "factor": 0.5},
        {"patience": 1, "min_lr": 0.02, "factor": 0.5},
        {"monitor": "acc", "patience": 2},
        {"mode": "max", "patience": 1, "min_delta": 0.15},
    ],
    ids=str,
)
def test_reduce_on_plateau(paddle, curve, options):
    seen = []
    for lib in (paddle, bireme):
        callback, model = lib.callbacks.ReduceLROnPlateau(verbose=0, **options), FakeModel(lib)
        callback.set_model(model)
        callback.on_train_begin()
        rates = []
        for value in CURVES[curve]:
            callback.on_eval_end({callback.monitor: value})
            rates.append(round(model._optimizer.get_lr(), 9))
        seen.append(rates)
    assert seen[1] == seen[0]


def test_warnings_and_errors(capsys):
    plateau = bireme.callbacks.ReduceLROnPlateau()
    plateau.set_model(FakeModel(bireme))
    with pytest.warns(UserWarning, match="neither the loss nor a metric"):
        plateau.on_eval_end({})
    with pytest.warns(UserWarning, match="neither the loss nor a metric"):
        bireme.callbacks.EarlyStopping().on_eval_end({})
    with pytest.warns(UserWarning, match="unknown mode"):
        bireme.callbacks.EarlyStopping(mode="best")
    with pytest.raises(ValueError, match="below 1"):
        bireme.callbacks.ReduceLROnPlateau(factor=1.5)
    with pytest.raises(ValueError, match="not both"):
        bireme.callbacks.LRScheduler(True, True)
    net = bireme.nn.Linear(1, 1)
    schedule = bireme.optimizer.lr.StepDecay(0.1, 2)
    plateau.model._optimizer = bireme.optimizer.SGD(schedule, net.parameters())
    with pytest.warns(UserWarning, match="schedule instead"):
        plateau.on_eval_end({"loss": 1.0})


def fit(callbacks, **options):
    x = np.ones((4, 2), "float32")
    net = bireme.nn.Linear(2, 1)
    model = bireme.Model(net, bireme.static.InputSpec([None, 2], "float32", "x"))
    schedule = bireme.optimizer.lr.StepDecay(0.1, 1, 0.5)
    model.prepare(bireme.optimizer.SGD(schedule, net.parameters()), bireme.nn.MSELoss())
    batches = [[x[:2], x[:2, :1]], [x[2:], x[2:, :1]]]
    model.fit(batches, batches, epochs=2, verbose=0, callbacks=callbacks, **options)
    return model, schedule


def test_schedule_by_step_and_by_epoch():
    assert fit(None)[1].last_epoch == 4
    assert fit(bireme.callbacks.LRScheduler(False, True))[1].last_epoch == 2
    assert fit(bireme.callbacks.LRScheduler(False, False))[1].last_epoch == 0


def test_checkpoints(tmp_path, capsys):
    fit(bireme.callbacks.ModelCheckpoint(2, str(tmp_path)))
    # SGD with a schedule has a state to save: the schedule's.
    assert sorted(os.listdir(tmp_path)) == [
        "0.pdopt",
        "0.pdparams",
        "final.pdopt",
        "final.pdparams",
    ]
    fit([bireme.callbacks.EarlyStopping(patience=9)], save_dir=str(tmp_path / "b"))
    assert "best_model.pdparams" in os.listdir(tmp_path / "b")


def test_early_stopping_ends_fit(capsys):
    model, schedule = fit([bireme.callbacks.EarlyStopping(patience=0)])
    assert model.stop_training
    assert schedule.last_epoch == 2
    with pytest.warns(UserWarning, match="needs validation data"):
        model.fit([[np.ones((2, 2), "float32"), np.ones((2, 1), "float32")]], verbose=0,
                  callbacks=[bireme.callbacks.EarlyStopping()])  # fmt: skip


def test_visualdl(monkeypatch):
    written = []

    class LogWriter:
        def __init__(self, folder):
            written.append(folder)

        def add_scalar(self, tag, step, value):
            written.append((tag, step, type(value)))

        def close(self):
            written.append("closed")

    monkeypatch.setitem(sys.modules, "visualdl", types.SimpleNamespace(LogWriter=LogWriter))
    fit([bireme.callbacks.VisualDL("logs")])
    assert written == [
        "logs",
        ("train/loss", 1, float),
        ("train/loss", 2, float),
        ("eval/loss", 0, float),
        ("train/loss", 3, float),
        ("train/loss", 4, float),
        ("eval/loss", 1, float),
        "closed",
    ]


def test_wandb(monkeypatch):
    class Run:
        def __init__(self):
            self.calls = []

        def define_metric(self, name, step_metric=None):
            self.calls.append(("define", name, step_metric))

        def log(self, values):
            self.calls.append(sorted(values))

        def finish(self):
            self.calls.append("finish")

    run = Run()
    given = {}
    fake = types.SimpleNamespace(run=None, init=lambda **kw: given.update(kw) or run)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    fit([bireme.callbacks.WandbCallback(project="p", tags=["x"])])
    assert given["project"] == "p"
    assert given["tags"] == ["x"]
    assert run.calls[0] == ("define", "train/step", None)
    assert ["train/loss", "train/step"] in run.calls
    assert ["epoch", "eval/loss"] in run.calls
    assert run.calls[-1] == "finish"


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match="pip install wandb"):
        bireme.callbacks.WandbCallback()
