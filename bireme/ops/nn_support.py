"""Helpers that the nn.functional families share: types, windows, reductions of losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.host import jax_door
from bireme.host.arrays import Array, Namespace

_LOW_PRECISION = {dt.float16.numpy, dt.bfloat16.numpy}


def wide(xp: Namespace, x: Array | None) -> Any:
    """`x` in float32 where it is half precision: statistics and sums need the digits."""
    return x.astype(np.float32) if x is not None and x.dtype in _LOW_PRECISION else x


def like(x: Array, reference: Array) -> Array:
    """`x` in the dtype of `reference`."""
    return x if x.dtype == reference.dtype else x.astype(reference.dtype)


def need_float(what: str, x: Aval | Tensor) -> None:
    """Raise unless the type `x` is floating."""
    if not x.dtype.is_floating:
        raise TypeMismatch(
            f"'{what}' must be a floating tensor, not {x.dtype.name}; cast it with "
            ".astype('float32')"
        )


def need_integer(what: str, x: Aval | Tensor) -> None:
    """Raise unless the type `x` is an integer type."""
    if not x.dtype.is_integer:
        raise TypeMismatch(
            f"'{what}' must hold integers, not {x.dtype.name}; cast it with .astype('int64')"
        )


def need_rank(what: str, x: Aval | Tensor, *ranks: int) -> None:
    """Raise unless `x` has one of these ranks."""
    if x.ndim not in ranks:
        allowed = " or ".join(map(str, ranks))
        raise ShapeMismatch(f"'{what}' must have {allowed} dimensions, not {x.ndim}")


def normal_axis(axis: int, ndim: int) -> int:
    """A non-negative axis, or a clear error."""
    if not -ndim <= axis < ndim:
        raise InvalidArgument(
            f"axis must be in [{-ndim}, {ndim - 1}] for a tensor of {ndim} dimensions, not {axis}"
        )
    return axis % ndim


def one_of(function: str, what: str, value: Any, allowed: Sequence[Any]) -> Any:
    """`value`, which must be one of `allowed`."""
    if value not in allowed:
        shown = ", ".join(map(repr, allowed))
        raise InvalidArgument(f"[{function}] {what} must be one of {shown}. Received: {value!r}")
    return value


def check_reduction(function: str, reduction: str) -> None:
    one_of(function, "reduction", reduction, ("mean", "sum", "none"))


def ints(function: str, what: str, value: Any, n: int) -> tuple[int, ...]:
    """`n` integers from one number, a list of `n`, or a tensor of them."""
    if value.__class__ is int:
        return (value,) * n
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        found = tuple([int(v) for v in value])
        if len(found) == 1:
            found = found * n
        if len(found) == n:
            return found
    elif isinstance(value, int | np.integer):
        return (int(value),) * n
    raise InvalidArgument(
        f"[{function}] {what} must be an integer or {n} integers. Received: {value!r}"
    )


def reduce_loss(xp: Namespace, loss: Array, reduction: str) -> Array:
    """The mean or sum; integers have integer means."""
    if reduction == "mean":
        # NumPy's mean warns of having nothing to average.
        mean = np.asarray(np.nan) if xp is np and loss.size == 0 else xp.mean(loss)
        return mean.astype(loss.dtype) if loss.dtype.kind in "iu" else mean
    if reduction == "sum":
        return xp.sum(loss)
    return loss


def spread_loss_grad(xp: Namespace, grad: Array, shape: tuple[Any, ...], reduction: str) -> Array:
    """The gradient of every element's loss from that of the reduced loss; it broadcasts."""
    if reduction != "mean":
        return grad
    count: Any = 1
    for d in shape:
        count = count * d
    if count.__class__ is int:
        return grad / max(count, 1)
    return grad / xp.asarray(count).astype(grad.dtype)


def scatter_add(xp: Namespace, into: Any, index: Any, values: Any) -> Array:
    """`into` with `values` added at `index`; repeated places add up. `into` may be reused.

    Half precision is added up in float32 and rounded once: a sum of bfloat16 ones would end at 256.
    """
    if xp is np:
        np.add.at(into, index, values)
        return into
    return like(wide(xp, into).at[index].add(wide(xp, values)), into)


def place_strided(
    xp: Namespace, x: Array, shape: tuple[Any, ...], starts: Sequence[int], steps: Sequence[int]
) -> Array:
    """Zeros of `shape` with `x` at start, start + step, …: a strided slice turned round.

    The last len(starts) axes are placed, the others kept whole.
    """
    lead = x.ndim - len(starts)
    if xp is np:
        out = np.zeros(shape, x.dtype)
        where = [
            slice(s, s + (n - 1) * t + 1, t)
            for s, t, n in zip(starts, steps, x.shape[lead:], strict=True)
        ]
        out[(..., *where)] = x
        return out
    config: list[tuple[Any, Any, int]] = [(0, 0, 0)] * lead
    for s, t, n, full in zip(starts, steps, x.shape[lead:], shape[lead:], strict=True):
        config.append((s, full - s - ((n - 1) * t + 1), t - 1))
    return jax_door.jax().lax.pad(x, xp.zeros((), x.dtype), config)


def strided_slice(
    x: Any, starts: Sequence[int], counts: Sequence[Any], steps: Sequence[int]
) -> Any:
    """Of the last len(starts) axes: `count` elements from `start`, `step` apart."""
    where = [
        slice(s, s + (n - 1) * t + 1, t) for s, n, t in zip(starts, counts, steps, strict=True)
    ]
    return x[(..., *where)]


def pad_constant(xp: Namespace, x: Array, pairs: Sequence[tuple[int, int]], value: Any) -> Array:
    """Pad by (before, after) on every axis; negative amounts cut."""
    if any(lo < 0 or hi < 0 for lo, hi in pairs):
        cut = tuple([slice(max(-lo, 0), -max(-hi, 0) or None) for lo, hi in pairs])
        x = x[cut]
        pairs = [(max(lo, 0), max(hi, 0)) for lo, hi in pairs]
    if not any(lo or hi for lo, hi in pairs):
        return x
    return xp.pad(x, pairs, constant_values=value)


def channel_last(
    function: str, data_format: str, first: Sequence[str], last: Sequence[str]
) -> bool:
    """Whether the channel axis is the last one; anything but the named layouts is an error."""
    if data_format in first:
        return False
    if data_format in last:
        return True
    shown = ", ".join(repr(f) for f in (*first, *last))
    raise InvalidArgument(
        f"[{function}] data_format must be one of {shown}. Received: {data_format!r}"
    )


def channel_shape(ndim: int, axis: int) -> tuple[int, ...]:
    """The shape that lets a vector of channels broadcast along `axis`."""
    return tuple([-1 if i == axis else 1 for i in range(ndim)])
