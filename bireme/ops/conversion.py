"""Tensors from and to other libraries, and the limits of number types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from bireme.api.public import public
from bireme.api.types import DeviceLike, DTypeLike, TensorLike
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor, constant
from bireme.ops.creation import placed, to_tensor


@public
def as_tensor(
    data: TensorLike,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor with the contents of `data`; a tensor of that type comes back as it is."""
    if pin_memory:
        return placed(to_tensor(data, dtype), device, requires_grad, pin_memory)
    if isinstance(data, Tensor) and dtype is None and device is None and not requires_grad:
        return data
    return to_tensor(data, dtype, device, not requires_grad)


@public
def asarray(
    obj: TensorLike,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A new tensor with the contents of `obj`; with copy=False a tensor comes back as it is."""
    if copy is not False:
        return to_tensor(obj, dtype, device, not requires_grad)
    if not isinstance(obj, Tensor):
        raise InvalidArgument(
            f"[asarray] only a Tensor can be taken without a copy. Received: {type(obj).__name__}"
        )
    return as_tensor(obj, dtype, device, requires_grad)


@public
def from_numpy(ndarray: np.ndarray) -> Tensor:
    """A tensor with a copy of a NumPy array."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeMismatch(
            f"[from_numpy] takes a NumPy array. Received: {type(ndarray).__name__}; use "
            "paddle.to_tensor"
        )
    return to_tensor(ndarray)


class _Capsule:
    """A bare DLPack capsule on the CPU, in the form that NumPy takes."""

    def __init__(self, capsule: Any):
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@public
def from_dlpack(
    dlpack: Any, *, device: DeviceLike | None = None, copy: bool | None = None
) -> Tensor:
    """A tensor that shares the memory of another library's array where that is possible."""
    if type(dlpack).__name__ == "PyCapsule":
        dlpack = _Capsule(dlpack)
    if not hasattr(dlpack, "__dlpack__"):
        raise TypeMismatch(
            "[from_dlpack] takes an array with __dlpack__, or a DLPack capsule. Received: "
            f"{type(dlpack).__name__}"
        )
    if dlpack.__dlpack_device__()[0] == 1:
        array: Any = np.from_dlpack(dlpack)
    else:
        from bireme.host import jax_door

        array = jax_door.jnp().from_dlpack(dlpack)
    made = constant(np.array(array) if copy else array)
    return made if device is None else to_tensor(made, place=device)


@public(method=False)
def to_dlpack(x: Tensor) -> Any:
    """A DLPack capsule of the tensor's memory."""
    if not isinstance(x, Tensor):
        raise TypeMismatch(f"[to_dlpack] takes a Tensor. Received: {type(x).__name__}")
    return x.__dlpack__()


@dataclass(frozen=True)
class FloatLimits:
    """What `finfo` tells."""

    min: float
    max: float
    eps: float
    resolution: float
    smallest_normal: float
    tiny: float
    bits: int
    dtype: str


@dataclass(frozen=True)
class IntegerLimits:
    """What `iinfo` tells."""

    min: int
    max: int
    bits: int
    dtype: str


@public(also={"type": "dtype"})
def finfo(dtype: DTypeLike) -> FloatLimits:
    """The limits of a floating type (of its parts for a complex one)."""
    want = dt.as_dtype(dtype)
    if not want.differentiable:
        raise InvalidArgument(f"[finfo] takes a floating type. Received: {want.name}")
    part = {dt.complex64: dt.float32, dt.complex128: dt.float64}.get(want, want)
    found = ml_dtypes.finfo(part.numpy)
    return FloatLimits(
        float(found.min), float(found.max), float(found.eps), float(found.resolution),
        float(found.smallest_normal), float(found.tiny), int(found.bits), want.name,
    )  # fmt: skip


@public
def iinfo(dtype: DTypeLike) -> IntegerLimits:
    """The limits of an integer type."""
    want = dt.as_dtype(dtype)
    if not want.is_integer:
        raise InvalidArgument(f"[iinfo] takes an integer type. Received: {want.name}")
    found = np.iinfo(want.numpy)
    return IntegerLimits(int(found.min), int(found.max), want.bits, want.name)
