"""What happens around the steps of `Model.fit`, `evaluate` and `predict`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bireme.core.errors import InvalidArgument
from bireme.hapi.progressbar import ProgressBar
from bireme.optimizer.schedule import LRScheduler as Schedule

if TYPE_CHECKING:
    from bireme.hapi.model import Model


Logs = dict[str, Any]


def is_first_process() -> bool:
    """Whether this process prints and saves; the launcher numbers the processes."""
    return os.environ.get("PADDLE_TRAINER_ID", "0") == "0"


def say(message: str) -> None:
    print(message)  # noqa: T201 (a progress report is the purpose)


class Callback:
    """Base of callbacks: override what you need.

    Each method gets `logs`, a dict with the loss and the metrics so far. `self.model` is the
    Model, `self.params` a dict with `epochs`, `steps`, `verbose`, `batch_size` and `metrics`.
    """

    def __init__(self) -> None:
        self.model: Any = None
        self.params: dict[str, Any] = {}

    def set_params(self, params: dict[str, Any]) -> None:
        self.params = params

    def set_model(self, model: Model) -> None:
        self.model = model

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Before the first epoch."""

    def on_train_end(self, logs: Logs | None = None) -> None:
        """After the last epoch."""

    def on_eval_begin(self, logs: Logs | None = None) -> None:
        """Before an evaluation; `logs` has `steps` and `metrics`."""

    def on_eval_end(self, logs: Logs | None = None) -> None:
        """After an evaluation."""

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        """Before a prediction."""

    def on_predict_end(self, logs: Logs | None = None) -> None:
        """After a prediction."""

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Before an epoch."""

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """After an epoch, before its evaluation."""

    def on_train_batch_begin(self, step: int, logs: Logs | None = None) -> None:
        """Before a training step."""

    def on_train_batch_end(self, step: int, logs: Logs | None = None) -> None:
        """After a training step."""

    def on_eval_batch_begin(self, step: int, logs: Logs | None = None) -> None:
        """Before a batch of an evaluation."""

    def on_eval_batch_end(self, step: int, logs: Logs | None = None) -> None:
        """After a batch of an evaluation."""

    def on_predict_batch_begin(self, step: int, logs: Logs | None = None) -> None:
        """Before a batch of a prediction."""

    def on_predict_batch_end(self, step: int, logs: Logs | None = None) -> None:
        """After a batch of a prediction."""


class CallbackList:
    """Calls all callbacks in order."""

    def __init__(self, callbacks: Sequence[Callback]):
        self.callbacks = list(callbacks)

    def __iter__(self) -> Iterator[Callback]:
        return iter(self.callbacks)

    def append(self, callback: Callback) -> None:
        self.callbacks.append(callback)

    def set_params(self, params: dict[str, Any]) -> None:
        self._call("set_params", params)

    def set_model(self, model: Model) -> None:
        self._call("set_model", model)

    def _call(self, name: str, *args: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, name)(*args)

    def on_begin(self, mode: str, logs: Logs | None = None) -> None:
        self._call(f"on_{mode}_begin", logs)

    def on_end(self, mode: str, logs: Logs | None = None) -> None:
        self._call(f"on_{mode}_end", logs)

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._call("on_epoch_begin", epoch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._call("on_epoch_end", epoch, logs)

    def on_batch_begin(self, mode: str, step: int, logs: Logs | None = None) -> None:
        self._call(f"on_{mode}_batch_begin", step, logs)

    def on_batch_end(self, mode: str, step: int, logs: Logs | None = None) -> None:
        self._call(f"on_{mode}_batch_end", step, logs)


class _Clock:
    """Time spent waiting for data and computing, since it was last read."""

    def __init__(self) -> None:
        self.data = self.work = 0.0
        self.batches = self.samples = 0
        self._last = time.time()

    def data_is_here(self) -> None:
        now = time.time()
        self.data += now - self._last
        self._last = now

    def batch_is_done(self, samples: int) -> None:
        now = time.time()
        self.work += now - self._last
        self._last = now
        self.batches += 1
        self.samples += samples

    def figures(self) -> list[tuple[str, str]]:
        """Averages for the progress line; starts counting afresh."""
        batches, total = max(self.batches, 1), max(self.data + self.work, 1e-9)
        found = [
            ("avg_reader_cost", f"{self.data / batches:.5f} sec"),
            ("avg_batch_cost", f"{self.work / batches:.5f} sec"),
            ("ips", f"{max(self.samples, 1) / total:.5f} samples/sec"),
        ]
        self.data = self.work = 0.0
        self.batches = self.samples = 0
        return found


class _Progress:
    """One run over a data loader: its bar, its clock, how far it has come."""

    def __init__(self, steps: int | None, metrics: Sequence[str], verbose: int, log_freq: int):
        self.steps, self.metrics = steps, list(metrics)
        self.verbose, self.log_freq = verbose, log_freq
        self.step = self.samples = 0
        self.bar = ProgressBar(num=steps, verbose=verbose)
        self.clock = _Clock()

    def batch_end(self, logs: Logs, shown: bool) -> None:
        size = logs.get("batch_size", 1)
        self.step += 1
        self.samples += size
        self.clock.batch_is_done(size)
        last = self.steps is not None and self.step >= self.steps
        if shown and self.step % self.log_freq == 0 and not last:
            self.show(logs)

    def show(self, logs: Logs) -> None:
        values: list[tuple[str, Any]] = [(k, logs[k]) for k in self.metrics if k in logs]
        if self.verbose == 3:
            values += self.clock.figures()
        self.bar.update(self.step, values)


class ProgBarLogger(Callback):
    """Prints losses and metrics every `log_freq` steps.

    `verbose` 0 prints nothing, 1 a bar, 2 a line each time, 3 a line with timings.
    """

    def __init__(self, log_freq: int = 1, verbose: int = 2) -> None:
        super().__init__()
        self.log_freq, self.verbose = log_freq, verbose
        self.epochs: int | None = None
        self._train: Any = None
        self._eval: Any = None
        self._test: Any = None

    def _shown(self) -> bool:
        return bool(self.verbose) and is_first_process()

    def _progress(self, steps: int | None, metrics: Sequence[str]) -> _Progress:
        return _Progress(steps, metrics, self.verbose, self.log_freq)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.epochs = self.params["epochs"]
        if self._shown():
            say("Losses are those of the step shown; metrics are averages over the epoch so far.")

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        if self.epochs and self._shown():
            say(f"Epoch {epoch + 1}/{self.epochs}")
        self._train = self._progress(self.params["steps"], self.params["metrics"])

    def on_train_batch_begin(self, step: int, logs: Logs | None = None) -> None:
        self._train.clock.data_is_here()

    def on_train_batch_end(self, step: int, logs: Logs | None = None) -> None:
        self._train.batch_end(logs or {}, self._shown())

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if self._shown() and self._train.steps is not None:
            self._train.show(logs or {})

    def on_eval_begin(self, logs: Logs | None = None) -> None:
        logs = logs or {}
        self._eval = self._progress(logs.get("steps"), logs.get("metrics", []))
        if self._shown():
            say("Eval begin...")

    def on_eval_batch_begin(self, step: int, logs: Logs | None = None) -> None:
        self._eval.clock.data_is_here()

    def on_eval_batch_end(self, step: int, logs: Logs | None = None) -> None:
        self._eval.batch_end(logs or {}, self._shown())

    def on_eval_end(self, logs: Logs | None = None) -> None:
        if self._shown() and self._eval.steps is not None:
            self._eval.show(logs or {})
            say(f"Eval samples: {self._eval.samples}")

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        logs = logs or {}
        self._test = self._progress(logs.get("steps"), logs.get("metrics", []))
        if self._shown():
            say("Predict begin...")

    def on_predict_batch_begin(self, step: int, logs: Logs | None = None) -> None:
        self._test.clock.data_is_here()

    def on_predict_batch_end(self, step: int, logs: Logs | None = None) -> None:
        self._test.batch_end(logs or {}, self._shown())

    def on_predict_end(self, logs: Logs | None = None) -> None:
        if self._shown():
            if self._test.step % self.log_freq or self.verbose == 1:
                self._test.show(logs or {})
            say(f"Predict samples: {self._test.samples}")


class ModelCheckpoint(Callback):
    """Saves the model every `save_freq` epochs as `<save_dir>/<epoch>`, at the end as `final`."""

    def __init__(self, save_freq: int = 1, save_dir: str | None = None) -> None:
        super().__init__()
        self.save_freq, self.save_dir = save_freq, save_dir

    def _save(self, name: Any) -> None:
        if self.model and self.save_dir and is_first_process():
            path = f"{self.save_dir}/{name}"
            say(f"save checkpoint at {os.path.abspath(path)}")
            self.model.save(path)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if epoch % self.save_freq == 0:
            self._save(epoch)

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._save("final")


class LRScheduler(Callback):
    """Steps the optimizer's learning-rate schedule after each batch, or after each epoch."""

    def __init__(self, by_step: bool = True, by_epoch: bool = False) -> None:
        super().__init__()
        if by_step and by_epoch:
            raise InvalidArgument("[LRScheduler] choose by_step or by_epoch, not both")
        self.by_step, self.by_epoch = by_step, by_epoch

    def _advance(self) -> None:
        optimizer = getattr(self.model, "_optimizer", None)
        schedule = getattr(optimizer, "_learning_rate", None)
        if isinstance(schedule, Schedule):
            schedule.step()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if self.by_epoch:
            self._advance()

    def on_train_batch_end(self, step: int, logs: Logs | None = None) -> None:
        if self.by_step:
            self._advance()


