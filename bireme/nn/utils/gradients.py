"""Functions on lists of parameters and their gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable

import bireme
from bireme.autograd.modes import no_grad
from bireme.core.errors import ExecutionError, InvalidArgument, ShapeMismatch
from bireme.core.tensor import Tensor, constant
from bireme.nn.clip import clip_grads_by_value, clip_grads_to_norm
from bireme.nn.grouped import apply
from bireme.ops.row_gradients import by_row, contents, put_gradients, with_contents


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    return [p.grad for p in parameters if p.grad is not None]


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale the gradients in place to a joint norm of at most `max_norm`; returns the norm.

    The norm stays on the device unless `error_if_nonfinite` asks to look at it.
    """
    kind = float(norm_type)
    if kind != math.inf and kind <= 0:
        raise InvalidArgument(
            f"[clip_grad_norm_] norm_type must be positive or inf. Received: {norm_type}"
        )
    grads = _gradients(parameters)
    if not grads:
        import numpy as np

        return constant(np.zeros((), np.float32))
    held = by_row(grads)
    norm, *scaled = apply(clip_grads_to_norm.op, (contents(held), float(max_norm)), (kind,))
    total = Tensor(norm, None)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise ExecutionError(
            f"[clip_grad_norm_] the gradients' norm is {total.item()}, so they cannot be clipped. "
            "Look for inf or nan in the loss, or pass error_if_nonfinite=False"
        )
    put_gradients(grads, with_contents(held, scaled))
    return total


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Cut the gradients in place to ±clip_value."""
    limit = float(clip_value)
    if limit < 0:
        raise InvalidArgument(
            f"[clip_grad_value_] clip_value must not be negative. Received: {clip_value}"
        )
    grads = _gradients(parameters)
    if grads:
        held = by_row(grads)
        clipped = apply(clip_grads_by_value.op, (contents(held), -limit, limit))
        put_gradients(grads, with_contents(held, clipped))


def parameters_to_vector(parameters: Iterable[Tensor], name: str | None = None) -> Tensor:
    """All parameters as one long vector."""
    return bireme.concat([bireme.reshape(p, [-1]) for p in parameters])


def vector_to_parameters(
    vec: Tensor, parameters: Iterable[Tensor], name: str | None = None
) -> None:
    """The inverse of `parameters_to_vector`: writes `vec` into the parameters."""
    params = list(parameters)
    total = sum(p.size for p in params)
    if total != vec.size:
        raise ShapeMismatch(
            f"[vector_to_parameters] the parameters have {total} elements. Received: a vector of "
            f"{vec.size}"
        )
    at = 0
    with no_grad():
        for p in params:
            part = bireme.reshape(vec[at : at + p.size], p.shape).astype(p.dtype)
            p._put(part._value)
            at += p.size


__all__ = ["clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "vector_to_parameters"]
