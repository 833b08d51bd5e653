"""Sums, extremes, norms and positions along dimensions."""

from __future__ import annotations

from collections.abc import Callable

import bireme as paddle
from bireme.convert.torch.aten import aten
from bireme.convert.torch.aten.elementwise import RULES_OF_PAIRS
from bireme.convert.torch.aten.types import Dims, Number, axes_of, cast, floating, kind_of
from bireme.convert.torch.program import DTypeName
from bireme.core.tensor import Tensor


def _summed(x: Tensor, dtype: DTypeName | None) -> Tensor:
    """Sums and products of integers are int64."""
    return cast(x, "int64" if dtype is None and kind_of(x.dtype) < 2 else dtype)


@aten("sum")
def sum_(
    self: Tensor, dim: Dims = None, keepdim: bool = False, dtype: DTypeName | None = None
) -> Tensor:
    self = (
        cast(self, dtype) if dtype else (cast(self, "int64") if kind_of(self.dtype) < 2 else self)
    )
    return paddle.sum(self, axes_of(dim), keepdim=keepdim)


@aten("nansum")
def nansum(
    self: Tensor, dim: Dims = None, keepdim: bool = False, dtype: DTypeName | None = None
) -> Tensor:
    return paddle.nansum(_summed(self, dtype), axes_of(dim), keepdim=keepdim)


@aten("mean")
def mean(
    self: Tensor, dim: Dims = None, keepdim: bool = False, dtype: DTypeName | None = None
) -> Tensor:
    return paddle.mean(cast(self, dtype), axes_of(dim), keepdim)


@aten("prod")
def prod(
    self: Tensor, dim: int | None = None, keepdim: bool = False, dtype: DTypeName | None = None
) -> Tensor:
    self = (
        cast(self, dtype) if dtype else (cast(self, "int64") if kind_of(self.dtype) < 2 else self)
    )
    return paddle.prod(self, dim, keepdim)


@aten("var")
def var(
    self: Tensor,
    dim: Dims = None,
    unbiased: bool = True,
    keepdim: bool = False,
    correction: Number | None = None,
) -> Tensor:
    if isinstance(dim, bool):  # var(x, unbiased)
        dim, unbiased = None, dim
    taken = (1 if unbiased else 0) if correction is None else correction
    axes = axes_of(dim)
    centred = self - paddle.mean(self, axes, True)
    count = 1
    for axis in range(self.ndim) if axes is None else axes:
        count = count * self.shape[axis]
    left = count - taken
    if isinstance(left, int | float):
        left = max(left, 0)
    return paddle.sum(centred * centred, axes, keepdim=keepdim) / left


@aten("std")
def std(
    self: Tensor,
    dim: Dims = None,
    unbiased: bool = True,
    keepdim: bool = False,
    correction: Number | None = None,
) -> Tensor:
    return paddle.sqrt(var(self, dim, unbiased, keepdim, correction))


@aten("var_mean")
def var_mean(
    self: Tensor,
    dim: Dims = None,
    unbiased: bool = True,
    keepdim: bool = False,
    correction: Number | None = None,
) -> list[Tensor]:
    return [var(self, dim, unbiased, keepdim, correction), mean(self, dim, keepdim)]


@aten("std_mean")
def std_mean(
    self: Tensor,
    dim: Dims = None,
    unbiased: bool = True,
    keepdim: bool = False,
    correction: Number | None = None,
) -> list[Tensor]:
    spread, middle = var_mean(self, dim, unbiased, keepdim, correction)
    return [paddle.sqrt(spread), middle]


@aten("amax")
def amax(self: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    return paddle.amax(self, axes_of(dim), keepdim)


@aten("amin")
def amin(self: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    return paddle.amin(self, axes_of(dim), keepdim)


@aten("aminmax")
def aminmax(self: Tensor, dim: int | None = None, keepdim: bool = False) -> list[Tensor]:
    return [amin(self, dim, keepdim), amax(self, dim, keepdim)]


def _extreme(name: str, whole: Callable[..., Tensor], spot: Callable[..., Tensor]) -> None:
    pair = RULES_OF_PAIRS[f"{name}imum"]

    def rule(
        self: Tensor,
        dim: int | Tensor | None = None,
        keepdim: bool = False,
        other: Tensor | None = None,
    ) -> Tensor | list[Tensor]:
        if other is not None or isinstance(dim, Tensor):
            return pair(self, dim if other is None else other)
        if dim is None:
            return whole(self)
        places = spot(self, dim, True)
        values = paddle.take_along_axis(self, places, dim) if self.ndim else self
        return (
            [values, places]
            if keepdim or not self.ndim
            else [values.squeeze(dim), places.squeeze(dim)]
        )

    aten(name)(rule)


_extreme("max", paddle.max, paddle.argmax)
_extreme("min", paddle.min, paddle.argmin)


@aten("argmax")
def argmax(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return paddle.argmax(self, dim, keepdim)


@aten("argmin")
def argmin(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return paddle.argmin(self, dim, keepdim)


@aten("all")
def all_(self: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    return paddle.all(cast(self, "bool"), axes_of(dim), keepdim)


@aten("any")
def any_(self: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    return paddle.any(cast(self, "bool"), axes_of(dim), keepdim)


@aten("logsumexp")
def logsumexp(self: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    return paddle.logsumexp(floating(self), axes_of(dim), keepdim)


@aten("count_nonzero")
def count_nonzero(self: Tensor, dim: Dims = None) -> Tensor:
    return paddle.count_nonzero(self, axes_of(dim))


@aten("cumsum")
def cumsum(self: Tensor, dim: int, dtype: DTypeName | None = None) -> Tensor:
    self = (
        cast(self, dtype) if dtype else (cast(self, "int64") if kind_of(self.dtype) < 2 else self)
    )
    return paddle.cumsum(self, dim) if self.ndim else self


@aten("cumprod")
def cumprod(self: Tensor, dim: int, dtype: DTypeName | None = None) -> Tensor:
    self = (
        cast(self, dtype) if dtype else (cast(self, "int64") if kind_of(self.dtype) < 2 else self)
    )
    return paddle.cumprod(self, dim)


@aten("logcumsumexp")
def logcumsumexp(self: Tensor, dim: int) -> Tensor:
    return paddle.logcumsumexp(self, dim)


@aten("cummax")
def cummax(self: Tensor, dim: int) -> list[Tensor]:
    return list(paddle.cummax(self, dim))


@aten("cummin")
def cummin(self: Tensor, dim: int) -> list[Tensor]:
    return list(paddle.cummin(self, dim))


@aten("norm", "linalg_vector_norm")
def norm(
    self: Tensor,
    ord: float = 2,
    dim: Dims = None,
    keepdim: bool = False,
    dtype: DTypeName | None = None,
    p: float | None = None,
) -> Tensor:
    order = float(ord if p is None else p)
    self = floating(cast(self, dtype))
    axes = axes_of(dim)
    size = paddle.abs(self)
    if order == 2.0:
        return paddle.sqrt(paddle.sum(size * size, axes, keepdim=keepdim))
    if order == float("inf"):
        return paddle.amax(size, axes, keepdim)
    if order == float("-inf"):
        return paddle.amin(size, axes, keepdim)
    if order == 0.0:
        return paddle.sum(cast(size != 0, self.dtype), axes, keepdim=keepdim)
    return paddle.pow(paddle.sum(paddle.pow(size, order), axes, keepdim=keepdim), 1.0 / order)


@aten("median")
def median(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | list[Tensor]:
    if dim is None:
        return paddle.median(self, mode="min")
    return list(paddle.median(self, dim, keepdim, mode="min"))