def configure(
    callbacks: Callback | Sequence[Callback] | None,
    model: Model | None,
    *,
    batch_size: int | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    log_freq: int = 2,
    verbose: int = 2,
    save_freq: int = 1,
    save_dir: str | None = None,
    metrics: Sequence[str] = (),
) -> CallbackList:
    """The user's callbacks with those that every run has: progress, checkpoints, schedule."""
    from bireme.hapi.monitors import EarlyStopping

    chosen = [callbacks] if isinstance(callbacks, Callback) else list(callbacks or ())
    if verbose and not any(isinstance(c, ProgBarLogger) for c in chosen):
        chosen.insert(0, ProgBarLogger(log_freq, verbose=verbose))
    if not any(isinstance(c, ModelCheckpoint) for c in chosen):
        chosen.append(ModelCheckpoint(save_freq, save_dir))
    if not any(isinstance(c, LRScheduler) for c in chosen):
        chosen.append(LRScheduler())
    for callback in chosen:
        if isinstance(callback, EarlyStopping):
            callback.save_dir = save_dir
    result = CallbackList(chosen)
    if model is not None:
        result.set_model(model)
    result.set_params(
        {
            "batch_size": batch_size,
            "epochs": epochs,
            "steps": steps,
            "verbose": verbose,
            "metrics": list(metrics),
        }
    )
    return result


def config_callbacks(
    callbacks: Callback | Sequence[Callback] | None = None,
    model: Model | None = None,
    batch_size: int | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    log_freq: int = 2,
    verbose: int = 2,
    save_freq: int = 1,
    save_dir: str | None = None,
    metrics: Sequence[str] | None = None,
    mode: str = "train",
) -> CallbackList:
    """The callbacks of a loop of one's own: call `on_begin`, `on_batch_end` … of the result."""
    return configure(
        callbacks,
        model,
        batch_size=batch_size,
        epochs=epochs,
        steps=steps,
        log_freq=log_freq,
        verbose=verbose,
        save_freq=save_freq,
        save_dir=save_dir,
        metrics=() if mode == "test" or metrics is None else metrics,
    )
