"""Model: a network with its optimizer, loss and metrics, and the loops that use them.

A training step is recorded whole (forward, loss, metrics, backward, update) before anything is
read back, so it runs as one program.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bireme.amp import GradScaler, auto_cast
from bireme.api.types import DTypeLike, TensorLike
from bireme.autograd import no_grad
from bireme.core.errors import BiremeError, InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.hapi.amp_settings import AmpSettings
from bireme.hapi.callbacks import CallbackList, configure, is_first_process
from bireme.hapi.programs import Programs, stem_of
from bireme.hapi.summary import SizeLike, summary
from bireme.io import DataLoader, Dataset, DistributedBatchSampler
from bireme.io.serialization import load_together, no_such_file, save_together
from bireme.metric import Metric
from bireme.nn import Layer
from bireme.ops import modules
from bireme.static import InputSpec
from bireme.static.recorder import in_static_mode
from bireme.utils.layers_utils import flatten

if TYPE_CHECKING:
    from bireme.hapi.callbacks import Callback
    from bireme.optimizer.optimizer import Optimizer


Specs = InputSpec | Sequence[InputSpec] | dict[str, InputSpec]
# One input (or label), several in order, or several by name.
Batch: TypeAlias = "TensorLike | Sequence[TensorLike] | dict[str, TensorLike]"
# Losses, metrics, or both.
Results: TypeAlias = "list[Any] | tuple[list[np.ndarray], list[Any]]"

to_tensor = modules["creation"].to_tensor


class NotPrepared(BiremeError, RuntimeError):
    """A Model that was used before `prepare`."""


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


class Model:
    """A network that can train, evaluate, predict, save and load itself.

    >>> model = paddle.Model(paddle.nn.Linear(4, 2))
    >>> model.prepare(paddle.optimizer.SGD(0.1, model.parameters()), paddle.nn.CrossEntropyLoss())
    >>> model.fit(dataset, epochs=2, batch_size=32)

    `inputs` and `labels` are InputSpecs; they say how many of a batch's tensors are inputs.
    Without them the number of `forward`'s parameters does.
    """

    def __init__(
        self,
        network: Layer,
        inputs: Specs | None = None,
        labels: Specs | None = None,
    ) -> None:
        if not isinstance(network, Layer):
            raise TypeMismatch(f"[Model] takes a Layer. Received: {type(network).__name__}")
        self.mode = "train"
        self.network = network
        self.stop_training = False
        self._given = _specs(inputs, network)
        for i, spec in enumerate(self._given or ()):
            if spec.name is None:
                raise InvalidArgument(
                    f"[Model] inputs[{i}] needs a name: InputSpec(shape, dtype, name). "
                    f"Received: {spec}"
                )
        self._labels = _specs(labels, network)
        self._seen: list[InputSpec] | None = None
        self._optimizer: Any = None
        self._loss: Any = None
        self._metrics: list[Metric] = []
        self._amp = AmpSettings(None)
        self._scaler: GradScaler | None = None
        self._callee = _parallel(network)
        # A network that was made in static mode is run by programs.
        self._programs = None if not in_static_mode() else Programs(self, self._given)
        self._steps_left: int | None = None

    # --- one batch ------------------------------------------------------------------------

    def train_batch(
        self, inputs: Batch, labels: Batch | None = None, update: bool = True
    ) -> Results:
        """One step. Returns the losses, or (losses, metrics) where there are metrics.

        With `update=False` gradients add up until a step that updates.
        """
        if self._optimizer is None or self._loss is None:
            raise NotPrepared(
                "[train_batch] call prepare(optimizer, loss) first: training needs both"
            )
        if self._programs is not None:
            if not update:
                raise InvalidArgument(
                    "[train_batch] a program updates in every run: update must be True"
                )
            return self._ran(self._programs, "train", inputs, labels)
        self.network.train()
        self.mode = "train"
        tensors, truth = self._tensors(inputs), _as_tensors(labels)
        if self._amp.on and self._scaler is None:
            self._scaler = GradScaler(**self._amp.scaler)
        with auto_cast(enable=self._amp.on, level=self._amp.level, **self._amp.lists):
            outputs = _listed(self._callee(*tensors))
        losses = _listed(self._loss(*outputs, *truth))
        total = losses[0]
        for loss in losses[1:]:
            total = total + loss
        computed = self._computed(outputs, truth)
        scaler = self._scaler if self._amp.on else None
        (total if scaler is None else scaler.scale(total)).backward()
        if update:
            if scaler is None:
                self._optimizer.step()
            else:
                scaler.step(self._optimizer)
                scaler.update()
            self.network.clear_gradients()
            self._optimizer.clear_grad()
        return self._results(losses, computed)

    @no_grad()
    def eval_batch(self, inputs: Batch, labels: Batch | None = None) -> Results:
        """Losses and metrics of one batch, without training."""
        if self._programs is not None:
            return self._ran(self._programs, "eval", inputs, labels)
        self.network.eval()
        self.mode = "eval"
        tensors, truth = self._tensors(inputs), _as_tensors(labels)
        with self._narrow():
            outputs = _listed(self._callee(*tensors))
        losses = _listed(self._loss(*outputs, *truth)) if self._loss else None
        return self._results(losses, self._computed(outputs, truth))

    @no_grad()
    def predict_batch(self, inputs: Batch) -> list[np.ndarray]:
        """The network's outputs for one batch, as arrays."""
        if self._programs is not None:
            self.mode = "test"
            return self._programs.run("test", _values(inputs), [])[0]
        self.network.eval()
        self.mode = "test"
        tensors = self._tensors(inputs)
        with self._narrow():
            return [o.numpy() for o in _listed(self._callee(*tensors))]

    def _ran(self, programs: Programs, mode: str, inputs: Batch, labels: Any) -> Results:
        self.mode = mode
        _, losses, *computed = programs.run(mode, _values(inputs), _listed(labels))
        return self._results(losses if self._loss else None, computed)

    def _narrow(self) -> auto_cast:
        """Autocast for evaluation: needed where `prepare` has narrowed the parameters."""
        return auto_cast(enable=self._amp.level == "O2", level="O2", **self._amp.lists)

    def _tensors(self, inputs: Batch) -> list[Tensor]:
        tensors = _as_tensors(list(inputs.values()) if isinstance(inputs, dict) else inputs)
        if self._given is None and self._seen is None:
            names = _parameter_names(self.network)
            names += [f"input_{i}" for i in range(len(names), len(tensors))]
            self._seen = [
                InputSpec(t.shape, t.dtype, name) for t, name in zip(tensors, names, strict=False)
            ]
        return tensors

    def _computed(self, outputs: list[Any], truth: list[Tensor]) -> list[list[Any]]:
        """What the metrics need of a batch: recorded together with the step, read after it."""
        return [_listed(metric.compute(*outputs, *truth)) for metric in self._metrics]

    def _results(self, losses: list[Any] | None, computed: list[list[Any]]) -> Results:
        values = None if losses is None else [_array(loss) for loss in losses]
        figures = [
            metric.update(*[_array(c) for c in results])
            for metric, results in zip(self._metrics, computed, strict=True)
        ]
        if values is None:
            return figures
        return (values, figures) if figures else values

    # --- preparing, saving, loading -------------------------------------------------------

    def prepare(
        self,
        optimizer: Optimizer | None = None,
        loss: Callable[..., Any] | None = None,
        metrics: Metric | Sequence[Metric] | None = None,
        amp_configs: str | dict[str, Any] | None = None,
    ) -> None:
        """Choose what to train with.

        `amp_configs` is 'O1' or 'O2' for mixed precision, or a dict with `level`, lists of ops
        (`custom_white_list`, `custom_black_list`) and settings of the GradScaler.
        """
        if loss is not None and not callable(loss):
            raise TypeMismatch(
                f"[prepare] loss must be a Layer or a function. Received: {type(loss).__name__}"
            )
        for metric in _listed(metrics):
            if not isinstance(metric, Metric):
                raise TypeMismatch(
                    f"[prepare] metrics must be Metrics. Received: {type(metric).__name__}"
                )
        self._optimizer, self._loss, self._metrics = optimizer, loss, _listed(metrics)
        self._amp = AmpSettings(amp_configs)
        self._scaler = None
        if self._programs is not None:
            self._programs.forget()
        if self._amp.level == "O2" and optimizer is not None:
            from bireme.amp import decorate

            decorate(models=self.network, optimizers=optimizer, level="O2")

    def parameters(self, *args: Any, **kwargs: Any) -> list[Any]:
        """The network's parameters."""
        return self.network.parameters(*args, **kwargs)

    def save(self, path: str, training: bool = True) -> None:
        """Write `path.pdparams` and `path.pdopt`, which Paddle reads too.

        With `training=False` the network is saved for inference instead, as by `jit.save`.
        """
        if not is_first_process():
            return
        if not os.path.basename(path):
            raise InvalidArgument(f"[save] path must end in a file's name. Received: {path!r}")
        if not training and self._programs is not None:
            self._programs.save_for_inference(path)
            return
        if not training:
            self._save_for_inference(path)
            return
        if self._programs is not None:
            self._programs.save(path)
            return
        optimizer = None if self._optimizer is None else self._optimizer.state_dict()
        scaler = None if self._scaler is None else self._scaler.state_dict()
        # A state that this save does not have is removed: that of older weights does not fit these.
        save_together(
            {
                path + ".pdparams": self.network.state_dict(),
                path + ".pdopt": optimizer or None,
                path + ".pdscaler": scaler or None,
            }
        )

    def _save_for_inference(self, path: str) -> None:
        from bireme.jit import save as save_graph

        specs = self._given or self._seen
        if specs is None:
            raise NotPrepared(
                "[save] the inputs' shapes are not known: pass inputs=[InputSpec(...)] to Model, "
                "or run a batch first"
            )
        if self._given is None:
            shapes = [list(s.shape) for s in specs]
            warnings.warn(
                f"[save] the saved model takes the shapes of the first batch, {shapes}; pass "
                "inputs=[InputSpec(...)] to Model to keep sizes open",
                stacklevel=3,
            )
        save_graph(self.network, path, input_spec=specs)

    def load(self, path: str, skip_mismatch: bool = False, reset_optimizer: bool = False) -> None:
        """Read what `save` wrote, here or in Paddle.

        With `skip_mismatch` parameters that are missing or have another shape keep their values,
        with a warning, and the optimizer starts afresh.
        """
        path = stem_of(path)
        if self._programs is not None:
            self._programs.load(path, lambda *what: _unfit(skip_mismatch, *what), reset_optimizer)
            return
        endings = [".pdparams"]
        if self._scaler is not None:
            endings.append(".pdscaler")
        if self._optimizer is not None and not reset_optimizer:
            endings.append(".pdopt")
        parts = dict(zip(endings, load_together([path + e for e in endings]), strict=True))
        state, scaler = parts[".pdparams"], parts.get(".pdscaler")
        optimizer = parts.get(".pdopt")
        if state is None:
            raise no_such_file(path + ".pdparams")
        matched = []
        for key, tensor in self.network.state_dict().items():
            if _unfit(skip_mismatch, key, state.get(key), tensor):
                reset_optimizer = True
            else:
                matched.append((tensor, state[key]))
        # What may refuse its state comes first, so that an error leaves the network as it was.
        if self._optimizer is not None and not reset_optimizer and optimizer is not None:
            self._optimizer.set_state_dict(optimizer)
        if self._scaler is not None and scaler is not None:
            self._scaler.load_state_dict(scaler)
        for tensor, value in matched:
            tensor.set_value(value)

    # --- loops ----------------------------------------------------------------------------

    def fit(
        self,
        train_data: Dataset | Iterable[Any] | None = None,
        eval_data: Dataset | Iterable[Any] | None = None,
        batch_size: int | Sequence[int] = 1,
        epochs: int = 1,
        eval_freq: int = 1,
        log_freq: int = 10,
        save_dir: str | None = None,
        save_freq: int = 1,
        verbose: int = 2,
        drop_last: bool = False,
        shuffle: bool = True,
        num_workers: int = 0,
        callbacks: Callback | Sequence[Callback] | None = None,
        accumulate_grad_batches: int = 1,
        num_iters: int | None = None,
    ) -> None:
        """Train for `epochs`, or for `num_iters` steps, and evaluate every `eval_freq` epochs.

        Data is a Dataset, a DataLoader, or anything that gives batches when iterated.
        `accumulate_grad_batches` batches make one update.
        """
        if train_data is None:
            raise InvalidArgument("[fit] train_data is needed")
        if accumulate_grad_batches < 1:
            raise InvalidArgument(
                f"[fit] accumulate_grad_batches must be 1 or more. Received: "
                f"{accumulate_grad_batches}"
            )
        sizes = _listed(batch_size)
        if len(sizes) not in (1, 2):
            raise InvalidArgument(
                "[fit] batch_size is a number, or one for training and one for evaluation. "
                f"Received: {batch_size!r}"
            )
        train = self._loader(train_data, sizes[0], num_workers, shuffle, drop_last)
        evaluation = self._loader(eval_data, sizes[-1], num_workers)
        steps = _length(train)
        self._steps_left = _checked_iterations("fit", num_iters)
        if num_iters is not None and steps is not None:
            epochs, steps = num_iters // steps + 1, min(num_iters, steps)
        calls = configure(
            callbacks,
            self,
            epochs=epochs,
            steps=steps,
            log_freq=log_freq,
            save_freq=save_freq,
            save_dir=save_dir,
            verbose=verbose,
            metrics=self._metric_names(),
        )
        _warn_if_nothing_to_watch(calls, evaluation)
        self.stop_training = False
        calls.on_begin("train")
        logs: dict[str, Any] = {}
        for epoch in range(epochs):
            calls.on_epoch_begin(epoch)
            logs, _ = self._run_epoch(train, calls, "train", accumulate_grad_batches)
            calls.on_epoch_end(epoch, logs)
            if evaluation is not None and epoch % eval_freq == 0:
                left, self._steps_left = self._steps_left, None
                self._evaluate(evaluation, calls, _length(evaluation))
                self._steps_left = left
            if self.stop_training:
                break
        calls.on_end("train", logs)

    def evaluate(
        self,
        eval_data: Dataset | Iterable[Any],
        batch_size: int = 1,
        log_freq: int = 10,
        verbose: int = 2,
        num_workers: int = 0,
        callbacks: Callback | Sequence[Callback] | None = None,
        num_iters: int | None = None,
    ) -> dict[str, Any]:
        """The loss and the metrics over a dataset, or over `num_iters` batches of it."""
        loader = self._loader(eval_data, batch_size, num_workers)
        steps = _length(loader)
        self._steps_left = _checked_iterations("evaluate", num_iters)
        if num_iters is not None and steps is not None:
            steps = min(num_iters, steps)
        calls = configure(
            callbacks, self, log_freq=log_freq, verbose=verbose, metrics=self._metric_names()
        )
        logs = self._evaluate(loader, calls, steps)
        return {name: logs[name] for name in self._metric_names()}

    def predict(
        self,
        test_data: Dataset | Iterable[Any],
        batch_size: int = 1,
        num_workers: int = 0,
        stack_outputs: bool = False,
        verbose: int = 1,
        callbacks: Callback | Sequence[Callback] | None = None,
    ) -> list[Any]:
        """Outputs for a dataset: for each output of the network, its batches (or one array)."""
        loader = self._loader(test_data, batch_size, num_workers)
        self._steps_left = None
        calls = configure(callbacks, self, verbose=verbose)
        calls.on_begin("predict", {"steps": _length(loader)})
        logs, batches = self._run_epoch(loader, calls, "predict")
        outputs: list[Any] = list(zip(*batches, strict=True))
        if stack_outputs:
            outputs = [np.vstack(parts) for parts in outputs]
        calls.on_end("predict", logs)
        return outputs

    def summary(
        self, input_size: SizeLike | None = None, dtype: DTypeLike | None = None
    ) -> dict[str, int]:
        """Print the network's layers, shapes and numbers of parameters."""
        size = input_size if input_size is not None else self._given
        if size is None:
            raise InvalidArgument(
                "[summary] give input_size, or pass inputs=[InputSpec(...)] to Model"
            )
        return summary(self.network, size, dtypes=dtype)

    def _evaluate(self, loader: Any, calls: CallbackList, steps: int | None) -> dict[str, Any]:
        calls.on_begin("eval", {"steps": steps, "metrics": self._metric_names()})
        logs, _ = self._run_epoch(loader, calls, "eval")
        calls.on_end("eval", logs)
        return logs

    def _run_epoch(
        self, loader: Any, calls: CallbackList, mode: str, accumulate: int = 1
    ) -> tuple[dict[str, Any], list[Any]]:
        """One pass over the data: (the last logs, the outputs of a prediction)."""
        logs: dict[str, Any] = {}
        outputs: list[Any] = []
        steps = _length(loader)
        for step, batch in enumerate(loader):
            data = flatten(batch)
            calls.on_batch_begin(mode, step, logs)
            count = self._input_count()
            if mode == "predict":
                outputs.append(self.predict_batch(data[:count]))
            else:
                if mode == "train":
                    update = (step + 1) % accumulate == 0 or step + 1 == steps
                    result = self.train_batch(data[:count], data[count:], update)
                else:
                    result = self.eval_batch(data[:count], data[count:])
                logs.update(self._figures(result))
            logs["step"] = step
            logs["batch_size"] = int(data[0].shape[0])
            calls.on_batch_end(mode, step, logs)
            if self._steps_left is not None:
                self._steps_left -= 1
                if self._steps_left <= 0:
                    self.stop_training = True
                    break
        for metric in self._metrics:
            metric.reset()
        return logs, outputs

    def _figures(self, result: Any) -> dict[str, Any]:
        values: list[Any] = []
        if self._loss:
            losses = result[0] if self._metrics else result
            values.append([float(loss) for loss in losses])
        for metric in self._metrics:
            values += _listed(metric.accumulate())
        return dict(zip(self._metric_names(), values, strict=True))

    def _metric_names(self) -> list[str]:
        names = ["loss"] if self._loss else []
        for metric in self._metrics:
            names += _listed(metric.name())
        return names

    def _input_count(self) -> int:
        return len(_parameter_names(self.network) if self._given is None else self._given)

    def _loader(
        self, data: Any, size: int, workers: int, shuffle: bool = False, drop_last: bool = False
    ) -> Any:
        if not isinstance(data, Dataset):
            return data
        sampler = DistributedBatchSampler(data, size, shuffle=shuffle, drop_last=drop_last)
        return DataLoader(data, batch_sampler=sampler, num_workers=workers, return_list=True)


