"""Running sums, products and extrema along an axis; differences and integrals."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.api.public import public
from bireme.api.types import DTypeLike
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.host import jax_door
from bireme.ops.axes import axis_in, number
from bireme.ops.math_unary import cast
from bireme.ops.reduction import check_real


def _flat(x: Tensor, axis: Any) -> tuple[Tensor, int]:
    """x and its axis; the flattened x where no axis is given."""
    if axis is not None:
        return x, number(axis)
    return (x, 0) if x.ndim == 1 else (_flatten_all(x), 0)


def _flatten_all_vjp(xp: Any, grad: Any, types: Any) -> tuple[Any]:
    return (xp.reshape(grad, types[0].shape),)


@op(name="flatten_all", vjp=_flatten_all_vjp, infer=lambda x: aval((x.size,), x.dtype), exact=True)
def _flatten_all(xp, x):
    """x in one dimension."""
    return xp.reshape(x, (-1,))


def _check_axis(x: Any, axis: int, **_: Any) -> None:
    axis_in(axis, x.ndim, "axis")


def _sum_dtype(d: dt.DType) -> dt.DType:
    return dt.int64 if d.is_integer or d is dt.bool_ else d


def _axis(x: Any, axis: int) -> int | None:
    """None for a 0-d array, which NumPy scans as a flat one."""
    return None if x.ndim == 0 else axis


def _cumsum_vjp(xp: Any, grad: Any, axis: int) -> tuple[Any]:
    if grad.ndim == 0:
        return (grad,)
    backwards = xp.cumsum(xp.flip(grad, axis), axis=axis, dtype=grad.dtype)
    return (xp.flip(backwards, axis),)


@op(
    name="cumsum",
    vjp=_cumsum_vjp,
    check=_check_axis,
    amp="black",
    infer=lambda x, axis: aval(x.shape, _sum_dtype(x.dtype)),
)
def _cumsum(xp, x, axis=0):
    """Running sums along `axis`."""
    to = _sum_dtype(dt.as_dtype(x.dtype)).numpy
    return xp.cumsum(x, axis=_axis(x, axis), dtype=to).reshape(x.shape)


@public(also={"input": "x", "dim": "axis"}, out=True)
def cumsum(
    x: Tensor, axis: int | None = None, dtype: DTypeLike | None = None, name: str | None = None
) -> Tensor:
    """Running sums along `axis`, or over the flattened tensor."""
    return _cumsum(*_flat(x if dtype is None else cast(x, dtype), axis))


@op(name="cumprod", check=_check_axis, infer=lambda x, axis: x, amp="black")
def _cumprod(xp, x, axis=0):
    """Running products along `axis`."""
    return xp.cumprod(x, axis=_axis(x, axis), dtype=x.dtype).reshape(x.shape)


@public(also={"input": "x"}, out=True)
def cumprod(
    x: Tensor, dim: int | None = None, *, dtype: DTypeLike | None = None, name: str | None = None
) -> Tensor:
    """Running products along `dim`, or over the flattened tensor."""
    return _cumprod(*_flat(x if dtype is None else cast(x, dtype), dim))


def _running_types(x: Aval, axis: int, dtype: str) -> tuple[Aval, Aval]:
    if x.dtype.is_complex:
        raise TypeMismatch("complex numbers have no order")
    to = dt.as_dtype(dtype)
    if to not in (dt.int32, dt.int64):
        raise TypeMismatch("dtype must be 'int32' or 'int64'")
    return x, aval(x.shape, to)


def _running(xp: Any, x: Any, axis: int, dtype: str, kind: str) -> tuple[Any, Any]:
    """(running extremum, where it is); of equal ones the last counts."""
    to = dt.as_dtype(dtype).numpy
    if x.ndim == 0:
        return x, xp.zeros_like(x).astype(to)
    axis %= x.ndim
    extreme = _accumulate(xp, kind, x, axis)
    here = x == extreme
    if x.dtype.kind not in "iub":
        here = here | xp.isnan(x)
    places = xp.arange(x.shape[axis]).reshape((-1,) + (1,) * (x.ndim - axis - 1))
    index = _accumulate(xp, "max", xp.where(here, places, xp.zeros_like(places)), axis)
    # Taking the values by index makes the derived gradient flow to just these elements.
    return xp.take_along_axis(x, index, axis=axis), index.astype(to)


def _accumulate(xp: Any, kind: str, x: Any, axis: int) -> Any:
    if xp is np:
        return (np.maximum if kind == "max" else np.minimum).accumulate(x, axis=axis)
    lax = jax_door.jax().lax
    return (lax.cummax if kind == "max" else lax.cummin)(lax.stop_gradient(x), axis=axis)


@op(name="cummax", check=_check_axis, infer=_running_types)
def _cummax(xp, x, axis=0, dtype="int64"):
    """Running maxima and where they are."""
    return _running(xp, x, axis, dtype, "max")


@op(name="cummin", check=_check_axis, infer=_running_types)
def _cummin(xp, x, axis=0, dtype="int64"):
    """Running minima and where they are."""
    return _running(xp, x, axis, dtype, "min")


@public
def cummax(
    x: Tensor, axis: int | None = None, dtype: DTypeLike = "int64", name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Running maxima along `axis` and where they are."""
    return tuple(_cummax(*_flat(x, axis), dt.as_dtype(dtype).name))  # type: ignore[return-value]


