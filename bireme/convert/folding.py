"""Ops over known values, in NumPy: the arithmetic of shapes, which never becomes part of a graph.

Values may be arrays of objects: sizes that are open. Each function returns None where it leaves
the work to the rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

_MOST = 1 << 16  # elements of a value that is worth knowing


def _binary(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def fold(n: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
        symbolic = object in (a.dtype, b.dtype)
        if _grown(a, b) > _MOST or (not symbolic and "f" in (a.dtype.kind, b.dtype.kind)):
            return None
        made = np.asarray(function(a, b))
        if symbolic:
            return tidy(made.astype(object))
        return made if made.dtype == bool else made.astype(a.dtype)

    return fold


def _grown(*values: np.ndarray) -> int:
    """How many elements come of these: a column and a row make many."""
    return math.prod(np.broadcast_shapes(*[v.shape for v in values]))


def tidy(made: np.ndarray) -> np.ndarray:
    """An array of objects that are all plain integers as integers."""
    items = made.ravel().tolist()
    if items and all(type(i) is int for i in items):
        return made.astype(np.int64)
    return made


def _divided(a: Any, b: Any) -> Any:
    if np.any(np.asarray(b == 0, bool)):
        raise ZeroDivisionError("a known value is divided by zero")
    return a // b


add, subtract = _binary(np.add), _binary(np.subtract)
multiply, floor_divide = _binary(np.multiply), _binary(_divided)
floor_mod = _binary(lambda a, b: a - _divided(a, b) * b)


def _ordinary(function: Callable[..., Any]) -> Callable[..., Any]:
    """One that does not work on symbols."""

    def fold(n: Any, *values: np.ndarray) -> Any:
        if any(v.dtype.kind in "Of" for v in values) or _grown(*values) > _MOST:
            return None
        return np.asarray(function(*values))

    return fold


maximum, minimum = _ordinary(np.maximum), _ordinary(np.minimum)
equal, not_equal = _ordinary(np.equal), _ordinary(np.not_equal)
less, less_equal = _ordinary(np.less), _ordinary(np.less_equal)
greater, greater_equal = _ordinary(np.greater), _ordinary(np.greater_equal)
logical_and, logical_or = _ordinary(np.logical_and), _ordinary(np.logical_or)
select = _ordinary(np.where)


def joined(values: list[np.ndarray], axis: int, stacked: bool) -> np.ndarray | None:
    """Known values one behind the other, or as rows."""
    if sum(v.size for v in values) > _MOST or any(v.dtype.kind == "f" for v in values):
        return None
    if any(v.dtype == object for v in values):
        values = [v.astype(object) for v in values]
    return (np.stack if stacked else np.concatenate)(values, axis)


def cast(x: np.ndarray, dtype: str) -> np.ndarray | None:
    if x.dtype == object:
        return x if "int" in dtype else None
    return x.astype(dtype) if x.size <= _MOST and "float" not in dtype else None


def product(x: np.ndarray, axes: list[int], keep: bool) -> np.ndarray | None:
    if x.size > _MOST or x.dtype.kind == "f":
        return None
    made = np.asarray(np.prod(x, tuple(axes), keepdims=keep, dtype=x.dtype))
    return tidy(made) if x.dtype == object else made
