"""What a TFLite file holds: types, ops, and the settings of each op by field number."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.convert.errors import ModelFileError
from bireme.convert.tflite.flat import Table

# By number; None is a type without tensors here.
TYPES: list[str | None] = [
    "float32", "float16", "int32", "uint8", "int64", None, "bool", "int16", "complex64", "int8",
    "float64", "complex128", "uint64", None, None, "uint32", "uint16", "int4", "bfloat16",
]  # fmt: skip

# By number.
_OPS = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE
EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D
LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6
RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL
CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND
SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE
BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST
PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN
TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW
ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK
REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR
LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS
WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE
NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM
BATCH_MATMUL PLACEHOLDER CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS
HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE
READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM
MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX
UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT
"""
OPS = _OPS.split()

_ACTIVATION = ("activation", "enum:,RELU,RELU_N1_TO_1,RELU6,TANH,SIGN_BIT", 0)
_PADDING = ("padding", "enum:SAME,VALID", 0)
_KEEP = (("keep_dims", "bool", 0),)
_ACTIVATED = (_ACTIVATION,)
_POOL = (_PADDING, ("stride_w", "int", 0), ("stride_h", "int", 0), ("filter_width", "int", 0),
         ("filter_height", "int", 0), _ACTIVATION)  # fmt: skip

# The settings of an op in the order of their field numbers: (name, kind, default).
_OPTIONS: dict[str, tuple[tuple[str, str, int], ...]] = {
    "CONV_2D": (
        _PADDING, ("stride_w", "int", 0), ("stride_h", "int", 0), _ACTIVATION,
        ("dilation_w", "int", 1), ("dilation_h", "int", 1),
    ),
    "DEPTHWISE_CONV_2D": (
        _PADDING, ("stride_w", "int", 0), ("stride_h", "int", 0), ("multiplier", "int", 0),
        _ACTIVATION, ("dilation_w", "int", 1), ("dilation_h", "int", 1),
    ),
    "TRANSPOSE_CONV": (
        _PADDING, ("stride_w", "int", 0), ("stride_h", "int", 0), _ACTIVATION,
    ),
    "AVERAGE_POOL_2D": _POOL, "MAX_POOL_2D": _POOL, "L2_POOL_2D": _POOL,
    "FULLY_CONNECTED": (
        _ACTIVATION, ("weights_format", "byte", 0), ("keep_num_dims", "bool", 0),
    ),
    "ADD": _ACTIVATED, "SUB": _ACTIVATED, "MUL": _ACTIVATED, "DIV": _ACTIVATED,
    "L2_NORMALIZATION": _ACTIVATED,
    "CONCATENATION": (("axis", "int", 0), _ACTIVATION),
    "SOFTMAX": (("beta", "float", 0),),
    "LOCAL_RESPONSE_NORMALIZATION": (
        ("radius", "int", 0), ("bias", "float", 0), ("alpha", "float", 0), ("beta", "float", 0),
    ),
    "RESHAPE": (("new_shape", "ints", 0),),
    "RESIZE_BILINEAR": (
        ("height", "int", 0), ("width", "int", 0), ("align_corners", "bool", 0),
        ("half_pixel_centers", "bool", 0),
    ),
    "RESIZE_NEAREST_NEIGHBOR": (("align_corners", "bool", 0), ("half_pixel_centers", "bool", 0)),
    "SPACE_TO_DEPTH": (("block_size", "int", 0),), "DEPTH_TO_SPACE": (("block_size", "int", 0),),
    "MEAN": _KEEP, "SUM": _KEEP, "REDUCE_PROD": _KEEP, "REDUCE_MAX": _KEEP, "REDUCE_MIN": _KEEP,
    "REDUCE_ANY": _KEEP, "REDUCE_ALL": _KEEP,
    "SQUEEZE": (("squeeze_dims", "ints", 0),),
    "SPLIT": (("num_splits", "int", 0),), "SPLIT_V": (("num_splits", "int", 0),),
    "STRIDED_SLICE": (
        ("begin_mask", "int", 0), ("end_mask", "int", 0), ("ellipsis_mask", "int", 0),
        ("new_axis_mask", "int", 0), ("shrink_axis_mask", "int", 0), ("offset", "bool", 0),
    ),
    "GATHER": (("axis", "int", 0), ("batch_dims", "int", 0)),
    "CAST": (("in_type", "byte", 0), ("out_type", "byte", 0)),
    "PACK": (("count", "int", 0), ("axis", "int", 0)),
    "UNPACK": (("count", "int", 0), ("axis", "int", 0)),
    "ONE_HOT": (("axis", "int", 0),),
    "LEAKY_RELU": (("alpha", "float", 0),),
    "MIRROR_PAD": (("mode", "enum:REFLECT,SYMMETRIC", 0),),
    "SHAPE": (("out_type", "byte", 0),),
    "ARG_MAX": (("out_type", "byte", 0),), "ARG_MIN": (("out_type", "byte", 0),),
    "BATCH_MATMUL": (("adj_x", "bool", 0), ("adj_y", "bool", 0)),
    "CUMSUM": (("exclusive", "bool", 0), ("reverse", "bool", 0)),
    "GELU": (("approximate", "bool", 0),),
    "IF": (("then_graph", "int", 0), ("else_graph", "int", 0)),
    "WHILE": (("cond_graph", "int", 0), ("body_graph", "int", 0)),
    "REVERSE_SEQUENCE": (("seq_dim", "int", 0), ("batch_dim", "int", 0)),
}  # fmt: skip


def settings(op: str, options: Table | None) -> dict[str, Any]:
    """The settings of an op by name."""
    made: dict[str, Any] = {}
    for number, (name, kind, default) in enumerate(_OPTIONS.get(op, ())):
        if kind == "ints":
            made[name] = [] if options is None else options.array(number, "int").tolist()
        elif kind == "float":
            made[name] = 0.0 if options is None else options.real(number)
        elif kind.startswith("enum:"):
            names = kind[5:].split(",")
            value = 0 if options is None else options.integer(number, "byte")
            if not 0 <= value < len(names):
                raise ModelFileError(f"{op}: there is no {name} with the number {value}")
            made[name] = names[value]
        else:
            made[name] = default if options is None else options.integer(number, kind, default)
    return made


def type_name(code: int) -> str | None:
    return TYPES[code] if 0 <= code < len(TYPES) else None


def unpacked(data: np.ndarray, kind: str, count: int) -> np.ndarray:
    """The elements of a buffer; those of four bits lie two in a byte."""
    if kind == "int4":
        pairs = np.stack([data & 15, data >> 4], -1).reshape(-1)[:count].astype(np.int8)
        return np.where(pairs > 7, pairs - 16, pairs).astype(np.int8)
    if kind == "bfloat16":
        import ml_dtypes

        return data.view(ml_dtypes.bfloat16)
    return data.view(kind)
