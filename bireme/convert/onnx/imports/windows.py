"""Convolution and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import bireme as paddle
from bireme.convert.onnx.imports import onnx_op
from bireme.convert.onnx.imports.elementwise import number
from bireme.convert.onnx.imports.shapes import shape_of
from bireme.core.tensor import Tensor
from bireme.ops.conv import _conv, _conv_transpose
from bireme.ops.indexing import _gather
from bireme.ops.padding import _pad_constant
from bireme.ops.pooling import _avg_pool, _max_pool

if TYPE_CHECKING:
    from bireme.convert.onnx.interpreter import NodeView, Values


def pairs_of(flat: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """ONNX's starts and then ends as (before, after) per axis."""
    d = len(flat) // 2
    return tuple((flat[i], flat[i + d]) for i in range(d))


def padding(
    n: NodeView,
    space: Sequence[Any],
    kernel: Sequence[Any],
    stride: Sequence[Any],
    dilation: Sequence[Any],
) -> Any:
    """(before, after) per axis from `pads` or `auto_pad`."""
    auto = n.attr("auto_pad", "NOTSET")
    d = len(kernel)
    if auto == "NOTSET":
        return pairs_of(n.attr("pads") or [0] * 2 * d)
    if auto == "VALID":
        return ((0, 0),) * d
    made = []
    for size, k, s, e in zip(space, kernel, stride, dilation, strict=True):
        reach = (k - 1) * e + 1
        total = max((-(-size // s) - 1) * s + reach - size, 0)
        small = total // 2
        made.append((small, total - small) if auto == "SAME_UPPER" else (total - small, small))
    return tuple(made)


def conv(n: NodeView, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    d = x.ndim - 2
    kernel = shape_of(weight)[2:]
    stride = tuple(n.attr("strides") or [1] * d)
    dilation = tuple(n.attr("dilations") or [1] * d)
    pads = padding(n, shape_of(x)[2:], kernel, stride, dilation)
    if d > 3:
        return _conv_any(x, weight, bias, stride, pads, dilation, n.attr("group", 1))
    return _conv(x, weight, bias, stride, pads, dilation, n.attr("group", 1), False)


onnx_op("Conv")(conv)


def _conv_any(x: Any, weight: Any, bias: Any, stride: Any, pads: Any, dilation: Any, groups: int):
    """More than three dimensions: one strided slice and product per place in the kernel."""
    x = _pad_constant(x, number(0, x), ((0, 0), (0, 0), *pads))
    kernel = shape_of(weight)[2:]
    counts = [
        (size - e * (k - 1) - 1) // s + 1
        for size, k, s, e in zip(shape_of(x)[2:], kernel, stride, dilation, strict=True)
    ]
    batch, outs = shape_of(x)[0], shape_of(weight)[0]
    total = None
    for at in np.ndindex(*kernel):
        cut = tuple(
            slice(o * e, o * e + (c - 1) * s + 1, s)
            for o, e, c, s in zip(at, dilation, counts, stride, strict=True)
        )
        part = x[(slice(None), slice(None), *cut)].reshape([batch, groups, -1, math.prod(counts)])
        w = weight[(slice(None), slice(None), *at)].reshape([1, groups, outs // groups, -1])
        made = paddle.matmul(w, part)
        total = made if total is None else total + made
    out = total.reshape([batch, outs, *counts])  # pyright: ignore[reportOptionalMemberAccess]
    return out if bias is None else out + bias.reshape([1, -1, *[1] * len(kernel)])


@onnx_op("ConvTranspose")
def conv_transpose(n: NodeView, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    d = x.ndim - 2
    kernel, space = shape_of(weight)[2:], shape_of(x)[2:]
    stride = tuple(n.attr("strides") or [1] * d)
    dilation = tuple(n.attr("dilations") or [1] * d)
    extra = n.attr("output_padding") or [0] * d
    wanted = n.attr("output_shape")
    auto = n.attr("auto_pad", "NOTSET")
    pads: Any = pairs_of(n.attr("pads") or [0] * 2 * d)
    full = [
        s * (size - 1) + o + (k - 1) * e + 1
        for s, size, o, k, e in zip(stride, space, extra, kernel, dilation, strict=True)
    ]
    if wanted is None and auto.startswith("SAME"):
        wanted = [size * s for size, s in zip(space, stride, strict=True)]
    if wanted is not None:
        totals = [f - w for f, w in zip(full, list(wanted)[-d:], strict=True)]
        halves = [(t // 2, t - t // 2) for t in totals]
        pads = tuple((b, a) for a, b in halves) if auto != "SAME_UPPER" else tuple(halves)
    elif auto == "VALID":
        pads = ((0, 0),) * d
    target = tuple(f - lo - hi for f, (lo, hi) in zip(full, pads, strict=True))
    # What is cut off at the end includes the extra padding that the output gets.
    cuts = tuple((lo, hi - o) for (lo, hi), o in zip(pads, extra, strict=True))
    return _conv_transpose(
        x, weight, bias, target, stride, cuts, dilation, n.attr("group", 1), False
    )


def _spread(n: NodeView, x: Tensor, dilation: Any) -> tuple[Any, ...]:
    """(kernel, stride, pads, counts), `ceil_mode` included as more windows."""
    d = x.ndim - 2
    kernel = n.attr("kernel_shape")
    stride = n.attr("strides") or [1] * d
    space = shape_of(x)[2:]
    pads = padding(n, space, kernel, stride, dilation)
    counts = []
    for size, k, s, e, (lo, hi) in zip(space, kernel, stride, dilation, pads, strict=True):
        reach = (k - 1) * e + 1
        count = (size + lo + hi - reach) // s + 1
        if n.attr("ceil_mode", 0):
            count = -(-(size + lo + hi - reach) // s) + 1
            if (count - 1) * s >= size + lo:  # a window must not start in the padding after it
                count -= 1
        counts.append(count)
    return kernel, stride, pads, counts


def _all_windows(x: Tensor, kernel: Any, stride: Any, dilation: Any, counts: Any) -> list[Tensor]:
    """For each place in the kernel, what all windows have there."""
    made = []
    for at in np.ndindex(*kernel):
        cut = tuple(
            slice(o * e, o * e + (c - 1) * s + 1, s)
            for o, e, c, s in zip(at, dilation, counts, stride, strict=True)
        )
        made.append(x[(slice(None), slice(None), *cut)])
    return made


def _padded(x: Tensor, kernel: Any, stride: Any, dilation: Any, pads: Any, counts: Any, fill: Any):
    """x with padding up to the end of its last window."""
    space = shape_of(x)[2:]
    ends = [
        (c - 1) * s + (k - 1) * e + 1 - size - lo
        for c, s, k, e, size, (lo, _) in zip(
            counts, stride, kernel, dilation, space, pads, strict=True
        )
    ]
    pairs = ((0, 0), (0, 0), *[(lo, end) for (lo, _), end in zip(pads, ends, strict=True)])
    return _pad_constant(x, number(fill, x), pairs)


def _plans(x: Tensor, kernel: Any, stride: Any, pads: Any, counts: Any) -> Any:
    """(axes, plans, pads) of our pooling ops: padding reaches to the end of the last window."""
    axes = tuple(range(2, x.ndim))
    plans = tuple(zip(kernel, stride, counts, strict=True))
    grown = tuple(
        (lo, (c - 1) * s + k - size - lo)
        for c, s, k, size, (lo, _) in zip(
            counts, stride, kernel, shape_of(x)[2:], pads, strict=True
        )
    )
    return axes, plans, grown


def _lowest(x: Tensor) -> Any:
    kind = np.dtype(x._value.aval.dtype.numpy)
    return np.iinfo(kind).min if kind.kind in "iu" else -np.inf


@onnx_op("MaxPool")
def max_pool(n: NodeView, x: Tensor) -> Values:
    d = x.ndim - 2
    dilation = n.attr("dilations") or [1] * d
    kernel, stride, pads, counts = _spread(n, x, dilation)
    if all(e == 1 for e in dilation) and not n.wants(1):
        return _max_pool(x, *_plans(x, kernel, stride, pads, counts))
    grown = _padded(x, kernel, stride, dilation, pads, counts, _lowest(x))
    parts = paddle.stack(_all_windows(grown, kernel, stride, dilation, counts), 0)
    best = paddle.max(parts, 0)
    if not n.wants(1):
        return best
    return best, _positions(n, x, parts, (kernel, stride, dilation, pads, counts))


def _positions(n: NodeView, x: Tensor, parts: Tensor, plan: Any) -> Tensor:
    """Where in the flattened input each maximum lies."""
    kernel, stride, dilation, pads, counts = plan
    batch, channels, *space = shape_of(x)
    place = np.zeros((math.prod(kernel), *counts), np.int64)
    order = list(range(len(space)))
    if n.attr("storage_order", 0):
        order = order[::-1]
    for axis in order:
        steps = np.arange(counts[axis]) * stride[axis] - pads[axis][0]
        offsets = np.array([at[axis] for at in np.ndindex(*kernel)]) * dilation[axis]
        spots = offsets[:, None] + steps[None]
        shape = [len(offsets), *[1] * len(space)]
        shape[1 + axis] = counts[axis]
        place = place * space[axis] + spots.reshape(shape)
    which = paddle.argmax(parts, 0)  # [batch, channels, *counts]
    flat = paddle.to_tensor(place.reshape(-1))
    window = paddle.arange(math.prod(counts)).reshape([1, 1, *counts])
    inside = _gather(flat, which * math.prod(counts) + window, 0)
    area = math.prod(space)
    plane = paddle.arange(batch * channels).reshape([batch, channels, *[1] * len(space)])
    return inside + plane * area


@onnx_op("AveragePool")
def average_pool(n: NodeView, x: Tensor) -> Tensor:
    d = x.ndim - 2
    dilation = n.attr("dilations") or [1] * d
    kernel, stride, pads, counts = _spread(n, x, dilation)
    counted = tuple(pads) if n.attr("count_include_pad", 0) else ((0, 0),) * d
    if all(e == 1 for e in dilation):
        return _avg_pool(x, *_plans(x, kernel, stride, pads, counts), counted)
    total = _window_sum(x, kernel, stride, dilation, pads, counts)
    ones = _pad_constant(paddle.ones_like(x), number(1, x), ((0, 0), (0, 0), *counted))
    rest = tuple((lo - c, hi - e) for (lo, hi), (c, e) in zip(pads, counted, strict=True))
    return total / _window_sum(ones, kernel, stride, dilation, rest, counts)


def _window_sum(x: Any, kernel: Any, stride: Any, dilation: Any, pads: Any, counts: Any) -> Tensor:
    grown = _padded(x, kernel, stride, dilation, pads, counts, 0)
    parts = _all_windows(grown, kernel, stride, dilation, counts)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


@onnx_op("LpPool")
def lp_pool(n: NodeView, x: Tensor) -> Tensor:
    p = float(n.attr("p", 2))
    dilation = n.attr("dilations") or [1] * (x.ndim - 2)
    kernel, stride, pads, counts = _spread(n, x, dilation)
    powers = paddle.pow(paddle.abs(x), number(p, x))
    total = _window_sum(powers, kernel, stride, dilation, pads, counts)
    return paddle.pow(total, number(1 / p, x))


@onnx_op("GlobalAveragePool")
def global_average_pool(n: NodeView, x: Tensor) -> Tensor:
    return paddle.mean(x, list(range(2, x.ndim)), keepdim=True)


@onnx_op("GlobalMaxPool")
def global_max_pool(n: NodeView, x: Tensor) -> Tensor:
    return paddle.max(x, list(range(2, x.ndim)), keepdim=True)


@onnx_op("GlobalLpPool")
def global_lp_pool(n: NodeView, x: Tensor) -> Tensor:
    p = number(n.attr("p", 2), x)
    total = paddle.sum(paddle.pow(paddle.abs(x), p), list(range(2, x.ndim)), keepdim=True)
    return paddle.pow(total, 1 / p)
