"""Pooling to a given size, fractional windows, and the inverse of max pooling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bireme.api.public import namespace
from bireme.api.types import IntOrPair, IntOrSingle, IntOrTriple, OutputSize, Padding
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.op import op
from bireme.core.random import next_key
from bireme.core.requirements import InRange
from bireme.core.tensor import Tensor
from bireme.ops.nn_support import ints, need_float, need_integer
from bireme.ops.pooling import (
    _FORMATS,
    Plan,
    _avg_pool,
    _axes,
    _max_pool,
    _max_pool_with_index,
)
from bireme.ops.pooling_windows import OpenPlan
from bireme.ops.random_bits import uniform

public = namespace("paddle.nn.functional")

# --- adaptive -----------------------------------------------------------------------------------


def _sizes(function: str, output_size: Any, n: int, space: list[Any]) -> tuple[int, ...]:
    if output_size is None:
        return tuple(space)
    if isinstance(output_size, list | tuple) and None in output_size:
        if len(output_size) != n:
            raise InvalidArgument(
                f"[{function}] output_size must be an integer or {n} integers. Received: "
                f"{output_size!r}"
            )
        return tuple([s if o is None else int(o) for o, s in zip(output_size, space, strict=True)])
    return ints(function, "output_size", output_size, n)


def _uneven(starts: Any, ends: Any) -> Plan:
    """A plan for windows [start, end); shorter ones repeat their last element."""
    longest = int(max(e - s for s, e in zip(starts, ends, strict=True)))
    return tuple(
        tuple(int(min(s + i, e - 1)) for s, e in zip(starts, ends, strict=True))
        for i in range(longest)
    )


def _adaptive_plan(n: Any, count: Any) -> Any:
    if type(n) is not int and not (type(count) is int and count == 1):
        return OpenPlan(n, count, _adaptive_plan)
    if n % count == 0:
        return (n // count, n // count, count)
    places = np.arange(count)
    return _uneven(places * n // count, -(-(places + 1) * n // count))


def _adaptive(
    function: str, n: int, x: Tensor, output_size: Any, data_format: str
) -> tuple[Any, Any, Any]:
    axes = _axes(function, x, n, data_format)
    space = [x._value.aval.shape[a] for a in axes]
    sizes = _sizes(function, output_size, n, space)
    if 0 in space:
        raise ShapeMismatch(
            f"[{function}] an image without pixels has no windows. Received: shape {x.shape}"
        )
    if any(type(s) is int and s < 1 for s in sizes):
        raise InvalidArgument(
            f"[{function}] output_size must be positive. Received: {output_size!r}"
        )
    plans = tuple([_adaptive_plan(s, o) for s, o in zip(space, sizes, strict=True)])
    return axes, plans, ((0, 0),) * n


def _adaptive_avg(function: str, n: int, x: Tensor, output_size: Any, data_format: str) -> Tensor:
    need_float("x", x)
    how = _adaptive(function, n, x, output_size, data_format)
    return _avg_pool(x, *how, how[2])


@public(also={"input": "x"})
def adaptive_avg_pool1d(x: Tensor, output_size: OutputSize, name: str | None = None) -> Tensor:
    """The mean over `output_size` windows that cover [N, C, L]."""
    return _adaptive_avg("adaptive_avg_pool1d", 1, x, output_size, "NCL")


@public(also={"input": "x"})
def adaptive_avg_pool2d(
    x: Tensor, output_size: OutputSize, data_format: str = "NCHW", name: str | None = None
) -> Tensor:
    """The mean over a grid of `output_size` windows that cover [N, C, H, W]."""
    return _adaptive_avg("adaptive_avg_pool2d", 2, x, output_size, data_format)


@public(also={"input": "x"})
def adaptive_avg_pool3d(
    x: Tensor, output_size: OutputSize, data_format: str = "NCDHW", name: str | None = None
) -> Tensor:
    """The mean over a grid of `output_size` windows that cover [N, C, D, H, W]."""
    return _adaptive_avg("adaptive_avg_pool3d", 3, x, output_size, data_format)


def _adaptive_max(function: str, n: int, x: Tensor, output_size: Any, return_mask: bool) -> Any:
    how = _adaptive(function, n, x, output_size, _FORMATS[n][0])
    return tuple(_max_pool_with_index(x, *how)) if return_mask else _max_pool(x, *how)


@public(also={"input": "x", "return_indices": "return_mask"}, takes="fc")
def adaptive_max_pool1d(
    x: Tensor, output_size: OutputSize, return_mask: bool = False, name: str | None = None
) -> Any:
    """The maximum of `output_size` windows that cover [N, C, L]."""
    return _adaptive_max("adaptive_max_pool1d", 1, x, output_size, return_mask)


@public(also={"input": "x", "return_indices": "return_mask"}, takes="fc")
def adaptive_max_pool2d(
    x: Tensor, output_size: OutputSize, return_mask: bool = False, name: str | None = None
) -> Any:
    """The maximum of a grid of `output_size` windows that cover [N, C, H, W]."""
    return _adaptive_max("adaptive_max_pool2d", 2, x, output_size, return_mask)


@public(also={"input": "x", "return_indices": "return_mask"}, takes="fc")
def adaptive_max_pool3d(
    x: Tensor, output_size: OutputSize, return_mask: bool = False, name: str | None = None
) -> Any:
    """The maximum of a grid of `output_size` windows that cover [N, C, D, H, W]."""
    return _adaptive_max("adaptive_max_pool3d", 3, x, output_size, return_mask)


# --- fractional ---------------------------------------------------------------------------------


def _fractional_plan(n: int, count: int, window: int | None, u: float) -> Plan:
    """Pseudo-random windows: of the given size, or from one start to the next."""
    if window is None:
        alpha = n / count
        base = n // count
        # The largest shifts that keep the first window short and the last one inside.
        u *= min((base + 2) / alpha - 1, (n + 1 - base) / alpha - (count - 1))
    else:
        alpha = (n - window) / max(count - 1, 1)
    edges = np.array([int((i + u) * alpha) - int(u * alpha) for i in range(count + 1)])
    starts = edges[:-1]
    ends = edges[1:] if window is None else starts + window
    return _uneven(starts, np.minimum(np.maximum(ends, starts + 1), n))


def _fractional(
    function: str,
    n: int,
    x: Tensor,
    output_size: Any,
    kernel_size: Any,
    random_u: float | None,
    return_mask: bool,
) -> Any:
    axes = _axes(function, x, n, _FORMATS[n][0])
    space = [x._value.aval.shape[a] for a in axes]
    sizes = _sizes(function, output_size, n, space)
    windows = (None,) * n if kernel_size is None else ints(function, "kernel_size", kernel_size, n)
    if random_u is None:
        random_u = float(uniform(np, *next_key(), (1,))[0])
    if not 0.0 < random_u < 1.0:
        raise InvalidArgument(f"[{function}] random_u must be in (0, 1). Received: {random_u}")
    for s, o, k in zip(space, sizes, windows, strict=True):
        if o < 1 or o + (k or 1) - 1 > s:
            raise InvalidArgument(
                f"[{function}] output_size {sizes} with windows {kernel_size} does not fit into "
                f"{list(space)}. Received: x of shape {x.shape}"
            )
    plans = tuple(
        [_fractional_plan(s, o, k, random_u) for s, o, k in zip(space, sizes, windows, strict=True)]
    )
    how = (axes, plans, ((0, 0),) * n)
    return tuple(_max_pool_with_index(x, *how)) if return_mask else _max_pool(x, *how)


@public(takes="fc")
def fractional_max_pool2d(
    x: Tensor,
    output_size: OutputSize,
    kernel_size: IntOrPair | None = None,
    random_u: float | None = None,
    return_mask: bool = False,
    name: str | None = None,
) -> Any:
    """The maximum of pseudo-random windows that bring [N, C, H, W] to `output_size`."""
    return _fractional(
        "fractional_max_pool2d", 2, x, output_size, kernel_size, random_u, return_mask
    )


@public(takes="fc")
def fractional_max_pool3d(
    x: Tensor,
    output_size: OutputSize,
    kernel_size: IntOrTriple | None = None,
    random_u: float | None = None,
    return_mask: bool = False,
    name: str | None = None,
) -> Any:
    """The maximum of pseudo-random windows that bring [N, C, D, H, W] to `output_size`."""
    return _fractional(
        "fractional_max_pool3d", 3, x, output_size, kernel_size, random_u, return_mask
    )


# --- max pooling undone -------------------------------------------------------------------------


def _rows(xp: Any, x: Any) -> Any:
    return xp.reshape(x, (x.shape[0] * x.shape[1], -1))


def _unpool_vjp(xp: Any, grad: Any, indices: Any, types: Any, space: Any) -> tuple[Any, None]:
    taken = xp.take_along_axis(_rows(xp, grad), _rows(xp, indices).astype(np.int64), axis=1)
    return xp.reshape(taken, types[0].shape), None


def _unpool_check(x: Aval, indices: Aval, space: Any) -> None:
    need_integer("indices", indices)
    if x.shape != indices.shape:
        raise ShapeMismatch(
            f"x and indices must have one shape, not {list(x.shape)} and {list(indices.shape)}"
        )


@op(
    name="max_unpool",
    inputs=("x", "indices"),
    vjp=_unpool_vjp,
    check=_unpool_check,
    infer=lambda x, indices, space: aval((*x.shape[:2], *space), x.dtype),
    requires=lambda x, indices, space: [InRange("indices", 0, math.prod(space) - 1)],
)
def _max_unpool(xp, x, indices, space=()):
    values, places = _rows(xp, x), _rows(xp, indices)
    size = int(np.prod(space))
    rows = xp.arange(values.shape[0])[:, None]
    out = xp.zeros((values.shape[0], size), x.dtype)
    if xp is np:
        out[rows, places] = values
    else:
        out = out.at[rows, places].set(values)
    return xp.reshape(out, (*x.shape[:2], *space))


def _unpool(
    function: str,
    n: int,
    x: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    output_size: Any,
    data_format: str,
) -> Tensor:
    first = _FORMATS[n][0]
    if data_format != first:
        raise InvalidArgument(
            f"[{function}] data_format must be {first!r}. Received: {data_format!r}"
        )
    axes = _axes(function, x, n, data_format)
    kernel = ints(function, "kernel_size", kernel_size, n)
    steps = kernel if stride is None else ints(function, "stride", stride, n)
    pads = ints(function, "padding", padding, n)
    if output_size is None:
        shape = x._value.aval.shape
        space = tuple(
            [
                (shape[a] - 1) * s - 2 * p + k
                for a, s, p, k in zip(axes, steps, pads, kernel, strict=True)
            ]
        )
    else:
        space = ints(function, "output_size", list(output_size)[-n:], n)
    return _max_unpool(x, indices, space)


@public
def max_unpool1d(
    x: Tensor,
    indices: Tensor,
    kernel_size: IntOrSingle,
    stride: IntOrSingle | None = None,
    padding: Padding = 0,
    data_format: str = "NCL",
    output_size: OutputSize | None = None,
    name: str | None = None,
) -> Tensor:
    """Maxima back at the places where `max_pool1d` found them, zeros elsewhere."""
    return _unpool(
        "max_unpool1d", 1, x, indices, kernel_size, stride, padding, output_size, data_format
    )


@public(takes="ifc")
def max_unpool2d(
    x: Tensor,
    indices: Tensor,
    kernel_size: IntOrPair,
    stride: IntOrPair | None = None,
    padding: Padding = 0,
    data_format: str = "NCHW",
    output_size: OutputSize | None = None,
    name: str | None = None,
) -> Tensor:
    """Maxima back at the places where `max_pool2d` found them, zeros elsewhere."""
    return _unpool(
        "max_unpool2d", 2, x, indices, kernel_size, stride, padding, output_size, data_format
    )


@public
def max_unpool3d(
    x: Tensor,
    indices: Tensor,
    kernel_size: IntOrTriple,
    stride: IntOrTriple | None = None,
    padding: Padding = 0,
    data_format: str = "NCDHW",
    output_size: OutputSize | None = None,
    name: str | None = None,
) -> Tensor:
    """Maxima back at the places where `max_pool3d` found them, zeros elsewhere."""
    return _unpool(
        "max_unpool3d", 3, x, indices, kernel_size, stride, padding, output_size, data_format
    )
