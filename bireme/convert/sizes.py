"""Open sizes of programs that ask how large they are."""

from __future__ import annotations

from typing import Any

from bireme.core.dims import is_dim_expression
from bireme.core.errors import CaptureError


def undecided(a: object, b: object) -> CaptureError:
    """The error for a question that only a run can answer."""
    return CaptureError(
        f"the model asks how the open size {a} compares with {b}, which only a run can tell. "
        "Give this size in the input specs, or call the model directly"
    )


def same_size(a: Any, b: Any) -> bool:
    """Whether two sizes are equal; raises where that depends on open ones."""
    if not is_dim_expression(a) and not is_dim_expression(b):
        return bool(a == b)
    difference = a - b
    if isinstance(difference, int):
        return difference == 0
    try:
        if difference > 0 or difference < 0:
            return False
    except Exception:
        raise undecided(a, b) from None
    raise undecided(a, b)
