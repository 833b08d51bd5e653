"""Pooling over windows: maximum, average, p-norm; fixed and adaptive windows.

Every kind works one axis after the other, on whole slices: the maximum over a 3 x 3 window is
three strided slices and then three more. XLA fuses those; its own windowed reduction is slower,
and the gradient it derives for a maximum (select-and-scatter) several times so.

How one axis is windowed, the plans, is in `pooling_windows.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.api.public import namespace
from bireme.api.types import IntOrPair, IntOrSingle, IntOrTriple, Padding
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.host import jax_door
from bireme.ops.conv import Pairs, padding_pairs
from bireme.ops.nn_support import (
    channel_shape,
    ints,
    need_float,
    pad_constant,
    wide,
)
from bireme.ops.pooling_windows import (
    Plan,
    along,
    first_maxima,
    is_even,
    is_large,
    largest_of,
    lowest,
    parts_of,
    plan_count,
    put_maxima,
    put_parts,
)

public = namespace("paddle.nn.functional")


def _crop(x: Any, axes: Sequence[int], pads: Pairs, space: Sequence[Any]) -> Any:
    """Undo the padding."""
    if not any(lo or hi for lo, hi in pads):
        return x
    where = [slice(None)] * x.ndim
    for a, (lo, _), n in zip(axes, pads, space, strict=True):
        where[a] = slice(lo, lo + n)
    return x[tuple(where)]


def _padded(xp: Any, x: Any, axes: Sequence[int], pads: Pairs, value: Any) -> Any:
    pairs = [(0, 0)] * x.ndim
    for a, pair in zip(axes, pads, strict=True):
        pairs[a] = pair
    return pad_constant(xp, x, pairs, value)


def _pool_infer(x: Aval, axes: tuple[int, ...], plans: tuple[Plan, ...], **rest: Any) -> Aval:
    shape = list(x.shape)
    for a, plan in zip(axes, plans, strict=True):
        shape[a] = plan_count(plan)
    return aval(tuple(shape), x.dtype)


# --- maximum ------------------------------------------------------------------------------------


def _max_stages(xp: Any, x: Any, axes: Sequence[int], plans: Sequence[Plan]) -> list[Any]:
    """`x`, then the maximum over the last axis' windows, then over the one before …"""
    stages = [x]
    for axis, plan in zip(reversed(axes), reversed(plans), strict=True):
        if is_large(xp, plan):
            stages.append(largest_of(xp, stages[-1], axis, plan))
            continue
        first, *others = parts_of(xp, stages[-1], axis, plan)
        for part in others:
            first = xp.maximum(first, part)
        stages.append(first)
    return stages


def _max_grad(
    xp: Any, grad: Any, x: Any, axes: Sequence[int], plans: Sequence[Plan], pads: Pairs
) -> Any:
    """To the first of equal maxima, as Paddle does."""
    space = [x.shape[a] for a in axes]
    stages = _max_stages(xp, _padded(xp, x, axes, pads, lowest(x.dtype)), axes, plans)
    for axis, plan, before, after in zip(
        axes, plans, reversed(stages[:-1]), reversed(stages[1:]), strict=True
    ):
        if is_large(xp, plan):
            grad = put_maxima(xp, grad, before, after, axis, plan)
            continue
        taken = None
        parts = []
        for part in parts_of(xp, before, axis, plan):
            hit = part == after
            parts.append(xp.where(hit if taken is None else hit & ~taken, grad, 0))
            taken = hit if taken is None else taken | hit
        grad = put_parts(xp, parts, axis, plan, before.shape[axis])
    return _crop(grad, axes, pads, space)


def _max_vjp(xp: Any, grad: Any, x: Any, axes: Any, plans: Any, pads: Any) -> tuple[Any]:
    return (_max_grad(xp, grad, x, axes, plans, pads),)


@op(name="max_pool", inputs=("x",), vjp=_max_vjp, infer=_pool_infer)
def _max_pool(xp, x, axes=(), plans=(), pads=()):
    """The largest element of every window."""
    return _max_stages(xp, _padded(xp, x, axes, pads, lowest(x.dtype)), axes, plans)[-1]


