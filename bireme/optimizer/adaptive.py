"""Adagrad, Adadelta and RMSProp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bireme.core.errors import InvalidArgument
from bireme.optimizer.optimizer import Optimizer
from bireme.optimizer.slots import Slot
from bireme.optimizer.update import update_op

if TYPE_CHECKING:
    from bireme.core.tensor import Tensor
    from bireme.nn.clip import ClipGradBase
    from bireme.optimizer.optimizer import ParametersLike
    from bireme.optimizer.schedule import LRScheduler
    from bireme.regularizer import WeightDecayRegularizer


def _check_given(where: str, **values: Any) -> None:
    for name, value in values.items():
        if value is None:
            raise InvalidArgument(f"[{where}] {name} must be a number. Received: None")


def _adagrad(xp, p, g, lr, slots, clock, hyper, extra):
    total = slots[0] + g * g
    return p - lr * g / (xp.sqrt(total) + hyper[0]), [total]


class Adagrad(Optimizer):
    """The step shrinks with the sum of squared gradients."""

    _op = update_op("adagrad_update", _adagrad)
    _by_rows = True
    _slots = (Slot("moment"),)

    def __init__(
        self,
        learning_rate: float | Tensor | LRScheduler,
        epsilon: float = 1e-6,
        parameters: ParametersLike | None = None,
        weight_decay: float | WeightDecayRegularizer | None = None,
        grad_clip: ClipGradBase | None = None,
        name: str | None = None,
        initial_accumulator_value: float = 0.0,
    ) -> None:
        _check_given("Adagrad", epsilon=epsilon)
        defaults = {
            "epsilon": epsilon,
            "initial_accumulator_value": initial_accumulator_value,
        }
        super().__init__(
            learning_rate, parameters, weight_decay, grad_clip, name, defaults=defaults
        )

    def _hyper(self, options: dict[str, Any]) -> tuple[Any, ...]:
        return (float(options["epsilon"]),)

    def _initial(self, options: dict[str, Any]) -> dict[str, float]:
        return {"moment": float(options["initial_accumulator_value"])}


def _adadelta(xp, p, g, lr, slots, clock, hyper, extra):
    rho, epsilon = hyper
    squares = rho * slots[0] + (1 - rho) * g * g
    change = xp.sqrt((slots[1] + epsilon) / (squares + epsilon)) * g
    changes = rho * slots[1] + (1 - rho) * change * change
    return p - lr * change, [squares, changes]


class Adadelta(Optimizer):
    """The step follows the ratio of past updates to past gradients."""

    _op = update_op("adadelta_update", _adadelta)
    _slots = (Slot("_avg_squared_grad"), Slot("_avg_squared_update"))

    def __init__(
        self,
        learning_rate: float | Tensor | LRScheduler = 0.001,
        epsilon: float = 1e-6,
        rho: float = 0.95,
        parameters: ParametersLike | None = None,
        weight_decay: float | WeightDecayRegularizer | None = None,
        grad_clip: ClipGradBase | None = None,
        name: str | None = None,
    ) -> None:
        _check_given("Adadelta", epsilon=epsilon, rho=rho)
        defaults = {"epsilon": epsilon, "rho": rho}
        super().__init__(
            learning_rate, parameters, weight_decay, grad_clip, name, defaults=defaults
        )

    def _hyper(self, options: dict[str, Any]) -> tuple[Any, ...]:
        return (float(options["rho"]), float(options["epsilon"]))


def _rmsprop(xp, p, g, lr, slots, clock, hyper, extra):
    rho, epsilon, momentum, centered = hyper
    squares = rho * slots[1] + (1 - rho) * g * g
    mean = slots[2]
    spread = squares
    if centered:
        mean = rho * mean + (1 - rho) * g
        spread = squares - mean * mean
    change = momentum * slots[0] + lr * g / xp.sqrt(spread + epsilon)
    return p - change, [change, squares, mean]


class RMSProp(Optimizer):
    """The gradient over the root of its running mean square."""

    _op = update_op("rmsprop_update", _rmsprop)
    _slots = (Slot("momentum"), Slot("mean_square"), Slot("mean_grad"))

    def __init__(
        self,
        learning_rate: float | Tensor | LRScheduler,
        rho: float = 0.95,
        epsilon: float = 1e-6,
        momentum: float = 0.0,
        centered: bool = False,
        parameters: ParametersLike | None = None,
        weight_decay: float | WeightDecayRegularizer | None = None,
        grad_clip: ClipGradBase | None = None,
        name: str | None = None,
    ) -> None:
        for what, value in (("rho", rho), ("epsilon", epsilon), ("momentum", momentum)):
            if value is None or value < 0:
                raise InvalidArgument(f"[RMSProp] {what} must be 0 or more. Received: {value}")
        defaults = {"rho": rho, "epsilon": epsilon, "momentum": momentum, "centered": centered}
        super().__init__(
            learning_rate, parameters, weight_decay, grad_clip, name, defaults=defaults
        )

    def _hyper(self, options: dict[str, Any]) -> tuple[Any, ...]:
        return (
            float(options["rho"]),
            float(options["epsilon"]),
            float(options["momentum"]),
            bool(options["centered"]),
        )
