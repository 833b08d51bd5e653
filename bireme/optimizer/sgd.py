"""SGD, Momentum, ASGD and Rprop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bireme.core.errors import InvalidArgument
from bireme.optimizer.optimizer import Optimizer
from bireme.optimizer.slots import Slot
from bireme.optimizer.update import Settings, update_op

if TYPE_CHECKING:
    from bireme.core.tensor import Tensor
    from bireme.nn.clip import ClipGradBase
    from bireme.optimizer.optimizer import ParametersLike
    from bireme.optimizer.schedule import LRScheduler
    from bireme.regularizer import WeightDecayRegularizer


def _sgd(xp, p, g, lr, slots, clock, hyper, extra):
    return p - lr * g, []


class SGD(Optimizer):
    """param -= lr * grad."""

    _op = update_op("sgd_update", _sgd)
    _by_rows = True

    def __init__(
        self,
        learning_rate: float | Tensor | LRScheduler = 0.001,
        parameters: ParametersLike | None = None,
        weight_decay: float | WeightDecayRegularizer | None = None,
        grad_clip: ClipGradBase | None = None,
        multi_precision: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(
            learning_rate,
            parameters,
            weight_decay,
            grad_clip,
            name,
            multi_precision=multi_precision,
        )


def _momentum(xp, p, g, lr, slots, clock, hyper, extra):
    mu, nesterov = hyper
    velocity = mu * slots[0] + g
    change = g + mu * velocity if nesterov else velocity
    return p - lr * change, [velocity]


class Momentum(Optimizer):
    """SGD with a velocity, optionally Nesterov's.

    All parameters are updated in one op in any case; `use_multi_tensor` changes nothing.
    """

    _op = update_op("momentum_update", _momentum)
    _slots = (Slot("velocity"),)

    def __init__(
        self,
        learning_rate: float | Tensor | LRScheduler = 0.001,
        momentum: float = 0.9,
        parameters: ParametersLike | None = None,
        use_nesterov: bool = False,
        weight_decay: float | WeightDecayRegularizer | None = None,
        grad_clip: ClipGradBase | None = None,
        multi_precision: bool = False,
        rescale_grad: float = 1.0,
        use_multi_tensor: bool = False,
        name: str | None = None,
    ) -> None:
        if momentum is None:
            raise InvalidArgument("[Momentum] momentum must be a number. Received: None")
        defaults = {
            "momentum": momentum,
            "use_nesterov": bool(use_nesterov),
            "rescale_grad": rescale_grad,
        }
        super().__init__(
            learning_rate,
            parameters,
            weight_decay,
            grad_clip,
            name,
            multi_precision=multi_precision,
            defaults=defaults,
        )

    def _hyper(self, options: dict[str, Any]) -> tuple[Any, ...]:
        return (float(options["momentum"]), bool(options["use_nesterov"]))

    def _setting(self, param: Tensor, options: dict[str, Any]) -> Settings:
        setting = super()._setting(param, options)
        return setting._replace(grad_scale=float(options["rescale_grad"]))


def _asgd_advance(xp, clock, hyper):
    return [clock[0] + 1]


def _asgd(xp, p, g, lr, slots, clock, hyper, extra):
    (count,) = hyper
    total, past = slots
    before, after = clock
    at = before[0] % count
    chosen = xp.reshape(xp.arange(count) == at, (count, *[1] * p.ndim))
    total = total - xp.sum(xp.where(chosen, past, xp.zeros_like(past)), axis=0) + g
    seen = xp.minimum(after[0], count).astype(p.dtype)
    return p - lr * (total / seen), [total, xp.where(chosen, g[None], past)]


class ASGD(Optimizer):
    """SGD on the average of the last `batch_num` gradients."""

    _op = update_op("asgd_update", _asgd, _asgd_advance)
    _slots = (Slot("d"), Slot("y"))
    _clock = (Slot("m", dtype="int64"),)

    def __init__(
        self,
        learning_rate: float | Tensor | LRScheduler = 0.001,
        batch_num: int = 1,
        parameters: ParametersLike | None = None,
        weight_decay: float | WeightDecayRegularizer | None = None,
        grad_clip: ClipGradBase | None = None,
        multi_precision: bool = False,
        name: str | None = None,
    ) -> None:
        if not isinstance(batch_num, int) or batch_num <= 0:
            raise InvalidArgument(
                f"[ASGD] batch_num must be a positive int. Received: {batch_num!r}"
            )
        self._batch_num = batch_num
        self._slots = (Slot("d"), Slot("y", rows=batch_num))  # pyright: ignore[reportAttributeAccessIssue]
        super().__init__(
            learning_rate,
            parameters,
            weight_decay,
            grad_clip,
            name,
            multi_precision=multi_precision,
        )

    def _hyper(self, options: dict[str, Any]) -> tuple[Any, ...]:
        return (self._batch_num,)


def _rprop(xp, p, g, lr, slots, clock, hyper, extra):
    low, high, shrink, grow = hyper
    before, rates = slots
    agreement = before * g
    factor = xp.where(agreement > 0, grow, xp.where(agreement < 0, shrink, 1.0)).astype(p.dtype)
    rates = xp.clip(rates * factor, low, high)
    g = xp.where(agreement < 0, xp.zeros_like(g), g)
    return p - xp.sign(g) * rates, [g, rates]


class Rprop(Optimizer):
    """A step per element that grows while the gradient keeps its sign and shrinks when it turns."""

    _op = update_op("rprop_update", _rprop)
    _slots = (Slot("prevs"), Slot("learning_rates"))

    def __init__(
        self,
        learning_rate: float | Tensor = 0.001,
        learning_rate_range: tuple[float, float] = (1e-5, 50),
        parameters: ParametersLike | None = None,
        etas: tuple[float, float] = (0.5, 1.2),
        grad_clip: ClipGradBase | None = None,
        multi_precision: bool = False,
        name: str | None = None,
    ) -> None:
        if learning_rate is None:
            raise InvalidArgument("[Rprop] learning_rate must be a float. Received: None")
        low, high = learning_rate_range
        shrink, grow = etas
        if not 0 < low <= float(learning_rate) <= high:
            raise InvalidArgument(
                f"[Rprop] needs 0 < low <= learning_rate <= high. Received: "
                f"{learning_rate_range} and {learning_rate}"
            )
        if not 0 < shrink < 1 < grow:
            raise InvalidArgument(f"[Rprop] etas must be below and above 1. Received: {etas}")
        self._range = (float(low), float(high), float(shrink), float(grow))
        super().__init__(
            learning_rate, parameters, None, grad_clip, name, multi_precision=multi_precision
        )

    def _hyper(self, options: dict[str, Any]) -> tuple[Any, ...]:
        return self._range

    def _initial(self, options: dict[str, Any]) -> dict[str, float]:
        return {"learning_rates": self.get_lr()}