def _index_infer(x: Aval, axes: Any, plans: Any, pads: Any) -> tuple[Aval, Aval]:
    out = _pool_infer(x, axes, plans)
    return out, aval(out.shape, dt.int32)


def _index_vjp(xp: Any, grads: Any, x: Any, axes: Any, plans: Any, pads: Any) -> tuple[Any]:
    return (_max_grad(xp, grads[0], x, axes, plans, pads),)


@op(name="max_pool_with_index", inputs=("x",), vjp=_index_vjp, infer=_index_infer)
def _max_pool_with_index(xp, x, axes=(), plans=(), pads=()):
    """The largest element of every window and its place in the flattened spatial axes."""
    index = xp.zeros((1,) * x.ndim, np.int32)
    for a, (lo, _) in zip(axes, pads, strict=True):
        n = x.shape[a]
        ramp = xp.arange(-lo, n + pads[axes.index(a)][1], dtype=np.int32)
        index = index * n + xp.reshape(ramp, channel_shape(x.ndim, a))
    value = _padded(xp, x, axes, pads, lowest(x.dtype))
    index = xp.broadcast_to(index, value.shape)
    for axis, plan in zip(reversed(axes), reversed(plans), strict=True):
        if is_large(xp, plan):
            value, index = first_maxima(xp, value, index, axis, plan)
            continue
        values, places = parts_of(xp, value, axis, plan), parts_of(xp, index, axis, plan)
        value, index = values[0], places[0]
        for v, p in zip(values[1:], places[1:], strict=True):
            larger = v > value
            value, index = xp.where(larger, v, value), xp.where(larger, p, index)
    return value, index


# --- average and p-norm -------------------------------------------------------------------------


def _window_sizes(xp: Any, plan: Plan, n: Any, lo: int, counted: tuple[int, int]) -> Any:
    """How many elements each window of an axis of length `n` has, with the padding that counts."""
    size, step, count = plan
    start = xp.arange(count) * step - lo
    end = xp.minimum(start + size, n + counted[1])
    return xp.maximum(end - xp.maximum(start, -counted[0]), 1)


def _averaging(plan: Plan, n: int) -> np.ndarray:
    """[windows, n]: the matrix that averages uneven windows."""
    matrix = np.zeros((plan_count(plan), n))
    rows = np.arange(plan_count(plan))
    for index in plan:
        matrix[rows, np.array(index)] = 1.0
    return matrix / matrix.sum(1, keepdims=True)


def _times_matrix(xp: Any, x: Any, axis: int, matrix: np.ndarray) -> Any:
    matrix = matrix.astype(x.dtype)
    return xp.moveaxis(xp.tensordot(x, matrix, axes=((axis,), (1,))), -1, axis)


def _sum_axis(xp: Any, x: Any, axis: int, plan: Plan) -> Any:
    if is_even(plan) and type(plan[2]) is int and plan[2] == 1:  # one window, often all there is
        return xp.sum(x[along(axis, slice(0, plan[0]))], axis=axis, keepdims=True, dtype=x.dtype)
    total, *others = parts_of(xp, x, axis, plan)
    for part in others:
        total = total + part
    return total


def _spread_axis(xp: Any, grad: Any, axis: int, plan: Plan, length: Any) -> Any:
    """What `_sum_axis` pulls back to an axis of `length`."""
    if type(plan[2]) is not int or plan[2] != 1:
        return put_parts(xp, [grad] * plan[0], axis, plan, length)
    shape = (*grad.shape[:axis], plan[0], *grad.shape[axis + 1 :])
    pairs = [(0, 0)] * grad.ndim
    pairs[axis] = (0, length - plan[0])
    return pad_constant(xp, xp.broadcast_to(grad, shape), pairs, 0)


