"""Where the values of a random variable may lie."""

from __future__ import annotations

from bireme.core.tensor import Tensor


class Constraint:
    """A condition on values; calling it says where it holds."""

    def __call__(self, value: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} defines no __call__")

    def check(self, value: Tensor) -> Tensor:
        return self(value)


class Real(Constraint):
    """Any number but NaN."""

    def __call__(self, value: Tensor) -> Tensor:
        return value == value


class Range(Constraint):
    """Between two bounds, both included."""

    def __init__(self, lower: float, upper: float) -> None:
        self._lower, self._upper = lower, upper

    def __call__(self, value: Tensor) -> Tensor:
        return (value >= self._lower).logical_and(value <= self._upper)


class Positive(Constraint):
    """Zero or more."""

    def __call__(self, value: Tensor) -> Tensor:
        return value >= 0.0


class Simplex(Constraint):
    """Vectors of nonnegative numbers with the sum 1."""

    def __call__(self, value: Tensor) -> Tensor:
        return (value >= 0).all(axis=-1).logical_and((value.sum(-1) - 1).abs() < 1e-6)


real, positive, simplex = Real(), Positive(), Simplex()
