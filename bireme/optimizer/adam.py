"""Adam and its relatives: AdamW, Adamax, NAdam, RAdam, Lamb."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.optimizer.optimizer import Optimizer
from bireme.optimizer.slots import Slot
from bireme.optimizer.update import update_op

if TYPE_CHECKING:
    from bireme.nn.clip import ClipGradBase
    from bireme.optimizer.optimizer import ParametersLike
    from bireme.optimizer.schedule import LRScheduler
    from bireme.regularizer import WeightDecayRegularizer


def _checked_betas(where: str, **values: Any) -> dict[str, float]:
    """Betas in [0, 1) and an epsilon that is not negative, as floats."""
    checked = {}
    for name, value in values.items():
        if value is None:
            raise TypeMismatch(f"[{where}] {name} must be a number. Received: None")
        number = float(value)
        if name.startswith("beta") and not 0 <= number < 1:
            raise InvalidArgument(f"[{where}] {name} must be in [0, 1). Received: {number}")
        if not name.startswith("beta") and number < 0:
            raise InvalidArgument(f"[{where}] {name} must not be negative. Received: {number}")
        checked[name] = number
    return checked


def _check_rate_sign(where: str, rate: Any) -> None:
    if isinstance(rate, int | float) and rate < 0:
        raise InvalidArgument(f"[{where}] learning_rate must not be negative. Received: {rate}")


def _advance_both(xp, clock, hyper):
    return [clock[0] * hyper[0], clock[1] * hyper[1]]


def _without_power(xp, power, beta):
    """1 - beta^t from beta^t.

    The power is kept in float32, as in Paddle's checkpoints, and 1 - 0.999 has only four digits
    there. It still tells t, and t gives all of them.
    """
    if beta == 0.0:
        return 1 - power
    steps = xp.round(xp.log(power) / math.log(beta))
    return -xp.expm1(steps * math.log(beta))


def _adam(xp, p, g, lr, slots, clock, hyper, extra):
    beta1, beta2, epsilon = hyper
    rest1, rest2 = (
        _without_power(xp, c.astype(p.dtype), b)
        for c, b in zip(clock[0], (beta1, beta2), strict=True)
    )
    m = beta1 * slots[0] + (1 - beta1) * g
    v = beta2 * slots[1] + (1 - beta2) * g * g
    new = [m, v]
    largest = v
    if len(slots) == 3:
        largest = xp.maximum(v, slots[2])
        new.append(largest)
    correction = xp.sqrt(rest2)
    rate = lr * correction / rest1
    return p - rate * (m / (xp.sqrt(largest) + epsilon * correction)), new


def _adamw(xp, p, g, lr, slots, clock, hyper, extra):
    ratio, decay = extra
    lr = lr * ratio
    return _adam(xp, p * (1 - lr * decay), g, lr, slots, clock, hyper, None)


class _AdamBase(Optimizer):
    _clock = (Slot("beta1_pow_acc"), Slot("beta2_pow_acc"))
    _slots = (Slot("moment1"), Slot("moment2"))
    _wide_slots = True

    def _hyper(self, options: dict[str, Any]) -> tuple[Any, ...]:
        return (float(options["beta1"]), float(options["beta2"]), float(options["epsilon"]))

    def _initial(self, options: dict[str, Any]) -> dict[str, float]:
        return {
            "beta1_pow_acc": float(options["beta1"]),
            "beta2_pow_acc": float(options["beta2"]),
        }


class Adam(_AdamBase):
    """Adaptive moments.

    With `lazy_mode=True` the rows of a table that `embedding(sparse=True)` did not look up stay as
    they are, with their moments. All parameters are updated in one op in any case;
    `use_multi_tensor` changes nothing.
    """

    _op = update_op("adam_update", _adam, _advance_both)

    def __init__(
        self,
        learning_rate: float | Tensor | LRScheduler = 0.001,
        beta1: float | Tensor = 0.9,
        beta2: float | Tensor = 0.999,
        epsilon: float | Tensor = 1e-8,
        parameters: ParametersLike | None = None,
        weight_decay: float | WeightDecayRegularizer | None = None,
        grad_clip: ClipGradBase | None = None,
        lazy_mode: bool = False,
        multi_precision: bool = False,
        use_multi_tensor: bool = False,
        amsgrad: bool = False,
        name: str | None = None,
    ) -> None:
        if amsgrad:
            self._slots = (*type(self)._slots, Slot("moment2_max"))  # pyright: ignore[reportAttributeAccessIssue]
        self._lazy_mode = bool(lazy_mode)
        super().__init__(
            learning_rate,
            parameters,
            weight_decay,
            grad_clip,
            name,
            multi_precision=multi_precision,
            defaults=_checked_betas("Adam", beta1=beta1, beta2=beta2, epsilon=epsilon),
        )


class AdamW(_AdamBase):
    """Adam with weight decay apart from the gradient.

    `lazy_mode` is that of Adam; rows that stay as they are do not decay either.
    """

    _op = update_op("adamw_update", _adamw, _advance_both)
    _decoupled_decay = True

    def __init__(
        self,
        learning_rate: float | Tensor | LRScheduler = 0.001,
        beta1: float | Tensor = 0.9,
        beta2: float | Tensor = 0.999,
        epsilon: float | Tensor = 1e-8,
        parameters: ParametersLike | None = None,
        weight_decay: float | Tensor = 0.01,
        use_lowprecision_moment: bool = False,
        lr_ratio: Callable[[Tensor], float] | None = None,
        apply_decay_param_fun: Callable[[str], bool] | None = None,
        grad_clip: ClipGradBase | None = None,
        lazy_mode: bool = False,
        multi_precision: bool = False,
        amsgrad: bool = False,
        name: str | None = None,
    ) -> None:
        if not isinstance(weight_decay, int | float | Tensor):
            raise TypeMismatch(
                f"[AdamW] weight_decay must be a number. Received: {type(weight_decay).__name__}"
            )
        if lr_ratio is not None and not callable(lr_ratio):
            raise TypeMismatch("[AdamW] lr_ratio must be a function of the parameter")
        if amsgrad:
            self._slots = (*type(self)._slots, Slot("moment2_max"))  # pyright: ignore[reportAttributeAccessIssue]
        self._wide_slots = not use_lowprecision_moment  # pyright: ignore[reportAttributeAccessIssue]
        self._lazy_mode = bool(lazy_mode)
        self._lr_ratio = lr_ratio
        self._apply_decay_param_fun = apply_decay_param_fun
        super().__init__(
            learning_rate,
            parameters,
            float(weight_decay),
            grad_clip,
            name,
            multi_precision=multi_precision,
            defaults=_checked_betas("AdamW", beta1=beta1, beta2=beta2, epsilon=epsilon),
        )

    def _extra(self, param: Tensor, options: dict[str, Any]) -> tuple[float, float]:
        ratio = 1.0 if self._lr_ratio is None else float(self._lr_ratio(param))
        chosen = self._apply_decay_param_fun is None or self._apply_decay_param_fun(param.name)
        return ratio, float(options["weight_decay"]) if chosen else 0.0


def _adamax(xp, p, g, lr, slots, clock, hyper, extra):
    beta1, beta2, epsilon = hyper
    m = beta1 * slots[0] + (1 - beta1) * g
    norm = xp.maximum(xp.abs(g), beta2 * slots[1] + epsilon)
    return p - lr / (1 - clock[0][0].astype(p.dtype)) * (m / norm), [m, norm]


def _advance_first(xp, clock, hyper):
    return [clock[0] * hyper[0]]


class Adamax(_AdamBase):
    """Adam with the infinity norm."""

    _op = update_op("adamax_update", _adamax, _advance_first)
    _clock = (Slot("beta1_pow_acc"),)
    _slots = (Slot("moment"), Slot("inf_norm"))
    _wide_slots = False

    def __init__(
        self,
        learning_rate: float | Tensor | LRScheduler = 0.001,
        beta1: float | Tensor = 0.9,
        beta2: float | Tensor = 0.999,
        epsilon: float | Tensor = 1e-8,
        parameters: ParametersLike | None = None,
        weight_decay: float | WeightDecayRegularizer | None = None,
        grad_clip: ClipGradBase | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(
            learning_rate,
            parameters,
            weight_decay,
            grad_clip,
            name,
            defaults=_checked_betas("Adamax", beta1=beta1, beta2=beta2, epsilon=epsilon),
        )


def _nadam_advance(xp, clock, hyper):
    beta1, beta2, _, psi = hyper
    decay = clock[0] * 0.96
    mu = beta1 * (1 - 0.5 * decay**psi)
    return [decay, clock[1] * beta2, clock[2] * mu]


def _nadam(xp, p, g, lr, slots, clock, hyper, extra):
    beta1, beta2, epsilon, psi = hyper
    decay, power2, product = (c.astype(p.dtype) for c in clock[1])
    mu = beta1 * (1 - 0.5 * decay**psi)
    mu_next = beta1 * (1 - 0.5 * decay**psi * 0.96**psi)
    m = beta1 * slots[0] + (1 - beta1) * g
    v = beta2 * slots[1] + (1 - beta2) * g * g
    ahead = mu_next * m / (1 - product * mu_next) + (1 - mu) * g / (1 - product)
    return p - lr * ahead / (xp.sqrt(v / (1 - power2)) + epsilon), [m, v]


class NAdam(_AdamBase):
    """Adam with Nesterov's momentum."""

    _op = update_op("nadam_update", _nadam, _nadam_advance)
    _clock = (
        Slot("momentum_decay_pow", 1.0, "spread"),
        Slot("beta2_pow", 1.0, "spread"),
        Slot("mu_product", 1.0, "spread"),
    )
    _clock_first = True

    def __init__(
        self,
        learning_rate: float | Tensor | LRScheduler = 0.002,
        beta1: float | Tensor = 0.9,
        beta2: float | Tensor = 0.999,
        epsilon: float = 1e-8,
        momentum_decay: float = 0.004,
        parameters: ParametersLike | None = None,
        weight_decay: float | WeightDecayRegularizer | None = None,
        grad_clip: ClipGradBase | None = None,
        name: str | None = None,
    ) -> None:
        _check_rate_sign("NAdam", learning_rate)
        defaults = _checked_betas(
            "NAdam", beta1=beta1, beta2=beta2, epsilon=epsilon, momentum_decay=momentum_decay
        )
        super().__init__(
            learning_rate, parameters, weight_decay, grad_clip, name, defaults=defaults
        )

    def _hyper(self, options: dict[str, Any]) -> tuple[Any, ...]:
        return (*super()._hyper(options), float(options["momentum_decay"]))

    def _initial(self, options: dict[str, Any]) -> dict[str, float]:
        return {}


