"""Gradients of several passes in one step, as `strategy.gradient_merge` asks for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bireme.autograd.modes import no_grad
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.distributed.wrapped_optimizer import WrappedOptimizer
from bireme.ops.row_gradients import by_row, contents, with_contents
from bireme.optimizer.optimizer import Optimizer


class MergingOptimizer(WrappedOptimizer):
    """An optimizer that updates at every `k_steps`-th call of `step()`. Until then gradients add
    up, so `clear_grad()` leaves them alone; with `avg` the update is by their mean."""

    def __init__(self, optimizer: Optimizer, k_steps: int, avg: bool) -> None:
        self.__dict__.update(_inner_opt=optimizer, _k_steps=k_steps, _avg=avg, _passes=0)

    def step(self) -> None:
        """Count a pass, and update if it is the last of its round."""
        inner = self.__dict__["_inner_opt"]
        if self._is_last():
            if self.__dict__["_avg"]:
                self._average()
            inner.step()

    def apply_gradients(self, params_grads: list[tuple[Any, Tensor]]) -> list[Any]:
        """As `step`, with the gradients given, which hold those of the passes before."""
        self.step()
        return []

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

    def clear_grad(self, set_to_zero: bool = True) -> None:
        """Clear the gradients if they were used."""
        if self.__dict__["_passes"] == 0:
            self.__dict__["_inner_opt"].clear_grad(set_to_zero)

    clear_gradients = clear_grad

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.clear_grad(set_to_zero=not set_to_none)

    def _is_last(self) -> bool:
        own = self.__dict__
        if getattr(own["_inner_opt"], "_skip", None) is not None and own["_k_steps"] > 1:
            raise InvalidArgument(
                "[gradient_merge] a GradScaler unscales the gradients in each of its steps, and "
                "those of earlier passes would be unscaled again. Set gradient_merge=False and "
                "call scaler.step() after several backward passes, or use bfloat16 without a scaler"
            )
        own["_passes"] = (own["_passes"] + 1) % own["_k_steps"]
        return own["_passes"] == 0

    def _average(self) -> None:
        params = [p for p in self._all_parameters() if p._grad is not None]
        held = by_row([p._grad for p in params])
        with no_grad():
            means = [(g * (1.0 / self.__dict__["_k_steps"]))._value for g in contents(held)]
        for p, mean in zip(params, with_contents(held, means), strict=True):
            p._grad = mean


def merging(optimizer: Optimizer, config: dict[str, Any]) -> MergingOptimizer:
    """The optimizer as `strategy.gradient_merge_configs` asks for it."""
    k_steps, avg = config["k_steps"], config["avg"]
    if type(k_steps) is not int or k_steps < 1:
        raise InvalidArgument(
            f"[distributed_optimizer] gradient_merge_configs['k_steps'] is a number of passes from "
            f"1 on. Received: {k_steps!r}"
        )
    return MergingOptimizer(optimizer, k_steps, bool(avg))
