"""Minimising a function of a vector: BFGS and L-BFGS.

Their decisions need numbers, so the bookkeeping is NumPy on the host; the function and its
gradient run on the device as always.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.autograd import grad as gradient_of
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor, constant
from bireme.optimizer.line_search import Trial, strong_wolfe

Objective = Callable[[Tensor], Tensor]
_FLAT = 1000.0  # stands for 1/0 where a step has changed no gradient


class _Search:
    """The point so far, its value and gradient, and how a step along a direction is taken."""

    def __init__(
        self,
        function: str,
        objective: Objective,
        start: Any,
        line_search_fn: str,
        trials: int,
        step: float,
        dtype: str,
    ):
        if dtype not in ("float32", "float64"):
            raise InvalidArgument(
                f"[{function}] dtype must be 'float32' or 'float64'. Received: {dtype!r}"
            )
        if not isinstance(start, Tensor) or start.ndim != 1:
            raise InvalidArgument(
                f"[{function}] initial_position must be a 1-D Tensor. Received: "
                f"{type(start).__name__}"
            )
        if line_search_fn != "strong_wolfe":
            raise InvalidArgument(
                f"[{function}] line_search_fn must be 'strong_wolfe'. Received: {line_search_fn!r}"
            )
        self.dtype = dt.as_dtype(dtype)
        self.objective, self.trials, self.first = objective, trials, step
        self.x = np.asarray(start._array(), np.float64)
        self.calls = 0
        self.value, self.grad = self.evaluate(self.x)

    def evaluate(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """The function and its gradient at `x`."""
        self.calls += 1
        at = constant(x.astype(self.dtype.numpy))
        at.stop_gradient = False
        value = self.objective(at)
        slope: Any = gradient_of([value], [at])[0]
        return float(value), np.asarray(slope._array(), np.float64)

    def step(self, direction: np.ndarray) -> Trial:
        """Go along `direction` as far as the line search says; returns where it stopped."""
        slope = float(np.dot(self.grad, direction))
        if not slope < 0:
            return Trial(0.0, self.value, self.grad, slope)
        found, _ = strong_wolfe(
            lambda a: self.evaluate(self.x + a * direction),
            self.first,
            direction,
            self.value,
            self.grad,
            slope,
            most_trials=self.trials,
        )
        self.x = self.x + found.at * direction
        self.value, self.grad = found.loss, np.asarray(found.grad)
        return found

    def results(self, converged: bool) -> tuple[Tensor, ...]:
        """(converged, calls, position, value, gradient) as Paddle returns them."""
        kind = self.dtype.numpy
        return (
            constant(np.array([converged])),
            constant(np.array([self.calls], np.int64)),
            constant(self.x.astype(kind)),
            constant(np.asarray(self.value, kind)),
            constant(self.grad.astype(kind)),
        )


def _inverse_hessian(function: str, given: Any, size: int) -> np.ndarray:
    """The estimate to start with: the identity, or a symmetric positive definite matrix."""
    if given is None:
        return np.eye(size)
    matrix = np.asarray(given._array() if isinstance(given, Tensor) else given, np.float64)
    try:
        symmetric = matrix.shape == (size, size) and bool((matrix == matrix.T).all())
        np.linalg.cholesky(matrix if symmetric else -np.eye(size))
    except np.linalg.LinAlgError:
        raise InvalidArgument(
            f"[{function}] initial_inverse_hessian_estimate must be symmetric and positive "
            f"definite, of shape [{size}, {size}]"
        ) from None
    return matrix


def _minimise(
    search: _Search,
    direction: Callable[[], np.ndarray],
    learn: Callable[[np.ndarray, np.ndarray, float], None],
    max_iters: int,
    tolerance_grad: float,
    tolerance_change: float,
) -> bool:
    """The loop that both methods share; returns whether it converged."""
    for _ in range(max_iters):
        d, before = direction(), search.grad
        found = search.step(d)
        s, y = found.at * d, search.grad - before
        curvature = float(np.dot(y, s))
        learn(s, y, 1.0 / curvature if curvature else _FLAT)
        if np.max(np.abs(search.grad)) < tolerance_grad or np.max(np.abs(d)) < tolerance_change:
            return True
        if found.at == 0.0:
            return False
    return False


def minimize_bfgs(
    objective_func: Objective,
    initial_position: Tensor,
    max_iters: int = 50,
    tolerance_grad: float = 1e-7,
    tolerance_change: float = 1e-9,
    initial_inverse_hessian_estimate: Tensor | None = None,
    line_search_fn: str = "strong_wolfe",
    max_line_search_iters: int = 50,
    initial_step_length: float = 1.0,
    dtype: str = "float32",
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Minimise with BFGS: (converged, calls, position, value, gradient, inverse Hessian).

    >>> f = lambda x: ((x - 3.0) ** 2).sum()
    >>> minimize_bfgs(f, paddle.zeros([2]))[2]
    """
    search = _Search(
        "minimize_bfgs",
        objective_func,
        initial_position,
        line_search_fn,
        max_line_search_iters,
        initial_step_length,
        dtype,
    )
    size = len(search.x)
    inverse = _inverse_hessian("minimize_bfgs", initial_inverse_hessian_estimate, size)

    def learn(s: np.ndarray, y: np.ndarray, rho: float) -> None:
        nonlocal inverse
        v = np.eye(size) - rho * np.outer(y, s)
        inverse = v.T @ inverse @ v + rho * np.outer(s, s)

    converged = _minimise(
        search,
        lambda: -inverse @ search.grad,
        learn,
        max_iters,
        tolerance_grad,
        tolerance_change,
    )
    estimate = constant(inverse.astype(search.dtype.numpy))
    return (*search.results(converged), estimate)  # type: ignore[return-value]


def minimize_lbfgs(
    objective_func: Objective,
    initial_position: Tensor,
    history_size: int = 100,
    max_iters: int = 50,
    tolerance_grad: float = 1e-8,
    tolerance_change: float = 1e-8,
    initial_inverse_hessian_estimate: Tensor | None = None,
    line_search_fn: str = "strong_wolfe",
    max_line_search_iters: int = 50,
    initial_step_length: float = 1.0,
    dtype: str = "float32",
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Minimise with L-BFGS, which remembers `history_size` steps instead of a matrix:
    (converged, calls, position, value, gradient)."""
    search = _Search(
        "minimize_lbfgs",
        objective_func,
        initial_position,
        line_search_fn,
        max_line_search_iters,
        initial_step_length,
        dtype,
    )
    inverse = _inverse_hessian("minimize_lbfgs", initial_inverse_hessian_estimate, len(search.x))
    history: list[tuple[np.ndarray, np.ndarray, float]] = []

    def direction() -> np.ndarray:
        q = search.grad
        weights = []
        for s, y, rho in reversed(history):
            weights.append(rho * np.dot(s, q))
            q = q - weights[-1] * y
        r = inverse @ q
        for s, y, rho in history:
            r = r + s * (weights.pop() - rho * np.dot(y, r))
        return -r

    def learn(s: np.ndarray, y: np.ndarray, rho: float) -> None:
        history.append((s, y, rho))
        del history[: len(history) - history_size]

    converged = _minimise(search, direction, learn, max_iters, tolerance_grad, tolerance_change)
    return search.results(converged)  # type: ignore[return-value]


__all__ = ["minimize_bfgs", "minimize_lbfgs"]