def _radam_advance(xp, clock, hyper):
    beta1, beta2, _ = hyper
    power1, power2 = clock[0] * beta1, clock[1] * beta2
    # t * beta2^t / (1 - beta2^t), carried from step to step.
    part = (clock[2] * (beta2 - power2) + power2) / (1 - power2)
    return [power1, power2, part]


def _radam(xp, p, g, lr, slots, clock, hyper, extra):
    beta1, beta2, epsilon = hyper
    power1, power2, part = (c.astype(p.dtype) for c in clock[1])
    m = beta1 * slots[0] + (1 - beta1) * g
    v = beta2 * slots[1] + (1 - beta2) * g * g
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * part
    sure = length > 5
    safe = xp.where(sure, length, xp.full_like(length, 6))
    shrink = longest / ((longest - 4) * (longest - 2))
    rectified = xp.sqrt((safe - 4) * (safe - 2) * shrink / safe)
    adaptive = xp.sqrt(1 - power2) / (xp.sqrt(v) + epsilon)
    change = m / (1 - power1)
    return p - lr * xp.where(sure, change * rectified * adaptive, change), [m, v]


class RAdam(_AdamBase):
    """Adam that trusts its variance only once it has seen enough."""

    _op = update_op("radam_update", _radam, _radam_advance)
    _clock = (
        Slot("beta1_pow", 1.0, "spread"),
        Slot("beta2_pow", 1.0, "spread"),
        Slot("rho", 1.0, "spread"),
    )
    _clock_first = True

    def __init__(
        self,
        learning_rate: float | Tensor | LRScheduler = 0.001,
        beta1: float | Tensor = 0.9,
        beta2: float | Tensor = 0.999,
        epsilon: float = 1e-8,
        parameters: ParametersLike | None = None,
        weight_decay: float | WeightDecayRegularizer | None = None,
        grad_clip: ClipGradBase | None = None,
        name: str | None = None,
    ) -> None:
        _check_rate_sign("RAdam", learning_rate)
        super().__init__(
            learning_rate,
            parameters,
            weight_decay,
            grad_clip,
            name,
            defaults=_checked_betas("RAdam", beta1=beta1, beta2=beta2, epsilon=epsilon),
        )

    def _initial(self, options: dict[str, Any]) -> dict[str, float]:
        return {}


