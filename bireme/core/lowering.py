"""While a program is lowered: what picks fast kernels, and what they tell one another.

Kernels see one call at a time. What one of them knows about an array beyond its contents (which
half-precision array it was widened from, what it is the sum of) is noted here by the array's
identity, so that a kernel further on can read something cheaper instead. Whatever is then read by
nobody is dropped by the compiler.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bireme.core.op import Call


class _Lowering(threading.local):
    """The program that this thread lowers."""

    # What picks a kernel for a Call (see kernels.py).
    choose: Callable[[Call], Callable[..., Any] | None] | None = None
    # Notes as (what is noted, the objects whose identities are in the key); None outside.
    residuals: dict[Any, Any] | None = None


lowering = _Lowering()


@dataclass(frozen=True)
class Widened:
    """The same numbers in a narrower type."""

    narrow: Any


def _note(key: Any, what: Any, *keep: Any) -> None:
    if lowering.residuals is not None:
        # The arrays are kept as well: an identity is one only while its object lives.
        lowering.residuals[key] = (what, keep)


def _noted(key: Any) -> Any:
    found = (lowering.residuals or {}).get(key)
    return None if found is None else found[0]


def leave(call: Call, inputs: Sequence[Any], residual: Any) -> None:
    """Keep what a forward kernel computed besides, for the gradient's kernel in this program."""
    _note((call.id, *map(id, inputs)), residual, *inputs)


def left(call: Call, inputs: Sequence[Any]) -> Any:
    """What `leave` was given for this forward call on these inputs, or None."""
    return _noted((call.id, *map(id, inputs)))


def know(array: Any, what: Any) -> None:
    """Remember what `array` is made of, for kernels further on in this program."""
    _note(("known", id(array)), what, array)


def known_as(array: Any) -> Any:
    """What `know` was last told of `array`, or None."""
    return _noted(("known", id(array)))


def replace(array: Any, other: Any) -> None:
    """From now on, whatever reads `array` in this program reads `other`, which is equal."""
    _note(("now", id(array)), other, array)


def current(array: Any) -> Any:
    """What stands for `array` since `replace`."""
    other = _noted(("now", id(array)))
    return array if other is None else other


def know_rounded(array: Any, narrow: Any) -> None:
    """`narrow` is `array` rounded to its type: there is no need to do that again."""
    _note(("rounded", id(array), narrow.dtype), narrow, array)


def in_type(xp: Any, array: Any, dtype: Any) -> Any:
    """`array` in a NumPy dtype."""
    if lowering.residuals is None:
        return xp.asarray(array).astype(dtype)
    rounded = _noted(("rounded", id(array), dtype))
    if rounded is not None:
        return rounded
    known = known_as(array)
    if isinstance(known, Widened) and known.narrow.dtype == dtype:
        return known.narrow
    array = xp.asarray(array)
    cast = array.astype(dtype)
    if array.dtype.itemsize == 2 and cast.dtype == xp.float32 and array.dtype.kind not in "iu":
        know(cast, Widened(array))
    return cast
