"""A Model that was made in static mode: its steps are programs.

Each mode has a program of its own, written when it is first needed. They share the network's
parameters by name, which live in the global scope.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor, constant
from bireme.io.serialization import load_together, no_such_file, save_together
from bireme.optimizer.lr import LRScheduler
from bireme.static import Executor, InputSpec, Program, program_guard, save_inference_model
from bireme.static.executor import start_state
from bireme.static.program import data, default_startup_program, fitting
from bireme.static.recorder import running
from bireme.static.scope import global_scope

if TYPE_CHECKING:
    from bireme.hapi.model import Model


class _Step:
    """The program of one mode: what it is fed, and what is read of it."""

    def __init__(self) -> None:
        self.main, self.startup = Program(), Program()
        self.inputs: list[Tensor] = []
        self.labels: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.losses: list[Tensor] = []
        self.computed: list[list[Any]] = []  # of each metric


class Programs:
    """What a Model does with programs."""

    def __init__(self, model: Model, inputs: list[InputSpec] | None):
        if inputs is None:
            raise TypeMismatch(
                "[Model] in static mode the inputs must be known: pass inputs=[InputSpec(...)]"
            )
        self.model = model
        self.inputs = inputs
        self.startup = default_startup_program()  # of the network's parameters
        self.executor = Executor()
        self._steps: dict[str, _Step] = {}

    def forget(self) -> None:
        """The optimizer, the loss or the metrics are other ones now."""
        if self.model._amp.on:
            raise InvalidArgument(
                "[prepare] in static mode amp_configs must be None: decorate the optimizer with "
                "paddle.static.amp.decorate instead"
            )
        self._steps.clear()

    # --- running --------------------------------------------------------------------------

    def run(self, mode: str, inputs: list[Any], labels: list[Any]) -> tuple[list[Any], ...]:
        """(outputs, losses, what each metric computed) of one batch, as arrays."""
        step = self._step(mode)
        given = [*step.inputs, *(step.labels if labels else [])]
        values = [*inputs, *labels]
        if len(given) != len(values):
            raise InvalidArgument(
                f"[Model] a batch must have {len(step.inputs)} inputs and {len(step.labels)} "
                f"labels. Received: {len(inputs)} and {len(labels)}"
            )
        feed = {t.name: np.asarray(v) for t, v in zip(given, values, strict=True)}
        counts = [len(step.outputs), len(step.losses), *[len(c) for c in step.computed]]
        fetched = [*step.outputs, *step.losses, *[t for c in step.computed for t in c]]
        found = iter(self.executor.run(step.main, feed, fetched))
        return tuple([[next(found) for _ in range(n)] for n in counts])

    def _step(self, mode: str) -> _Step:
        if mode not in self._steps:
            self._steps[mode] = self._written(mode)
        return self._steps[mode]

    def _written(self, mode: str) -> _Step:
        model, step = self.model, _Step()
        model.network.train() if mode == "train" else model.network.eval()
        with program_guard(step.main, step.startup):
            step.inputs = [_declared(s) for s in self.inputs]
            step.outputs = _listed(model.network(*step.inputs))
            if mode != "test":
                specs = enumerate(model._labels or [])
                step.labels = [_declared(s, f"label_{i}") for i, s in specs]
                if model._loss is not None:
                    step.losses = _listed(model._loss(*step.outputs, *step.labels))
                step.computed = [
                    _listed(m.compute(*step.outputs, *step.labels)) for m in model._metrics
                ]
            if mode == "train":
                total = step.losses[0]
                for loss in step.losses[1:]:
                    total = total + loss
                model._optimizer.minimize(total)
        self.start(step.startup)
        return step

    def start(self, *further: Program) -> None:
        """Initialise the state of the network and of `further` that has no contents yet."""
        scope = global_scope()
        network = self.model.network
        own = {t.name for t in (*network.parameters(), *network.buffers())}
        for startup in (self.startup, *further):
            missing = Program()
            missing.random_seed = startup.random_seed
            missing._layouts = startup._layouts
            missing._initial = {
                name: how
                for name, how in startup._initial.items()
                if (name in own or startup in further) and not scope.has_contents(name)
            }
            with running():
                start_state(missing, scope)

    # --- files ----------------------------------------------------------------------------

    def save(self, path: str) -> None:
        """What `Model.save` writes in eager mode, out of the scope."""
        self.start()
        scope = global_scope()
        network = {key: scope.tensor(t.name) for key, t in self._parameters()}
        optimizer: dict[str, Any] = {name: scope.tensor(name) for name in self._optimizer_state()}
        rate = getattr(self.model._optimizer, "_learning_rate", None)
        if isinstance(rate, LRScheduler):
            optimizer["LR_Scheduler"] = rate.state_dict()
        save_together({path + ".pdparams": network, path + ".pdopt": optimizer or None})

    def save_for_inference(self, path: str) -> None:
        """What `static.save_inference_model` writes."""
        step = self._step("test")
        save_inference_model(path, step.inputs, step.outputs, self.executor, program=step.main)

    def load(
        self,
        path: str,
        unfit: Callable[[str, Any, Tensor], bool],
        reset_optimizer: bool,
    ) -> None:
        """Put what `save` wrote, here or in eager mode, into the scope."""
        self.start()
        with_optimizer = self.model._optimizer is not None and not reset_optimizer
        endings = [".pdparams", ".pdopt"] if with_optimizer else [".pdparams"]
        state, *rest = load_together([path + e for e in endings])
        if state is None:
            raise no_such_file(path + ".pdparams")
        found = {}
        for key, tensor in self._parameters():
            if unfit(key, state.get(key), tensor):
                rest = []
            else:
                found[tensor.name] = fitting(tensor.name, tensor._value.aval, state[key])
        for name, array in found.items():
            global_scope().put(name, constant(array))
        for optimizer in rest:
            self._load_optimizer(optimizer or {})

    def _load_optimizer(self, state: dict[str, Any]) -> None:
        rate = getattr(self.model._optimizer, "_learning_rate", None)
        if "LR_Scheduler" in state and isinstance(rate, LRScheduler):
            rate.set_state_dict(state["LR_Scheduler"])
        step = self._step("train") if self.model._loss is not None else None
        variables = {} if step is None else step.main._trace.vars
        for name, value in state.items():
            if name in variables and isinstance(value, Tensor | np.ndarray):
                array = fitting(name, variables[name].leaf.aval, value)
                global_scope().put(name, constant(array))

    def _parameters(self) -> list[tuple[str, Tensor]]:
        return list(self.model.network.state_dict().items())

    def _optimizer_state(self) -> list[str]:
        """Names of the state of the training program that is not the network's."""
        step = self._steps.get("train")
        if step is None:
            return []
        own = {t.name for _, t in self._parameters()}
        return [n for n in step.main.state_names() if n not in own]


def _declared(spec: InputSpec, name: str = "") -> Tensor:
    return data(spec.name or name, list(spec.shape), spec.dtype)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def stem_of(path: str) -> str:
    """The path of a save without the ending of one of its files."""
    stem, ending = os.path.splitext(path)
    return stem if ending in (".pdparams", ".pdopt", ".pdmodel") else path
