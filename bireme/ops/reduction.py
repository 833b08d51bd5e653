"""Sums, means, extrema and other reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.api.keywords import second_name
from bireme.api.public import another_name, public
from bireme.api.types import Axis, DTypeLike
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.host.arrays import Array, Namespace
from bireme.ops.axes import AxisOutOfRange, ints
from bireme.ops.math_unary import cast, conj_of

Axes = tuple[int, ...] | None


def as_axis(axis: Any) -> Any:
    """The user's axis as an attribute: None (all), an int or a tuple of ints."""
    if axis is None or axis.__class__ is int:
        return axis
    axes = ints(axis, "axis")
    return axes or None


def resolve(ndim: int, axis: Any) -> tuple[int, ...]:
    """The reduced axes, counted from the front, in order; all of them for None."""
    if axis is None:
        return tuple(range(ndim))
    axes = (axis,) if axis.__class__ is int else axis
    found = []
    for a in axes:
        if ndim == 0 and a in (0, -1):
            continue
        if not -ndim <= a < ndim:
            raise AxisOutOfRange(
                f"axis must be in [{-ndim}, {ndim - 1}] for a tensor of {ndim} dimensions, not {a}"
            )
        found.append(a % ndim)
    if len(set(found)) != len(found):
        raise InvalidArgument(f"axis names a dimension twice: {axes}")
    return tuple(sorted(found))


def _shape_without(shape: tuple[Any, ...], axes: tuple[int, ...], keepdim: bool) -> tuple[Any, ...]:
    if keepdim:
        return tuple([1 if i in axes else d for i, d in enumerate(shape)])
    return tuple([d for i, d in enumerate(shape) if i not in axes])


def _reduced(x: Aval, axis: Any = None, keepdim: bool = False, **_: Any) -> Aval:
    return aval(_shape_without(x.shape, resolve(x.ndim, axis), keepdim), x.dtype)


def _reduced_to(dtype: dt.DType) -> Any:
    def infer(x: Aval, axis: Any = None, keepdim: bool = False, **_: Any) -> Aval:
        return aval(_reduced(x, axis, keepdim).shape, dtype)

    return infer


def spread(
    xp: Namespace, reduced: Array, shape: tuple[Any, ...], axis: Any, keepdim: bool
) -> Array:
    """A reduced array again in the shape it was reduced from."""
    axes = resolve(len(shape), axis)
    if not keepdim:
        reduced = xp.expand_dims(reduced, axes)
    return xp.broadcast_to(reduced, shape)


def count(xp: Namespace, shape: tuple[Any, ...], axis: Any) -> Any:
    """How many elements each result comes from."""
    n: Any = 1
    for a in resolve(len(shape), axis):
        n = n * shape[a]
    return n if type(n) is int else xp.asarray(n)


