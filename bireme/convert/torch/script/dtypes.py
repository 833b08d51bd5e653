"""PyTorch's numbers for dtypes in programs."""

from __future__ import annotations

NAMES = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    9: "complex64",
    10: "complex128",
    11: "bool",
    15: "bfloat16",
}
CODES = {name: code for code, name in NAMES.items()}
