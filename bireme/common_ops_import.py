"""paddle.common_ops_import: helpers of functions that build on ops."""

from bireme.base.data_feeder import (
    check_dtype,
    check_type,
    check_variable_and_dtype,
    convert_dtype,
    convert_np_dtype_to_dtype_,
)
from bireme.base.layer_helper import LayerHelper
from bireme.core.tensor import Parameter
from bireme.static import Variable, default_main_program, default_startup_program
from bireme.static.program import in_dynamic_mode
from bireme.utils import unique_name

__all__ = [
    "LayerHelper",
    "Parameter",
    "Variable",
    "check_dtype",
    "check_type",
    "check_variable_and_dtype",
    "convert_dtype",
    "convert_np_dtype_to_dtype_",
    "default_main_program",
    "default_startup_program",
    "in_dynamic_mode",
    "unique_name",
]
