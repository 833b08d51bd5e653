"""State of a lowering: the function that chooses kernels, and annotations between kernels.

Kernels see one call at a time. A kernel can annotate an array, by its identity, with facts beyond
its contents (the half-precision array that it was widened from, the addends of a sum), so that a
later kernel can read something cheaper instead. The compiler drops arrays that nothing reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
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
    # Annotations as (content, the objects whose identities are in the key); None outside.
    residuals: dict[Any, Any] | None = None
    # Those that forward kernels leave for gradients'. The cold tier has these alone.
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


@dataclass(frozen=True)
class Widened:
    """The same numbers in a narrower type."""

    narrow: Any


def _annotate(key: Any, what: Any, *keep: Any) -> None:
    if lowering.residuals is not None:
        # The arrays are kept as well: an identity is one only while its object lives.
        lowering.residuals[key] = (what, keep)


def _annotation(key: Any) -> Any:
    found = (lowering.residuals or {}).get(key)
    return None if found is None else found[0]


def keep_residual(call: Call, inputs: Sequence[Any], residual: Any) -> None:
    """Keep a residual of a forward kernel for the gradient's kernel in this program."""
    if lowering.kept is not None:
        lowering.kept[(call.id, *map(id, inputs))] = (residual, inputs)


def residual_of(call: Call, inputs: Sequence[Any]) -> Any:
    """The residual that `keep_residual` kept for this forward call on these inputs, or None."""
    found = (lowering.kept or {}).get((call.id, *map(id, inputs)))
    return None if found is None else found[0]


def annotate(array: Array, what: Any) -> None:
    """Annotate `array` for later kernels in this program."""
    _annotate(("known", id(array)), what, array)


def annotation_of(array: Array) -> Any:
    """The last annotation of `array`, or None."""
    return _annotation(("known", id(array)))


def substitute(array: Array, other: Any) -> None:
    """Substitute `other`, which is equal, for `array` in all later reads of this program."""
    _annotate(("now", id(array)), other, array)


def substituted(array: Array) -> Any:
    """The array that `substitute` put in the place of `array`, or `array`."""
    other = _annotation(("now", id(array)))
    return array if other is None else other


def annotate_rounded(array: Array, narrow: Any) -> None:
    """Annotate `array` with `narrow`, its contents rounded to that type, so that no one rounds
    again."""
    _annotate(("rounded", id(array), narrow.dtype), narrow, array)


def in_type(xp: Namespace, array: Array, dtype: Any) -> Array:
    """`array` in a NumPy dtype."""
    if lowering.residuals is None:
        return xp.asarray(array).astype(dtype)
    rounded = _annotation(("rounded", id(array), dtype))
    if rounded is not None:
        return rounded
    known = annotation_of(array)
    if isinstance(known, Widened) and known.narrow.dtype == dtype:
        return known.narrow
    array = xp.asarray(array)
    cast = array.astype(dtype)
    if array.dtype.itemsize == 2 and cast.dtype == xp.float32 and array.dtype.kind not in "iu":
        annotate(cast, Widened(array))
    return cast