def _lamb(xp, p, g, lr, slots, clock, hyper, extra):
    beta1, beta2, epsilon, always_adapt = hyper
    power1, power2 = (c.astype(p.dtype) for c in clock[0])
    m = beta1 * slots[0] + (1 - beta1) * g
    v = beta2 * slots[1] + (1 - beta2) * g * g
    change = m / (1 - power1) / (xp.sqrt(v / (1 - power2)) + epsilon) + extra * p
    if extra > 0 or always_adapt:
        size, step = xp.sqrt(xp.sum(p * p)), xp.sqrt(xp.sum(change * change))
        usable = (size > 0) & (step > 0)
        one = xp.ones_like(size)
        lr = lr * xp.where(usable, size / xp.where(usable, step, one), one)
    return p - lr * change, [m, v]


class Lamb(_AdamBase):
    """Adam with a step in proportion to each weight's size, for large batches."""

    _op = update_op("lamb_update", _lamb, _advance_both)
    _decoupled_decay = True

    def __init__(
        self,
        learning_rate: float | Tensor | LRScheduler = 0.001,
        lamb_weight_decay: float = 0.01,
        beta1: float | Tensor = 0.9,
        beta2: float | Tensor = 0.999,
        epsilon: float | Tensor = 1e-6,
        parameters: ParametersLike | None = None,
        grad_clip: ClipGradBase | None = None,
        exclude_from_weight_decay_fn: Callable[[Tensor], bool] | None = None,
        multi_precision: bool = False,
        always_adapt: bool = False,
        name: str | None = None,
    ) -> None:
        self._always_adapt = bool(always_adapt)
        betas = _checked_betas("Lamb", beta1=beta1, beta2=beta2, epsilon=epsilon)
        super().__init__(
            learning_rate,
            parameters,
            None,
            grad_clip,
            name,
            multi_precision=multi_precision,
            defaults={
                **betas,
                "lamb_weight_decay": float(lamb_weight_decay),
                "exclude_from_weight_decay_fn": exclude_from_weight_decay_fn,
            },
        )

    def _hyper(self, options: dict[str, Any]) -> tuple[Any, ...]:
        return (*super()._hyper(options), self._always_adapt)

    def _extra(self, param: Tensor, options: dict[str, Any]) -> float:
        excluded = options["exclude_from_weight_decay_fn"]
        if excluded is not None and excluded(param):
            return 0.0
        return float(options["lamb_weight_decay"])
