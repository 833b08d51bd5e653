"""Loss scaling for float16. Whether a step overflowed is decided on the device: the update is
recorded in any case and keeps the old values where it must, so nothing waits for an answer."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.amp.auto_cast import _LastUsed
from bireme.core import dtype as dt
from bireme.core.aval import aval
from bireme.core.errors import AutogradError, InvalidArgument, TypeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor, constant
from bireme.nn.grouped import apply, wide
from bireme.ops.row_gradients import by_row, contents, put_gradients, with_contents

if TYPE_CHECKING:
    from bireme.distributed.auto_parallel.sharded_optimizer import ShardOptimizer
    from bireme.optimizer.optimizer import Optimizer


def _unscale_types(*groups: Any, **attrs: Any) -> tuple[Any, ...]:
    return (*groups[0], aval((), dt.bool_))


@op(inputs=("*grads", "scale"), differentiable=False, infer=_unscale_types)
def unscale_gradients(xp, grads, scale):
    """Gradients over `scale`, and whether one of them is infinite or not a number."""
    inverse = 1.0 / xp.reshape(scale, ())
    results = []
    found = xp.zeros((), bool)
    for g in grads:
        x = wide(xp, g)
        x = x * inverse.astype(x.dtype)
        found = found | ~xp.all(xp.isfinite(x))
        results.append(x.astype(g.dtype))
    return [*results, found]


def _scale_types(scale: Any, good: Any, bad: Any, found: Any, settings: Any) -> tuple[Any, ...]:
    return (scale, good, bad)


@op(inputs=("scale", "good", "bad", "*found"), differentiable=False, infer=_scale_types)
def next_loss_scale(xp, scale, good, bad, found, settings=()):
    """The next scale and the counts of good and bad steps in a row."""
    grow, shrink, good_needed, bad_needed = settings
    overflow = found[0]
    for other in found[1:]:
        overflow = overflow | other
    zero = xp.zeros_like(good)
    good = xp.where(overflow, zero, good + 1)
    bad = xp.where(overflow, bad + 1, zero)
    shrinks, grows = bad == bad_needed, good == good_needed
    factor = xp.where(shrinks, shrink, xp.where(grows, grow, 1.0)).astype(scale.dtype)
    return [scale * factor, xp.where(grows, zero, good), xp.where(shrinks, zero, bad)]


class AmpScaler:
    """Scales the loss so that small gradients survive float16."""

    def __init__(
        self,
        enable: bool = True,
        init_loss_scaling: float = 2.0**15,
        incr_ratio: float = 2.0,
        decr_ratio: float = 0.5,
        incr_every_n_steps: int = 1000,
        decr_every_n_nan_or_inf: int = 1,
        use_dynamic_loss_scaling: bool = True,
    ) -> None:
        self._enable = bool(enable)
        self._use_dynamic_loss_scaling = bool(enable and use_dynamic_loss_scaling)
        self._init_loss_scaling = float(init_loss_scaling) if enable else 1.0
        self._incr_ratio = _checked("incr_ratio", incr_ratio, incr_ratio > 1.0, "above 1")
        self._decr_ratio = _checked("decr_ratio", decr_ratio, decr_ratio < 1.0, "below 1")
        self._incr_every_n_steps = int(incr_every_n_steps)
        self._decr_every_n_nan_or_inf = int(decr_every_n_nan_or_inf)
        self._set_counters(self._init_loss_scaling, 0, 0)
        self._found: dict[int, Tensor] = {}  # by optimizer: did its gradients overflow
        self._stepped: set[int] = set()
        self._next: list[Any] | None = None

    def _set_counters(self, scale: float, good: int, bad: int) -> None:
        self._scale = constant(np.full((1,), scale, np.float32))
        self._good = constant(np.full((), good, np.int32))
        self._bad = constant(np.full((), bad, np.int32))

    def scale(self, var: Tensor) -> Tensor:
        """The loss times the current scale."""
        if not isinstance(var, Tensor):
            raise TypeMismatch(f"[scale] takes a Tensor. Received: {type(var).__name__}")
        if self._enable and self._use_dynamic_loss_scaling and _LastUsed.dtype is dt.bfloat16:
            self._enable = self._use_dynamic_loss_scaling = False
            self._init_loss_scaling = 1.0
            warnings.warn(
                "bfloat16 has float32's range and needs no loss scaling: GradScaler is off now",
                stacklevel=2,
            )
        if not self._enable:
            return var
        return var * self._scale.reshape([]).astype(var.dtype)

    def unscale_(self, optimizer: Optimizer | ShardOptimizer) -> None:
        """Divide the optimizer's gradients by the scale, for example to clip them."""
        if not self._enable:
            return
        key = id(optimizer)
        if key in self._stepped:
            raise AutogradError("[unscale_] was called after step(); call update() first")
        if key in self._found:
            raise AutogradError(
                "[unscale_] was called already on this optimizer since the last update()"
            )
        grads = [p.grad for p in optimizer._all_parameters() if p.grad is not None]
        found = constant(np.zeros((), bool))
        if grads:
            held = by_row(grads)
            *results, value = apply(unscale_gradients.op, (contents(held), self._scale))
            put_gradients(grads, with_contents(held, results))
            found = Tensor(value, None)
        self._found[key] = optimizer._overflow_anywhere(found)

    def _prepare(self, optimizer: Optimizer | ShardOptimizer) -> None:
        if id(optimizer) in self._stepped:
            raise AutogradError("[step] was called already since the last update()")
        if id(optimizer) not in self._found:
            self.unscale_(optimizer)
        # The next scale is recorded now, in this step's trace. Recorded later, in update(), it
        # would force the step to run before clear_grad() has dropped the gradients.
        if self._use_dynamic_loss_scaling:
            settings = (
                self._incr_ratio,
                self._decr_ratio,
                self._incr_every_n_steps,
                self._decr_every_n_nan_or_inf,
            )
            inputs = (self._scale, self._good, self._bad, list(self._found.values()))
            self._next = apply(next_loss_scale.op, inputs, (settings,))

    def step(self, optimizer: Optimizer | ShardOptimizer) -> None:
        """`optimizer.step()`, without effect if a gradient overflowed."""
        if not self._enable:
            optimizer.step()
            return
        self._prepare(optimizer)
        optimizer._skip = self._found[id(optimizer)]
        try:
            optimizer.step()
        finally:
            optimizer._skip = None
        self._stepped.add(id(optimizer))
        if not self._use_dynamic_loss_scaling:
            self._forget()

    def update(self) -> None:
        """Adapt the scale to how the step went."""
        if not self._enable or not self._use_dynamic_loss_scaling:
            return
        if self._next is not None:
            for tensor, value in zip((self._scale, self._good, self._bad), self._next, strict=True):
                tensor._put(value)
        self._forget()

    def _forget(self) -> None:
        self._found.clear()
        self._stepped.clear()
        self._next = None

    def minimize(self, optimizer: Optimizer | ShardOptimizer, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.minimize(...)` without effect on overflow, then `update()`."""
        if not self._enable:
            return optimizer.minimize(*args, **kwargs)
        self._prepare(optimizer)
        optimizer._skip = self._found[id(optimizer)]
        try:
            result = optimizer.minimize(*args, **kwargs)
        finally:
            optimizer._skip = None
        self.update()
        self._forget()
        return result

    def is_enable(self) -> bool:
        return self._enable

    def is_use_dynamic_loss_scaling(self) -> bool:
        return self._use_dynamic_loss_scaling

    def get_init_loss_scaling(self) -> float:
        return self._init_loss_scaling

    def set_init_loss_scaling(self, new_init_loss_scaling: float) -> None:
        self._init_loss_scaling = float(new_init_loss_scaling)
        self._scale = constant(np.full((1,), new_init_loss_scaling, np.float32))

    def get_incr_ratio(self) -> float:
        return self._incr_ratio

    def set_incr_ratio(self, new_incr_ratio: float) -> None:
        wanted = new_incr_ratio > 1.0
        self._incr_ratio = _checked("incr_ratio", new_incr_ratio, wanted, "above 1")

    def get_decr_ratio(self) -> float:
        return self._decr_ratio

    def set_decr_ratio(self, new_decr_ratio: float) -> None:
        wanted = new_decr_ratio < 1.0
        self._decr_ratio = _checked("decr_ratio", new_decr_ratio, wanted, "below 1")

    def get_incr_every_n_steps(self) -> int:
        return self._incr_every_n_steps

    def set_incr_every_n_steps(self, new_incr_every_n_steps: int) -> None:
        self._incr_every_n_steps = int(new_incr_every_n_steps)

    def get_decr_every_n_nan_or_inf(self) -> int:
        return self._decr_every_n_nan_or_inf

    def set_decr_every_n_nan_or_inf(self, new_decr_every_n_nan_or_inf: int) -> None:
        self._decr_every_n_nan_or_inf = int(new_decr_every_n_nan_or_inf)

    def state_dict(self) -> dict[str, Any]:
        """Scale, settings and counters; empty if the scaler is off."""
        if not self._enable:
            return {}
        return {
            "scale": self._scale.numpy(),
            "incr_ratio": self._incr_ratio,
            "decr_ratio": self._decr_ratio,
            "incr_every_n_steps": self._incr_every_n_steps,
            "decr_every_n_nan_or_inf": self._decr_every_n_nan_or_inf,
            "incr_count": self._good.item(),
            "decr_count": self._bad.item(),
            "use_dynamic_loss_scaling": self._use_dynamic_loss_scaling,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        if not self._enable:
            return
        if not state_dict:
            raise InvalidArgument(
                "[load_state_dict] the state is empty: it was saved by a scaler that was off"
            )
        missing = sorted(_STATE_KEYS - set(state_dict))
        if missing:
            raise InvalidArgument(
                f"[load_state_dict] the state has no {', '.join(missing)}. Received: "
                f"{sorted(map(str, state_dict))}"
            )
        self._init_loss_scaling = float(np.ravel(state_dict["scale"])[0])
        self._incr_ratio = state_dict["incr_ratio"]
        self._decr_ratio = state_dict["decr_ratio"]
        self._incr_every_n_steps = state_dict["incr_every_n_steps"]
        self._decr_every_n_nan_or_inf = state_dict["decr_every_n_nan_or_inf"]
        self._use_dynamic_loss_scaling = state_dict["use_dynamic_loss_scaling"]
        counts = (state_dict["incr_count"], state_dict["decr_count"])
        self._set_counters(self._init_loss_scaling, *counts)

    set_state_dict = load_state_dict


_STATE_KEYS = {
    "scale", "incr_ratio", "decr_ratio", "incr_every_n_steps", "decr_every_n_nan_or_inf",
    "incr_count", "decr_count", "use_dynamic_loss_scaling",
}  # fmt: skip


def _checked(name: str, value: float, fits: bool, wanted: str) -> float:
    if not fits:
        raise InvalidArgument(f"[GradScaler] {name} must be {wanted}. Received: {value}")
    return float(value)


class GradScaler(AmpScaler):
    """Scales the loss so that small gradients survive float16.

    scaled = scaler.scale(loss); scaled.backward(); scaler.step(optimizer); scaler.update()
    """

    def __init__(
        self,
        enable: bool = True,
        init_loss_scaling: float = 2.0**16,
        incr_ratio: float = 2.0,
        decr_ratio: float = 0.5,
        incr_every_n_steps: int = 2000,
        decr_every_n_nan_or_inf: int = 1,
        use_dynamic_loss_scaling: bool = True,
    ) -> None:
        super().__init__(
            enable,
            init_loss_scaling,
            incr_ratio,
            decr_ratio,
            incr_every_n_steps,
            decr_every_n_nan_or_inf,
            use_dynamic_loss_scaling,
        )


__all__ = ["AmpScaler", "GradScaler"]
