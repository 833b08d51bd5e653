"""Axes and shapes as users write them: lists, tensors, negative numbers; plain tuples here."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from bireme.api.types import IntOrTensor, Ints
from bireme.core import recorder_hooks
from bireme.core.errors import IndexOutOfRange, InvalidArgument, TypeMismatch
from bireme.core.op import TENSOR_TYPES
from bireme.core.trace import state

_SIZES = ("shape", "out_size", "repeat_times")  # arguments that a program may leave to its runs


class AxisOutOfRange(IndexOutOfRange, InvalidArgument):
    """An axis that the tensor does not have; a ValueError as in Paddle and an IndexError too."""


def ints(value: Ints | None, what: str = "shape") -> tuple[Any, ...]:
    """A tuple of dimensions from an int, a list of ints and 0-d tensors, or an integer tensor."""
    if value.__class__ in TENSOR_TYPES:
        return tuple(_read_sizes(value, what))
    if isinstance(value, Iterable):
        return tuple([v if v.__class__ is int else _dimension(v, what) for v in value])
    return (value if value.__class__ is int else _dimension(value, what),)


def _read_sizes(value: Any, what: str) -> list[Any]:
    if not value.dtype.is_integer:
        raise TypeMismatch(
            f"{what} must hold integers. Received: a tensor of dtype {value.dtype.name}"
        )
    if what in _SIZES:
        return recorder_hooks.read_sizes(state.trace, value)
    return value.numpy().reshape(-1).tolist()


def _dimension(value: Any, what: str) -> Any:
    if value.__class__ in TENSOR_TYPES:
        if value.size != 1:
            return int(value)  # complains
        return _read_sizes(value, what)[0] if value.dtype.is_integer else int(value)
    if hasattr(value, "dimension_as_value"):  # a symbolic dimension of a captured graph
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise TypeMismatch(
            f"{what} must be made of integers. Received: {type(value).__name__} {value!r}"
        ) from None


def number(value: IntOrTensor, what: str = "axis") -> int:
    """One Python int from an int or a tensor with one element."""
    return value if type(value) is int else _dimension(value, what)


def axis_in(axis: IntOrTensor, ndim: int, name: str, what: str = "axis") -> int:
    """`axis` counted from the front, or an error that says what is allowed."""
    if type(axis) is not int:
        axis = number(axis, what)
    if -ndim <= axis < ndim:
        return axis + ndim if axis < 0 else axis
    if ndim == 0 and axis in (0, -1):
        return 0
    raise AxisOutOfRange(
        f"[{name}] {what} must be in [{-ndim}, {ndim - 1}] for a tensor of {ndim} dimensions. "
        f"Received: {axis}"
    )


def dimension_in(axis: IntOrTensor, ndim: int, name: str, what: str = "axis") -> int:
    """As `axis_in`, where a 0-d tensor, which has no dimension to cut or turn, is refused."""
    if ndim == 0:
        raise AxisOutOfRange(
            f"[{name}] a 0-d tensor has no dimension to work along; reshape it to [1] first. "
            f"Received: {what}={axis!r}"
        )
    return axis_in(axis, ndim, name, what)


def axes_in(axes: Ints, ndim: int, name: str, what: str = "axis") -> tuple[int, ...]:
    """Several axes counted from the front, each named once."""
    found = tuple([axis_in(a, ndim, name, what) for a in ints(axes, what)])
    if len(set(found)) != len(found):
        raise InvalidArgument(f"[{name}] {what} names a dimension twice. Received: {axes!r}")
    return found


def each_place(xp: Any, index: Any, axis: int) -> tuple[Any, ...]:
    """The positions that an index per element stands for: itself along `axis`, its own place
    along the other dimensions."""
    spots = []
    for i, size in enumerate(index.shape):
        if i == axis:
            spots.append(index)
        else:
            shape = [1] * index.ndim
            shape[i] = size
            spots.append(xp.reshape(xp.arange(size), shape))
    return tuple(spots)