def _wide(x: Any) -> Any:
    """Half precision is summed in float32."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x


# --- sums -------------------------------------------------------------------------------------


def sum_dtype(d: dt.DType) -> dt.DType:
    return dt.int64 if d in (dt.bool_, dt.int32) else d


def _sum_type(x: Aval, axis: Any, keepdim: bool) -> Aval:
    return aval(_reduced(x, axis, keepdim).shape, sum_dtype(x.dtype))


def _sum_vjp(xp: Any, grad: Any, types: Any, axis: Any, keepdim: bool) -> tuple[Any]:
    return (spread(xp, grad, types[0].shape, axis, keepdim),)


@op(name="sum", vjp=_sum_vjp, infer=_sum_type, amp="black")
def _sum(xp, x, axis=None, keepdim=False):
    """The sum over `axis`."""
    to = sum_dtype(dt.as_dtype(x.dtype)).numpy
    wide = x if x.dtype.kind in "iub" else _wide(x)
    total = xp.sum(
        wide, axis=resolve(x.ndim, axis), keepdims=keepdim, dtype=None if wide is not x else to
    )
    return total.astype(to)


@public(also={"input": "x", "dim": "axis"}, out=True)
def sum(
    x: Tensor,
    axis: Axis | None = None,
    dtype: DTypeLike | None = None,
    keepdim: bool = False,
    name: str | None = None,
) -> Tensor:
    """The sum over `axis`; small integers and bool are summed as int64."""
    if dtype is not None:
        if dtype.__class__ is bool:  # sum(x, 0, True, "float64"): the other order that Paddle takes
            other: Any = keepdim or None
            return sum(x, axis, other, bool(dtype))
        x = cast(x, dtype)
        return cast(_sum(x, as_axis(axis), keepdim), dtype)
    return _sum(x, as_axis(axis), keepdim)


def _nansum_vjp(xp: Any, grad: Any, x: Any, axis: Any, keepdim: bool) -> tuple[Any]:
    full = spread(xp, grad, x.shape, axis, keepdim)
    return (xp.where(xp.isnan(x), xp.zeros_like(full), full),)


@op(name="nansum", vjp=_nansum_vjp, infer=_sum_type, amp="black")
def _nansum(xp, x, axis=None, keepdim=False):
    """The sum over `axis` without NaNs."""
    kept = x if x.dtype.kind in "iub" else xp.where(xp.isnan(x), xp.zeros_like(x), x)
    total = xp.sum(_wide(kept), axis=resolve(x.ndim, axis), keepdims=keepdim)
    return total.astype(sum_dtype(dt.as_dtype(x.dtype)).numpy)


@public
def nansum(
    x: Tensor,
    axis: Axis | None = None,
    dtype: DTypeLike | None = None,
    keepdim: bool = False,
    name: str | None = None,
) -> Tensor:
    """The sum over `axis` with NaN counted as zero."""
    return _nansum(x if dtype is None else cast(x, dtype), as_axis(axis), keepdim)


def _mean_vjp(xp: Any, grad: Any, types: Any, axis: Any, keepdim: bool) -> tuple[Any]:
    shape = types[0].shape
    n = count(xp, shape, axis)
    share = grad / (n if type(n) is int else n.astype(grad.dtype))
    return (spread(xp, share, shape, axis, keepdim),)


@op(name="mean", vjp=_mean_vjp, infer=_reduced, amp="black")
def _mean(xp, x, axis=None, keepdim=False):
    """The mean over `axis`, in x's own type."""
    if xp is np:  # whose mean warns of having nothing to average
        total = np.sum(_wide(x), axis=resolve(x.ndim, axis), keepdims=keepdim)
        return (total / count(xp, x.shape, axis)).astype(x.dtype)
    mean = xp.mean(_wide(x), axis=resolve(x.ndim, axis), keepdims=keepdim)
    return mean.astype(x.dtype)


