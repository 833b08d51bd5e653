"""Callbacks that watch a metric: stopping early, smaller steps, logs for other tools."""

from __future__ import annotations

import math
import numbers
import os
import warnings
from typing import Any

from bireme.core.errors import InvalidArgument
from bireme.hapi.callbacks import Callback, Logs, is_first_process, say
from bireme.utils.imports import try_import


def _number(value: Any) -> float | None:
    """The first of several values; None if it is no number."""
    if isinstance(value, list | tuple):
        value = value[0]
    return float(value) if isinstance(value, numbers.Number) else None  # type: ignore[arg-type]


class _Best:
    """The best value so far; what is better depends on the mode and on the metric's name."""

    def __init__(self, monitor: str, mode: str, min_delta: float, owner: str):
        if mode not in ("auto", "min", "max"):
            warnings.warn(f"{owner}: unknown mode {mode!r}, using 'auto'", stacklevel=3)
            mode = "auto"
        self.mode = mode
        self.larger = mode == "max" or (mode == "auto" and "acc" in monitor)
        self.min_delta = abs(min_delta)
        self.value = 0.0
        self.reset(None)

    def reset(self, baseline: float | None) -> None:
        worst = -math.inf if self.larger else math.inf
        self.value = worst if baseline is None else baseline

    def improves(self, current: float) -> bool:
        """Whether `current` is better by `min_delta`; then it is the best."""
        gain = current - self.value if self.larger else self.value - current
        if gain > self.min_delta:
            self.value = current
            return True
        return False


class EarlyStopping(Callback):
    """Stops `fit` when the evaluated `monitor` has not improved for `patience` evaluations.

    With a `save_dir` in `fit` the best model so far is kept as `<save_dir>/best_model`.
    """

    def __init__(
        self,
        monitor: str = "loss",
        mode: str = "auto",
        patience: int = 0,
        verbose: int = 1,
        min_delta: float = 0,
        baseline: float | None = None,
        save_best_model: bool = True,
    ) -> None:
        super().__init__()
        self.monitor, self.patience, self.verbose = monitor, patience, verbose
        self.baseline, self.save_best_model = baseline, save_best_model
        self.save_dir: str | None = None
        self.wait_epoch = self.stopped_epoch = 0
        self._best = _Best(monitor, mode, min_delta, "EarlyStopping")

    @property
    def best_value(self) -> float:
        return self._best.value

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.wait_epoch = 0
        self._best.reset(self.baseline)

    def on_eval_end(self, logs: Logs | None = None) -> None:
        if logs is None or self.monitor not in logs:
            warnings.warn(
                f"EarlyStopping: {self.monitor!r} is neither the loss nor a metric", stacklevel=2
            )
            return
        current = _number(logs[self.monitor])
        if current is None:
            return
        best = os.path.join(self.save_dir or "", "best_model")
        keeps = self.save_best_model and self.save_dir is not None
        if self._best.improves(current):
            self.wait_epoch = 0
            if keeps:
                self.model.save(best)
        else:
            self.wait_epoch += 1
        if self.wait_epoch >= self.patience:
            self.model.stop_training = True
            if self.verbose > 0:
                say(f"Epoch {self.stopped_epoch + 1}: Early stopping.")
                if keeps:
                    say(f"Best checkpoint has been saved at {os.path.abspath(best)}")
        self.stopped_epoch += 1


