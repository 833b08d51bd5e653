"""Small helpers around the framework: `paddle.utils`."""

from bireme.utils import cpp_extension, dlpack, download, layers_utils, unique_name
from bireme.utils.custom_op import custom_kernel, custom_op
from bireme.utils.deprecated import VisibleDeprecationWarning, deprecated
from bireme.utils.imports import require_version, try_import
from bireme.utils.install_check import run_check
from bireme.utils.layers_utils import (
    assert_same_structure,
    convert_to_list,
    flatten,
    is_sequence,
    map_structure,
    pack_sequence_as,
    to_sequence,
)

__all__ = [
    "VisibleDeprecationWarning",
    "assert_same_structure",
    "convert_to_list",
    "cpp_extension",
    "custom_kernel",
    "custom_op",
    "deprecated",
    "dlpack",
    "download",
    "flatten",
    "is_sequence",
    "layers_utils",
    "map_structure",
    "pack_sequence_as",
    "require_version",
    "run_check",
    "to_sequence",
    "try_import",
    "unique_name",
]
