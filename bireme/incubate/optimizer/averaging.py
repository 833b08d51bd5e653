"""Weights that follow the trained ones at a distance: LookAhead and ModelAverage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bireme.autograd.modes import no_grad
from bireme.core.dtype import int64
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor, alias, constant
from bireme.nn import naming
from bireme.optimizer.matching import StateOfAnother
from bireme.optimizer.optimizer import Optimizer
from bireme.optimizer.slots import as_array

if TYPE_CHECKING:
    from bireme.optimizer.optimizer import ParametersLike


_MOST_IN_ONE_SUM = 16384  # then it joins the second sum, so that small terms are not lost


class LookAhead(Optimizer):
    """Every `k` steps of the inner optimizer, goes back to a point on the way.

    Slow weights take a step of `alpha` towards the trained ones, which then start from there.

    >>> inner = paddle.optimizer.SGD(0.1, model.parameters())
    >>> optimizer = paddle.incubate.LookAhead(inner, alpha=0.5, k=5)
    """

    def __init__(
        self, inner_optimizer: Optimizer, alpha: float = 0.5, k: int = 5, name: str | None = None
    ) -> None:
        if not isinstance(inner_optimizer, Optimizer):
            raise TypeMismatch(
                "[LookAhead] inner_optimizer must be an Optimizer. Received: "
                f"{type(inner_optimizer).__name__}"
            )
        if not 0.0 <= alpha <= 1.0:
            raise InvalidArgument(f"[LookAhead] alpha must lie in 0..1. Received: {alpha}")
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise InvalidArgument(f"[LookAhead] k must be a positive int. Received: {k!r}")
        self.inner_optimizer = inner_optimizer
        super().__init__(alpha, inner_optimizer._all_parameters(), name=name)
        self.alpha, self.k = alpha, k
        self._steps = 0
        self._slow: dict[str, Tensor] = {}

    def step(self) -> None:
        """One step of the inner optimizer; every k-th one ends between slow and fast weights."""
        trained = [p for p in self._all_parameters() if _has_gradient(p)]
        self.inner_optimizer.step()
        self._follow(trained)

    def minimize(
        self,
        loss: Tensor,
        startup_program: object = None,
        parameters: Iterable[Tensor | str] | None = None,
        no_grad_set: Iterable[Tensor | str] | None = None,
    ) -> tuple[list[Any], list[tuple[Any, Tensor]]]:
        """As `step`, from gradients that `loss.backward()` has computed before."""
        done, pairs = self.inner_optimizer.minimize(loss, startup_program, parameters, no_grad_set)
        self._follow([p for p, _ in pairs])
        return done, pairs

    @no_grad()
    def _follow(self, trained: list[Any]) -> None:
        self._steps += 1
        for p in trained:
            slow = self._slow.get(p.name)
            if slow is None:  # it starts where the first step has led
                self._slow[p.name] = _copy(p, "slow")
            elif self._steps % self.k == 0:
                between = slow * (1.0 - self.alpha) + p * self.alpha
                slow._put(between.clone()._value)  # two values: each is overwritten by itself
                p._put(between._value)

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's state, the slow weights, and the number of steps."""
        state = self.inner_optimizer.state_dict()
        state.update({slow.name: slow for slow in self._slow.values()})
        state["lookahead_step"] = self._steps
        return state

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        state = dict(state_dict)
        steps = int(state.pop("lookahead_step", self._steps))
        loaded = {}
        for p in self._all_parameters():
            stem = f"{p.name}_slow_"
            found = [k for k in state if k.startswith(stem) and k[len(stem) :].isdigit()]
            if found:
                slow = loaded[p.name] = constant(as_array(state.pop(found[0]), p.dtype))
                slow.name = found[0]
        self.inner_optimizer.set_state_dict(state)  # refuses what is left and not its own
        self._steps = steps
        self._slow.update(loaded)

    set_dict = load_state_dict = set_state_dict


