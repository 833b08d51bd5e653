"""Medians, quantiles and other order statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor, constant
from bireme.ops.math_unary import cast
from bireme.ops.reduction import _reduced, as_axis, resolve, spread


def _lines(xp: Any, x: Any, axis: Any) -> Any:
    """x with the reduced axes merged into a last one."""
    axes = resolve(x.ndim, axis)
    kept = [i for i in range(x.ndim) if i not in axes]
    moved = xp.transpose(x, (*kept, *axes))
    return moved.reshape((*[x.shape[i] for i in kept], -1))


def _restore(xp: Any, result: Any, ndim: int, axis: Any, keepdim: bool) -> Any:
    return xp.expand_dims(result, resolve(ndim, axis)) if keepdim else result


def _middle(xp: Any, x: Any, axis: Any, skip_nan: bool) -> tuple[Any, Any, Any]:
    """(sorted lines' two middle values, and their positions in the unsorted lines)."""
    lines = _lines(xp, x, axis)
    order = xp.argsort(lines, axis=-1, stable=True)
    if skip_nan:
        n = xp.sum(~xp.isnan(lines), axis=-1, keepdims=True)
    else:
        n = xp.full((*lines.shape[:-1], 1), lines.shape[-1])
    low = xp.take_along_axis(order, xp.maximum(n - 1, 0) // 2, axis=-1)
    high = xp.take_along_axis(order, xp.minimum(n // 2, lines.shape[-1] - 1), axis=-1)
    if not skip_nan:
        bad = xp.isnan(lines)
        nan_at = xp.argmax(bad, axis=-1, keepdims=True)
        any_bad = xp.any(bad, axis=-1, keepdims=True)
        low, high = xp.where(any_bad, nan_at, low), xp.where(any_bad, nan_at, high)
    return lines, low, high


def _median_vjp(xp: Any, grad: Any, x: Any, axis: Any, keepdim: bool, skip_nan: bool) -> tuple[Any]:
    """Shared evenly by the elements that equal one of the middle values."""
    lines, low, high = _middle(xp, x, axis, skip_nan)
    a, b = (_restore(xp, xp.take_along_axis(lines, i, axis=-1)[..., 0], x.ndim, axis, True)
            for i in (low, high))  # fmt: skip
    at = (x == a) | (x == b)
    if not skip_nan:
        at = xp.where(xp.isnan(a), xp.isnan(x), at)
    n = xp.sum(at, axis=resolve(x.ndim, axis), keepdims=True).astype(x.dtype)
    share = spread(xp, grad, x.shape, axis, keepdim) / n
    return (xp.where(at, share, xp.zeros_like(share)),)


def _check_not_empty(x: Any, **_: Any) -> None:
    if type(x.size) is int and x.size == 0:
        raise ShapeMismatch("the median of no elements is not defined")


@op(name="median", vjp=_median_vjp, infer=_reduced)
def _median(xp, x, axis=None, keepdim=False, skip_nan=False):
    """The mean of the two middle elements."""
    lines, low, high = _middle(xp, x, axis, skip_nan)
    pair = xp.take_along_axis(lines, low, axis=-1) + xp.take_along_axis(lines, high, axis=-1)
    return _restore(xp, (pair / 2)[..., 0].astype(x.dtype), x.ndim, axis, keepdim)


def _with_index(x: Aval, axis: Any, keepdim: bool, skip_nan: bool) -> tuple[Aval, Aval]:
    value = _reduced(x, axis, keepdim)
    return value, aval(value.shape, dt.int64)


@op(name="median_min", infer=_with_index)
def _median_min(xp, x, axis=None, keepdim=False, skip_nan=False):
    """The lower middle element and its position along the axis."""
    lines, low, _ = _middle(xp, x, axis, skip_nan)
    value = xp.take_along_axis(lines, low, axis=-1)[..., 0]
    index = low[..., 0].astype(np.int64)
    return (
        _restore(xp, value, x.ndim, axis, keepdim),
        _restore(xp, index, x.ndim, axis, keepdim),
    )


def _middle_of(x: Tensor, axis: Any, keepdim: bool, mode: str, skip_nan: bool, name: str) -> Any:
    if mode not in ("avg", "min"):
        raise InvalidArgument(f"[{name}] mode must be 'avg' or 'min'. Received: {mode!r}")
    axis = as_axis(axis)
    if type(x.size) is int and x.size == 0:
        raise ShapeMismatch(f"[{name}] the median of no elements is not defined")
    if mode == "avg":
        return _median(x, axis, keepdim, skip_nan)
    result = _median_min(x, axis, keepdim, skip_nan)
    return result[0] if axis is None else tuple(result)


def median(
    x: Tensor, axis: Any = None, keepdim: bool = False, mode: str = "avg", name: str | None = None
) -> Any:
    """The median over `axis`; mode "min" gives (lower middle element, its index)."""
    if not x.dtype.is_floating:
        x = cast(x, dt.float32)
    return _middle_of(x, axis, keepdim, mode, False, "median")


def nanmedian(
    x: Tensor, axis: Any = None, keepdim: bool = False, mode: str = "avg", name: str | None = None
) -> Any:
    """The median over `axis` of what is not NaN."""
    if not x.dtype.is_floating:
        whole = cast(x, dt.float64)
        result = _middle_of(whole, axis, keepdim, mode, True, "nanmedian")
        if isinstance(result, tuple):
            return cast(result[0], x.dtype), result[1]
        return cast(result, x.dtype)
    return _middle_of(x, axis, keepdim, mode, True, "nanmedian")


_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


@op(name="quantile")
def _quantile(xp, x, q, axis=None, keepdim=False, interpolation="linear", skip_nan=False):
    """The value below which the share q of the elements lies."""
    lines = xp.sort(_lines(xp, x, axis), axis=-1)
    bad = xp.isnan(lines)
    n = xp.sum(~bad, axis=-1) if skip_nan else xp.full(lines.shape[:-1], lines.shape[-1])
    share = xp.reshape(q.astype(x.dtype), (*q.shape, *[1] * n.ndim))
    place = share * (n - 1).astype(x.dtype)
    if interpolation == "nearest":
        place = xp.round(place)
    low, high = xp.floor(place), xp.ceil(place)
    if interpolation == "lower":
        high = low
    elif interpolation == "higher":
        low = high
    weight = xp.full_like(place, 0.5) if interpolation == "midpoint" else place - low
    picks = []
    for at in (low, high):
        index = xp.maximum(at, 0).astype(np.int64)
        picks.append(xp.take_along_axis(lines[(None,) * q.ndim], index[..., None], axis=-1)[..., 0])
    result = picks[0] + (picks[1] - picks[0]) * weight
    if not skip_nan:
        result = xp.where(xp.any(bad, axis=-1), xp.asarray(np.nan, x.dtype), result)
    if keepdim:
        result = xp.expand_dims(result, tuple(a + q.ndim for a in resolve(x.ndim, axis)))
    return result


def _quantiles(
    x: Tensor, q: Any, axis: Any, keepdim: bool, interpolation: str, skip_nan: bool, name: str
) -> Tensor:
    if not x.dtype.is_floating:
        raise TypeMismatch(
            f"[{name}] takes a floating tensor. Received: {x.dtype.name}; cast it with "
            ".astype('float32')"
        )
    if interpolation not in _INTERPOLATIONS:
        raise InvalidArgument(
            f"[{name}] interpolation must be one of {_INTERPOLATIONS}. Received: {interpolation!r}"
        )
    shares = np.asarray(q.numpy() if isinstance(q, Tensor) else q, np.float64)
    if shares.ndim > 1 or shares.size == 0 or shares.min() < 0 or shares.max() > 1:
        raise InvalidArgument(f"[{name}] q must be numbers in [0, 1]. Received: {q!r}")
    return _quantile(x, constant(shares), as_axis(axis), keepdim, interpolation, skip_nan)


def quantile(
    x: Tensor, q: Any, axis: Any = None, keepdim: bool = False, interpolation: str = "linear",
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The q-th quantiles over `axis`; several q give a new first dimension."""
    return _quantiles(x, q, axis, keepdim, interpolation, False, "quantile")


def nanquantile(
    x: Tensor, q: Any, axis: Any = None, keepdim: bool = False, interpolation: str = "linear"
) -> Tensor:
    """The q-th quantiles over `axis` of what is not NaN."""
    return _quantiles(x, q, axis, keepdim, interpolation, True, "nanquantile")


__all__ = ["median", "nanmedian", "nanquantile", "quantile"]
