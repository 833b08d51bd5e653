"""Making tensors."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from bireme.core import autograd
from bireme.core import dtype as dt
from bireme.core.errors import TypeMismatch
from bireme.core.tensor import Tensor, constant


def to_tensor(data: Any, dtype: Any = None, place: Any = None, stop_gradient: bool = True) -> Tensor:
    """A tensor with a copy of `data`: numbers, nested lists, NumPy arrays or tensors."""
    want = None if dtype is None else dt.as_dtype(dtype)
    if isinstance(data, Tensor):
        array = data.numpy()
    else:
        array = _as_array(data)
        if want is None:
            want = _natural_dtype(data, array)
    if want is not None and array.dtype != want.numpy:
        array = array.astype(want.numpy)
    if place is not None:
        from bireme.core import jax_door
        from bireme.core.place import as_place

        where = as_place(place)
        if not where.is_cpu_place():
            array = jax_door.jax().device_put(array, where.device())
    made = constant(array)
    if not stop_gradient:
        made.stop_gradient = False
    return made


def _as_array(data: Any) -> np.ndarray:
    if isinstance(data, list | tuple):
        data = _without_tensors(data)
    try:
        array = np.array(data)  # always a copy: later changes of `data` must not show
    except ValueError as e:
        raise TypeMismatch(
            f"[to_tensor] nested lists must be rectangular: every row of one length. {e}"
        ) from None
    if array.dtype.kind in "OUS":
        raise TypeMismatch(
            f"[to_tensor] data must be numbers, nested lists of numbers, NumPy arrays or tensors. "
            f"Received: {type(data).__name__} of {array.dtype}"
        )
    return array


def _without_tensors(data: Any) -> Any:
    if isinstance(data, Tensor):
        return data.numpy()
    if isinstance(data, list | tuple):
        return [_without_tensors(d) for d in data]
    return data


def _natural_dtype(data: Any, array: np.ndarray) -> dt.DType | None:
    """Python floats take the default dtype; NumPy data keeps its own."""
    if isinstance(data, np.ndarray | np.generic):
        return None
    if isinstance(data, list | tuple) and _has_numpy(data):
        return None
    if isinstance(data, numbers.Number | list | tuple):
        if array.dtype.kind == "f":
            return dt.default_float()
        if array.dtype.kind == "c":
            return dt.default_complex()
    return None


def _has_numpy(data: Any) -> bool:
    while isinstance(data, list | tuple) and data:
        data = data[0]
    return isinstance(data, np.ndarray | np.generic | Tensor)


def zeros_like(x: Tensor, dtype: Any = None, name: str | None = None) -> Tensor:
    return constant(np.zeros(x._value.aval.shape, (dt.as_dtype(dtype) if dtype else x.dtype).numpy))


def ones_like(x: Tensor, dtype: Any = None, name: str | None = None) -> Tensor:
    return constant(np.ones(x._value.aval.shape, (dt.as_dtype(dtype) if dtype else x.dtype).numpy))


__all__ = ["ones_like", "to_tensor", "zeros_like"]