def _parallel(network: Layer) -> Any:
    """What is called: the network, or its data-parallel wrapper in a run of several processes."""
    if os.environ.get("PADDLE_TRAINERS_NUM", "1") == "1":
        return network
    import bireme

    bireme.distributed.init_parallel_env()
    return bireme.DataParallel(network)  # pyright: ignore[reportAttributeAccessIssue]


def _as_tensors(values: Any) -> list[Tensor]:
    return [v if isinstance(v, Tensor) else to_tensor(v) for v in _listed(values)]


def _values(inputs: Any) -> list[Any]:
    return _listed(list(inputs.values()) if isinstance(inputs, dict) else inputs)


def _array(value: Any) -> Any:
    return value.numpy() if isinstance(value, Tensor) else value


def _parameter_names(network: Layer) -> list[str]:
    """Names of forward's positional parameters."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = inspect.signature(network.forward).parameters.values()
    return [p.name for p in found if p.kind in kinds]


def _specs(given: Any, network: Layer) -> list[InputSpec] | None:
    if given is None or (isinstance(given, list | tuple | dict) and not given):
        return None
    if isinstance(given, dict):
        given = [given[name] for name in _parameter_names(network) if name in given]
    specs = _listed(given)
    for spec in specs:
        if not isinstance(spec, InputSpec):
            raise TypeMismatch(
                f"[Model] inputs and labels are InputSpecs. Received: {type(spec).__name__}"
            )
    return specs


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:  # a generator, or a stream without an end
        return None


def _checked_iterations(function: str, count: int | None) -> int | None:
    if count is not None and count < 1:
        raise InvalidArgument(f"[{function}] num_iters must be 1 or more. Received: {count}")
    return count


def _mismatch(key: str, value: Any, tensor: Tensor) -> str | None:
    if value is None:
        return f"{key} is not found in the providing file."
    if list(value.shape) != list(tensor.shape):
        return (
            f"{key} receives a shape {list(value.shape)}, but the expected shape is "
            f"{list(tensor.shape)}."
        )
    return None


def _unfit(skip: bool, key: str, value: Any, tensor: Tensor) -> bool:
    """Whether a stored value is to be left out: told of, or an error if none may be."""
    problem = _mismatch(key, value, tensor)
    if problem is not None and not skip:
        raise InvalidArgument(f"[load] {problem}")
    if problem is not None:
        warnings.warn(f"Skip loading for {key}. {problem}", stacklevel=3)
    return problem is not None


def _warn_if_nothing_to_watch(calls: CallbackList, evaluation: Any) -> None:
    from bireme.hapi.monitors import EarlyStopping

    if evaluation is None and any(isinstance(c, EarlyStopping) for c in calls):
        warnings.warn("EarlyStopping needs validation data.", stacklevel=3)


__all__ = ["Model"]