def _divided(xp: Any, x: Any, axes: Any, plans: Any, pads: Any, space: Any, divisor: Any) -> Any:
    """Sums (or their gradients) divided by the windows' sizes.

    `divisor` is a number, or per axis the (before, after) padding that counts as elements.
    """
    if not isinstance(divisor, tuple):
        return x if divisor == 1 else x / divisor
    for a, plan, pair, n, counted in zip(axes, plans, pads, space, divisor, strict=True):
        if not is_even(plan):
            continue  # the averaging matrix has it
        if pair == counted:
            x = x / plan[0]
        else:
            sizes = _window_sizes(xp, plan, n, pair[0], counted).astype(x.dtype)
            x = x / xp.reshape(sizes, channel_shape(x.ndim, a))
    return x


def _avg_vjp(
    xp: Any, grad: Any, types: Any, axes: Any, plans: Any, pads: Any, divisor: Any
) -> tuple[Any]:
    space = [types[0].shape[a] for a in axes]
    grad = _divided(xp, wide(xp, grad), axes, plans, pads, space, divisor)
    for a, plan, (lo, hi), n in zip(axes, plans, pads, space, strict=True):
        if is_even(plan):
            grad = _spread_axis(xp, grad, a, plan, n + lo + hi)
        else:
            grad = _times_matrix(xp, grad, a, _averaging(plan, n).T)
    return (_crop(grad, axes, pads, space),)


@op(name="avg_pool", inputs=("x",), vjp=_avg_vjp, infer=_pool_infer)
def _avg_pool(xp, x, axes=(), plans=(), pads=(), divisor=1):
    """The mean of every window; for `divisor` see `_divided`."""
    space = [x.shape[a] for a in axes]
    out = _padded(xp, wide(xp, x), axes, pads, 0)
    for a, plan, n in zip(axes, plans, space, strict=True):
        if is_even(plan):
            out = _sum_axis(xp, out, a, plan)
        else:
            out = _times_matrix(xp, out, a, _averaging(plan, n))
    return _divided(xp, out, axes, plans, pads, space, divisor).astype(x.dtype)


def _lp_vjp(
    xp: Any, grad: Any, x: Any, out: Any, axes: Any, plans: Any, pads: Any, power: float
) -> tuple[Any]:
    space = [x.shape[a] for a in axes]
    grad = xp.where(out != 0, grad * out ** (1 - power), 0)
    for a, plan, (lo, hi), n in zip(axes, plans, pads, space, strict=True):
        grad = _spread_axis(xp, grad, a, plan, n + lo + hi)
    return (_crop(grad, axes, pads, space) * x ** (power - 1),)


@op(name="lp_pool", inputs=("x",), vjp=_lp_vjp, infer=_pool_infer)
def _lp_pool(xp, x, axes=(), plans=(), pads=(), power=2.0):
    out = _padded(xp, x**power, axes, pads, 0)
    for a, plan in zip(axes, plans, strict=True):
        out = _sum_axis(xp, out, a, plan)
    return out ** (1 / power)


# --- Paddle's arguments -------------------------------------------------------------------------

_FORMATS = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def _axes(function: str, x: Tensor, n: int, data_format: str) -> tuple[int, ...]:
    first, last = _FORMATS[n]
    if x._value.aval.ndim != n + 2:
        raise ShapeMismatch(
            f"[{function}] x must have {n + 2} dimensions, {first}. Received: shape {x.shape}"
        )
    if data_format == first:
        return tuple(range(2, n + 2))
    if data_format == last:
        return tuple(range(1, n + 1))
    raise InvalidArgument(
        f"[{function}] data_format must be {first!r} or {last!r}. Received: {data_format!r}"
    )


