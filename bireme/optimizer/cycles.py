"""Learning rates that swing: cosine annealing, restarts, one cycle and many."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.optimizer.schedule import LRScheduler


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
