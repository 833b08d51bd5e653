"""Padding: constant, reflected, repeated, circular."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.api.public import namespace
from bireme.api.types import Shape
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.ops.nn_support import one_of, pad_constant, scatter_add
from bireme.ops.open_sizes import surely

public = namespace("paddle.nn.functional")

_MODES = ("constant", "reflect", "replicate", "circular")


def _infer(x: Aval, value: Any = None, pairs: Any = (), **rest: Any) -> Aval:
    shape = tuple([n + lo + hi for n, (lo, hi) in zip(x.shape, pairs, strict=True)])
    return aval(shape, x.dtype)


def _constant_vjp(xp: Any, grad: Any, pairs: Any) -> tuple[Any, None]:
    return pad_constant(xp, grad, [(-lo, -hi) for lo, hi in pairs], 0), None


@op(name="pad_constant", inputs=("x", "value"), vjp=_constant_vjp, infer=_infer, exact=True)
def _pad_constant(xp, x, value, pairs=()):
    return pad_constant(xp, x, pairs, xp.asarray(value).astype(x.dtype))


def _sources(n: int, lo: int, hi: int, mode: str) -> np.ndarray:
    """For every place of a padded axis the place it is copied from."""
    places = np.arange(-lo, n + hi)
    if mode == "replicate":
        return places.clip(0, n - 1)
    if mode == "circular":
        return places % n
    period = max(2 * (n - 1), 1)
    places = np.abs(places) % period
    return np.where(places >= n, period - places, places)


def _copy_check(x: Aval, pairs: Any, mode: str) -> None:
    for n, (lo, hi) in zip(x.shape, pairs, strict=True):
        if lo < 0 or hi < 0:
            raise InvalidArgument(f"mode={mode!r} takes no negative padding, not {(lo, hi)}")
        if n == 0 and (lo or hi):
            raise ShapeMismatch("a dimension of size 0 has nothing to copy; use mode='constant'")
        if mode == "reflect" and (lo or hi) and surely(lambda n=n, w=(lo, hi): max(w) >= n > 0):
            raise ShapeMismatch(f"reflecting {(lo, hi)} elements needs more than {n} of them")
        if mode == "circular" and surely(lambda n=n, w=(lo, hi): max(w) > n):
            raise ShapeMismatch(f"repeating {(lo, hi)} elements needs at least so many, not {n}")


def _copy_vjp(xp: Any, grad: Any, types: Any, pairs: Any, mode: str) -> tuple[Any]:
    for axis, (n, (lo, hi)) in enumerate(zip(types[0].shape, pairs, strict=True)):
        if not lo and not hi:
            continue
        before = (slice(None),) * axis
        # Only what was copied is scattered; the body is a slice.
        total = grad[(*before, slice(lo, lo + n))]
        total = total.copy() if xp is np else total
        source = _sources(n, lo, hi, mode)
        edge = np.r_[0:lo, lo + n : lo + n + hi]
        total = scatter_add(xp, total, (*before, source[edge]), grad[(*before, edge)])
        grad = total
    return (grad,)


@op(
    name="pad_copy",
    inputs=("x",),
    vjp=_copy_vjp,
    check=_copy_check,
    infer=lambda x, pairs, mode: _infer(x, pairs=pairs),
    exact=True,
)
def _pad_copy(xp, x, pairs=(), mode="reflect"):
    for axis, (lo, hi) in enumerate(pairs):
        if lo or hi:
            x = xp.take(x, _sources(x.shape[axis], lo, hi, mode), axis=axis)
    return x


_SPATIAL = {"NCL": 2, "NCHW": 2, "NCDHW": 2, "NLC": 1, "NHWC": 1, "NDHWC": 1}


def _pairs(
    ndim: int, amounts: Sequence[int], mode: str, data_format: str | None, from_left: bool
) -> tuple[tuple[int, int], ...]:
    """(before, after) per axis from Paddle's flat list."""
    pairs = [(0, 0)] * ndim
    flat = [(int(amounts[i]), int(amounts[i + 1])) for i in range(0, len(amounts), 2)]
    if mode == "constant" and len(amounts) != 2 * (ndim - 2):
        if len(flat) > ndim:
            raise InvalidArgument(
                f"[pad] {len(amounts)} amounts are too many for a tensor of {ndim} dimensions. "
                f"Received: pad={list(amounts)}"
            )
        if len(flat) == ndim and from_left:
            return tuple(flat)
        for i, pair in enumerate(flat):
            pairs[ndim - 1 - i] = pair
        return tuple(pairs)
    if ndim not in (3, 4, 5) or len(flat) != ndim - 2:
        raise InvalidArgument(
            f"[pad] mode={mode!r} takes two amounts per spatial dimension of a tensor with 3, 4 or "
            f"5 dimensions. Received: {len(amounts)} amounts for {ndim} dimensions"
        )
    layouts = [f for f in _SPATIAL if len(f) == ndim]
    first = _SPATIAL[one_of("pad", "data_format", data_format or layouts[0], layouts)]
    for i, pair in enumerate(flat):
        pairs[first + ndim - 3 - i] = pair
    return tuple(pairs)


@public(also={"input": "x"})
def pad(
    x: Tensor,
    pad: Shape,
    mode: str = "constant",
    value: float = 0.0,
    data_format: str | None = None,
    pad_from_left_axis: bool = True,
    name: str | None = None,
) -> Tensor:
    """`x` with elements added before and after its dimensions; negative amounts cut.

    Two amounts per spatial dimension, the last dimension first; or two per dimension of `x`, the
    first dimension first (the last with pad_from_left_axis=False).
    """
    one_of("pad", "mode", mode, _MODES)
    amounts: Any = pad
    if hasattr(amounts, "tolist"):
        amounts = amounts.tolist()
    if isinstance(amounts, int):
        amounts = [amounts] * (2 * max(x.ndim - 2, 1))
    if len(amounts) % 2:
        raise InvalidArgument(f"[pad] amounts come in pairs. Received: pad={list(amounts)}")
    pairs = _pairs(x.ndim, amounts, mode, data_format, pad_from_left_axis)
    if mode == "constant":
        return _pad_constant(x, float(value), pairs)
    return _pad_copy(x, pairs, mode)


@public
def zeropad2d(
    x: Tensor, padding: Shape, data_format: str = "NCHW", name: str | None = None
) -> Tensor:
    """Zeros around [N, C, H, W]: padding is left, right, top, bottom, or one number."""
    if isinstance(padding, int):
        padding = [padding] * 4
    return pad(x, padding, "constant", 0.0, data_format)
