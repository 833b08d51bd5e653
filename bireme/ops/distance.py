"""Norms and distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.api.keywords import put
from bireme.api.public import public
from bireme.api.types import Axis, DTypeLike
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor, constant
from bireme.ops.axes import axis_in, ints
from bireme.ops.decomposition import inverse, svdvals
from bireme.ops.manipulation import moveaxis, squeeze, unsqueeze
from bireme.ops.math import minus, multiply, over
from bireme.ops.math_unary import _real_dtype, cast
from bireme.ops.open_sizes import surely
from bireme.ops.reduction import _max, _min, _reduced, _sum, _wide, as_axis, resolve, spread


def _norm_type(x: Aval, p: float, axis: Any, keepdim: bool) -> Aval:
    if not x.dtype.differentiable:
        raise TypeMismatch("takes floating or complex numbers; cast with .astype('float32')")
    return aval(_reduced(x, axis, keepdim).shape, _real_dtype(x.dtype))


def _norm_vjp(
    xp: Any, grad: Any, x: Any, out: Any, p: float, axis: Any, keepdim: bool
) -> tuple[Any]:
    size = xp.abs(x)
    safe = xp.where(size == 0, xp.ones_like(size), size)
    direction = x / safe  # 0 where x is 0
    grad = spread(xp, grad, x.shape, axis, keepdim)
    out = spread(xp, out, x.shape, axis, keepdim)
    if p == 0:
        return (xp.zeros_like(x),)
    if np.isinf(p):
        return (xp.where(size == out, grad * direction, xp.zeros_like(x)),)
    if p == 1:
        return (grad * direction,)
    ratio = xp.where(
        out == 0, xp.zeros_like(size), safe / xp.where(out == 0, xp.ones_like(out), out)
    )
    return (grad * direction * (ratio if p == 2 else ratio ** (p - 1)),)


@op(name="p_norm", vjp=_norm_vjp, infer=_norm_type, amp="black")
def _p_norm(xp, x, p=2.0, axis=None, keepdim=False):
    """(sum |x|**p) ** (1 / p) over `axis`."""
    axes = resolve(x.ndim, axis)
    size = xp.abs(_wide(x))
    if np.isinf(p) and 0 in [x.shape[a] for a in axes]:  # the size of nothing
        return xp.sum(size, axis=axes, keepdims=keepdim)
    if p == np.inf:
        return xp.max(size, axis=axes, keepdims=keepdim)
    if p == -np.inf:
        return xp.min(size, axis=axes, keepdims=keepdim)
    if p == 0:
        return xp.sum(size != 0, axis=axes, keepdims=keepdim).astype(size.dtype)
    if p == 1:
        return xp.sum(size, axis=axes, keepdims=keepdim)
    if p == 2:
        return xp.sqrt(xp.sum(size * size, axis=axes, keepdims=keepdim))
    return xp.sum(size**p, axis=axes, keepdims=keepdim) ** (1 / p)


@public(spaces=("paddle.linalg",), also={"dim": "axis", "ord": "p"}, out=True)
def vector_norm(
    x: Tensor,
    p: float = 2.0,
    axis: Axis | None = None,
    keepdim: bool = False,
    name: str | None = None,
    *,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """(sum |x|**p) ** (1 / p) over `axis`."""
    return _p_norm(x if dtype is None else cast(x, dtype), float(p), as_axis(axis), keepdim)


@public(spaces=("paddle.linalg",))
def matrix_norm(
    x: Tensor,
    p: float | str = "fro",
    axis: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    name: str | None = None,
) -> Tensor:
    """A norm of the matrices in two axes: 'fro', 'nuc', 1, -1, 2, -2, inf or -inf."""

    first, second = (axis_in(a, x.ndim, "matrix_norm") for a in ints(axis, "axis"))
    if p == "fro":
        return _p_norm(x, 2.0, (first, second), keepdim)
    if p in (1, -1, np.inf, -np.inf):
        down, across = (first, second) if p in (1, -1) else (second, first)
        sums = _p_norm(x, 1.0, down, True)
        return _shrink((_max if p > 0 else _min)(sums, across, True), first, second, keepdim)
    if p not in ("nuc", 2, -2):
        raise InvalidArgument(
            f"[norm] a matrix norm has p = 'fro', 'nuc', 1, -1, 2, -2, inf or -inf. Received: {p!r}"
        )
    values = svdvals(moveaxis(x, [first, second], [-2, -1]))
    pick = _sum if p == "nuc" else _max if p == 2 else _min
    out = pick(values, -1, False)
    return unsqueeze(out, sorted([first, second])) if keepdim else out


def _shrink(x: Tensor, first: int, second: int, keepdim: bool) -> Tensor:
    return x if keepdim else squeeze(x, [first, second])


@public(
    spaces=("paddle", "paddle.linalg"), also={"A": "x", "input": "x", "dim": "axis", "ord": "p"}
)
def norm(
    x: Tensor,
    p: float | str | None = None,
    axis: Axis | None = None,
    keepdim: bool = False,
    out: Tensor | None = None,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """A vector norm over one axis (or all), or a matrix norm over two."""
    result = _norm(x, p, axis, keepdim, dtype)
    return result if out is None else put(out, result, "norm")


def _norm(x: Tensor, p: Any, axis: Any, keepdim: bool, dtype: Any) -> Tensor:
    if dtype is not None:
        x = cast(x, dtype)
    where = as_axis(axis)
    if where.__class__ is tuple and len(where) == 1:
        where = where[0]
    if where.__class__ is tuple and len(where) == 2:
        return matrix_norm(x, 2.0 if p is None else p, where, keepdim)
    if p in (None, "fro"):
        p = 2.0
    if isinstance(p, str):
        raise InvalidArgument(
            f"[norm] p={p!r} needs the two axes of a matrix. Received: axis={axis!r}"
        )
    return _p_norm(x, float(p), where, keepdim)


@public(spaces=("paddle.linalg",), method=True)
def cond(x: Tensor, p: float | str | None = None, name: str | None = None) -> Tensor:
    """The condition number: the norm of x times the norm of its inverse."""
    if p in (None, 2, -2):
        values = svdvals(x)
        top, low = _max(values, -1, False), _min(values, -1, False)
        return over(low, top) if p == -2 else over(top, low)
    return multiply(matrix_norm(x, p), matrix_norm(inverse(x), p))


@public
def dist(x: Tensor, y: Tensor, p: float = 2, name: str | None = None) -> Tensor:
    """The p-norm of x - y."""

    return _p_norm(minus(x, y), float(p), None, False)


@public
def cdist(
    x: Tensor,
    y: Tensor,
    p: float = 2.0,
    compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
    name: str | None = None,
) -> Tensor:
    """The p-norm distance of every row of x to every row of y."""

    modes = (
        "use_mm_for_euclid_dist_if_necessary",
        "use_mm_for_euclid_dist",
        "donot_use_mm_for_euclid_dist",
    )
    if compute_mode not in modes:
        raise InvalidArgument(
            f"[cdist] compute_mode must be one of {modes}. Received: {compute_mode!r}"
        )
    if p < 0 or x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-1]:
        raise InvalidArgument(
            f"[cdist] takes p >= 0 and rows of one length. Received: p={p}, {x.shape}, {y.shape}"
        )
    if p == 2 and (
        compute_mode == modes[1]
        or (compute_mode == modes[0] and surely(lambda: x.shape[-2] > 25 or y.shape[-2] > 25))
    ):
        return _euclidean(x, y)
    return _p_norm(minus(unsqueeze(x, -2), unsqueeze(y, -3)), float(p), -1, False)


@op(name="cdist", promote="float_binary")
def _euclidean(xp, x, y):
    """Euclidean distances by one matrix product; never negative under the root."""
    squares = xp.sum(x * x, -1)[..., :, None] + xp.sum(y * y, -1)[..., None, :]
    product = xp.matmul(x, xp.swapaxes(y, -1, -2))
    distance = xp.maximum(squares - 2 * product, 0)
    safe = xp.where(distance == 0, 1, distance)
    return xp.where(distance == 0, 0, xp.sqrt(safe)).astype(x.dtype)


@public(method=False)
def pdist(x: Tensor, p: float = 2.0, name: str | None = None) -> Tensor:
    """The distances of all pairs of rows."""
    if x.ndim != 2:
        raise ShapeMismatch(f"[pdist] takes a matrix of rows. Received: {x.shape}")

    first, second = np.triu_indices(x.shape[0], 1)
    rows = [_rows(x, constant(i.astype(np.int64))) for i in (first, second)]
    return _p_norm(minus(*rows), float(p), -1, False)


@public(inplace=True, takes="fc")
def renorm(x: Tensor, p: float, axis: int, max_norm: float) -> Tensor:
    """x with each slice along `axis` scaled down to a p-norm of at most max_norm."""
    if p <= 0 or max_norm < 0:
        raise InvalidArgument(
            f"[renorm] p must be positive and max_norm 0 or more. Received: {p} and {max_norm}"
        )
    return _renorm(x, max_norm, float(p), axis_in(axis, x.ndim, "renorm"))


@op(name="renorm", inputs=("x", "max_norm"), infer=lambda x, *_, **__: x, amp="black")
def _renorm(xp, x, max_norm, p=2.0, axis=0):
    """Slices along `axis` scaled down to a norm."""
    others = tuple(i for i in range(x.ndim) if i != axis)
    size = xp.sum(xp.abs(x) ** p, axis=others, keepdims=True) ** (1 / p)
    limit = xp.asarray(max_norm).astype(x.dtype)
    return xp.where(size > limit, x * (limit / (size + 1e-7)), x).astype(x.dtype)


@op(name="take_rows", exact=True)
def _rows(xp, x, index):
    """The rows of x at `index`."""
    return xp.take(x, index, axis=0)
