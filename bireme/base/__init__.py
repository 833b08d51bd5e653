"""paddle.base: the few names below Paddle's public API that programs reach for."""

from bireme.base import core, data_feeder, dygraph, framework, layer_helper
from bireme.base.feeding import DataFeeder
from bireme.core.place import CPUPlace, CUDAPinnedPlace, CUDAPlace
from bireme.flags import get_flags, set_flags
from bireme.nn.attributes import ParamAttr
from bireme.static import Executor, Program, Variable, program_guard
from bireme.utils import unique_name

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "DataFeeder",
    "Executor",
    "ParamAttr",
    "Program",
    "Variable",
    "core",
    "data_feeder",
    "dygraph",
    "framework",
    "get_flags",
    "layer_helper",
    "program_guard",
    "set_flags",
    "unique_name",
]
