"""Weights: LoDTensor streams, one after the other in `.pdiparams` or one per file.

Each is: uint32 0, uint64 number of LoD levels (uint64 size and bytes of each), uint32 0, int32
size of a TensorDesc message, the message, and the elements, little-endian in C order.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Sequence

import numpy as np

from bireme.convert.paddle.program import ModelFileError, Var
from bireme.convert.paddle.program_desc import DTYPES, TENSOR_DESC
from bireme.convert.wire import decode
from bireme.core import dtype as dt
from bireme.io.foreign import open_regular, possible_shape

MAX_LOD_LEVELS = 16
MAX_DESC = 4096  # bytes of a TensorDesc: a type and a few sizes


def read_tensor(data: memoryview, at: int, what: str) -> tuple[np.ndarray, int]:
    """(the tensor that starts at byte `at`, where the next one starts)."""

    def take(size: int) -> memoryview:
        nonlocal at
        if size < 0 or size > len(data) - at:
            raise ModelFileError(f"{what}: needs {size} bytes more, and {len(data) - at} are left")
        part = data[at : at + size]
        at += size
        return part

    def number(code: str) -> int:
        return struct.unpack(f"<{code}", take(struct.calcsize(f"<{code}")))[0]

    _version(number("I"), what)
    levels = number("Q")
    if levels > MAX_LOD_LEVELS:
        raise ModelFileError(f"{what}: {levels} LoD levels; this is no tensor file")
    for _ in range(levels):
        take(number("Q"))
    _version(number("I"), what)
    size = number("i")
    if size > MAX_DESC:
        raise ModelFileError(f"{what}: a description of {size} bytes; this is no tensor file")
    desc = decode(TENSOR_DESC, take(size), what)
    name = DTYPES.get(desc.get("data_type", -1))
    shape = desc.get("dims", [])
    if name is None or not possible_shape(shape):
        raise ModelFileError(f"{what}: type {desc.get('data_type')}, shape {shape!r:.200}")
    dtype = np.dtype(dt.as_dtype(name).numpy)
    content = take(math.prod(shape) * dtype.itemsize)  # Python's integers: no overflow
    return np.frombuffer(content, dtype).reshape(shape).copy(), at


def _version(version: int, what: str) -> None:
    if version != 0:
        raise ModelFileError(
            f"{what}: tensor version {version}; this reader knows version 0. Either the file is "
            "no Paddle tensor or it is from a newer Paddle"
        )


def read_combined(data: memoryview, parameters: Sequence[Var], where: str) -> dict[str, np.ndarray]:
    """Every parameter of a combined file, in which they lie sorted by name."""
    arrays = {}
    at = 0
    for var in sorted(parameters, key=lambda v: v.name):
        arrays[var.name], at = read_tensor(data, at, f"{where}: {var.name}")
        _check(arrays[var.name], var, where)
    if at != len(data):
        raise ModelFileError(
            f"{where}: {len(data) - at} bytes are left over after {len(arrays)} tensors; it "
            "belongs to another model"
        )
    return arrays


def read_separate(folder: str, parameters: Sequence[Var]) -> dict[str, np.ndarray]:
    """Every parameter from a file of its name in `folder`."""
    arrays = {}
    for var in parameters:
        plain = os.path.basename(var.name) == var.name and "\0" not in var.name
        if not plain or var.name in ("", ".", ".."):
            raise ModelFileError(f"a parameter named {var.name!r:.80} cannot be a file")
        path = os.path.join(folder, var.name)
        if not os.path.exists(path):
            raise ModelFileError(f"the parameter file {path} is missing")
        with open_regular(path) as file:
            data = memoryview(file.read())
        arrays[var.name], at = read_tensor(data, 0, path)
        if at != len(data):
            raise ModelFileError(f"{path}: {len(data) - at} bytes are left over")
        _check(arrays[var.name], var, path)
    return arrays


def _check(array: np.ndarray, var: Var, where: str) -> None:
    open_or_equal = len(array.shape) == len(var.shape) and all(
        want in (-1, have) for want, have in zip(var.shape, array.shape, strict=True)
    )
    if not open_or_equal or dt.as_dtype(array.dtype).name != var.dtype:
        raise ModelFileError(
            f"{where}: {var.name!r:.80} should be {var.dtype}{list(var.shape)}, and the file has "
            f"{array.dtype}{list(array.shape)}; the weights belong to another model"
        )