@public(also={"input": "x", "dim": "axis"}, out=True)
def mean(
    x: Tensor,
    axis: Axis | None = None,
    keepdim: bool = False,
    name: str | None = None,
    *,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """The mean over `axis`."""
    return _mean(x if dtype is None else cast(x, dtype), as_axis(axis), keepdim)


def _nanmean_vjp(xp: Any, grad: Any, x: Any, axis: Any, keepdim: bool) -> tuple[Any]:
    valid = ~xp.isnan(x)
    n = xp.sum(valid, axis=resolve(x.ndim, axis), keepdims=keepdim)
    full = spread(xp, grad / n.astype(grad.dtype), x.shape, axis, keepdim)
    return (xp.where(valid, full, xp.zeros_like(full)),)


@op(name="nanmean", vjp=_nanmean_vjp, promote="float", infer=_reduced, amp="black")
def _nanmean(xp, x, axis=None, keepdim=False):
    """The mean over `axis` without NaNs."""
    valid = ~xp.isnan(x)
    axes = resolve(x.ndim, axis)
    total = xp.sum(_wide(xp.where(valid, x, xp.zeros_like(x))), axis=axes, keepdims=keepdim)
    n = xp.sum(valid, axis=axes, keepdims=keepdim)
    return (total / n.astype(total.dtype)).astype(x.dtype)


@public
def nanmean(
    x: Tensor, axis: Axis | None = None, keepdim: bool = False, name: str | None = None
) -> Tensor:
    """The mean over `axis` of what is not NaN."""
    return _nanmean(x, as_axis(axis), keepdim)


def _prod_vjp(xp: Any, grad: Any, x: Any, out: Any, axis: Any, keepdim: bool) -> tuple[Any]:
    """out / x, and with a zero among the factors the product of the others."""
    axes = resolve(x.ndim, axis)
    zero = x == 0
    zeros = xp.sum(zero, axis=axes, keepdims=True)
    factors = xp.where(zero, xp.ones_like(x), x)
    others = xp.prod(factors, axis=axes, keepdims=True)
    slope = xp.where(zero, others, others / factors)
    slope = xp.where((zeros == 0) | ((zeros == 1) & zero), slope, xp.zeros_like(slope))
    return (spread(xp, grad, x.shape, axis, keepdim) * conj_of(xp, slope),)


@op(name="prod", vjp=_prod_vjp, infer=_reduced, amp="black")
def _prod(xp, x, axis=None, keepdim=False):
    """The product over `axis`."""
    wide = _wide(x)
    product = xp.prod(wide, axis=resolve(x.ndim, axis), keepdims=keepdim, dtype=wide.dtype)
    return product.astype(x.dtype)


@public(also={"input": "x", "dim": "axis"}, out_at=4)
def prod(
    x: Tensor,
    axis: Axis | None = None,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """The product over `axis`."""
    return _prod(x if dtype is None else cast(x, dtype), as_axis(axis), keepdim)


# --- extrema ----------------------------------------------------------------------------------


def _check_extremum(x: Any, axis: Any, keepdim: bool) -> None:
    if x.dtype.is_complex:
        raise TypeMismatch("complex numbers have no order")
    if 0 in [x.shape[a] for a in resolve(x.ndim, axis)]:
        raise ShapeMismatch("the extremum of no elements is not defined: a reduced dimension is 0")


def _extremum_vjp(xp: Any, grad: Any, x: Any, out: Any, axis: Any, keepdim: bool) -> tuple[Any]:
    """Shared evenly between equal extrema."""
    at = x == spread(xp, out, x.shape, axis, keepdim)
    if x.dtype.kind not in "iub":
        at = at | xp.isnan(x)
    n = xp.sum(at, axis=resolve(x.ndim, axis), keepdims=keepdim).astype(grad.dtype)
    share = spread(xp, grad / n, x.shape, axis, keepdim)
    return (xp.where(at, share, xp.zeros_like(share)),)


@op(name="max", vjp=_extremum_vjp, infer=_reduced, check=_check_extremum)
def _max(xp, x, axis=None, keepdim=False):
    """The largest element over `axis`."""
    return xp.max(x, axis=resolve(x.ndim, axis), keepdims=keepdim)


@op(name="min", vjp=_extremum_vjp, infer=_reduced, check=_check_extremum)
def _min(xp, x, axis=None, keepdim=False):
    """The smallest element over `axis`."""
    return xp.min(x, axis=resolve(x.ndim, axis), keepdims=keepdim)


@public
def max(
    x: Tensor, axis: Axis | None = None, keepdim: bool = False, name: str | None = None
) -> Tensor:
    """The largest element over `axis`; equal ones share the gradient."""
    return _max(x, as_axis(axis), keepdim)


@public
def min(
    x: Tensor, axis: Axis | None = None, keepdim: bool = False, name: str | None = None
) -> Tensor:
    """The smallest element over `axis`; equal ones share the gradient."""
    return _min(x, as_axis(axis), keepdim)


amax = another_name("amax", max, also={"input": "x", "dim": "axis"}, out=True)
amin = another_name("amin", min, also={"input": "x", "dim": "axis"}, out=True)


def _index_type(x: Aval, axis: Any, keepdim: bool, dtype: str) -> Aval:
    to = dt.as_dtype(dtype)
    if to not in (dt.int32, dt.int64):
        raise TypeMismatch("dtype must be 'int32' or 'int64'")
    return aval(_reduced(x, axis, keepdim).shape, to)


def _check_index(x: Any, axis: Any, keepdim: bool, dtype: str) -> None:
    _check_extremum(x, axis, keepdim)


def _position(xp: Any, x: Any, axis: Any, keepdim: bool, dtype: str, function: str) -> Any:
    to = dt.as_dtype(dtype).numpy
    if axis is None or x.ndim == 0:
        found = getattr(xp, function)(x.reshape((-1,)))
        return found.astype(to).reshape((1,) * x.ndim if keepdim else ())
    return getattr(xp, function)(x, axis=axis, keepdims=keepdim).astype(to)


@op(name="argmax", infer=_index_type, check=_check_index, differentiable=False)
def _argmax(xp, x, axis=None, keepdim=False, dtype="int64"):
    """Where the (first) largest element is."""
    return _position(xp, x, axis, keepdim, dtype, "argmax")


@op(name="argmin", infer=_index_type, check=_check_index, differentiable=False)
def _argmin(xp, x, axis=None, keepdim=False, dtype="int64"):
    """Where the (first) smallest element is."""
    return _position(xp, x, axis, keepdim, dtype, "argmin")


def _index_dtype(dtype: Any, name: str) -> str:
    if dtype is None:
        raise InvalidArgument(f"[{name}] dtype must be 'int32' or 'int64'. Received: None")
    return dt.as_dtype(dtype).name


@public(also={"input": "x"})
def argmax(
    x: Tensor,
    axis: int | None = None,
    keepdim: bool = False,
    dtype: DTypeLike = "int64",
    name: str | None = None,
    *,
    dim: int | None = None,
    keepdims: bool | None = None,
) -> Tensor:
    """Where the first largest element is, along `axis` or in the flattened tensor."""
    if dim is not None:
        axis = second_name("argmax", "axis", axis, "dim", dim)
    if keepdims is not None:
        keepdim = second_name("argmax", "keepdim", keepdim or None, "keepdims", keepdims)
    return _argmax(x, axis, keepdim, _index_dtype(dtype, "argmax"))


@public(also={"input": "x"})
def argmin(
    x: Tensor,
    axis: int | None = None,
    keepdim: bool = False,
    dtype: DTypeLike = "int64",
    name: str | None = None,
    *,
    dim: int | None = None,
    keepdims: bool | None = None,
) -> Tensor:
    """Where the first smallest element is, along `axis` or in the flattened tensor."""
    if dim is not None:
        axis = second_name("argmin", "axis", axis, "dim", dim)
    if keepdims is not None:
        keepdim = second_name("argmin", "keepdim", keepdim or None, "keepdims", keepdims)
    return _argmin(x, axis, keepdim, _index_dtype(dtype, "argmin"))


# --- truth and counting -----------------------------------------------------------------------


@op(name="all", infer=_reduced_to(dt.bool_), differentiable=False)
def _all(xp, x, axis=None, keepdim=False):
    """Whether every element is true."""
    return xp.all(x.astype(bool), axis=resolve(x.ndim, axis), keepdims=keepdim)


@op(name="any", infer=_reduced_to(dt.bool_), differentiable=False)
def _any(xp, x, axis=None, keepdim=False):
    """Whether some element is true."""
    return xp.any(x.astype(bool), axis=resolve(x.ndim, axis), keepdims=keepdim)


@op(name="count_nonzero", infer=_reduced_to(dt.int64), differentiable=False)
def _count_nonzero(xp, x, axis=None, keepdim=False):
    """How many elements are not zero."""
    return xp.sum(x != 0, axis=resolve(x.ndim, axis), keepdims=keepdim, dtype=np.int64)


@public(also={"input": "x", "dim": "axis"}, out=True)
def all(
    x: Tensor, axis: Axis | None = None, keepdim: bool = False, name: str | None = None
) -> Tensor:
    """Whether every element over `axis` is true."""
    return _all(x, as_axis(axis), keepdim)


@public(also={"input": "x", "dim": "axis"}, out=True)
def any(
    x: Tensor, axis: Axis | None = None, keepdim: bool = False, name: str | None = None
) -> Tensor:
    """Whether some element over `axis` is true."""
    return _any(x, as_axis(axis), keepdim)


@public
def count_nonzero(
    x: Tensor, axis: Axis | None = None, keepdim: bool = False, name: str | None = None
) -> Tensor:
    """How many elements over `axis` are not zero."""
    return _count_nonzero(x, as_axis(axis), keepdim)


# --- logsumexp, variance ----------------------------------------------------------------------


def _logsumexp_vjp(xp: Any, grad: Any, x: Any, out: Any, axis: Any, keepdim: bool) -> tuple[Any]:
    weight = xp.exp(x - spread(xp, out, x.shape, axis, keepdim))
    return (spread(xp, grad, x.shape, axis, keepdim) * conj_of(xp, weight),)


@op(name="logsumexp", vjp=_logsumexp_vjp, promote="float", infer=_reduced, amp="black")
def _logsumexp(xp, x, axis=None, keepdim=False):
    """log(sum(exp(x))) over `axis`, without overflow."""
    axes = resolve(x.ndim, axis)
    peak = xp.max(x, axis=axes, keepdims=True, initial=-np.inf)
    peak = xp.where(xp.isfinite(peak), peak, xp.zeros_like(peak))
    total = xp.sum(xp.exp(x - peak), axis=axes, keepdims=True)
    result = xp.log(total) + peak
    return result if keepdim else xp.squeeze(result, axis=axes)


@public(also={"input": "x", "dim": "axis"}, out=True, takes="ifc")
def logsumexp(
    x: Tensor, axis: Axis | None = None, keepdim: bool = False, name: str | None = None
) -> Tensor:
    """log(sum(exp(x))) over `axis`, without overflow."""
    return _logsumexp(x, as_axis(axis), keepdim)


def _centred(xp: Any, x: Any, axis: Any) -> Any:
    wide = _wide(x)
    return wide - xp.mean(wide, axis=resolve(x.ndim, axis), keepdims=True)


def _freedom(xp: Any, x: Any, axis: Any, correction: float) -> Any:
    n = count(xp, x.shape, axis)
    if type(n) is int:
        return xp.asarray(float(n) - correction if n > correction else 0.0).astype(x.dtype)
    return n.astype(x.dtype) - correction


def _var_vjp(xp: Any, grad: Any, x: Any, axis: Any, keepdim: bool, correction: float) -> tuple[Any]:
    share = spread(xp, grad, x.shape, axis, keepdim) / _freedom(xp, x, axis, correction)
    return (2 * share * _centred(xp, x, axis),)


def check_real(x: Any, *_: Any, **__: Any) -> None:
    """Raise for complex numbers."""
    if x.dtype.is_complex:
        raise TypeMismatch("takes real numbers; apply it to x.real() and x.imag(), or to x.abs()")


@op(name="var", vjp=_var_vjp, promote="float", infer=_reduced, check=check_real)
def _var(xp, x, axis=None, keepdim=False, correction=1.0):
    """The variance over `axis`; the sum of squares is divided by n - correction."""
    off = _centred(xp, x, axis)
    total = xp.sum(off * off, axis=resolve(x.ndim, axis), keepdims=keepdim)
    return (total / _freedom(xp, x, axis, correction)).astype(x.dtype)


def _std_vjp(
    xp: Any, grad: Any, x: Any, out: Any, axis: Any, keepdim: bool, correction: float
) -> tuple[Any]:
    share = spread(xp, grad / out, x.shape, axis, keepdim) / _freedom(xp, x, axis, correction)
    return (share * _centred(xp, x, axis),)


@op(name="std", vjp=_std_vjp, promote="float", infer=_reduced, check=check_real)
def _std(xp, x, axis=None, keepdim=False, correction=1.0):
    """The square root of the variance."""
    off = _centred(xp, x, axis)
    total = xp.sum(off * off, axis=resolve(x.ndim, axis), keepdims=keepdim)
    return xp.sqrt(total / _freedom(xp, x, axis, correction)).astype(x.dtype)


@public(also={"input": "x", "dim": "axis"}, out=True)
def var(
    x: Tensor,
    axis: Axis | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    name: str | None = None,
    *,
    correction: float = 1,
) -> Tensor:
    """The variance over `axis`, divided by n - 1 (by n with unbiased=False)."""
    if unbiased is not None:
        if correction != 1:
            raise InvalidArgument("[var] give either unbiased or correction. Received: both")
        correction = 1.0 if unbiased else 0.0
    return _var(x, as_axis(axis), keepdim, float(correction))


@public
def std(
    x: Tensor,
    axis: Axis | None = None,
    unbiased: bool = True,
    keepdim: bool = False,
    name: str | None = None,
) -> Tensor:
    """The standard deviation over `axis`, from the variance with n - 1 (n if not unbiased)."""
    return _std(x, as_axis(axis), keepdim, 1.0 if unbiased else 0.0)


@public
def reduce_as(x: Tensor, target: Tensor, name: str | None = None) -> Tensor:
    """x summed to the shape of `target`: the reverse of broadcasting."""
    have, want = x._value.aval.shape, target._value.aval.shape
    extra = len(have) - len(want)
    if extra < 0:
        raise ShapeMismatch(
            f"[reduce_as] target must not have more dimensions than x. Received: {x.shape} and "
            f"{target.shape}"
        )
    axes = list(range(extra))
    for i, d in enumerate(want):
        if d == have[i + extra]:
            continue
        if d != 1:
            raise ShapeMismatch(
                f"[reduce_as] x must be a broadcast of target. Received: {x.shape} and "
                f"{target.shape}"
            )
        axes.append(i + extra)
    if not axes:
        return x
    from bireme.ops.manipulation import reshape

    return reshape(_sum(x, tuple(axes), False), list(want))
