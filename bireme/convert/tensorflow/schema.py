"""What TensorFlow's files hold: messages by name and number, as far as a trained net needs them.

The same schema reads all three forms: binary, text (`.pbtxt`) and JSON (TFJS).
"""

from __future__ import annotations

import base64
import re
from typing import Any

from bireme.convert.errors import ModelFileError
from bireme.convert.wire import IGNORED, MAX_DEPTH, Schema, message

# Kinds of elements by number, under NumPy's names; those without a name here have no tensors.
_KINDS = {
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "INT32": "int32",
    "UINT8": "uint8",
    "INT16": "int16",
    "INT8": "int8",
    "STRING": "string",
    "COMPLEX64": "complex64",
    "INT64": "int64",
    "BOOL": "bool",
    "QINT8": "qint8",
    "QUINT8": "quint8",
    "QINT32": "qint32",
    "BFLOAT16": "bfloat16",
    "QINT16": "qint16",
    "QUINT16": "quint16",
    "UINT16": "uint16",
    "COMPLEX128": "complex128",
    "HALF": "float16",
    "RESOURCE": "resource",
    "VARIANT": "variant",
    "UINT32": "uint32",
    "UINT64": "uint64",
}
_NAMES = ["DT_INVALID", *[f"DT_{k}" for k in _KINDS]]
_NAMES += [f"DT_{i}" for i in range(len(_NAMES), 100)] + ["DT_REF"]
_NAMES += [f"DT_{k}_REF" for k in _KINDS]  # 100 more: a variable of that kind
TYPE = "enum:" + ",".join(_NAMES)


def kind_of(name: str | None) -> str:
    """NumPy's name for a kind of elements, such as DT_FLOAT."""
    plain = (name or "").removeprefix("DT_").removesuffix("_REF")
    return _KINDS.get(plain, plain.lower() or "nothing")


DIM = message(size=(1, "int64"), name=(2, IGNORED))
SHAPE = message(dim=(2, [DIM]), unknown_rank=(3, "bool"))
TENSOR = message(
    dtype=(1, TYPE),
    tensor_shape=(2, SHAPE),
    version_number=(3, IGNORED),
    tensor_content=(4, "bytes"),
    half_val=(13, "[int32"),
    float_val=(5, "[float"),
    double_val=(6, "[double"),
    int_val=(7, "[int32"),
    string_val=(8, "[bytes"),
    scomplex_val=(9, "[float"),
    int64_val=(10, "[int64"),
    bool_val=(11, "[bool"),
    dcomplex_val=(12, "[double"),
    resource_handle_val=(14, IGNORED),
    variant_val=(15, IGNORED),
    uint32_val=(16, "[int64"),
    uint64_val=(17, "[int64"),
)
_FUNC = message(name=(1, "string"), attr=(2, IGNORED))
_LIST = message(
    s=(2, "[bytes"),
    i=(3, "[int64"),
    f=(4, "[float"),
    b=(5, "[bool"),
    type=(6, "[" + TYPE),
    shape=(7, [SHAPE]),
    tensor=(8, [TENSOR]),
    func=(9, [_FUNC]),
)
_VALUE = message(
    list=(1, _LIST),
    s=(2, "bytes"),
    i=(3, "int64"),
    f=(4, "float"),
    b=(5, "bool"),
    type=(6, TYPE),
    shape=(7, SHAPE),
    tensor=(8, TENSOR),
    placeholder=(9, IGNORED),
    func=(10, _FUNC),
)
_ATTRS = [message(key=(1, "string"), value=(2, _VALUE))]
NODE = message(
    name=(1, "string"),
    op=(2, "string"),
    input=(3, "[string"),
    device=(4, IGNORED),
    attr=(5, _ATTRS),
    experimental_debug_info=(6, IGNORED),
    experimental_type=(7, IGNORED),
)
_ARGUMENT = message(
    name=(1, "string"),
    description=(2, IGNORED),
    type=(3, TYPE),
    type_attr=(4, IGNORED),
    number_attr=(5, IGNORED),
    type_list_attr=(6, IGNORED),
    handle_data=(7, IGNORED),
    is_ref=(16, IGNORED),
    experimental_full_type=(17, IGNORED),
)
_SIGNATURE = message(
    name=(1, "string"),
    input_arg=(2, [_ARGUMENT]),
    output_arg=(3, [_ARGUMENT]),
    attr=(4, IGNORED),
    deprecation=(8, IGNORED),
    summary=(5, IGNORED),
    description=(6, IGNORED),
    is_commutative=(18, IGNORED),
    is_aggregate=(16, IGNORED),
    is_stateful=(17, IGNORED),
    allows_uninitialized_input=(19, IGNORED),
    control_output=(20, IGNORED),
    is_distributed_communication=(21, IGNORED),
)
_PAIRS = [message(key=(1, "string"), value=(2, "string"))]
FUNCTION = message(
    signature=(1, _SIGNATURE),
    attr=(5, IGNORED),
    arg_attr=(7, IGNORED),
    resource_arg_unique_id=(8, IGNORED),
    node_def=(3, [NODE]),
    ret=(4, _PAIRS),
    control_ret=(6, _PAIRS),
)
_LIBRARY = message(
    function=(1, [FUNCTION]), gradient=(2, IGNORED), registered_gradients=(3, IGNORED)
)
GRAPH = message(
    node=(1, [NODE]),
    library=(2, _LIBRARY),
    version=(3, IGNORED),
    versions=(4, IGNORED),
    debug_info=(5, IGNORED),
)
INFO = message(
    name=(1, "string"),
    dtype=(2, TYPE),
    tensor_shape=(3, SHAPE),
    coo_sparse=(4, IGNORED),
    composite_tensor=(5, IGNORED),
)
_INFOS = [message(key=(1, "string"), value=(2, INFO))]
SIGNATURE = message(
    inputs=(1, _INFOS), outputs=(2, _INFOS), method_name=(3, IGNORED), defaults=(4, IGNORED)
)
_VARIABLE = message(
    dtype=(1, IGNORED), shape=(2, IGNORED), trainable=(3, "bool"), name=(6, "string")
)
_OBJECTS = message(nodes=(1, [message(variable=(7, _VARIABLE))]))
_COLLECTION = message(bytes_list=(2, message(value=(1, "[bytes"))))
META_GRAPH = message(
    meta_info_def=(1, message(tags=(4, "[string"))),
    graph_def=(2, GRAPH),
    saver_def=(3, message(restore_op_name=(3, "string"))),
    collection_def=(4, [message(key=(1, "string"), value=(2, _COLLECTION))]),
    signature_def=(5, [message(key=(1, "string"), value=(2, SIGNATURE))]),
    object_graph_def=(7, _OBJECTS),
)
SAVED_MODEL = message(saved_model_schema_version=(1, "int64"), meta_graphs=(2, [META_GRAPH]))
VARIABLE_DEF = message(variable_name=(1, "string"))

