"""paddle.optimizer.lr: learning rates that change from step to step.

A schedule is plain Python arithmetic. Its value enters a recorded step as a run-time number, so
a changing learning rate never compiles anything anew.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor


class LRScheduler:
    """Base of the schedules: a subclass defines `get_lr` from `last_epoch` and `base_lr`."""

    def __init__(
        self, learning_rate: float = 0.1, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        if not isinstance(learning_rate, float | int):
            raise TypeMismatch(
                f"[{type(self).__name__}] the learning rate must be a number. Received: "
                f"{type(learning_rate).__name__}"
            )
        if learning_rate < 0:
            raise InvalidArgument(
                f"[{type(self).__name__}] the learning rate must not be negative. Received: "
                f"{learning_rate}"
            )
        self.base_lr = float(learning_rate)
        self.last_lr = float(learning_rate)
        self.last_epoch = last_epoch
        self.verbose = verbose
        self.step()

    def __call__(self) -> float:
        """The current learning rate."""
        return self.last_lr

    def get_lr(self) -> float:
        raise NotImplementedError(f"{type(self).__name__} does not define get_lr()")

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, or to `epoch`."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        closed = getattr(self, "_get_closed_form_lr", None)
        self.last_lr = self.get_lr() if epoch is None or closed is None else closed()
        self._report()

    def _report(self) -> None:
        if self.verbose:
            name = type(self).__name__
            print(  # noqa: T201 (asked for by `verbose`)
                f"Epoch {self.last_epoch}: {name} set learning rate to {self.last_lr}."
            )

    def state_keys(self) -> None:
        """Set `self.keys`, the attributes that make up the state."""
        self.keys = ["last_epoch", "last_lr"]

    def state_dict(self) -> dict[str, Any]:
        self.state_keys()
        state = {k: self.__dict__[k] for k in self.keys if k in self.__dict__}
        return {k: float(v) if isinstance(v, Tensor) else v for k, v in state.items()}

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        self.state_keys()
        for key in self.keys:
            if key not in state_dict:
                raise InvalidArgument(
                    f"[{type(self).__name__}] the state has no entry {key!r}. Received: "
                    f"{sorted(state_dict)}"
                )
            self.__dict__[key] = state_dict[key]
        if len(state_dict) > len(self.keys):
            warnings.warn(
                f"{type(self).__name__} did not use all of the state: "
                f"{sorted(set(state_dict) - set(self.keys))}",
                stacklevel=2,
            )

    set_dict = set_state_dict


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
        super().set_state_dict(own)
        if isinstance(self.learning_rate, LRScheduler):
            self.learning_rate.set_state_dict(state_dict["LinearWarmup_LR"])

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

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
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


class CosineAnnealingDecay(LRScheduler):
    """Half a cosine from the learning rate to `eta_min` in `T_max` epochs, and back."""

    def __init__(
        self,
        learning_rate: float,
        T_max: int,
        eta_min: float = 0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        if not isinstance(T_max, int):
            raise TypeMismatch(
                f"[CosineAnnealingDecay] T_max must be an int. Received: {type(T_max).__name__}"
            )
        if T_max <= 0:
            raise InvalidArgument(
                f"[CosineAnnealingDecay] T_max must be positive. Received: {T_max}"
            )
        self.T_max = T_max
        self.eta_min = float(eta_min)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        # Step by step from the last value, so that a rate changed from outside carries on.
        if self.last_epoch == 0:
            return self.base_lr
        span = self.base_lr - self.eta_min
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            return self.last_lr + span * (1 - math.cos(math.pi / self.T_max)) / 2
        now = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        before = 1 + math.cos(math.pi * (self.last_epoch - 1) / self.T_max)
        return now / before * (self.last_lr - self.eta_min) + self.eta_min

    def _get_closed_form_lr(self) -> float:
        wave = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        return self.eta_min + (self.base_lr - self.eta_min) * wave / 2


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines that start over, each `T_mult` times as long as the one before."""

    def __init__(
        self,
        learning_rate: float,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        for name, value in (("T_0", T_0), ("T_mult", T_mult)):
            if not isinstance(value, int) or value < 1:
                raise InvalidArgument(
                    f"[CosineAnnealingWarmRestarts] {name} must be a positive int. Received: "
                    f"{value!r}"
                )
        self.T_0 = T_0
        self.T_i: float = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        wave = 1 + math.cos(math.pi * self.T_cur / self.T_i)
        return self.eta_min + (self.base_lr - self.eta_min) * wave / 2

    def step(self, epoch: float | None = None) -> None:
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise InvalidArgument(f"[step] epoch must not be negative. Received: {epoch}")
        elif epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            cycle = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            begun = self.T_0 * (self.T_mult**cycle - 1) / (self.T_mult - 1)
            self.T_cur = epoch - begun
            self.T_i = self.T_0 * self.T_mult**cycle
        self.last_epoch = math.floor(epoch)
        self.last_lr = self.get_lr()
        self._report()


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


class OneCycleLR(LRScheduler):
    """Up to a maximum and down again, once."""

    def __init__(
        self,
        max_learning_rate: float,
        total_steps: int,
        divide_factor: float = 25.0,
        end_learning_rate: float = 0.0001,
        phase_pct: float = 0.3,
        anneal_strategy: str = "cos",
        three_phase: bool = False,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        _non_negative(max_learning_rate, "max_learning_rate", "OneCycleLR")
        _non_negative(end_learning_rate, "end_learning_rate", "OneCycleLR")
        if not isinstance(total_steps, int) or total_steps <= 0:
            raise InvalidArgument(
                f"[OneCycleLR] total_steps must be a positive int. Received: {total_steps!r}"
            )
        if not 0 <= phase_pct <= (0.5 if three_phase else 1):
            raise InvalidArgument(
                "[OneCycleLR] phase_pct must be in [0, 1], below 0.5 with three phases. "
                f"Received: {phase_pct}"
            )
        if anneal_strategy not in ("cos", "linear"):
            raise InvalidArgument(
                f"[OneCycleLR] anneal_strategy must be cos or linear. Received: {anneal_strategy!r}"
            )
        self.total_steps = total_steps
        self._cosine = anneal_strategy == "cos"
        start = max_learning_rate / float(divide_factor)
        rise = phase_pct * total_steps - 1
        end = float(end_learning_rate)
        if three_phase:
            fall = 2 * phase_pct * total_steps - 2
            self._ends = [0, rise, fall, total_steps - 1]
            self._rates = [start, max_learning_rate, start, end]
        else:
            self._ends = [0, rise, total_steps - 1]
            self._rates = [start, max_learning_rate, end]
        super().__init__(start, last_epoch, verbose)

    def get_lr(self) -> float:
        now = self.last_epoch
        if now > self.total_steps:
            raise InvalidArgument(
                f"[OneCycleLR] step {now} lies beyond total_steps={self.total_steps}"
            )
        phase = next((i for i, end in enumerate(self._ends[1:-1]) if now <= end), None)
        if phase is None:
            phase = len(self._ends) - 2
        begin, end = self._ends[phase], self._ends[phase + 1]
        part = (now - begin) / (end - begin)
        first, last = self._rates[phase], self._rates[phase + 1]
        if self._cosine:
            return last + (first - last) / 2.0 * (math.cos(math.pi * part) + 1)
        return (last - first) * part + first


def _non_negative(value: Any, name: str, where: str) -> None:
    if not isinstance(value, float | int):
        raise TypeMismatch(f"[{where}] {name} must be a number. Received: {type(value).__name__}")
    if value < 0:
        raise InvalidArgument(f"[{where}] {name} must not be negative. Received: {value}")


class CyclicLR(LRScheduler):
    """Up and down between two rates, again and again."""

    def __init__(
        self,
        base_learning_rate: float,
        max_learning_rate: float,
        step_size_up: int,
        step_size_down: int | None = None,
        mode: str = "triangular",
        exp_gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        _non_negative(max_learning_rate, "max_learning_rate", "CyclicLR")
        for name, size in (("step_size_up", step_size_up), ("step_size_down", step_size_down)):
            if size is not None and (not isinstance(size, int) or size <= 0):
                raise InvalidArgument(
                    f"[CyclicLR] {name} must be a positive int. Received: {size!r}"
                )
        if scale_fn is None and mode not in ("triangular", "triangular2", "exp_range"):
            raise InvalidArgument(
                "[CyclicLR] mode must be triangular, triangular2 or exp_range, or pass scale_fn. "
                f"Received: {mode!r}"
            )
        if scale_mode not in ("cycle", "iterations"):
            raise InvalidArgument(
                f"[CyclicLR] scale_mode must be cycle or iterations. Received: {scale_mode!r}"
            )
        up = float(step_size_up)
        self.cycle_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_up_pct = up / self.cycle_size
        self.max_lr = float(max_learning_rate)
        self.amplitude = self.max_lr - base_learning_rate
        self.mode = mode
        self.gamma = exp_gamma
        self.scale_mode = scale_mode
        self.scale_fn = scale_fn
        if scale_fn is None:
            self.scale_mode = "iterations" if mode == "exp_range" else "cycle"
        super().__init__(base_learning_rate, last_epoch, verbose)

    def _scale(self, x: float) -> float:
        if self.scale_fn is not None:
            return self.scale_fn(x)
        if self.mode == "triangular":
            return 1.0
        return 1 / 2.0 ** (x - 1) if self.mode == "triangular2" else self.gamma**x

    def get_lr(self) -> float:
        cycle = 1 + self.last_epoch // self.cycle_size
        part = 1.0 + self.last_epoch / self.cycle_size - cycle
        if part <= self.step_up_pct:
            height = part / self.step_up_pct
        else:
            height = (1 - part) / (1 - self.step_up_pct)
        at = cycle if self.scale_mode == "cycle" else self.last_epoch
        return self.base_lr + self.amplitude * height * self._scale(at)


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
