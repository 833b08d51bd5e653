"""Handles of a predictor's inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import bireme
from bireme.api.types import TensorLike
from bireme.core import ownership
from bireme.core.aval import Aval
from bireme.core.dtype import as_dtype
from bireme.core.errors import ExecutionError, InvalidArgument, TypeMismatch
from bireme.inference.kinds import DataType, data_type

_ALIGNMENT = 64


def _copied(data: np.ndarray) -> np.ndarray:
    """A copy that starts where XLA reads arrays without another one."""
    raw = np.empty(data.nbytes + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    copy = raw[start : start + data.nbytes].view(data.dtype).reshape(data.shape)
    np.copyto(copy, data)
    return copy


class Tensor:
    """The handle of one input or result of a predictor."""

    def __init__(self, name: str, declared: Aval | None):
        self._name = name
        self._declared = declared
        self._array: np.ndarray | None = None
        self._own: np.ndarray | None = None  # the array, if copy_from_cpu made it
        self._shape: list[int] | None = None
        self._lod: list[list[int]] = []

    @property
    def name(self) -> str:
        return self._name

    def copy_from_cpu(self, data: np.ndarray) -> None:
        """Set the input; the array is copied."""
        if not isinstance(data, np.ndarray):
            raise TypeMismatch(
                f"[copy_from_cpu] '{self._name}' takes a NumPy array. Received: "
                f"{type(data).__name__}"
            )
        if self._has_copy_like(data) and ownership.only_attributes_hold(self, ("_array", "_own")):
            # Fresh pages would cost as much as the copy.
            np.copyto(self._array, data)  # type: ignore[arg-type] (it is an array by now)
            return
        self._set(_copied(data))
        self._own = self._array

    def _has_copy_like(self, data: np.ndarray) -> bool:
        """Whether the contents are an array of our own, of this shape and type."""
        mine = self._own
        return (
            mine is not None
            and mine is self._array
            and mine.shape == data.shape
            and mine.dtype == data.dtype
        )

    def _forget(self) -> None:
        self._array = self._own = None

    def share_external_data(self, data: TensorLike) -> None:
        """Set the input from a paddle.Tensor or an array without a copy where that is possible."""
        if isinstance(data, bireme.Tensor):
            data = data.numpy()
        if not isinstance(data, np.ndarray):
            raise TypeMismatch(
                f"[share_external_data] '{self._name}' takes a Tensor. Received: "
                f"{type(data).__name__}"
            )
        self._set(data)

    def _set(self, array: np.ndarray) -> None:
        want = self._declared
        if want is None:
            raise InvalidArgument(f"'{self._name}' is a result; only inputs can be set")
        if as_dtype(array.dtype) is not want.dtype:
            raise TypeMismatch(
                f"the input '{self._name}' is {want.dtype.name}. Received: {array.dtype}; "
                f"convert it with .astype('{want.dtype.name}')"
            )
        if array.ndim != want.ndim or any(
            type(w) is int and w != h for w, h in zip(want.shape, array.shape, strict=False)
        ):
            raise InvalidArgument(
                f"the input '{self._name}' is {want}. Received: an array of shape "
                f"{list(array.shape)}"
            )
        self._array, self._shape = array, list(array.shape)

    def reshape(self, shape: Sequence[int]) -> None:
        """Announce the shape of the next input; one that is there already is reshaped."""
        dims = [int(d) for d in shape]
        if self._array is not None and self._array.size == np.prod(dims, dtype=np.int64):
            self._array = self._array.reshape(dims)
        self._shape = dims

    def shape(self) -> list[int]:
        """The shape; [0] before anything was set."""
        if self._array is not None:
            return list(self._array.shape)
        return [0] if self._shape is None else list(self._shape)

    def type(self) -> DataType:
        """The element type."""
        if self._array is not None:
            return data_type(as_dtype(self._array.dtype))
        return DataType.FLOAT32 if self._declared is None else data_type(self._declared.dtype)

    def set_lod(self, x: Sequence[Sequence[int]]) -> None:
        """Where the sequences in the rows start: offsets, one list per level."""
        levels = [[int(o) for o in level] for level in x]
        for level in levels:
            if not level or level[0] != 0 or sorted(level) != level:
                raise InvalidArgument(
                    f"a level of LoD rises from 0, as in [0, 3, 7]. Received: {level}"
                )
        self._lod = levels

    def lod(self) -> list[list[int]]:
        return [list(level) for level in self._lod]

    def copy_to_cpu(self) -> np.ndarray:
        """The contents as a new NumPy array."""
        if self._array is None:
            raise ExecutionError(
                f"'{self._name}' has no contents yet; "
                + ("set it with copy_from_cpu" if self._declared else "call predictor.run() first")
            )
        return np.array(self._array)
