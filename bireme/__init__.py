"""Bireme: a deep-learning platform with PaddlePaddle's API on an OpenXLA engine.

import bireme as paddle
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bireme import ops as _ops
from bireme.core import autograd as _autograd
from bireme.core import keywords as _keywords
from bireme.core import executor as _executor  # registers itself as the runner of traces
from bireme.core.dtype import (
    DType as dtype,
)
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
    set_default_dtype,
    uint8,
)
from bireme.core.dtype import (
    bool_ as bool,
)
from bireme.core.errors import install_traceback_filter as _install_traceback_filter
from bireme.core.place import CPUPlace, CUDAPinnedPlace, CUDAPlace, CustomPlace
from bireme.core.tensor import Parameter, Size, Tensor
from bireme.ops import inplace as _inplace
from bireme.ops import methods as _methods

__version__ = "0.1.0"

_install_traceback_filter()
_functions = _ops.public(tuple(f for f in _ops.FAMILIES if f not in _ops.FUNCTIONAL))
_functions |= _inplace.functions(_functions)
_methods.attach(_functions, tuple(_ops.modules.values()))
globals().update(_keywords.accept("", _functions))

# Namespaces are imported on first use: `import bireme` stays quick.
_LAZY = {
    "amp", "audio", "autograd", "callbacks", "device", "distributed", "distribution", "fft",
    "geometric", "hapi", "hub", "incubate", "inference", "io", "jit", "linalg", "metric", "nn", "onnx",
    "optimizer", "profiler", "quantization", "regularizer", "signal", "sparse", "static", "text",
    "utils", "vision",
}  # fmt: skip
_LAZY_NAMES: dict[str, str] = {
    "grad": "autograd",
    "no_grad": "autograd",
    "enable_grad": "autograd",
    "set_grad_enabled": "autograd",
    "is_grad_enabled": "autograd",
    "save": "io.serialization",
    "load": "io.serialization",
    "DataParallel": "distributed",
    "ParamAttr": "nn.attributes",
    "create_parameter": "nn.parameters",
    "is_autocast_enabled": "amp",
    "get_autocast_dtype": "amp",
    "get_device": "device",
    "set_device": "device",
    "summary": "hapi",
    "Model": "hapi",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return import_module(f"bireme.{name}")
    if name in _LAZY_NAMES:
        return getattr(import_module(f"bireme.{_LAZY_NAMES[name]}"), name)
    raise AttributeError(f"module 'bireme' has no attribute {name!r}")
