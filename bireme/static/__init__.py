"""Static graphs: programs that are written first and run by an Executor."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bireme.static.input_spec import InputSpec

# Imported on first use: `jit` needs InputSpec only.
_WHERE = {
    name: module
    for module, names in {
        "averaging": "ExponentialMovingAverage",
        "backward": "append_backward gradients",
        "compiled": "BuildStrategy CompiledProgram",
        "executor": "Executor",
        "metrics": "accuracy auc",
        "model_files": (
            "deserialize_persistables deserialize_program load_from_file load_inference_model "
            "normalize_program save_inference_model save_to_file serialize_persistables "
            "serialize_program"
        ),
        "places": "cpu_places cuda_places",
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
    if name in ("nn", "amp"):
        return import_module(f"bireme.static.{name}")
    if name in _WHERE:
        found = getattr(import_module(f"bireme.static.{_WHERE[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'bireme.static' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
