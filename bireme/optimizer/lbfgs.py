"""L-BFGS. Its decisions need numbers, so the bookkeeping is NumPy on the host; the loss and its
gradient run on the device as always."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.autograd.modes import enable_grad
from bireme.core.aval import aval
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.core.value import value_of
from bireme.optimizer.line_search import strong_wolfe
from bireme.optimizer.optimizer import Optimizer

if TYPE_CHECKING:
    from bireme.nn.clip import ClipGradBase
    from bireme.optimizer.optimizer import ParametersLike
    from bireme.regularizer import WeightDecayRegularizer


class LBFGS(Optimizer):
    """Limited-memory BFGS: `step(closure)` calls `closure` as often as it needs.

    The closure clears the gradients, computes the loss, calls `backward` and returns the loss.
    """

    def __init__(
        self,
        learning_rate: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
        parameters: ParametersLike | None = None,
        weight_decay: float | WeightDecayRegularizer | None = None,
        grad_clip: ClipGradBase | None = None,
        name: str | None = None,
    ) -> None:
        if line_search_fn not in (None, "strong_wolfe"):
            raise InvalidArgument(
                f"[LBFGS] line_search_fn must be None or 'strong_wolfe'. Received: "
                f"{line_search_fn!r}"
            )
        super().__init__(1.0, parameters, weight_decay, grad_clip, name)
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        self.tolerance_grad = tolerance_grad
        self.tolerance_change = tolerance_change
        self.history_size = history_size
        self.line_search_fn = line_search_fn
        self.state: dict[str, Any] = {"func_evals": 0, "n_iter": 0}

    def _flat_grad(self) -> np.ndarray:
        pairs = [(p, p.grad) for p in self._all_parameters()]
        if self._grad_clip is not None:
            pairs = self._grad_clip(pairs)
        parts = []
        for p, g in pairs:
            part = np.zeros(p.size) if g is None else np.asarray(g._array(), np.float64).ravel()
            penalty = getattr(p, "regularizer", None) or self.regularization
            if penalty is not None:
                weight = np.asarray(p._array(), np.float64).ravel()
                part = part + penalty.coeff * (weight if penalty.kind == "l2" else np.sign(weight))
            parts.append(part)
        return np.concatenate(parts)

    def _weights(self) -> np.ndarray:
        arrays = [np.asarray(p._array(), np.float64).ravel() for p in self._all_parameters()]
        return np.concatenate(arrays)

    def _set_weights(self, flat: np.ndarray) -> None:
        at = 0
        for p in self._all_parameters():
            shape = tuple(p.shape)
            part = flat[at : at + p.size].reshape(shape).astype(p.dtype.numpy)
            p._put(value_of(aval(shape, p.dtype), part))
            at += p.size

    def step(self, closure: Callable[[], Tensor]) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Minimise for up to `max_iter` iterations; returns the loss at the start."""
        with enable_grad():
            return self._minimise(closure)

    def _minimise(self, closure: Callable[[], Tensor]) -> Tensor:
        state = self.state
        first_loss = closure()
        loss, grad = float(first_loss), self._flat_grad()
        evaluations = 1
        state["func_evals"] += 1
        if np.max(np.abs(grad)) <= self.tolerance_grad:
            return first_loss
        for iteration in range(1, self.max_iter + 1):
            state["n_iter"] += 1
            direction = self._direction(grad)
            before, state["prev_flat_grad"], state["prev_loss"] = loss, grad, loss
            step = float(self.learning_rate)
            if state["n_iter"] == 1:
                step *= min(1.0, 1.0 / float(np.sum(np.abs(grad))))
            slope = float(np.dot(grad, direction))
            state["d"], state["alpha"] = direction, step
            if slope > -self.tolerance_change:
                break
            origin = self._weights()

            def at(distance: float, origin: Any = origin, direction: Any = direction) -> Any:
                self._set_weights(origin + distance * direction)
                return float(closure()), self._flat_grad()

            used = 0
            if self.line_search_fn is not None:
                found, used = strong_wolfe(at, step, direction, loss, grad, slope)
                loss, grad, step = found.loss, found.grad, found.at
                self._set_weights(origin + step * direction)
            elif iteration < self.max_iter:
                loss, grad = at(step)
                used = 1
            else:
                self._set_weights(origin + step * direction)
            state["alpha"] = step
            evaluations += used
            state["func_evals"] += used
            if (
                evaluations >= self.max_eval
                or np.max(np.abs(grad)) <= self.tolerance_grad
                or np.max(np.abs(direction * step)) <= self.tolerance_change
                or abs(loss - before) < self.tolerance_change
            ):
                break
        return first_loss

    def _direction(self, grad: np.ndarray) -> np.ndarray:
        """The two-loop recursion: minus the estimated inverse Hessian times the gradient."""
        state = self.state
        if state["n_iter"] == 1:
            state.update(old_yk=[], old_sk=[], ro=[], H_diag=1.0)
            return -grad
        y, s = grad - state["prev_flat_grad"], state["d"] * state["alpha"]
        curvature = float(np.dot(y, s))
        changes, steps, inverses = state["old_yk"], state["old_sk"], state["ro"]
        if curvature > 1e-10:
            if len(changes) == self.history_size:
                for history in (changes, steps, inverses):
                    history.pop(0)
            changes.append(y)
            steps.append(s)
            inverses.append(1.0 / curvature)
            state["H_diag"] = curvature / float(np.dot(y, y))
        q = -grad
        weights = []
        for y, s, inverse in reversed(list(zip(changes, steps, inverses, strict=True))):
            weights.append(float(np.dot(s, q)) * inverse)
            q = q - weights[-1] * y
        q = q * state["H_diag"]
        for y, s, inverse in zip(changes, steps, inverses, strict=True):
            q = q + s * (weights.pop() - float(np.dot(y, q)) * inverse)
        return q

    def state_dict(self) -> dict[str, Any]:
        return {"state": dict(self.state)}

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.state = dict(state_dict["state"])
