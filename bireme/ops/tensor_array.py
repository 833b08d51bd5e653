"""Lists of tensors that programs write and read by number (paddle.tensor.array_write …).

They are Python lists in eager code and in programs alike: a number is known when the program is
built, or follows from constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bireme.api.types import DTypeLike
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.ops.creation import full


def create_array(
    dtype: DTypeLike, initialized_list: Sequence[Tensor] | None = None
) -> list[Tensor]:
    """A list of tensors of `dtype`, empty or with these in it."""
    kind = dt.as_dtype(dtype)
    if initialized_list is None:
        return []
    if not isinstance(initialized_list, list | tuple):
        raise TypeMismatch(
            "[create_array] initialized_list must be a list or tuple of tensors. Received: "
            f"{type(initialized_list).__name__}"
        )
    for tensor in initialized_list:
        if not isinstance(tensor, Tensor) or tensor.dtype is not kind:
            raise TypeMismatch(
                f"[create_array] initialized_list must hold tensors of {kind.name}. Received: "
                f"{tensor!r:.80}"
            )
    return list(initialized_list)


def array_write(x: Tensor, i: Tensor | int, array: list[Tensor] | None = None) -> list[Tensor]:
    """Put `x` at position `i` of the list, at most one after its end; a new list without one."""
    if array is None:
        array = []
    at = _position("array_write", i, array)
    if at > len(array):
        raise InvalidArgument(
            f"[array_write] i must not be greater than the length of the array, {len(array)}. "
            f"Received: {at}"
        )
    array[at : at + 1] = [x]
    return array


def array_read(array: list[Tensor], i: Tensor | int) -> Tensor:
    """The tensor at position `i`."""
    at = _position("array_read", i, array)
    if at >= len(array):
        raise InvalidArgument(
            f"[array_read] i must be less than the length of the array, {len(array)}. "
            f"Received: {at}"
        )
    return array[at]


def array_length(array: list[Tensor]) -> Tensor:
    """How many tensors the list has."""
    _checked("array_length", array)
    return full([1], len(array), "int64")


def _checked(op: str, array: Any) -> None:
    if not isinstance(array, list):
        raise TypeMismatch(f"[{op}] array must be a list. Received: {type(array).__name__}")


def _position(op: str, i: Any, array: Any) -> int:
    _checked(op, array)
    if isinstance(i, Tensor):
        if i.size != 1:
            raise InvalidArgument(f"[{op}] i must have one element. Received: shape {i.shape}")
        i = i.item()
    if i < 0:
        raise InvalidArgument(f"[{op}] i must not be negative. Received: {i}")
    return int(i)
