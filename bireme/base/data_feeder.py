"""Checks of arguments that Paddle programs call themselves."""

from __future__ import annotations

from collections.abc import Sequence

from bireme.api.types import DTypeLike
from bireme.core.dtype import DType, as_dtype
from bireme.core.errors import TypeMismatch
from bireme.core.tensor import Tensor


def convert_dtype(dtype: DTypeLike) -> str:
    """The name of an element type.

    >>> convert_dtype(paddle.float32)  # doctest: +SKIP
    'float32'
    """
    return as_dtype(dtype).name


def convert_np_dtype_to_dtype_(np_dtype: DTypeLike) -> DType:
    """The element type that a NumPy type or a name stands for."""
    return as_dtype(np_dtype)


def check_type(
    input: object,
    input_name: str,
    expected_type: type | tuple[type, ...],
    op_name: str,
    extra_message: str = "",
) -> None:
    """Raise unless `input` is an instance of `expected_type`."""
    if not isinstance(input, expected_type):
        raise TypeMismatch(
            f"[{op_name}] {input_name} must be {expected_type}. "
            f"Received: {type(input).__name__}. {extra_message}".rstrip()
        )


def check_dtype(
    input_dtype: DTypeLike,
    input_name: str,
    expected_dtype: str | Sequence[str],
    op_name: str,
    extra_message: str = "",
) -> None:
    """Raise unless an element type is among those expected."""
    allowed = [expected_dtype] if isinstance(expected_dtype, str) else list(expected_dtype)
    if convert_dtype(input_dtype) not in {convert_dtype(d) for d in allowed}:
        raise TypeMismatch(
            f"[{op_name}] {input_name} must have one of the types {allowed}. "
            f"Received: {convert_dtype(input_dtype)}. {extra_message}".rstrip()
        )


def check_variable_and_dtype(
    input: Tensor,
    input_name: str,
    expected_dtype: str | Sequence[str],
    op_name: str,
    extra_message: str = "",
) -> None:
    """Raise unless `input` is a tensor of one of the types expected."""
    check_type(input, input_name, Tensor, op_name, extra_message)
    check_dtype(input.dtype, input_name, expected_dtype, op_name, extra_message)


__all__ = [
    "check_dtype",
    "check_type",
    "check_variable_and_dtype",
    "convert_dtype",
    "convert_np_dtype_to_dtype_",
]
