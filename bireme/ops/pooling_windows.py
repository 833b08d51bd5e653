"""The windows of a pool along one axis: their elements, their maxima, and the way back.

A plan says how one axis is windowed: (size, step, count) for evenly spaced windows, or a tuple of
index tuples, one per place in the window, for the uneven windows of adaptive pooling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bireme.capture.symbols import evaluate
from bireme.host import jax_door
from bireme.host.arrays import Namespace
from bireme.ops.nn_support import channel_shape, scatter_add

Plan = tuple[Any, ...]


@dataclass(frozen=True)
class OpenPlan:
    """The windows of an axis of open size; `with_sizes` makes the plan when it is known."""

    size: Any
    count: Any
    plan: Callable[[int, int], Plan]

    def with_sizes(self, sizes: Mapping[str, int]) -> Plan:
        count = self.count if type(self.count) is int else evaluate(str(self.count), sizes)
        return self.plan(evaluate(str(self.size), sizes), count)


def is_even(plan: Plan) -> bool:
    return not isinstance(plan[0], tuple)


def _reach(step: int, count: Any) -> Any:
    """From the first to behind the last of `count` elements, `step` apart."""
    return 0 if type(count) is int and count == 0 else (count - 1) * step + 1


def along(axis: int, part: slice) -> tuple[slice, ...]:
    return (*(slice(None) for _ in range(axis)), part)


def parts_of(xp: Any, x: Any, axis: int, plan: Plan) -> list[Any]:
    """For every place in a window, the elements that all windows have there."""
    if is_even(plan):
        size, step, count = plan
        reach = _reach(step, count)
        if type(x.shape[axis]) is int:
            return [x[along(axis, slice(i, i + reach, step))] for i in range(size)]
        part = jax_door.jax().lax.slice_in_dim
        return [part(x, i, i + reach, step, axis) for i in range(size)]
    return [xp.take(x, np.array(index), axis=axis) for index in plan]


def put_parts(xp: Any, parts: list[Any], axis: int, plan: Plan, length: Any) -> Any:
    """The sum of `parts` where `parts_of` took them from, in an axis of `length`."""
    shape = (*parts[0].shape[:axis], length, *parts[0].shape[axis + 1 :])
    if not is_even(plan):
        total = xp.zeros(shape, parts[0].dtype)
        for part, index in zip(parts, plan, strict=True):
            where = (*(slice(None) for _ in range(axis)), np.array(index))
            total = scatter_add(xp, total, where, part)
        return total
    _, step, count = plan
    reach = _reach(step, count)
    if xp is np:
        total = np.zeros(shape, parts[0].dtype)
        for i, part in enumerate(parts):
            total[along(axis, slice(i, i + reach, step))] += part
        return total
    pad = jax_door.jax().lax.pad
    zero = xp.zeros((), parts[0].dtype)
    total = None
    for i, part in enumerate(parts):
        config = [(0, 0, 0)] * part.ndim
        config[axis] = (i, length - i - reach, step - 1)
        placed = pad(part, zero, config)
        total = placed if total is None else total + placed
    return total


def plan_count(plan: Plan | OpenPlan) -> int:
    if isinstance(plan, OpenPlan):
        return plan.count
    return plan[2] if is_even(plan) else len(plan[0])


def lowest(dtype: Any) -> Any:
    if np.dtype(dtype).kind in "iu":
        return np.iinfo(dtype).min
    return -math.inf


# XLA compiles each place of a window by itself; for a GPU 31 x 31 of them take it over a minute.
# From this size on the windows are an axis of their own.
_LARGE_WINDOW = 17


def is_large(xp: Namespace, plan: Plan) -> bool:
    """Whether to compute with `windows_of`: only in compiled programs, and not for open sizes."""
    count = plan_count(plan)
    if xp is np or type(count) is not int or count == 0:
        return False
    return (plan[0] if is_even(plan) else len(plan)) >= _LARGE_WINDOW


def places_of(plan: Plan) -> np.ndarray:
    """[size, count]: where along the axis each place of each window is."""
    if is_even(plan):
        size, step, count = plan
        return np.arange(size)[:, None] + step * np.arange(count)
    return np.array(plan)


def windows_of(xp: Any, x: Any, axis: int, plan: Plan) -> Any:
    """`x` with its axis as two: the places of a window, and the windows."""
    if is_even(plan):
        size, step, count = plan
        if step == size or count == 1:
            x = x[along(axis, slice(0, size * count))]
            split = x.reshape((*x.shape[:axis], count, size, *x.shape[axis + 1 :]))
            return xp.moveaxis(split, axis + 1, axis)
    return xp.take(x, places_of(plan), axis=axis)


def largest_of(xp: Any, x: Any, axis: int, plan: Plan) -> Any:
    """The largest element of each window, or NaN; XLA's own maximum loses some of those."""
    windows = windows_of(xp, x, axis, plan)
    largest = xp.max(windows, axis=axis)
    if np.dtype(x.dtype).kind in "iu":
        return largest
    return xp.where(xp.any(windows != windows, axis=axis), math.nan, largest)


def put_maxima(xp: Any, grad: Any, x: Any, largest: Any, axis: int, plan: Plan) -> Any:
    """`grad` at the first of the elements of each window that are its largest."""
    hit = windows_of(xp, x, axis, plan) == xp.expand_dims(largest, axis)
    first = xp.argmax(hit, axis=axis)
    places = places_of(plan)
    windows = xp.reshape(xp.arange(places.shape[1]), channel_shape(first.ndim, axis))
    at = xp.moveaxis(xp.asarray(places)[first, windows], axis, 0)
    values = xp.where(xp.any(hit, axis=axis), grad, 0)
    flat = xp.moveaxis(values, axis, 0).reshape((places.shape[1], -1))
    total = xp.zeros((x.shape[axis], flat.shape[1]), grad.dtype)
    where = (at.reshape(flat.shape), xp.arange(flat.shape[1])[None])
    total = scatter_add(xp, total, where, flat)
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    return xp.moveaxis(total.reshape((x.shape[axis], *rest)), 0, axis)


def first_maxima(xp: Any, value: Any, index: Any, axis: int, plan: Plan) -> tuple[Any, Any]:
    """Of each window the first of its largest elements, and its place. NaN is larger than nothing,
    and nothing than NaN."""
    windows = windows_of(xp, value, axis, plan)
    place = xp.reshape(xp.arange(windows.shape[axis]), channel_shape(windows.ndim, axis))
    compared = xp.where((windows != windows) & (place > 0), lowest(value.dtype), windows)
    first = xp.expand_dims(xp.argmax(compared, axis=axis), axis)
    indices = windows_of(xp, index, axis, plan)
    return tuple([xp.squeeze(xp.take_along_axis(w, first, axis), axis) for w in (windows, indices)])
