"""Engine: a model trained, evaluated and run over all devices, with a layout that is planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.distributed.auto_parallel.dataloader import shard_dataloader
from bireme.distributed.auto_parallel.dist_model import DistModel
from bireme.distributed.auto_parallel.layouts import layout_of
from bireme.distributed.auto_parallel.strategy import Strategy
from bireme.distributed.environment import get_world_size
from bireme.distributed.mesh import ProcessMesh, get_mesh, set_mesh
from bireme.host import jax_door
from bireme.io.dataloader import DataLoader
from bireme.io.serialization import load_together, save_together

if TYPE_CHECKING:
    from bireme.distributed.planner import Cluster, Plan
    from bireme.hapi.callbacks import Callback
    from bireme.io.dataset import Dataset
    from bireme.metric import Metric
    from bireme.nn.layer.layer import Layer
    from bireme.optimizer.optimizer import Optimizer

_MODES = ("train", "eval", "predict")


class History:
    """What `fit` returns: `history[name]` has a number per epoch."""

    def __init__(self) -> None:
        self.epoch: list[int] = []
        self.history: dict[str, list[Any]] = {}

    def add(self, epoch: int, logs: dict[str, Any]) -> None:
        self.epoch.append(epoch)
        for name, value in logs.items():
            self.history.setdefault(name, []).append(value)


class Engine:
    """A model with its loss, optimizer and metrics, on all devices of the job.

    A model whose parameters lie on a mesh stays as it is. Otherwise the planner chooses a layout
    when the first batch is known (`strategy.auto_mode`: with "full" it plans the rest of a model
    that is laid out in part). `cluster` replaces what it would measure. A sample of a dataset is
    inputs and a label; `…_sample_split` says how many of its entries are inputs.

    >>> engine = Engine(model, loss, optimizer, metrics)  # doctest: +SKIP
    >>> engine.fit(dataset, epochs=2, batch_size=64)  # doctest: +SKIP
    """

    def __init__(
        self,
        model: Layer | None = None,
        loss: Callable[..., Any] | None = None,
        optimizer: Optimizer | None = None,
        metrics: Metric | Sequence[Metric] | None = None,
        cluster: Cluster | None = None,
        strategy: Strategy | None = None,
    ) -> None:
        from bireme.nn.layer.layer import Layer

        if not isinstance(model, Layer):
            raise TypeMismatch(f"[Engine] model is a Layer. Received: {type(model).__name__}")
        if loss is not None and not callable(loss):
            raise TypeMismatch(f"[Engine] loss is a function or a Layer. Received: {loss!r:.80}")
        if strategy is not None and not isinstance(strategy, Strategy):
            raise TypeMismatch(
                f"[Engine] strategy is a Strategy. Received: {type(strategy).__name__}"
            )
        self._model, self._loss, self._optimizer = model, loss, optimizer
        given: Any = metrics if isinstance(metrics, list | tuple) else [metrics]
        self._metrics: list[Metric] = [m for m in given if m is not None]
        self._cluster, self._strategy = cluster, strategy or Strategy()
        self._dist: DistModel | None = None
        self._plan: Plan | None = None
        self._mesh: ProcessMesh | None = None
        self._batch_dim: str | None = None
        self._mode: str | None = None
        self._specs: list[Any] = []

    # --- the layout -----------------------------------------------------------------------

    def prepare(
        self,
        inputs_spec: Any = None,
        labels_spec: Any = None,
        inputs: Sequence[Tensor] | None = None,
        labels: Sequence[Tensor] | None = None,
        main_program: object = None,
        startup_program: object = None,
        mode: str | None = None,
        init_parameters: bool = True,
    ) -> None:
        """Lay the model out for batches of these types. `fit` and the others do so themselves."""
        if main_program is not None or startup_program is not None:
            raise InvalidArgument(
                "[Engine.prepare] there are no programs to pass: a model is laid out as it is. Use "
                "paddle.static.Executor for static programs"
            )
        if mode is not None:
            self._check_mode(mode)
        given = _listed(inputs if inputs is not None else inputs_spec)
        targets = _listed(labels if labels is not None else labels_spec)
        if not given:
            raise InvalidArgument("[Engine.prepare] pass inputs_spec, the types of the inputs")
        if init_parameters:
            for parameter in self._model.parameters():
                parameter.initialize()
        self._lay_out(given, targets)
        if mode is not None:
            self.to_mode(mode)

    def _lay_out(self, inputs: list[Any], labels: list[Any]) -> None:
        if self._dist is not None:
            return
        self._specs = inputs
        marked = [x for p in self._model.parameters() if (x := layout_of(p)) is not None]
        optimizer: Any = self._optimizer
        if marked and self._strategy.auto_mode == "semi":
            self._mesh = marked[0][0]
        else:
            self._mesh = get_mesh() or ProcessMesh(np.arange(_devices()), ["dp"])
            optimizer = self._planned(inputs, labels)
        names = self._mesh.dim_names
        self._batch_dim = next((n for n in ("dp", "sharding") if n in names), None)
        if self._batch_dim is not None and self._mesh.get_dim_size(self._batch_dim) == 1:
            self._batch_dim = None
        set_mesh(self._mesh)
        self._dist = DistModel(
            self._model, None, self._loss, optimizer, self._strategy, self._metrics
        )

    def _planned(self, inputs: list[Any], labels: list[Any]) -> Any:
        """Plan, and lay the model out; returns the optimizer for it."""
        from bireme.distributed.planner import plan

        mesh = self._mesh
        assert mesh is not None  # noqa: S101 (made by the caller)
        if mesh.size == 1 and self._cluster is None:
            return self._optimizer
        strategy = self._strategy
        degrees = {"micro_batches": 1}
        if strategy.sharding.enable:
            degrees["zero"] = strategy.sharding.stage
        self._plan = plan(
            self._model, inputs, mesh, optimizer=self._optimizer,
            loss=self._loss if labels else None, labels=labels, cluster=self._cluster,
            degrees=degrees, recompute="none" if strategy.recompute.enable else "auto",
        )  # fmt: skip
        self._mesh = self._plan.mesh
        if self._optimizer is None:
            self._plan.apply(self._model)
            return None
        return self._plan.apply(self._model, self._optimizer)[1]

    @property
    def plan(self) -> Plan | None:
        """The plan of the layout; None before the first batch, or if the model was laid out."""
        return self._plan

    def cost(
        self, inputs_spec: Any = None, labels_spec: Any = None, mode: str | None = None
    ) -> tuple[float, float]:
        """(milliseconds of a training step, bytes of the fullest device), as predicted."""
        if mode not in (None, "train"):
            raise InvalidArgument(
                f"[Engine.cost] training steps are predicted; mode is 'train'. Received: {mode!r}"
            )
        if self._plan is None:
            from bireme.distributed.planner import plan

            inputs, labels = _listed(inputs_spec) or self._specs, _listed(labels_spec)
            if not inputs:
                raise InvalidArgument("[Engine.cost] pass inputs_spec, the types of the inputs")
            mesh = get_mesh() or ProcessMesh(np.arange(_devices()), ["dp"])
            found = plan(
                self._model, inputs, mesh, optimizer=self._optimizer, cluster=self._cluster,
                loss=self._loss if labels else None, labels=labels, degrees={"micro_batches": 1},
            )  # fmt: skip
            return found.seconds * 1e3, found.memory
        return self._plan.seconds * 1e3, self._plan.memory

    # --- loops ----------------------------------------------------------------------------

    def fit(
        self,
        train_data: Dataset | DataLoader,
        train_sample_split: int | None = None,
        batch_size: int = 1,
        epochs: int = 1,
        steps_per_epoch: int | None = None,
        log_freq: int = 10,
        save_dir: str | None = None,
        save_freq: int = 1,
        valid_data: Dataset | DataLoader | None = None,
        valid_sample_split: int | None = None,
        valid_freq: int = 1,
        valid_steps: int | None = None,
        collate_fn: Callable[..., Any] | None = None,
        callbacks: Callback | Sequence[Callback] | None = None,
        verbose: int = 2,
    ) -> History:
        """Train. `batch_size` is that of all devices together."""
        from bireme.hapi.callbacks import configure

        loader = self.dataloader(train_data, batch_size, collate_fn=collate_fn)
        steps = _steps(loader, steps_per_epoch)
        self._ready(loader, train_sample_split, "train")
        history = History()
        calls = configure(
            callbacks, self, batch_size=batch_size, epochs=epochs, steps=steps,  # type: ignore[arg-type]
            log_freq=log_freq, verbose=verbose, save_freq=save_freq, save_dir=save_dir,
            metrics=["loss"],
        )  # fmt: skip
        calls.on_begin("train")
        for epoch in range(epochs):
            logs: dict[str, Any] = {}
            calls.on_epoch_begin(epoch)
            for step, (inputs, labels) in self._batches(loader, train_sample_split, steps):
                calls.on_batch_begin("train", step, logs)
                logs = {"loss": float(self._run(*inputs, *labels))}
                calls.on_batch_end("train", step, logs)
            if valid_data is not None and (epoch + 1) % valid_freq == 0:
                found = self.evaluate(
                    valid_data, valid_sample_split, batch_size, valid_steps, log_freq,
                    collate_fn, callbacks, verbose,
                )  # fmt: skip
                logs.update({f"val_{name}": value for name, value in found.items()})
                self.to_mode("train")
            calls.on_epoch_end(epoch, logs)
            history.add(epoch, logs)
        calls.on_end("train")
        return history

    def evaluate(
        self,
        valid_data: Dataset | DataLoader,
        valid_sample_split: int | None = None,
        batch_size: int = 1,
        steps: int | None = None,
        log_freq: int = 10,
        collate_fn: Callable[..., Any] | None = None,
        callbacks: Callback | Sequence[Callback] | None = None,
        verbose: int = 2,
    ) -> dict[str, Any]:
        """The mean loss of the batches, and the metrics."""
        from bireme.hapi.callbacks import configure

        loader = self.dataloader(valid_data, batch_size, drop_last=False, collate_fn=collate_fn)
        count = _steps(loader, steps)
        self._ready(loader, valid_sample_split, "eval")
        for metric in self._metrics:
            metric.reset()
        calls = configure(callbacks, self, log_freq=log_freq, verbose=verbose, metrics=["loss"])  # type: ignore[arg-type]
        calls.on_begin("eval", {"steps": count, "metrics": ["loss"]})
        losses: list[float] = []
        for step, (inputs, labels) in self._batches(loader, valid_sample_split, count):
            calls.on_batch_begin("eval", step)
            losses.append(float(self._run(*inputs, *labels)))
            calls.on_batch_end("eval", step, {"loss": losses[-1]})
        logs: dict[str, Any] = {"loss": float(np.mean(losses)) if losses else float("nan")}
        for metric in self._metrics:
            names, values = metric.name(), metric.accumulate()
            names = names if isinstance(names, list | tuple) else [names]
            values = values if isinstance(values, list | tuple) else [values]
            logs.update(zip(names, values, strict=True))
        calls.on_end("eval", logs)
        return logs

    def predict(
        self,
        test_data: Dataset | DataLoader,
        test_sample_split: int | None = None,
        batch_size: int = 1,
        steps: int | None = None,
        collate_fn: Callable[..., Any] | None = None,
        callbacks: Callback | Sequence[Callback] | None = None,
        verbose: int = 2,
    ) -> list[list[np.ndarray]]:
        """The model's results for each batch, as arrays."""
        from bireme.hapi.callbacks import configure

        loader = self.dataloader(test_data, batch_size, drop_last=False, collate_fn=collate_fn)
        count = _steps(loader, steps)
        self._ready(loader, test_sample_split, "predict")
        calls = configure(callbacks, self, verbose=verbose)  # type: ignore[arg-type]
        calls.on_begin("predict", {"steps": count})
        found: list[list[np.ndarray]] = []
        for step, (inputs, _) in self._batches(loader, test_sample_split, count):
            calls.on_batch_begin("predict", step)
            out = self._run(*inputs)
            found.append([x.numpy() for x in (out if isinstance(out, list | tuple) else [out])])
            calls.on_batch_end("predict", step, {})
        calls.on_end("predict")
        return found

    def dataloader(
        self,
        dataset: Dataset | DataLoader,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = True,
        collate_fn: Callable[..., Any] | None = None,
        num_workers: int = 0,
    ) -> DataLoader:
        """A loader of batches for all devices together; a loader stays as it is."""
        if isinstance(dataset, DataLoader):
            return dataset
        return DataLoader(
            dataset, batch_size=batch_size, shuffle=shuffle, drop_last=drop_last,
            collate_fn=collate_fn, num_workers=num_workers,
        )  # fmt: skip

    def run(self, data: Sequence[Any], mode: str | None = None) -> dict[str, Any]:
        """One batch, inputs and then the label: {"loss": …} or {"outputs": …}."""
        chosen = mode or self._mode or "train"
        self._check_mode(chosen)
        if self._dist is None:
            split = len(data) - (chosen != "predict")
            self._lay_out(list(data[:split]), list(data[split:]))
        self.to_mode(chosen)
        out = self._run(*data)
        if chosen != "predict":
            return {"loss": float(out)}
        return {"outputs": [x.numpy() for x in (out if isinstance(out, list | tuple) else [out])]}

    def to_mode(self, mode: str) -> None:
        """What the next calls do: "train", "eval" or "predict"."""
        self._check_mode(mode)
        self._mode = mode
        if self._dist is not None:
            getattr(self._dist, mode)()

    def _check_mode(self, mode: str) -> None:
        if mode not in _MODES:
            raise InvalidArgument(f"[Engine] mode is train, eval or predict. Received: {mode!r}")

    def _ready(self, loader: DataLoader, split: int | None, mode: str) -> None:
        if self._dist is None:
            inputs, labels = _parts(next(iter(loader)), split)
            self._lay_out(inputs, labels)
        self.to_mode(mode)

    def _batches(
        self, loader: DataLoader, split: int | None, steps: int | None
    ) -> Iterator[tuple[int, tuple[list[Any], list[Any]]]]:
        mesh = self._mesh
        assert mesh is not None  # noqa: S101 (laid out before)
        cut = shard_dataloader(loader, mesh, shard_dims=self._batch_dim)
        for step, batch in enumerate(islice(iter(cut), steps)):
            yield step, _parts(batch, split)

    def _run(self, *batch: Any) -> Any:
        assert self._dist is not None  # noqa: S101 (laid out before)
        return self._dist(*batch)

    # --- state ----------------------------------------------------------------------------

    def save(self, path: str, training: bool = True) -> None:
        """Write `path.pdparams` and `path.pdopt`; with `training=False` the model for inference,
        as `jit.save` does."""
        if not training:
            from bireme.jit import save

            save(self._model, path, input_spec=[_spec(x) for x in self._specs] or None)
            return
        optimizer = None if self._optimizer is None else self._optimizer.state_dict()
        save_together(
            {path + ".pdparams": self._model.state_dict(), path + ".pdopt": optimizer or None}
        )

    def load(
        self, path: str, strict: bool = True, load_optimizer: bool = True
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read what `save` wrote: the states of the model and of the optimizer. With `strict`
        every parameter must be there, in its shape."""
        endings = [".pdparams", ".pdopt"] if load_optimizer else [".pdparams"]
        found = [*load_together([path + e for e in endings]), None][:2]
        state, optimizer = found
        if state is None:
            raise InvalidArgument(f"[Engine.load] there is no file {path}.pdparams")
        own = self._model.state_dict()
        fitting = {
            k: v for k, v in state.items() if k in own and tuple(v.shape) == tuple(own[k].shape)
        }
        missing = sorted(set(own) - set(fitting))
        if strict and missing:
            raise InvalidArgument(
                f"[Engine.load] {path}.pdparams does not have {missing[0]!r} in the model's shape; "
                "strict=False leaves such parameters as they are"
            )
        if self._optimizer is not None and optimizer is not None:
            self._optimizer.set_state_dict(optimizer)
        self._model.set_state_dict(fitting)
        return state, optimizer or {}

    @property
    def optimizer(self) -> Optimizer | None:
        return self._optimizer


def _devices() -> int:
    world = get_world_size()
    return world if world > 1 else jax_door.jax().device_count()


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def _parts(batch: Any, split: int | None) -> tuple[list[Any], list[Any]]:
    """(inputs, labels) of a batch: the last of several entries is the label."""
    entries = list(batch) if isinstance(batch, list | tuple) else [batch]
    at = split if split is not None else max(1, len(entries) - 1)
    if not 0 < at <= len(entries):
        raise InvalidArgument(
            f"[Engine] a sample has {len(entries)} entries; sample_split cannot be {split}"
        )
    return entries[:at], entries[at:]


def _steps(loader: DataLoader, wanted: int | None) -> int | None:
    try:
        have = len(loader)
    except TypeError:
        return wanted
    return have if wanted is None else min(wanted, have)


def _spec(example: Any) -> Any:
    from bireme.static import InputSpec

    return InputSpec([None, *example.shape[1:]], str(example.dtype).rpartition(".")[2])


__all__ = ["Engine", "History"]
