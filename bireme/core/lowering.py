"""State of a lowering: the function that chooses kernels, and what they keep for gradients."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.host.arrays import Array, Namespace

if TYPE_CHECKING:
    from bireme.core.op import Call


class _Lowering(threading.local):
    """The lowering that is active in this thread."""

    # Chooses a kernel for a Call (see kernels.py).
    choose: Callable[[Call], Callable[..., Any] | None] | None = None
    # The precision of float32 products inside a Call's lowering (see kernels.py).
    precision: Callable[[Call], AbstractContextManager[Any]] = staticmethod(
        lambda call: nullcontext()
    )
    # What forward kernels of the CPU leave for their gradients', with the arrays that are its key.
    kept: dict[Any, Any] | None = None


lowering = _Lowering()


def with_part(xp: Namespace, x: Any, index: Any, part: Any) -> Array:
    """`x` with `part` at `index`, where `xp` computes at once (see `computes_at_once`)."""
    if xp is not np:
        return xp.replaced(x, index, part)
    made = x.copy()
    made[index] = part
    return made


def computes_at_once(xp: Namespace) -> bool:
    """Whether this namespace takes arrays of the host: NumPy, or what notes NumPy's functions for
    gradients (backends/traced_numpy.py)."""
    return xp is np or getattr(xp, "computes_at_once", False)


def keep_residual(call: Call, inputs: Sequence[Any], residual: object) -> None:
    """Keep a residual of a forward kernel for the gradient's kernel in this program."""
    if lowering.kept is not None:
        lowering.kept[(call.id, *map(id, inputs))] = (residual, inputs)


def residual_of(call: Call, inputs: Sequence[Any]) -> Any:
    """The residual that `keep_residual` kept for this forward call on these inputs, or None."""
    found = (lowering.kept or {}).get((call.id, *map(id, inputs)))
    return None if found is None else found[0]
