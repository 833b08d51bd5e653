"""Names for element types, places and precisions, with Paddle's numbers."""

from __future__ import annotations

from enum import IntEnum

import bireme
from bireme.core.dtype import DType, as_dtype
from bireme.core.errors import InvalidArgument


class DataType(IntEnum):
    """The element type of an input or result."""

    FLOAT32 = 0
    INT64 = 1
    INT32 = 2
    UINT8 = 3
    INT8 = 4
    FLOAT16 = 5
    BOOL = 6
    FLOAT64 = 7
    BFLOAT16 = 8

    @property
    def dtype(self) -> DType:
        return as_dtype(self.name.lower())


class PlaceType(IntEnum):
    """Where a tensor lies."""

    UNK = -1
    CPU = 0
    GPU = 1
    XPU = 2
    CUSTOM = 4


class PrecisionType(IntEnum):
    """The precision in which a predictor computes."""

    Float32 = 0
    Int8 = 1
    Half = 2
    Bfloat16 = 3


def data_type(dtype: DType) -> DataType:
    """The DataType of a dtype."""
    found = DataType.__members__.get(dtype.name.upper())
    if found is None:
        raise InvalidArgument(f"tensors of {dtype.name} cannot pass through a predictor's handles")
    return found


def get_num_bytes_of_data_type(data_type: DataType) -> int:
    """How many bytes an element takes."""
    return DataType(data_type).dtype.itemsize


def get_version() -> str:
    """Which Bireme this is."""
    return f"version: {bireme.__version__}\nengine: xla\n"


def get_trt_compile_version() -> tuple[int, int, int]:
    """(0, 0, 0), as of a Paddle that was built without TensorRT."""
    return 0, 0, 0


def get_trt_runtime_version() -> tuple[int, int, int]:
    """(0, 0, 0): no TensorRT is loaded."""
    return 0, 0, 0