BUNDLE_HEADER = message(num_shards=(1, "int32"), endianness=(2, "int32"))
BUNDLE_ENTRY = message(
    dtype=(1, TYPE),
    shape=(2, SHAPE),
    shard_id=(3, "int32"),
    offset=(4, "int64"),
    size=(5, "int64"),
    slices=(7, [message(extent=(1, "[bytes"))]),
)


# --- JSON -----------------------------------------------------------------------------------


def from_json(
    schema: Schema, found: object, what: str = "the graph", depth: int = 0
) -> dict[str, Any]:
    """The fields of a message that was written as JSON, as `wire.decode` gives them."""
    if depth > MAX_DEPTH or not isinstance(found, dict):
        raise ModelFileError(f"{what:.200} is no message")
    fields = {name: (kind, repeated) for name, kind, repeated in schema.values()}
    made: dict[str, Any] = {}
    for key, value in found.items():
        name = re.sub(r"[A-Z]", lambda m: "_" + m[0].lower(), key)
        kind, repeated = fields.get(name, (IGNORED, False))
        if kind == IGNORED or value is None:
            continue
        inner = f"{what}.{name}"
        if not repeated:
            made[name] = _json_value(kind, value, inner, depth)
            continue
        if isinstance(value, dict):  # a map
            value = [{"key": k, "value": v} for k, v in value.items()]
        if not isinstance(value, list):
            raise ModelFileError(f"{inner:.200} is no list")
        made[name] = [_json_value(kind, v, inner, depth) for v in value]
    return made


def _json_value(kind: Any, value: Any, what: str, depth: int) -> Any:
    if isinstance(kind, dict):
        return from_json(kind, value, what, depth + 1)
    if kind == "bytes":
        if isinstance(value, list):  # converters in JavaScript write numbers
            return memoryview(bytes(value))
        return memoryview(base64.b64decode(str(value), validate=True))
    if kind.startswith("enum:"):
        names = kind[5:].split(",")
        if isinstance(value, int):
            return names[value] if 0 <= value < len(names) else str(value)
        return str(value)
    if kind == "bool":
        return bool(value)
    if kind in ("float", "double"):
        return float(value)
    if kind == "string":
        return str(value)
    number = int(str(value)[:25])
    if not -(1 << 63) <= number < 1 << 64:
        raise ModelFileError(f"{what:.200} cannot be {number}")
    return number
