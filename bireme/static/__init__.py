"""Static graphs: programs that are written first and run by an Executor."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bireme.static.input_spec import InputSpec

if TYPE_CHECKING:
    from bireme.static import amp as amp
    from bireme.static import nn as nn
    from bireme.static.averaging import ExponentialMovingAverage as ExponentialMovingAverage
    from bireme.static.backward import append_backward as append_backward
    from bireme.static.backward import gradients as gradients
    from bireme.static.compiled import BuildStrategy as BuildStrategy
    from bireme.static.compiled import CompiledProgram as CompiledProgram
    from bireme.static.executor import Executor as Executor
    from bireme.static.metrics import accuracy as accuracy
    from bireme.static.metrics import auc as auc
    from bireme.static.metrics import ctr_metric_bundle as ctr_metric_bundle
    from bireme.static.model_files import deserialize_persistables as deserialize_persistables
    from bireme.static.model_files import deserialize_program as deserialize_program
    from bireme.static.model_files import load_from_file as load_from_file
    from bireme.static.model_files import load_inference_model as load_inference_model
    from bireme.static.model_files import normalize_program as normalize_program
    from bireme.static.model_files import save_inference_model as save_inference_model
    from bireme.static.model_files import save_to_file as save_to_file
    from bireme.static.model_files import serialize_persistables as serialize_persistables
    from bireme.static.model_files import serialize_program as serialize_program
    from bireme.static.places import cpu_places as cpu_places
    from bireme.static.places import cuda_places as cuda_places
    from bireme.static.places import device_guard as device_guard
    from bireme.static.places import xpu_places as xpu_places
    from bireme.static.program import Program as Program
    from bireme.static.program import data as data
    from bireme.static.program import default_main_program as default_main_program
    from bireme.static.program import default_startup_program as default_startup_program
    from bireme.static.program import name_scope as name_scope
    from bireme.static.program import program_guard as program_guard
    from bireme.static.python_ops import Print as Print
    from bireme.static.python_ops import py_func as py_func
    from bireme.static.scope import Scope as Scope
    from bireme.static.scope import global_scope as global_scope
    from bireme.static.scope import scope_guard as scope_guard
    from bireme.static.state_files import load as load
    from bireme.static.state_files import load_program_state as load_program_state
    from bireme.static.state_files import save as save
    from bireme.static.state_files import set_program_state as set_program_state
    from bireme.static.variables import Variable as Variable
    from bireme.static.variables import create_global_var as create_global_var
    from bireme.static.variables import create_parameter as create_parameter
    from bireme.static.weight_norm import WeightNormParamAttr as WeightNormParamAttr

# Imported on first use: `jit` needs InputSpec only.
_WHERE = {
    name: module
    for module, names in {
        "averaging": "ExponentialMovingAverage",
        "backward": "append_backward gradients",
        "compiled": "BuildStrategy CompiledProgram",
        "executor": "Executor",
        "metrics": "accuracy auc ctr_metric_bundle",
        "model_files": (
            "deserialize_persistables deserialize_program load_from_file load_inference_model "
            "normalize_program save_inference_model save_to_file serialize_persistables "
            "serialize_program"
        ),
        "places": "cpu_places cuda_places device_guard xpu_places",
        "program": (
            "Program data default_main_program default_startup_program name_scope program_guard"
        ),
        "python_ops": "Print py_func",
        "scope": "Scope global_scope scope_guard",
        "state_files": "load load_program_state save set_program_state",
        "weight_norm": "WeightNormParamAttr",
        "variables": "Variable create_global_var create_parameter",
    }.items()
    for name in names.split()
}

__all__ = ["InputSpec"]
__all__ += sorted(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in ("amp", "nn"):
        return import_module(f"bireme.static.{name}")
    if name in _WHERE:
        found = getattr(import_module(f"bireme.static.{_WHERE[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'bireme.static' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