class ModelAverage(Optimizer):
    """Keeps an average of the weights over a moving window of steps.

    Call `step()` after the training optimizer's, and evaluate inside `with average.apply():`.
    The window holds `average_window_rate` times the steps so far, between the two bounds.
    """

    def __init__(
        self,
        average_window_rate: float,
        parameters: ParametersLike | None = None,
        min_average_window: int = 10000,
        max_average_window: int = 10000,
        name: str | None = None,
    ) -> None:
        super().__init__(0.0, parameters, name=name)
        self.average_window = average_window_rate
        self.min_average_window = min_average_window
        self.max_average_window = max_average_window
        self._sums: dict[int, _Sums] = {}
        self._before: dict[int, Any] = {}

    @no_grad()
    def step(self) -> None:
        """Add the weights that were trained to their averages."""
        for p in self._all_parameters():
            if _has_gradient(p):
                self._of(p).add(p, self)

    def minimize(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        loss: Tensor,
        startup_program: object = None,
        parameters: Iterable[Tensor | str] | None = None,
        no_grad_set: Iterable[Tensor | str] | None = None,
    ) -> None:
        """As `step`; the loss was minimised by the training optimizer."""
        self.step()

    def _of(self, param: Tensor) -> _Sums:
        found = self._sums.get(id(param))
        if found is None:
            found = self._sums[id(param)] = _Sums(param)
        return found

    @contextmanager
    def apply(self, executor: object = None, need_restore: bool = True) -> Iterator[None]:
        """The weights are their averages inside the block; after it the trained ones again.

        Without `need_restore` they stay averages until `restore()`.
        """
        if executor is not None:
            raise InvalidArgument("[ModelAverage.apply] needs no executor; leave it out")
        with no_grad():
            for p in self._all_parameters():
                self._before[id(p)] = alias(p).clone()
                average = self._of(p).average()
                if average is not None:
                    p._put(average.astype(p.dtype)._value)
        try:
            yield
        finally:
            if need_restore:
                self.restore()

    def restore(self, executor: object = None) -> None:
        """Put the trained weights back."""
        if executor is not None:
            raise InvalidArgument("[ModelAverage.restore] needs no executor; leave it out")
        for p in self._all_parameters():
            before = self._before.pop(id(p), None)
            if before is not None:
                p._put(before._value)

    def state_dict(self) -> dict[str, Any]:
        """The sums and counters of every parameter."""
        state: dict[str, Any] = {}
        for p in self._all_parameters():
            if id(p) in self._sums:
                state.update(self._sums[id(p)].state(p.name))
        return state

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        ours = {p.name for p in self._all_parameters()}
        given = {key.rpartition("_sum_")[0] for key in state_dict if key.endswith("_sum_1_0")}
        if not ours.issuperset(given):
            raise StateOfAnother(
                f"[ModelAverage.set_state_dict] the state is that of {sorted(given)}; this one "
                f"averages {sorted(ours)}. Nothing was loaded"
            )
        for p in self._all_parameters():
            self._of(p).load(p, state_dict)

    set_dict = load_state_dict = set_state_dict


class _Sums:
    """The running sums of one parameter: of late, of before, and of the window before that."""

    def __init__(self, param: Tensor):
        self.parts = [_copy(param, f"sum_{i}") * 0 for i in (1, 2, 3)]
        self.count = self.old_count = self.updates = 0

    def add(self, param: Tensor, settings: ModelAverage) -> None:
        late, early, old = self.parts
        self.count += 1
        self.updates += 1
        late = late + param
        if self.updates % _MOST_IN_ONE_SUM == 0:
            late, early = late * 0, early + late
        window = min(settings.max_average_window, int(self.updates * settings.average_window))
        if self.count >= settings.min_average_window and self.count >= window:
            late, early, old = late * 0, early * 0, late + early
            self.old_count, self.count = self.count, 0
        self.parts = [t.detach() for t in (late, early, old)]

    def average(self) -> Tensor | None:
        """None if nothing was added yet."""
        total = self.count + self.old_count
        late, early, old = self.parts
        return (late + early + old) / total if total else None

    def state(self, name: str) -> dict[str, Any]:
        sums = {f"{name}_sum_{i}_0": t for i, t in enumerate(self.parts, 1)}
        counts = (self.count, self.old_count, self.updates)
        return {**sums, **{f"{name}_{key}_0": v for key, v in zip(_COUNTS, counts, strict=True)}}

    def load(self, param: Tensor, state: dict[str, Any]) -> None:
        if f"{param.name}_sum_1_0" not in state:
            return
        self.parts = [
            constant(as_array(state[f"{param.name}_sum_{i}_0"], param.dtype)) for i in (1, 2, 3)
        ]
        numbers = [int(as_array(state[f"{param.name}_{k}_0"], int64).item()) for k in _COUNTS]
        self.count, self.old_count, self.updates = numbers


_COUNTS = ("num_accumulates", "old_num_accumulates", "num_updates")


def _has_gradient(param: Tensor) -> bool:
    return not param.stop_gradient and (param._grad is not None or param._grad_is_zero)


def _copy(param: Tensor, kind: str) -> Tensor:
    made = alias(param).clone()
    made.name = naming.generate(f"{param.name}_{kind}")
    return made


__all__ = ["LookAhead", "ModelAverage"]
