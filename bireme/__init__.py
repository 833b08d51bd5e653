"""Bireme: a deep-learning platform with PaddlePaddle's API on an OpenXLA engine.

import bireme as paddle
"""

from __future__ import annotations

from importlib import import_module
from math import e, inf, nan, pi
from sys import modules as _modules
from typing import Any

from bireme import addresses as _addresses
from bireme.api import public as _public
from bireme.core import executor as _executor  # noqa: F401 (registers itself as the runner)
from bireme.core.dtype import DType as dtype  # noqa: N813 (Paddle's name)
from bireme.core.dtype import (
    bfloat16,
    complex64,
    complex128,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    get_default_dtype,
    int8,
    int16,
    int32,
    int64,
    pstring,
    raw,
    set_default_dtype,
    uint8,
    uint16,
    uint32,
    uint64,
)
from bireme.core.dtype import bool_ as bool
from bireme.core.place import CPUPlace, CUDAPinnedPlace, CUDAPlace, CustomPlace
from bireme.core.tensor import Parameter, Size, Tensor
from bireme.missing import MissingAttributeError as _MissingAttributeError
from bireme.ops import methods as _methods

__version__ = "0.1.0"
newaxis = None

_methods.attach()
_functions = _public.functions("paddle")
globals().update(_functions)

# Paddle's short names.
half, float, double, cfloat, cdouble = float16, float32, float64, complex64, complex128

# Namespaces, and names out of them, are imported on first use: `import bireme` stays quick.
_LAZY = {
    "amp", "autograd", "device", "distributed", "fft", "io", "jit", "linalg", "metric", "nn",
    "onnx", "optimizer", "profiler", "regularizer", "signal", "static", "vision",
    "distribution", "incubate", "audio", "sparse", "geometric", "text",
    "callbacks", "hub", "inference", "quantization", "sysconfig", "utils", "version",
    "base", "cuda", "framework", "functional", "random", "special", "tensor",
}  # fmt: skip
_LAZY_NAMES = {
    name: module
    for module, names in {
        "amp": (
            "autocast get_autocast_cpu_dtype get_autocast_dtype get_autocast_gpu_dtype "
            "is_autocast_enabled"
        ),
        "audio.windows": (
            "bartlett_window blackman_window hamming_window hann_window kaiser_window"
        ),
        "autograd": "enable_grad grad is_grad_enabled no_grad set_grad_enabled",
        "device": (
            "Event Stream device_guard get_device is_compiled_with_cinn is_compiled_with_cuda "
            "is_compiled_with_custom_device is_compiled_with_distribute is_compiled_with_ipu "
            "is_compiled_with_rocm is_compiled_with_xpu set_device"
        ),
        "distributed.parallel": "DataParallel",
        "core.printing": "set_printoptions",
        "device.generators": "Generator",
        "flags": "disable_signal_handler get_flags set_flags",
        "hapi": "Model flops summary",
        "io.readers": "MmapStorage batch",
        "nn.lazy": "LazyGuard",
        "ops.typed": (
            "BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor "
            "IntTensor LongTensor ShortTensor"
        ),
        "utils.layers_utils": "check_shape",
        "io.serialization": "load save",
        "io.async_saving": "async_save clear_async_save_task_queue",
        "nn.attributes": "ParamAttr",
        "nn.functional": "adaptive_avg_pool1d conv1d conv2d conv3d group_norm layer_norm",
        "nn.parameters": "create_parameter",
        "static.program": "disable_static enable_static in_dynamic_mode",
        "torch_names": "disable_compat enable_compat",
    }.items()
    for name in names.split()
}

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "CustomPlace",
    "Parameter",
    "Size",
    "Tensor",
    "bfloat16",
    "bool",
    "cdouble",
    "cfloat",
    "complex64",
    "complex128",
    "double",
    "dtype",
    "e",
    "float",
    "float8_e4m3fn",
    "float8_e5m2",
    "float16",
    "float32",
    "float64",
    "get_default_dtype",
    "half",
    "inf",
    "int8",
    "int16",
    "int32",
    "int64",
    "nan",
    "newaxis",
    "pi",
    "pstring",
    "raw",
    "set_default_dtype",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]
# The stub beside this file lists them all for type checkers.
__all__ += sorted({*_functions, *_LAZY, *_LAZY_NAMES})  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return import_module(f"bireme.{name}")
    if name in _LAZY_NAMES:
        found = getattr(import_module(f"bireme.{_LAZY_NAMES[name]}"), name)
        globals()[name] = found  # asked once
        return found
    if name.startswith("__"):  # a probe of some tool
        raise AttributeError(f"module 'bireme' has no attribute {name!r}")
    try:
        return _addresses.find("", name)
    except AttributeError:
        advice = "what exists of Paddle's API: dir(bireme)"
        raise _MissingAttributeError(f"bireme.{name}", _modules[__name__], advice) from None


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
