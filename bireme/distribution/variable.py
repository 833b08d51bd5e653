"""The domain and the codomain of a transform: how many dimensions an event has, which values."""

from __future__ import annotations

from collections.abc import Sequence

import bireme
from bireme.core.errors import ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.distribution import constraint as constraints
from bireme.distribution.constraint import Constraint


class Variable:
    """A random variable's kind: discrete or not, dimensions of an event, allowed values."""

    def __init__(
        self, is_discrete: bool = False, event_rank: int = 0, constraint: Constraint | None = None
    ) -> None:
        self._is_discrete = is_discrete
        self._event_rank = event_rank
        self._constraint = constraints.real if constraint is None else constraint

    @property
    def is_discrete(self) -> bool:
        return self._is_discrete

    @property
    def event_rank(self) -> int:
        return self._event_rank

    def constraint(self, value: Tensor) -> Tensor:
        """Whether each event of `value` is allowed."""
        return self._constraint.check(value)


class Real(Variable):
    """Real numbers."""

    def __init__(self, event_rank: int = 0) -> None:
        super().__init__(False, event_rank, constraints.real)


class Positive(Variable):
    """Positive numbers."""

    def __init__(self, event_rank: int = 0) -> None:
        super().__init__(False, event_rank, constraints.positive)


class Independent(Variable):
    """Another variable with its last batch dimensions counted as part of the event."""

    def __init__(self, base: Variable, reinterpreted_batch_rank: int) -> None:
        self._base = base
        self._reinterpreted_batch_rank = reinterpreted_batch_rank
        super().__init__(base.is_discrete, base.event_rank + reinterpreted_batch_rank)

    def constraint(self, value: Tensor) -> Tensor:
        allowed = self._base.constraint(value)
        if allowed.dim() < self._reinterpreted_batch_rank:
            raise ShapeMismatch(
                f"[constraint] the value needs {self._reinterpreted_batch_rank} dimensions or "
                f"more. Received: shape {value.shape}"
            )
        axes = list(range(-self._reinterpreted_batch_rank, 0))
        return allowed.all(axis=axes) if axes else allowed


class Stack(Variable):
    """Several variables along an axis."""

    def __init__(self, vars: Sequence[Variable], axis: int = 0) -> None:
        super().__init__()
        self._vars, self._axis = vars, axis

    @property
    def is_discrete(self) -> bool:
        return any(v.is_discrete for v in self._vars)

    @property
    def event_rank(self) -> int:
        rank = max(v.event_rank for v in self._vars)
        return rank + 1 if self._axis + rank < 0 else rank

    def constraint(self, value: Tensor) -> Tensor:
        if not -value.dim() <= self._axis < value.dim():
            raise ShapeMismatch(
                f"[constraint] the value has no axis {self._axis}. Received: shape {value.shape}"
            )
        parts = bireme.unstack(value, self._axis)
        checked = [v.constraint(part) for v, part in zip(self._vars, parts, strict=False)]
        return bireme.stack(checked, self._axis)


real, positive = Real(), Positive()
