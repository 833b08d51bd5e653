"""Tensors out of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import bireme as paddle
from bireme.convert.torch.aten import aten
from bireme.convert.torch.aten.types import Number, cast, result_type, tensor
from bireme.convert.torch.program import DTypeName
from bireme.core.tensor import Tensor

Size = Any


def _name(dtype: DTypeName | None, default: str = "float32") -> str:
    return default if dtype is None else dtype.name


@aten("zeros", "empty")
def zeros(size: Sequence[Size], dtype: DTypeName | None = None, **_: object) -> Tensor:
    return paddle.zeros(list(size), _name(dtype))


@aten("ones")
def ones(size: Sequence[Size], dtype: DTypeName | None = None, **_: object) -> Tensor:
    return paddle.ones(list(size), _name(dtype))


@aten("full")
def full(
    size: Sequence[Size], fill_value: Number, dtype: DTypeName | None = None, **_: object
) -> Tensor:
    wanted = result_type(fill_value).name if dtype is None else dtype.name
    return paddle.broadcast_to(cast(tensor(fill_value), wanted), list(size))


@aten("zeros_like", "empty_like")
def zeros_like(self: Tensor, dtype: DTypeName | None = None, **_: object) -> Tensor:
    return paddle.zeros_like(self, _name(dtype, self.dtype.name))


@aten("ones_like")
def ones_like(self: Tensor, dtype: DTypeName | None = None, **_: object) -> Tensor:
    return paddle.ones_like(self, _name(dtype, self.dtype.name))


@aten("full_like")
def full_like(
    self: Tensor, fill_value: Number, dtype: DTypeName | None = None, **_: object
) -> Tensor:
    return cast(paddle.full_like(self, fill_value), _name(dtype, self.dtype.name))


@aten("new_zeros", "new_empty")
def new_zeros(
    self: Tensor, size: Sequence[Size], dtype: DTypeName | None = None, **_: object
) -> Tensor:
    return paddle.zeros(list(size), _name(dtype, self.dtype.name))


@aten("new_ones")
def new_ones(
    self: Tensor, size: Sequence[Size], dtype: DTypeName | None = None, **_: object
) -> Tensor:
    return paddle.ones(list(size), _name(dtype, self.dtype.name))


@aten("new_full")
def new_full(
    self: Tensor,
    size: Sequence[Size],
    fill_value: Number,
    dtype: DTypeName | None = None,
    **_: object,
) -> Tensor:
    return paddle.broadcast_to(tensor(fill_value, self.dtype), list(size)).astype(
        _name(dtype, self.dtype.name)
    )


@aten("fill")
def fill(self: Tensor, value: Number | Tensor) -> Tensor:
    return paddle.broadcast_to(tensor(value, self.dtype), self.shape)


@aten("zero")
def zero(self: Tensor) -> Tensor:
    return paddle.zeros_like(self)


@aten("arange")
def arange(
    start: Size = 0, end: Size = None, step: Number = 1, dtype: DTypeName | None = None, **_: object
) -> Tensor:
    if end is None:
        start, end = 0, start
    wanted = result_type(start, end, step).name if dtype is None else dtype.name
    return paddle.arange(start, end, step, wanted)


@aten("linspace")
def linspace(
    start: Number, end: Number, steps: int, dtype: DTypeName | None = None, **_: object
) -> Tensor:
    return paddle.linspace(start, end, steps, _name(dtype))


@aten("eye")
def eye(n: int, m: int | None = None, dtype: DTypeName | None = None, **_: object) -> Tensor:
    return paddle.eye(n, m, _name(dtype))


@aten("scalar_tensor", "tensor")
def scalar_tensor(s: Number, dtype: DTypeName | None = None, **_: object) -> Tensor:
    return cast(tensor(s), _name(dtype, result_type(s).name))


@aten("tril_indices")
def tril_indices(
    row: int, col: int, offset: int = 0, dtype: DTypeName | None = None, **_: object
) -> Tensor:
    return paddle.tril_indices(row, col, offset, _name(dtype, "int64"))


@aten("triu_indices")
def triu_indices(
    row: int, col: int, offset: int = 0, dtype: DTypeName | None = None, **_: object
) -> Tensor:
    return paddle.triu_indices(row, col, offset, _name(dtype, "int64"))


@aten("rand")
def rand(size: Sequence[Size], dtype: DTypeName | None = None, **_: object) -> Tensor:
    return paddle.rand(list(size), _name(dtype))


@aten("randn")
def randn(size: Sequence[Size], dtype: DTypeName | None = None, **_: object) -> Tensor:
    return paddle.randn(list(size), _name(dtype))


@aten("rand_like")
def rand_like(self: Tensor, dtype: DTypeName | None = None, **_: object) -> Tensor:
    return paddle.rand(list(self.shape), _name(dtype, self.dtype.name))


@aten("randn_like")
def randn_like(self: Tensor, dtype: DTypeName | None = None, **_: object) -> Tensor:
    return paddle.randn(list(self.shape), _name(dtype, self.dtype.name))


@aten("bernoulli")
def bernoulli(self: Tensor, p: float | Tensor | None = None, generator: None = None) -> Tensor:
    if isinstance(p, float | int):
        return paddle.bernoulli(paddle.full_like(self, p))
    return paddle.bernoulli(self if p is None else p)
