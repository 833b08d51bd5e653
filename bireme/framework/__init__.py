"""paddle.framework: files, random states, modes and parameters, under their older address."""

from bireme import get_rng_state, seed, set_rng_state
from bireme.autograd import is_grad_enabled, set_grad_enabled
from bireme.base import core
from bireme.base.framework import (
    EagerParamBase,
    Program,
    Variable,
    _current_expected_place,
    _current_expected_place_,
    _dygraph_tracer,
    _no_check_dy2st_diff,
    convert_np_dtype_to_dtype_,
    default_main_program,
    default_startup_program,
    dygraph_only,
    get_flags,
    in_dynamic_mode,
    in_dynamic_or_pir_mode,
    in_pir_mode,
    set_flags,
    use_pir_api,
)
from bireme.base.layer_helper import LayerHelper
from bireme.core.dtype import get_default_dtype, set_default_dtype
from bireme.core.place import CPUPlace, CUDAPinnedPlace, CUDAPlace, CustomPlace
from bireme.core.tensor import Parameter
from bireme.framework import io, random
from bireme.io.serialization import load, save
from bireme.nn.attributes import ParamAttr
from bireme.nn.parameters import create_parameter

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "CustomPlace",
    "EagerParamBase",
    "LayerHelper",
    "ParamAttr",
    "Parameter",
    "Program",
    "Variable",
    "_current_expected_place",
    "_current_expected_place_",
    "_dygraph_tracer",
    "_no_check_dy2st_diff",
    "convert_np_dtype_to_dtype_",
    "core",
    "create_parameter",
    "default_main_program",
    "default_startup_program",
    "dygraph_only",
    "get_default_dtype",
    "get_flags",
    "get_rng_state",
    "in_dynamic_mode",
    "in_dynamic_or_pir_mode",
    "in_pir_mode",
    "io",
    "is_grad_enabled",
    "load",
    "random",
    "save",
    "seed",
    "set_default_dtype",
    "set_flags",
    "set_grad_enabled",
    "set_rng_state",
    "use_pir_api",
]