def _windowing(
    function: str,
    n: int,
    x: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    data_format: str,
) -> tuple[tuple[int, ...], tuple[Plan, ...], Pairs, Pairs]:
    """(axes, plans, pads, pads as asked for); ceil_mode becomes more padding at the end."""
    axes = _axes(function, x, n, data_format)
    kernel = ints(function, "kernel_size", kernel_size, n)
    steps = kernel if stride is None else ints(function, "stride", stride, n)
    if min(kernel) < 1 or min(steps) < 1:
        raise InvalidArgument(
            f"[{function}] kernel_size and stride must be positive. Received: "
            f"kernel_size={kernel}, stride={steps}"
        )
    shape = x._value.aval.shape
    space = [shape[a] for a in axes]
    if padding.__class__ is int:
        pads: Pairs = ((padding, padding),) * n
    else:
        if ceil_mode and isinstance(padding, str) and padding.upper() == "VALID":
            raise InvalidArgument(f"[{function}] padding='VALID' needs ceil_mode=False")
        pads = padding_pairs(function, padding, n, axes[0] == 1, space, kernel, steps, (1,) * n)
    plans, extended = [], []
    for size, k, s, (lo, hi) in zip(space, kernel, steps, pads, strict=True):
        if size == 0 and lo + hi >= k:
            raise ShapeMismatch(
                f"[{function}] windows over nothing but padding. Received: shape {x.shape}"
            )
        room = size + lo + hi - k
        count = _how_many(room + s - 1 if ceil_mode else room, k, s)
        if type(count) is int and count < 0:
            raise ShapeMismatch(
                f"[{function}] a window of {k} does not fit into {size} elements padded by "
                f"({lo}, {hi}). Received: x of shape {x.shape}"
            )
        plans.append((k, s, count))
        extended.append((lo, hi + _overhang(room, k, s, count, ceil_mode)))
    return axes, tuple(plans), tuple(extended), pads