class ReduceLROnPlateau(Callback):
    """Multiplies the learning rate by `factor` when the evaluated `monitor` stops improving."""

    def __init__(
        self,
        monitor: str = "loss",
        factor: float = 0.1,
        patience: int = 10,
        verbose: int = 1,
        mode: str = "auto",
        min_delta: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0,
    ) -> None:
        super().__init__()
        if factor >= 1.0:
            raise InvalidArgument(f"[ReduceLROnPlateau] factor must be below 1. Received: {factor}")
        self.monitor, self.factor, self.patience = monitor, factor, patience
        self.verbose, self.cooldown, self.min_lr = verbose, cooldown, min_lr
        self.epoch = self.wait = self.cooldown_counter = 0
        self._best = _Best(monitor, mode, min_delta, "ReduceLROnPlateau")

    @property
    def best(self) -> float:
        return self._best.value

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.wait = self.cooldown_counter = 0
        self._best.reset(None)

    def in_cooldown(self) -> bool:
        """Whether the last reduction is too recent for another."""
        return self.cooldown_counter > 0

    def on_eval_end(self, logs: Logs | None = None) -> None:
        if logs is None or self.monitor not in logs:
            warnings.warn(
                f"ReduceLROnPlateau: {self.monitor!r} is neither the loss nor a metric",
                stacklevel=2,
            )
            return
        optimizer = self.model._optimizer
        if not isinstance(getattr(optimizer, "_learning_rate", None), float):
            warnings.warn(
                "ReduceLROnPlateau changes a constant learning rate; this optimizer has a "
                "schedule instead",
                stacklevel=2,
            )
            return
        current = _number(logs[self.monitor])
        if current is None:
            return
        if self.in_cooldown():
            self.cooldown_counter -= 1
            self.wait = 0
        if self._best.improves(current):
            self.wait = 0
        elif not self.in_cooldown():
            self.wait += 1
            if self.wait >= self.patience:
                self._reduce(optimizer)
        self.epoch += 1

    def _reduce(self, optimizer: Any) -> None:
        rate = optimizer.get_lr()
        if rate <= self.min_lr:
            return
        smaller = max(rate * self.factor, float(self.min_lr))
        optimizer.set_lr(smaller)
        if self.verbose > 0 and is_first_process():
            say(f"\nEpoch {self.epoch + 1}: learning rate reduced to {smaller}.")
        self.cooldown_counter = self.cooldown
        self.wait = 0


class _Tracker(Callback):
    """Hands the loss and the metrics of every step and evaluation to another tool."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = self.train_step = 0
        self._fitting = False
        self._eval_metrics: list[str] = []

    def write(self, mode: str, step: int, values: dict[str, float]) -> None:
        """Take values of one step or evaluation."""
        raise NotImplementedError

    def close(self) -> None:
        """The run is over."""
        raise NotImplementedError

    def _update(self, mode: str, step: int, names: list[str], logs: Logs | None) -> None:
        if not is_first_process():
            return
        found = {name: _number((logs or {})[name]) for name in names if name in (logs or {})}
        self.write(mode, step, {k: v for k, v in found.items() if v is not None})

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._fitting, self.train_step = True, 0

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, step: int, logs: Logs | None = None) -> None:
        self.train_step += 1
        self._update("train", self.train_step, self.params["metrics"], logs)

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._fitting = False
        if is_first_process():
            self.close()

    def on_eval_begin(self, logs: Logs | None = None) -> None:
        self._eval_metrics = list((logs or {}).get("metrics", []))

    def on_eval_end(self, logs: Logs | None = None) -> None:
        self._update("eval", self.epoch, self._eval_metrics, logs)
        if not self._fitting and is_first_process():
            self.close()


class VisualDL(_Tracker):
    """Writes losses and metrics for the VisualDL dashboard; needs the package `visualdl`."""

    def __init__(self, log_dir: str) -> None:
        super().__init__()
        self.log_dir = log_dir
        self._writer: Any = None

    def write(self, mode: str, step: int, values: dict[str, float]) -> None:
        if self._writer is None:
            self._writer = try_import("visualdl").LogWriter(self.log_dir)
        for name, value in values.items():
            self._writer.add_scalar(tag=f"{mode}/{name}", step=step, value=value)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class WandbCallback(_Tracker):
    """Logs losses and metrics to Weights & Biases; needs the package `wandb`."""

    def __init__(
        self,
        project: str | None = None,
        entity: str | None = None,
        name: str | None = None,
        dir: str | None = None,
        mode: str | None = None,
        job_type: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.wandb = try_import("wandb")
        given = {"project": project, "name": name, "entity": entity, "dir": dir, "mode": mode}
        self.wandb_args = {**given, "job_type": job_type, **kwargs}
        self._run: Any = None
        _ = self.run  # starts it, as Paddle's does

    @property
    def run(self) -> Any:
        """The run that is logged to; a run that is in progress is used."""
        if self._run is None and is_first_process():
            if self.wandb.run is not None:
                warnings.warn(
                    "WandbCallback: a run is in progress and is used; call wandb.finish() first "
                    "to begin another",
                    stacklevel=2,
                )
            self._run = self.wandb.run or self.wandb.init(**self.wandb_args)
        return self._run

    def on_train_begin(self, logs: Logs | None = None) -> None:
        super().on_train_begin(logs)
        if is_first_process():
            for prefix, step in (("train", "train/step"), ("eval", "epoch")):
                self.run.define_metric(step)
                self.run.define_metric(f"{prefix}/*", step_metric=step)

    def write(self, mode: str, step: int, values: dict[str, float]) -> None:
        named = {f"{mode}/{name}": value for name, value in values.items()}
        self.run.log({"train/step" if mode == "train" else "epoch": step, **named})

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None
