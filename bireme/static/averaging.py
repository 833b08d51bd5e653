"""Averages of parameters over training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor, alias, constant
from bireme.ops.math import minimum
from bireme.static.executor import Executor
from bireme.static.program import default_main_program
from bireme.static.scope import global_scope
from bireme.static.variables import create_global_var


class ExponentialMovingAverage:
    """average = decay * average + (1 - decay) * parameter, after every run.

    `update()` adds that to the program, after minimize(). Inside `with ema.apply(exe):` the
    parameters are the averages, corrected for having started at zero.
    """

    def __init__(
        self, decay: float = 0.999, thres_steps: Tensor | None = None, name: str | None = None
    ):
        if not 0.0 <= decay <= 1.0:
            raise InvalidArgument(
                f"[ExponentialMovingAverage] decay must be in [0, 1]. Received: {decay}"
            )
        self._decay = decay
        self._steps = thres_steps
        self._prefix = f"{name}_" if name else ""
        self._averages: dict[str, str] = {}
        self._weight: str | None = None
        self._before: dict[str, Any] = {}

    def update(self) -> None:
        """Add the averaging to the program that is being written."""
        decay: Any = self._decay
        if self._steps is not None:  # a quicker average while there are few steps
            t = self._steps.astype("float32")
            decay = minimum((t + 1.0) / (t + 10.0), decay + 0.0 * t)
        weight = create_global_var([1], 1.0, "float32", persistable=True)
        weight._put((weight * decay)._value)
        self._weight = weight.name
        for p in default_main_program().all_parameters():
            if not getattr(p, "do_model_average", True):
                continue
            name = f"{self._prefix}{p.name}_ema"
            average = create_global_var(p.shape, 0.0, p.dtype, persistable=True, name=name)
            now = alias(p)
            average._put((average * decay + now * (1.0 - decay))._value)
            self._averages[p.name] = name

    @contextmanager
    def apply(self, executor: Executor, need_restore: bool = True) -> Iterator[None]:
        """Use the averages as the parameters inside the block, or for good."""
        if self._weight is None:
            raise InvalidArgument(
                "[ExponentialMovingAverage] call update() while the program is written"
            )
        scope = global_scope()
        left = float(np.ravel(scope.tensor(self._weight).numpy())[0])
        for name, average in self._averages.items():
            self._before[name] = scope.tensor(name)
            array = scope.tensor(average).numpy()
            if left < 1.0:
                array = (array / (1.0 - left)).astype(array.dtype)
            scope.put(name, constant(array))
        try:
            yield
        finally:
            if need_restore:
                self.restore(executor)

    def restore(self, executor: Executor) -> None:
        """Give the parameters the contents that they had before `apply`."""
        scope = global_scope()
        for name, tensor in self._before.items():
            scope.put(name, tensor)
        self._before = {}
