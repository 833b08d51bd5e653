"""Processes that train apart and average their parameters now and then: `strategy.localsgd`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bireme.autograd.modes import no_grad
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.distributed.communication.collectives import all_reduce
from bireme.distributed.communication.group import Group
from bireme.distributed.communication.programs import ReduceOp
from bireme.distributed.wrapped_optimizer import WrappedOptimizer
from bireme.optimizer.optimizer import Optimizer


class LocalSGD(WrappedOptimizer):
    """An optimizer after whose every `k_steps`-th step the processes' parameters are averaged;
    up to `begin_step` after each."""

    def __init__(self, optimizer: Optimizer, group: Group, k_steps: int, begin_step: int) -> None:
        for name, value in (("k_steps", k_steps), ("begin_step", begin_step)):
            if type(value) is not int or value < 1:
                raise InvalidArgument(
                    f"[localsgd] localsgd_configs[{name!r}] is 1 or more. Received: {value!r}"
                )
        self.__dict__.update(
            _inner_opt=optimizer, _group=group, _k_steps=k_steps, _begin=begin_step, _steps=0
        )

    def step(self) -> None:
        """Update, and average if it is time."""
        own = self.__dict__
        own["_inner_opt"].step()
        own["_steps"] += 1
        apart = own["_steps"] - own["_begin"]
        if apart <= 0 or apart % own["_k_steps"] == 0:
            self._average()

    def minimize(
        self,
        loss: Tensor,
        startup_program: object = None,
        parameters: Iterable[Tensor | str] | None = None,
        no_grad_set: Iterable[Tensor | str] | None = None,
    ) -> tuple[list[Any], list[tuple[Any, Tensor]]]:
        """As `step`, after `loss.backward()`."""
        pairs = self.__dict__["_inner_opt"].backward(loss, startup_program, parameters, no_grad_set)
        self.step()
        return [], pairs

    def _average(self) -> None:
        with no_grad():
            for parameter in self._all_parameters():
                mean = parameter.detach().clone()
                all_reduce(mean, ReduceOp.AVG, self.__dict__["_group"])
                parameter.set_value(mean)
