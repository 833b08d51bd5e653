"""paddle.base.core: what Paddle's C++ module is asked for by Python programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from bireme.api.types import DTypeLike
from bireme.autograd import is_grad_enabled, saved_tensors_hooks, set_grad_enabled
from bireme.core import dtype as _dtypes
from bireme.core.errors import InvalidArgument
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
        LOD_TENSOR=VarType.DENSE_TENSOR,  # older names
        LOD_TENSOR_ARRAY=VarType.DENSE_TENSOR_ARRAY,
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
_saved: list[saved_tensors_hooks] = []


def _register_saved_tensors_hooks(pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
    """Pass what is saved for gradients through these functions, until the hooks are reset."""
    _reset_saved_tensors_hooks()
    hooks = saved_tensors_hooks(pack, unpack)
    hooks.__enter__()
    _saved.append(hooks)


def _reset_saved_tensors_hooks() -> None:
    """Save as it is again."""
    while _saved:
        _saved.pop().__exit__(None, None, None)


eager = SimpleNamespace(
    Tensor=Tensor,
    register_saved_tensors_hooks=_register_saved_tensors_hooks,
    reset_saved_tensors_hooks=_reset_saved_tensors_hooks,
)


def _has_grad() -> bool:
    """Whether gradients are recorded."""
    return is_grad_enabled()


def _set_has_grad(recorded: bool) -> None:
    """Record gradients from now on, or not."""
    set_grad_enabled(recorded)


def size_of_dtype(dtype: DTypeLike) -> int:
    """Bytes of one element."""
    return _dtypes.as_dtype(dtype).itemsize


def device_memory_stat_current_value(stat_type: str, dev_id: int) -> int:
    """Bytes that are "Allocated" or "Reserved" on a device now."""
    return _memory("", stat_type, dev_id)


def device_memory_stat_peak_value(stat_type: str, dev_id: int) -> int:
    """The most bytes that were "Allocated" or "Reserved" on a device at once."""
    return _memory("max_", stat_type, dev_id)


def _memory(which: str, stat_type: str, dev_id: int) -> int:
    from bireme.device import cuda

    if stat_type not in ("Allocated", "Reserved"):
        raise InvalidArgument(
            f"[device_memory_stat] takes 'Allocated' or 'Reserved'. Received: {stat_type!r}"
        )
    return getattr(cuda, f"{which}memory_{stat_type.lower()}")(dev_id)


def default_cpu_generator() -> Generator:
    """The generator that serves all devices."""
    return default_generator


def default_cuda_generator(device_id: int) -> Generator:
    """The generator of a GPU: the one that serves all devices."""
    CUDAPlace(device_id).check()  # complains about one that is not there
    return default_generator


def default_custom_device_generator(place: CustomPlace) -> Generator:
    """The generator of a plug-in's device: the one that serves all devices."""
    place.check()
    return default_generator


def eager_assign_group_by_size(
    tensors: Sequence[Tensor],
    is_sparse_gradient: Sequence[bool],
    group_size_limits: Sequence[int] = (25 << 20,),
    tensor_indices: Sequence[int] = (),
) -> list[list[int]]:
    """Positions of the tensors whose gradients are exchanged together; with `tensor_indices` those
    numbers stand for the tensors, also in `is_sparse_gradient`.

    A group has tensors of one dtype and is closed when its bytes reach the limit. The first group
    of a dtype has the first limit, and so on; the last limit stays. A tensor with a sparse gradient
    is a group of its own.
    """
    closed: list[list[int]] = []
    open_groups: dict[_dtypes.DType, tuple[list[int], int]] = {}
    count: dict[_dtypes.DType, int] = {}
    for position, tensor in enumerate(tensors):
        i = tensor_indices[position] if tensor_indices else position
        if is_sparse_gradient[i]:
            closed.append([i])
            continue
        dtype = tensor.dtype
        members, size = open_groups.pop(dtype, ([], 0))
        members.append(i)
        size += dtype.itemsize * int(tensor.size)
        if size >= group_size_limits[min(count.get(dtype, 0), len(group_size_limits) - 1)]:
            closed.append(members)
            count[dtype] = count.get(dtype, 0) + 1
        else:
            open_groups[dtype] = (members, size)
    groups = [*closed, *(members for members, _ in open_groups.values())]
    return groups if tensor_indices else sorted(groups)


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
    "default_custom_device_generator",
    "eager",
    "eager_assign_group_by_size",
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