@public
def cummin(
    x: Tensor, axis: int | None = None, dtype: DTypeLike = "int64", name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Running minima along `axis` and where they are."""
    return tuple(_cummin(*_flat(x, axis), dt.as_dtype(dtype).name))  # type: ignore[return-value]


def _check_real_axis(x: Any, axis: int) -> None:
    _check_axis(x, axis)
    check_real(x)


@op(
    name="logcumsumexp",
    check=_check_real_axis,
    promote="float",
    infer=lambda x, axis: x,
    amp="black",
)
def _logcumsumexp(xp, x, axis=0):
    """Running log(sum(exp(x))) along `axis`."""
    if x.ndim == 0:
        return x
    if xp is np:
        return np.logaddexp.accumulate(x, axis=axis)
    return jax_door.jax().lax.cumlogsumexp(x, axis=axis % x.ndim)


@public(takes="ifc")
def logcumsumexp(
    x: Tensor, axis: int | None = None, dtype: DTypeLike | None = None, name: str | None = None
) -> Tensor:
    """Running log(sum(exp(x))) along `axis`, or over the flattened tensor."""
    return _logcumsumexp(*_flat(x if dtype is None else cast(x, dtype), axis))


def _diff_check(x: Any, prepend: Any, append: Any, **_: Any) -> None:
    for name, part in (("prepend", prepend), ("append", append)):
        if part is not None and (part.ndim != x.ndim or x.ndim == 0):
            raise ShapeMismatch(
                f"{name} is put beside x along axis, so both have as many dimensions, at least one"
            )


@op(name="diff", inputs=("x", "prepend", "append"), promote="binary", check=_diff_check)
def _diff(xp, x, prepend=None, append=None, n=1, axis=-1):
    """Differences of neighbours, n times."""
    parts = [p for p in (prepend, x, append) if p is not None]
    whole = parts[0] if len(parts) == 1 else xp.concatenate(parts, axis=axis)
    return xp.diff(whole, n=n, axis=axis)


@public(also={"input": "x", "dim": "axis"}, out=True)
def diff(
    x: Tensor,
    n: int = 1,
    axis: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
    name: str | None = None,
) -> Tensor:
    """Differences of neighbours along `axis`, taken n times."""
    if n < 1:
        raise InvalidArgument(f"[diff] n must be at least 1. Received: {n}")
    return _diff(x, prepend, append, n, axis_in(axis, x.ndim, "diff"))


def _neighbours(xp: Any, y: Any, axis: int) -> tuple[Any, Any]:
    first = [slice(None)] * y.ndim
    second = [slice(None)] * y.ndim
    first[axis], second[axis] = slice(None, -1), slice(1, None)
    return y[tuple(first)], y[tuple(second)]


def _trapezoids(xp: Any, y: Any, x: Any, dx: Any, axis: int) -> Any:
    left, right = _neighbours(xp, y, axis)
    if x is None:
        width = 1 if dx is None else dx
    elif x.ndim == 1:
        width = xp.diff(x).reshape((-1,) + (1,) * (y.ndim - axis % y.ndim - 1))
    else:
        width = xp.diff(x, axis=axis)
    return width * (left + right) / 2


@op(name="trapezoid", inputs=("y", "x", "dx"), promote="float_binary")
def _trapezoid(xp, y, x=None, dx=None, axis=-1):
    """The integral by the trapezoid rule."""
    return xp.sum(_trapezoids(xp, y, x, dx, axis), axis=axis)


@op(name="cumulative_trapezoid", inputs=("y", "x", "dx"), promote="float_binary")
def _cumulative_trapezoid(xp, y, x=None, dx=None, axis=-1):
    """Running integrals by the trapezoid rule."""
    return xp.cumsum(_trapezoids(xp, y, x, dx, axis), axis=axis)


def _one_spacing(x: Any, dx: Any, name: str) -> None:
    if x is not None and dx is not None:
        raise InvalidArgument(f"[{name}] give x or dx, not both. Received: both")


@public(takes="fc")
def trapezoid(
    y: Tensor,
    x: Tensor | None = None,
    dx: float | None = None,
    axis: int = -1,
    name: str | None = None,
) -> Tensor:
    """The integral of y along `axis` by the trapezoid rule, at points x or dx apart."""
    _one_spacing(x, dx, "trapezoid")
    return _trapezoid(y, x, dx, axis_in(axis, y.ndim, "trapezoid"))


@public(takes="fc")
def cumulative_trapezoid(
    y: Tensor,
    x: Tensor | None = None,
    dx: float | None = None,
    axis: int = -1,
    name: str | None = None,
) -> Tensor:
    """Running integrals of y along `axis` by the trapezoid rule."""
    _one_spacing(x, dx, "cumulative_trapezoid")
    return _cumulative_trapezoid(y, x, dx, axis_in(axis, y.ndim, "cumulative_trapezoid"))
