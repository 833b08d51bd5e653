"""paddle.base.core: what Paddle's C++ module is asked for by Python programs."""

from __future__ import annotations

from types import SimpleNamespace

from bireme.core import dtype as _dtypes
from bireme.core.place import CPUPlace, CUDAPinnedPlace, CUDAPlace, CustomPlace
from bireme.core.random import Generator, default_generator
from bireme.core.tensor import Tensor
from bireme.core.var_type import VarType
from bireme.device import (
    get_all_custom_device_type,
    get_available_custom_device,
    is_compiled_with_cinn,
    is_compiled_with_cuda,
    is_compiled_with_custom_device,
    is_compiled_with_distribute,
    is_compiled_with_ipu,
    is_compiled_with_rocm,
    is_compiled_with_xpu,
)

# An old program spells an element type as a kind of variable.
VarDesc = SimpleNamespace(
    VarType=SimpleNamespace(
        BOOL=_dtypes.bool_,
        UINT8=_dtypes.uint8,
        INT8=_dtypes.int8,
        INT16=_dtypes.int16,
        INT32=_dtypes.int32,
        INT64=_dtypes.int64,
        FP16=_dtypes.float16,
        BF16=_dtypes.bfloat16,
        FP32=_dtypes.float32,
        FP64=_dtypes.float64,
        COMPLEX64=_dtypes.complex64,
        COMPLEX128=_dtypes.complex128,
        **{kind.name: kind for kind in VarType},
    )
)
DataType = SimpleNamespace(
    BOOL=_dtypes.bool_,
    UINT8=_dtypes.uint8,
    INT8=_dtypes.int8,
    INT16=_dtypes.int16,
    INT32=_dtypes.int32,
    INT64=_dtypes.int64,
    FLOAT16=_dtypes.float16,
    BFLOAT16=_dtypes.bfloat16,
    FLOAT32=_dtypes.float32,
    FLOAT64=_dtypes.float64,
    COMPLEX64=_dtypes.complex64,
    COMPLEX128=_dtypes.complex128,
)
eager = SimpleNamespace(Tensor=Tensor)
default_cpu_generator = default_generator


def default_cuda_generator(device_id: int) -> Generator:
    """The generator of a GPU: the one that serves all devices."""
    CUDAPlace(device_id).device()  # complains about one that is not there
    return default_generator


def get_custom_device_count(device_type: str) -> int:
    """How many devices of a plug-in's kind there are."""
    return sum(name.partition(":")[0] == device_type for name in get_available_custom_device())


def get_cuda_device_count() -> int:
    """How many GPUs there are."""
    from bireme.device import cuda

    return cuda.device_count()


__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "CustomPlace",
    "DataType",
    "VarDesc",
    "default_cpu_generator",
    "default_cuda_generator",
    "eager",
    "get_all_custom_device_type",
    "get_cuda_device_count",
    "get_custom_device_count",
    "is_compiled_with_cinn",
    "is_compiled_with_cuda",
    "is_compiled_with_custom_device",
    "is_compiled_with_distribute",
    "is_compiled_with_ipu",
    "is_compiled_with_rocm",
    "is_compiled_with_xpu",
]
