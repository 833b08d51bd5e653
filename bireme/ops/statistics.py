"""Medians, quantiles and other order statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.api.public import public
from bireme.api.types import Axis
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor, constant
from bireme.ops.contents import Result, reads_contents
from bireme.ops.math_unary import cast
from bireme.ops.reduction import _reduced, as_axis, resolve, spread


def _lines(xp: Any, x: Any, axis: Any) -> Any:
    """x with the reduced axes merged into a last one."""
    axes = resolve(x.ndim, axis)
    kept = [i for i in range(x.ndim) if i not in axes]
    moved = xp.transpose(x, (*kept, *axes))
    length = math.prod([x.shape[i] for i in axes]) if 0 in x.shape else -1
    return moved.reshape((*[x.shape[i] for i in kept], length))


def _restore(xp: Any, result: Any, ndim: int, axis: Any, keepdim: bool) -> Any:
    return xp.expand_dims(result, resolve(ndim, axis)) if keepdim else result


def _middle(xp: Any, x: Any, axis: Any, skip_nan: bool) -> tuple[Any, Any, Any]:
    """(sorted lines' two middle values, and their positions in the unsorted lines)."""
    lines = _lines(xp, x, axis)
    if type(lines.shape[-1]) is int and lines.shape[-1] == 0:  # the median of nothing is NaN
        lines = xp.full((*lines.shape[:-1], 1), np.nan, lines.dtype)
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
    a, b = (
        _restore(xp, xp.take_along_axis(lines, i, axis=-1)[..., 0], x.ndim, axis, True)
        for i in (low, high)
    )
    at = (x == a) | (x == b)
    if not skip_nan:
        at = xp.where(xp.isnan(a), xp.isnan(x), at)
    n = xp.sum(at, axis=resolve(x.ndim, axis), keepdims=True).astype(x.dtype)
    share = spread(xp, grad, x.shape, axis, keepdim) / n
    return (xp.where(at, share, xp.zeros_like(share)),)


@op(name="median", vjp=_median_vjp, infer=_reduced, takes="f")
def _median(xp, x, axis=None, keepdim=False, skip_nan=False):
    """The mean of the two middle elements."""
    lines, low, high = _middle(xp, x, axis, skip_nan)
    pair = xp.take_along_axis(lines, low, axis=-1) + xp.take_along_axis(lines, high, axis=-1)
    return _restore(xp, (pair / 2)[..., 0].astype(x.dtype), x.ndim, axis, keepdim)


def _with_index(x: Aval, axis: Any, keepdim: bool, skip_nan: bool) -> tuple[Aval, Aval]:
    value = _reduced(x, axis, keepdim)
    return value, aval(value.shape, dt.int64)


@op(name="median_min", infer=_with_index, takes="f")
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
    if mode == "avg":
        return _median(x, axis, keepdim, skip_nan)
    result = _median_min(x, axis, keepdim, skip_nan)
    return tuple(result) if isinstance(axis, int) else result[0]


@public(also={"input": "x", "dim": "axis"}, implies={"dim": {"mode": "min"}}, out=True)
def median(
    x: Tensor,
    axis: Axis | None = None,
    keepdim: bool = False,
    mode: str = "avg",
    name: str | None = None,
) -> Any:
    """The median over `axis`; mode "min" gives (lower middle element, its index)."""
    if x.dtype.is_integer and mode == "min":  # an element of x
        result = _middle_of(cast(x, dt.float64), axis, keepdim, mode, False, "median")
        if isinstance(result, tuple):
            return cast(result[0], x.dtype), result[1]
        return cast(result, x.dtype)
    if x.dtype is not dt.float64 and (mode == "avg" or not x.dtype.is_floating):
        x = cast(x, dt.float32)
    return _middle_of(x, axis, keepdim, mode, False, "median")


@public(takes="ifc")
def nanmedian(
    x: Tensor,
    axis: Axis | None = None,
    keepdim: bool = False,
    mode: str = "avg",
    name: str | None = None,
) -> Any:
    """The median over `axis` of what is not NaN."""
    if isinstance(axis, list | tuple) and not axis:
        raise InvalidArgument("[nanmedian] axis names no dimension. Received: an empty list")
    if not x.dtype.is_floating:
        whole = cast(x, dt.float64)
        result = _middle_of(whole, axis, keepdim, mode, True, "nanmedian")
        if isinstance(result, tuple):
            return cast(result[0], x.dtype), result[1]
        return cast(result, x.dtype)
    return _middle_of(x, axis, keepdim, mode, True, "nanmedian")


_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _check_quantile(x: Any, q: Any, axis: Any, **_: Any) -> None:
    reduced = resolve(x.ndim, axis)
    if 0 in [x.shape[a] for a in reduced] and 0 not in [
        d for i, d in enumerate(x.shape) if i not in reduced
    ]:
        raise ShapeMismatch("the quantile of no elements is not defined: a reduced dimension is 0")


@op(name="quantile", takes={"x": "f"}, check=_check_quantile)
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


def _quantiles_result(x: Tensor, q: Tensor, *rest: Any) -> Result:
    made = _quantiles(x, np.full(q.shape, 0.5), *rest)
    return Result(made._value.aval.shape, made.dtype)


@reads_contents(_quantiles_result)
def _quantiles_at(x: Tensor, q: Tensor, *rest: Any) -> Tensor:
    return _quantiles(x, q.numpy(), *rest)


def _quantiles(
    x: Tensor, q: Any, axis: Any, keepdim: bool, interpolation: str, skip_nan: bool, name: str
) -> Tensor:
    if interpolation not in _INTERPOLATIONS:
        raise InvalidArgument(
            f"[{name}] interpolation must be one of {_INTERPOLATIONS}. Received: {interpolation!r}"
        )
    if isinstance(q, Tensor):
        return _quantiles_at(x, q, axis, keepdim, interpolation, skip_nan, name)
    shares = np.asarray(q, np.float64)
    if shares.ndim > 1 or shares.size == 0 or shares.min() < 0 or shares.max() > 1:
        raise InvalidArgument(f"[{name}] q must be numbers in [0, 1]. Received: {q!r}")
    return _quantile(x, constant(shares), as_axis(axis), keepdim, interpolation, skip_nan)


@public(also={"input": "x", "dim": "axis"}, out=True)
def quantile(
    x: Tensor,
    q: float | Sequence[float] | Tensor,
    axis: Axis | None = None,
    keepdim: bool = False,
    interpolation: str = "linear",
    name: str | None = None,
) -> Tensor:
    """The q-th quantiles over `axis`; several q give a new first dimension."""
    return _quantiles(x, q, axis, keepdim, interpolation, False, "quantile")


@public
def nanquantile(
    x: Tensor,
    q: float | Sequence[float] | Tensor,
    axis: Axis | None = None,
    keepdim: bool = False,
    interpolation: str = "linear",
) -> Tensor:
    """The q-th quantiles over `axis` of what is not NaN."""
    return _quantiles(x, q, axis, keepdim, interpolation, True, "nanquantile")


# --- counting into bins -----------------------------------------------------------------------


def _bins(x: Tensor, bins: int, low: float, high: float, name: str) -> tuple[float, float]:
    """The range of a histogram: that of the data where it is not given."""
    if bins < 1:
        raise InvalidArgument(f"[{name}] bins must be at least 1. Received: {bins}")
    if low > high:
        raise InvalidArgument(f"[{name}] max must not be below min. Received: {low} and {high}")
    if low == high == 0:
        array = x.numpy()
        low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
    return (low - 0.5, high + 0.5) if low == high else (float(low), float(high))


@public(takes="ifc")
def histogram_bin_edges(
    input: Tensor, bins: int = 100, min: float = 0.0, max: float = 0.0, name: str | None = None
) -> Tensor:
    """The edges of equal bins from min to max, or over the range of the data."""
    low, high = _bins(input, bins, min, max, "histogram_bin_edges")
    return constant(np.linspace(low, high, bins + 1).astype(dt.default_float().numpy))


@op(name="histogram", inputs=("x", "low", "high", "weight"), differentiable=False)
def _histogram(xp, x, low, high, weight=None, bins=100):
    """How many elements (or how much weight) each of the equal bins gets."""
    values = x.reshape((-1,)).astype(np.float64)
    low, high = (xp.asarray(v).astype(np.float64) for v in (low, high))
    place = xp.floor((values - low) / (high - low) * bins)
    place = xp.where(values == high, bins - 1, place)
    inside = (values >= low) & (values <= high)
    index = xp.where(inside, place, bins).astype(np.int64)
    if weight is None:
        return _counted(xp, index, None, bins + 1)[:bins].astype(np.int64)
    kept = xp.where(inside, weight.reshape((-1,)), 0)
    return _counted(xp, index, kept, bins + 1)[:bins].astype(weight.dtype)


def _counted(xp: Any, index: Any, weight: Any, length: int) -> Any:
    if xp is np:
        return np.bincount(index, weight, length)
    return xp.bincount(index, weight, length=length)


@public(takes="ifc")
def histogram(
    input: Tensor,
    bins: int = 100,
    min: float = 0.0,
    max: float = 0.0,
    weight: Tensor | None = None,
    density: bool = False,
    name: str | None = None,
) -> Tensor:
    """How many elements fall into each of `bins` equal bins from min to max."""
    low, high = _bins(input, bins, min, max, "histogram")
    counts = _histogram(input, low, high, weight, bins)
    if not density:
        return counts
    from bireme.ops.math import multiply, over
    from bireme.ops.reduction import _sum

    counts = cast(counts, dt.default_float())
    return over(counts, multiply(_sum(counts, None, False), (high - low) / bins))


def _histogramdd_results(
    x: Tensor,
    bins: Any = 10,
    ranges: Any = None,
    density: bool = False,
    weights: Tensor | None = None,
    name: str | None = None,
) -> Any:
    each = [bins] * x.shape[-1] if isinstance(bins, int) else list(bins)
    edges = [b + 1 if isinstance(b, int) else b._value.aval.shape[0] for b in each]
    return (
        Result([n - 1 for n in edges], x.dtype),
        [Result([n], x.dtype) for n in edges],
    )


@public(takes="ifc")
@reads_contents(_histogramdd_results)
def histogramdd(
    x: Tensor,
    bins: int | Sequence[int] | Sequence[Tensor] = 10,
    ranges: Sequence[float] | None = None,
    density: bool = False,
    weights: Tensor | None = None,
    name: str | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """(counts, edges of each dimension) of the points in the rows of x; reads the data."""
    if x.ndim < 2:
        raise ShapeMismatch(f"[histogramdd] takes points in rows. Received: shape {x.shape}")
    if ranges is not None and len(ranges) != 2 * x.shape[-1]:
        raise InvalidArgument(
            f"[histogramdd] ranges holds two numbers for each of the {x.shape[-1]} dimensions. "
            f"Received: {ranges!r}"
        )
    points = x.numpy()
    sizes: Any = bins.tolist() if isinstance(bins, Tensor) else bins
    if isinstance(sizes, list | tuple):
        sizes = [b.numpy() if isinstance(b, Tensor) else b for b in sizes]
    limits = None
    if ranges is not None:
        limits = [(ranges[2 * i], ranges[2 * i + 1]) for i in range(points.shape[-1])]
    if not isinstance(density, bool):
        raise TypeMismatch(f"[histogramdd] density must be True or False. Received: {density!r}")
    if weights is not None and (weights.shape != x.shape[:-1] or weights.dtype is not x.dtype):
        raise ShapeMismatch(
            f"[histogramdd] weights must have the shape {x.shape[:-1]} and the dtype "
            f"{x.dtype.name}, one for each point. Received: {weights.shape}, {weights.dtype.name}"
        )
    share = None if weights is None else weights.numpy().reshape(-1)
    flat = points.reshape(-1, points.shape[-1])
    try:
        counts, edges = np.histogramdd(flat, sizes, limits, density, share)
    except (TypeError, ValueError) as e:
        raise InvalidArgument(f"[histogramdd] {e}. Received: bins={bins!r:.200}") from None
    to = x.dtype.numpy
    return constant(counts.astype(to)), [constant(e.astype(to)) for e in edges]


def _bincount_results(
    x: Tensor, weights: Tensor | None = None, minlength: int = 0, name: str | None = None
) -> Result:
    if weights is None:
        return Result([None], dt.int64)
    return Result([None], weights.dtype if weights.dtype.is_floating else dt.float64)


@public
@reads_contents(_bincount_results)
def bincount(
    x: Tensor, weights: Tensor | None = None, minlength: int = 0, name: str | None = None
) -> Tensor:
    """How often each number from 0 to the largest occurs in x, or the sum of its weights."""
    if not x.dtype.is_integer:
        raise TypeMismatch(
            f"[bincount] counts integers; write x.astype('int64'). Received: x of {x.dtype.name}"
        )
    if weights is not None and (weights.dtype.is_complex or weights.dtype is dt.bool_):
        raise TypeMismatch(
            f"[bincount] weights are integers or floats. Received: {weights.dtype.name}"
        )
    array = x.numpy()
    if array.ndim != 1 or (array.size and array.min() < 0):
        raise InvalidArgument(
            f"[bincount] takes a vector of numbers that are not negative. Received: shape {x.shape}"
        )
    if weights is None:
        return constant(np.bincount(array, minlength=minlength).astype(np.int64))
    counts = np.bincount(array, weights.numpy(), minlength)
    to = weights.dtype if weights.dtype.is_floating else dt.float64
    return constant(counts.astype(to.numpy))


# --- covariance -------------------------------------------------------------------------------


@op(name="cov", inputs=("x", "fweights", "aweights"), promote=None)
def _cov(xp, x, fweights=None, aweights=None, rowvar=True, ddof=True):
    """The covariance matrix of the variables in the rows (or columns) of x."""
    rows = x if rowvar or x.ndim < 2 else x.T
    rows = rows.reshape((1, -1)) if rows.ndim < 2 else rows
    weight = None
    if fweights is not None:
        weight = fweights.astype(x.dtype)
    if aweights is not None:
        share = aweights.astype(x.dtype)
        weight = share if weight is None else weight * share
    if weight is None:
        total: Any = rows.shape[1]
        mean = xp.mean(rows, axis=1, keepdims=True)
        factor = total - 1 if ddof else total
        if type(factor) is int:
            factor = max(factor, 0)  # no observations have no covariance: NaN
    else:
        total = xp.sum(weight)
        mean = xp.sum(rows * weight, axis=1, keepdims=True) / total
        if not ddof:
            factor = total
        elif aweights is None:
            factor = total - 1
        else:
            factor = total - xp.sum(weight * aweights.astype(x.dtype)) / total
    off = rows - mean
    product = xp.matmul(off if weight is None else off * weight, xp.conj(off).T) / factor
    return xp.squeeze(product).astype(x.dtype)


@public(spaces=("paddle.linalg",), method=True, takes="fc")
def cov(
    x: Tensor,
    rowvar: bool = True,
    ddof: bool = True,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
    name: str | None = None,
) -> Tensor:
    """The covariance matrix of the variables in the rows (columns if not rowvar) of x."""
    if x.ndim not in (1, 2):
        raise ShapeMismatch(f"[cov] takes a vector or a matrix. Received: {x.shape}")
    return _cov(x, fweights, aweights, rowvar, bool(ddof))


@public(spaces=("paddle.linalg",), method=True)
def corrcoef(x: Tensor, rowvar: bool = True, name: str | None = None) -> Tensor:
    """The correlation matrix of the variables in the rows (columns if not rowvar) of x."""
    matrix = cov(x, rowvar)
    if matrix.ndim == 0:
        from bireme.ops.math import over

        return over(matrix, matrix)
    return _normalised(matrix)


@op(name="corrcoef", takes="f")
def _normalised(xp, matrix):
    """A covariance matrix divided by the standard deviations, within [-1, 1]."""
    deviation = xp.sqrt(xp.diagonal(matrix))
    return xp.clip(matrix / deviation[:, None] / deviation[None, :], -1, 1)
