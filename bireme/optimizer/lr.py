"""paddle.optimizer.lr: learning rates that change from step to step.

A schedule is plain Python arithmetic. Its value enters a recorded step as a run-time number, so
a changing learning rate never compiles anything anew.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, SupportsFloat

from bireme.api.hints import explain_constructors as _explain_constructors
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.optimizer.cycles import (
    CosineAnnealingDecay,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    OneCycleLR,
)
from bireme.optimizer.schedule import LRScheduler


class NoamDecay(LRScheduler):
    """Linear warm-up, then the inverse square root of the step."""

    def __init__(
        self,
        d_model: int,
        warmup_steps: int,
        learning_rate: float = 1.0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        if d_model <= 0:
            raise InvalidArgument(f"[NoamDecay] d_model must be positive. Received: {d_model}")
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        late = 1 if self.last_epoch == 0 else self.last_epoch**-0.5
        early = self.warmup_steps**-1.5 * self.last_epoch
        return self.base_lr * self.d_model**-0.5 * min(late, early)


class PiecewiseDecay(LRScheduler):
    """`values[i]` until `boundaries[i]`, the last value after."""

    def __init__(
        self,
        boundaries: Sequence[int],
        values: Sequence[float],
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        if not boundaries or len(values) <= len(boundaries):
            raise InvalidArgument(
                "[PiecewiseDecay] needs boundaries and one value more than there are. Received: "
                f"{len(boundaries)} boundaries and {len(values)} values"
            )
        self.boundaries = boundaries
        self.values = values
        super().__init__(last_epoch=last_epoch, verbose=verbose)

    def get_lr(self) -> float:
        for boundary, value in zip(self.boundaries, self.values, strict=False):
            if self.last_epoch < boundary:
                return value
        return self.values[-1]


class _GammaDecay(LRScheduler):
    def __init__(
        self, learning_rate: float, gamma: float, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        self.gamma = gamma
        super().__init__(learning_rate, last_epoch, verbose)


class NaturalExpDecay(_GammaDecay):
    """base * exp(-gamma * epoch)."""

    def get_lr(self) -> float:
        return self.base_lr * math.exp(-1 * self.gamma * self.last_epoch)


class InverseTimeDecay(_GammaDecay):
    """base / (1 + gamma * epoch)."""

    def get_lr(self) -> float:
        return self.base_lr / (1 + self.gamma * self.last_epoch)


class ExponentialDecay(_GammaDecay):
    """base * gamma ** epoch."""

    def get_lr(self) -> float:
        return self.base_lr * self.gamma**self.last_epoch


class PolynomialDecay(LRScheduler):
    """A polynomial from the learning rate down to `end_lr`, once or in cycles."""

    def __init__(
        self,
        learning_rate: float,
        decay_steps: int,
        end_lr: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        if not (isinstance(decay_steps, int) and decay_steps > 0):
            raise InvalidArgument(
                f"[PolynomialDecay] decay_steps must be a positive int. Received: {decay_steps!r}"
            )
        if power <= 0:
            raise InvalidArgument(f"[PolynomialDecay] power must be positive. Received: {power}")
        self.decay_steps = decay_steps
        self.end_lr = end_lr
        self.power = power
        self.cycle = cycle
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        epoch, steps = self.last_epoch, self.decay_steps
        if self.cycle:
            steps *= max(1, math.ceil(epoch / steps))
        else:
            epoch = min(epoch, steps)
        left = 1 - float(epoch) / float(steps)
        return (self.base_lr - self.end_lr) * left**self.power + self.end_lr


class LinearWarmup(LRScheduler):
    """A straight line from `start_lr` to `end_lr`, then another schedule or a constant."""

    def __init__(
        self,
        learning_rate: float | LRScheduler,
        warmup_steps: int,
        start_lr: float,
        end_lr: float,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        if not isinstance(learning_rate, float | int | LRScheduler):
            raise TypeMismatch(
                "[LinearWarmup] learning_rate must be a number or an LRScheduler. Received: "
                f"{type(learning_rate).__name__}"
            )
        if not (isinstance(warmup_steps, int) and warmup_steps >= 0):
            raise InvalidArgument(
                f"[LinearWarmup] warmup_steps must be an int of 0 or more. Received: "
                f"{warmup_steps!r}"
            )
        if start_lr >= end_lr:
            raise InvalidArgument(
                f"[LinearWarmup] start_lr must be below end_lr. Received: {start_lr} and {end_lr}"
            )
        self.learning_rate = learning_rate
        self.warmup_steps = warmup_steps
        self.start_lr = start_lr
        self.end_lr = end_lr
        super().__init__(start_lr, last_epoch, verbose)

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if isinstance(self.learning_rate, LRScheduler):
            state["LinearWarmup_LR"] = self.learning_rate.state_dict()
        return state

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        own = {k: v for k, v in state_dict.items() if k != "LinearWarmup_LR"}
        if isinstance(self.learning_rate, LRScheduler):
            if "LinearWarmup_LR" not in state_dict:
                raise InvalidArgument(
                    "[LinearWarmup] the state has no entry 'LinearWarmup_LR', the state of the "
                    f"schedule after the warm-up. Received: {sorted(state_dict)}"
                )
            before = self.state_dict()["LinearWarmup_LR"]
            self.learning_rate.set_state_dict(state_dict["LinearWarmup_LR"])
            try:
                super().set_state_dict(own)
            except InvalidArgument:
                self.learning_rate.set_state_dict(before)
                raise
        else:
            super().set_state_dict(own)

    def get_lr(self) -> float:
        if self.last_epoch < self.warmup_steps:
            rise = (self.end_lr - self.start_lr) * float(self.last_epoch)
            return rise / float(self.warmup_steps) + self.start_lr
        if isinstance(self.learning_rate, LRScheduler):
            self.learning_rate.step(self.last_epoch - self.warmup_steps)
            return self.learning_rate()
        return self.learning_rate


class MultiStepDecay(LRScheduler):
    """Times `gamma` at each milestone."""

    def __init__(
        self,
        learning_rate: float,
        milestones: Sequence[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        if not isinstance(milestones, tuple | list):
            raise TypeMismatch(
                f"[MultiStepDecay] milestones must be a list. Received: {type(milestones).__name__}"
            )
        if any(a >= b for a, b in itertools.pairwise(milestones)):
            raise InvalidArgument(
                f"[MultiStepDecay] milestones must increase. Received: {milestones}"
            )
        _below_one(gamma, "MultiStepDecay")
        self.milestones = milestones
        self.gamma = gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        passed = sum(self.last_epoch >= m for m in self.milestones)
        return self.base_lr * self.gamma**passed


def _below_one(gamma: float, where: str) -> None:
    if gamma >= 1.0:
        raise InvalidArgument(f"[{where}] gamma must be below 1. Received: {gamma}")


class StepDecay(LRScheduler):
    """Times `gamma` every `step_size` epochs."""

    def __init__(
        self,
        learning_rate: float,
        step_size: int,
        gamma: float = 0.1,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        if not isinstance(step_size, int):
            raise TypeMismatch(
                f"[StepDecay] step_size must be an int. Received: {type(step_size).__name__}"
            )
        _below_one(gamma, "StepDecay")
        if step_size <= 0:
            raise InvalidArgument(f"[StepDecay] step_size must be positive. Received: {step_size}")
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        return self.base_lr * self.gamma ** (self.last_epoch // self.step_size)


def _callable(function: Any, where: str) -> None:
    if not callable(function):
        raise TypeMismatch(
            f"[{where}] lr_lambda must be a function of the epoch. Received: "
            f"{type(function).__name__}"
        )


class LambdaDecay(LRScheduler):
    """base * lr_lambda(epoch)."""

    def __init__(
        self,
        learning_rate: float,
        lr_lambda: Callable[[int], float],
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        _callable(lr_lambda, "LambdaDecay")
        self.lr_lambda = lr_lambda
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        return self.base_lr * self.lr_lambda(self.last_epoch)


class MultiplicativeDecay(LRScheduler):
    """base * lr_lambda(1) * … * lr_lambda(epoch)."""

    def __init__(
        self,
        learning_rate: float,
        lr_lambda: Callable[[int], float],
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        _callable(lr_lambda, "MultiplicativeDecay")
        self.lr_lambda = lr_lambda
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        rate = self.base_lr
        for epoch in range(1, self.last_epoch + 1):
            rate *= self.lr_lambda(epoch)
        return rate


class ReduceOnPlateau(LRScheduler):
    """Times `factor` when a metric has not improved for `patience` steps."""

    def __init__(
        self,
        learning_rate: float,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0,
        epsilon: float = 1e-8,
        verbose: bool = False,
    ) -> None:
        self.mode = mode.lower()
        self.threshold_mode = threshold_mode.lower()
        if self.mode not in ("min", "max"):
            raise InvalidArgument(f"[ReduceOnPlateau] mode must be min or max. Received: {mode!r}")
        if self.threshold_mode not in ("rel", "abs"):
            raise InvalidArgument(
                f"[ReduceOnPlateau] threshold_mode must be rel or abs. Received: {threshold_mode!r}"
            )
        if factor >= 1.0:
            raise InvalidArgument(f"[ReduceOnPlateau] factor must be below 1. Received: {factor}")
        if not isinstance(learning_rate, float | int):
            raise TypeMismatch(
                f"[ReduceOnPlateau] learning_rate must be a number. Received: "
                f"{type(learning_rate).__name__}"
            )
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.cooldown = cooldown
        self.min_lr = min_lr
        self.epsilon = epsilon
        self.cooldown_counter = 0
        self.best: float | None = None
        self.num_bad_epochs = 0
        self.base_lr = float(learning_rate)
        self.last_lr = float(learning_rate)
        self.last_epoch = 0
        self.verbose = verbose

    def state_keys(self) -> None:
        self.keys = ["cooldown_counter", "best", "num_bad_epochs", "last_epoch", "last_lr"]

    def step(self, metrics: SupportsFloat, epoch: int | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Look at a new value of the metric."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        try:
            current = float(metrics)
        except (TypeError, ValueError):
            raise TypeMismatch(
                f"[ReduceOnPlateau] metrics must be one number. Received: {metrics!r}"
            ) from None
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            return
        if self.best is None or self._is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.num_bad_epochs > self.patience:
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
            lower = max(self.last_lr * self.factor, self.min_lr)
            if self.last_lr - lower > self.epsilon:
                self.last_lr = lower
                self._report()

    def _is_better(self, current: float, best: float) -> bool:
        margin = best * self.threshold if self.threshold_mode == "rel" else self.threshold
        return current < best - margin if self.mode == "min" else current > best + margin


class LinearLR(LRScheduler):
    """A straight line from start_factor to end_factor times the learning rate."""

    def __init__(
        self,
        learning_rate: float,
        total_steps: int,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        if not 0 < start_factor <= 1.0 or not 0 <= end_factor <= 1.0:
            raise InvalidArgument(
                "[LinearLR] factors must be in (0, 1] and [0, 1]. Received: "
                f"start_factor={start_factor}, end_factor={end_factor}"
            )
        if total_steps <= 0:
            raise InvalidArgument(
                f"[LinearLR] total_steps must be positive. Received: {total_steps}"
            )
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_steps = total_steps
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        if self.last_epoch == 0:
            return self.base_lr * self.start_factor
        if self.last_epoch > self.total_steps:
            return self.last_lr
        slope = self.end_factor - self.start_factor
        before = self.total_steps * self.start_factor + (self.last_epoch - 1) * slope
        return self.last_lr * (1.0 + slope / before)


__all__ = [
    "CosineAnnealingDecay",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialDecay",
    "InverseTimeDecay",
    "LRScheduler",
    "LambdaDecay",
    "LinearLR",
    "LinearWarmup",
    "MultiStepDecay",
    "MultiplicativeDecay",
    "NaturalExpDecay",
    "NoamDecay",
    "OneCycleLR",
    "PiecewiseDecay",
    "PolynomialDecay",
    "ReduceOnPlateau",
    "StepDecay",
]

_explain_constructors(globals()[name] for name in __all__)