def _how_many(room: Any, size: int, step: int) -> Any:
    """How many windows there are, where the last may start `room` elements after the first.

    Paddle divides towards zero: a window that is too large by less than a step is still there,
    cut off at the end. Of an open size that is told only for windows that do not overlap; others
    often stand beside a convolution, whose size has to come out as the same expression.
    """
    if type(room) is int:
        return 1 - (-room // step) if room < 0 else room // step + 1
    return (_at_least_zero(room) if size <= step else room) // step + 1


def _overhang(room: Any, size: int, step: int, count: Any, ceil_mode: bool) -> Any:
    """How far the last window reaches over the end."""
    if type(room) is int:
        return max((count - 1) * step - room, 0) if count else 0
    if ceil_mode:
        return max((count - 1) * step - room, 0)
    return _at_least_zero(-room) if size <= step else 0


def _at_least_zero(size: Any) -> Any:
    return jax_door.jax().core.max_dim(size, 0)


def _max(
    function: str,
    n: int,
    x: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    return_mask: bool,
    ceil_mode: bool,
    data_format: str,
) -> Any:
    axes, plans, pads, _ = _windowing(
        function, n, x, kernel_size, stride, padding, ceil_mode, data_format
    )
    if not return_mask:
        return _max_pool(x, axes, plans, pads)
    if axes[0] == 1:
        raise InvalidArgument(
            f"[{function}] return_mask=True needs data_format={_FORMATS[n][0]!r}. Received: "
            f"{data_format!r}"
        )
    return tuple(_max_pool_with_index(x, axes, plans, pads))


@public(takes="ifc")
def max_pool1d(
    x: Tensor,
    kernel_size: IntOrSingle,
    stride: IntOrSingle | None = None,
    padding: Padding = 0,
    return_mask: bool = False,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Any:
    """The maximum of every window of [N, C, L]; with its place if `return_mask`."""
    return _max("max_pool1d", 1, x, kernel_size, stride, padding, return_mask, ceil_mode, "NCL")


@public(takes="ifc")
def max_pool2d(
    x: Tensor,
    kernel_size: IntOrPair,
    stride: IntOrPair | None = None,
    padding: Padding = 0,
    return_mask: bool = False,
    ceil_mode: bool = False,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    """The maximum of every window of [N, C, H, W]; with its place if `return_mask`."""
    return _max(
        "max_pool2d", 2, x, kernel_size, stride, padding, return_mask, ceil_mode, data_format
    )


@public(takes="fc")
def max_pool3d(
    x: Tensor,
    kernel_size: IntOrTriple,
    stride: IntOrTriple | None = None,
    padding: Padding = 0,
    return_mask: bool = False,
    ceil_mode: bool = False,
    data_format: str = "NCDHW",
    name: str | None = None,
) -> Any:
    """The maximum of every window of [N, C, D, H, W]; with its place if `return_mask`."""
    return _max(
        "max_pool3d", 3, x, kernel_size, stride, padding, return_mask, ceil_mode, data_format
    )


def _avg(
    function: str,
    n: int,
    x: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    exclusive: bool,
    divisor: Any,
    data_format: str,
) -> Tensor:
    need_float("x", x)
    axes, plans, pads, asked = _windowing(
        function, n, x, kernel_size, stride, padding, ceil_mode, data_format
    )
    # Paddle counts as much padding after the elements as there is before them.
    counted = ((0, 0),) * n if exclusive else tuple([(lo, lo) for lo, _ in asked])
    if divisor is None:
        return _avg_pool(x, axes, plans, pads, counted)
    size = math.prod([k for k, _, _ in plans])
    if all(pair == (0, 0) for pair in pads):  # every window is whole
        return _avg_pool(x, axes, plans, pads, divisor)
    return _avg_pool(x, axes, plans, pads, counted) * (size / divisor)


@public
def avg_pool1d(
    x: Tensor,
    kernel_size: IntOrSingle,
    stride: IntOrSingle | None = None,
    padding: Padding = 0,
    exclusive: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Tensor:
    """The mean of every window of [N, C, L]; `exclusive` leaves padding out of the count."""
    return _avg("avg_pool1d", 1, x, kernel_size, stride, padding, ceil_mode, exclusive, None, "NCL")


@public
def avg_pool2d(
    x: Tensor,
    kernel_size: IntOrPair,
    stride: IntOrPair | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    exclusive: bool = True,
    divisor_override: float | None = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Tensor:
    """The mean of every window of [N, C, H, W]; `exclusive` leaves padding out of the count."""
    return _avg(
        "avg_pool2d", 2, x, kernel_size, stride, padding, ceil_mode, exclusive, divisor_override,
        data_format,
    )  # fmt: skip


@public
def avg_pool3d(
    x: Tensor,
    kernel_size: IntOrTriple,
    stride: IntOrTriple | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    exclusive: bool = True,
    divisor_override: float | None = None,
    data_format: str = "NCDHW",
    name: str | None = None,
) -> Tensor:
    """The mean of every window of [N, C, D, H, W]."""
    return _avg(
        "avg_pool3d", 3, x, kernel_size, stride, padding, ceil_mode, exclusive, divisor_override,
        data_format,
    )  # fmt: skip


def _lp(
    function: str,
    n: int,
    x: Tensor,
    norm_type: float,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    data_format: str,
) -> Tensor:
    need_float("x", x)
    axes, plans, pads, _ = _windowing(
        function, n, x, kernel_size, stride, padding, ceil_mode, data_format
    )
    if norm_type == 0:
        raise InvalidArgument(f"[{function}] norm_type must not be 0. Received: 0")
    if norm_type == math.inf:
        return _max_pool(x, axes, plans, pads)
    return _lp_pool(x, axes, plans, pads, float(norm_type))


@public(also={"input": "x"})
def lp_pool1d(
    x: Tensor,
    norm_type: float,
    kernel_size: IntOrSingle,
    stride: IntOrSingle | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    data_format: str = "NCL",
    name: str | None = None,
) -> Tensor:
    """sum(x^p)^(1/p) of every window of [N, C, L]."""
    return _lp("lp_pool1d", 1, x, norm_type, kernel_size, stride, padding, ceil_mode, data_format)


@public(also={"input": "x"})
def lp_pool2d(
    x: Tensor,
    norm_type: float,
    kernel_size: IntOrPair,
    stride: IntOrPair | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Tensor:
    """sum(x^p)^(1/p) of every window of [N, C, H, W]."""
    return _lp("lp_pool2d", 2, x, norm_type, kernel_size, stride, padding, ceil_mode, data_format)
