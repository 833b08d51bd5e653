"""PyTorch's types: promotion, which differs from Paddle's, and dtypes by name."""

from __future__ import annotations

from typing import Any, TypeAlias

import bireme as paddle
from bireme.core import dtype as dt
from bireme.core.tensor import Tensor

Number: TypeAlias = "int | float | complex | bool"
Operand: TypeAlias = "Tensor | Number"
Dims: TypeAlias = "int | list[int] | tuple[int, ...] | None"


def kind_of(dtype: dt.DType) -> int:
    """0 for bool, 1 for integers, 2 for floating point, 3 for complex numbers."""
    if dtype.name == "bool":
        return 0
    if dtype.is_integer:
        return 1
    return 2 if dtype.is_floating else 3


def _kind_of_number(value: object) -> int:
    if isinstance(value, bool):
        return 0
    if isinstance(value, float):
        return 2
    return 3 if isinstance(value, complex) else 1  # sizes are integers


def result_type(*operands: object) -> dt.DType:
    """The dtype in which PyTorch computes: tensors with dimensions decide, then tensors without,
    then numbers; of a lower group only a higher kind counts."""
    groups: list[list[dt.DType]] = [[], []]
    numbers = [-1]
    for operand in operands:
        if isinstance(operand, Tensor):
            groups[0 if operand.ndim else 1].append(operand.dtype)
        elif operand is not None:
            numbers.append(_kind_of_number(operand))
    found: dt.DType | None = None
    for group in groups:
        if not group:
            continue
        joined = group[0]
        for other in group[1:]:
            joined = _joined(joined, other)
        if found is None or kind_of(joined) > kind_of(found):
            found = joined
    highest = max(numbers)
    if found is not None and kind_of(found) >= highest:
        return found
    if highest == 3:
        return dt.complex128 if found is dt.float64 else dt.complex64
    return (dt.bool_, dt.int64, dt.float32)[highest]


_ORDER = ("uint8", "int8", "int16", "int32", "int64")
_FLOATS = ("float16", "bfloat16", "float32", "float64")


def _joined(a: dt.DType, b: dt.DType) -> dt.DType:
    if a is b:
        return a
    if kind_of(a) != kind_of(b):
        low, high = sorted((a, b), key=kind_of)
        return dt.complex128 if high is dt.complex64 and low is dt.float64 else high
    if kind_of(a) == 1:
        if {a.name, b.name} == {"uint8", "int8"}:
            return dt.int16
        return max(a, b, key=lambda d: _ORDER.index(d.name))
    if kind_of(a) == 2:
        if {a.name, b.name} == {"float16", "bfloat16"}:
            return dt.float32
        return max(a, b, key=lambda d: _FLOATS.index(d.name))
    return dt.complex128


def cast(value: Tensor, dtype: object) -> Tensor:
    """A tensor in a dtype; the tensor itself if it has that dtype, or if there is none wanted."""
    if dtype is None:
        return value
    wanted = dt.as_dtype(getattr(dtype, "name", dtype))
    return value if value.dtype is wanted else value.astype(wanted)


def tensor(value: Operand, dtype: dt.DType | None = None) -> Tensor:
    """A tensor, of a number too."""
    if isinstance(value, Tensor):
        return cast(value, dtype)
    if isinstance(value, bool | int | float | complex):
        return paddle.to_tensor(value, dtype=None if dtype is None else dtype.name)
    return _size_as_tensor(value, dtype)


def _size_as_tensor(value: Any, dtype: dt.DType | None) -> Tensor:
    """A size of a capture as a tensor without dimensions."""
    from bireme.ops.dimensions import dimensions

    return cast(dimensions(dims=(value,)).reshape([]), dtype)


def together(*operands: Operand) -> tuple[Tensor, ...]:
    """Operands as tensors of the dtype in which PyTorch computes with them."""
    dtype = result_type(*operands)
    return tuple([tensor(o, dtype) for o in operands])


def floating(value: Tensor) -> Tensor:
    """What a function of real numbers takes: integers become float32."""
    return value if kind_of(value.dtype) >= 2 else cast(value, dt.float32)


def axes_of(dim: Dims) -> list[int] | None:
    """The dimensions of a reduction; None for all."""
    if dim is None:
        return None
    found = [dim] if isinstance(dim, int) else list(dim)
    return found or None
