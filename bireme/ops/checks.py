"""Conditions that must hold when a graph runs."""

from __future__ import annotations

from bireme.capture.recorder import CaptureTrace
from bireme.core.errors import CaptureError
from bireme.core.tensor import Tensor
from bireme.core.trace import state
from bireme.ops.control_record import is_symbolic


def check(ok: Tensor, message: str, kind: type[Exception]) -> None:
    """Raise `kind(message)` unless `ok` is true: now, or in each call of the captured graph."""
    if not is_symbolic(ok):
        if not ok:
            raise kind(message)
        return
    trace = state.trace
    if not isinstance(trace, CaptureTrace) or not trace.enforces:
        raise CaptureError(
            "a graph of this kind cannot check a condition on tensors; compute what should happen "
            f"with paddle.where instead. The condition: {message}"
        )
    trace.checks.append((ok, kind(message)))
