"""Convolution and pooling at the stored places only.

A rulebook lists, for each place of the kernel, which input rows meet which output rows. NumPy
makes it from the coordinates; the arithmetic is one gather, one batched product and one sum by
output row, so the work is proportional to the number of stored places.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import bireme
from bireme.api.types import IntOrPair, IntOrTriple, Padding
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.ops.conv import padding_pairs
from bireme.ops.segment import segment_extreme, segment_sum
from bireme.ops.sparse_tensor import SparseCooTensor, from_keys, ids, read


class Rulebook(NamedTuple):
    """(input row, output row) pairs for each place of the kernel, and the outputs' places."""

    pairs: list[tuple[np.ndarray, np.ndarray]]
    keys: np.ndarray
    shape: tuple[int, ...]


class Window(NamedTuple):
    """How a kernel moves over the input, per spatial axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]


def per_axis(function: str, name: str, value: int | Sequence[int], n: int) -> tuple[int, ...]:
    """n numbers from one or from n."""
    values = (value,) * n if isinstance(value, int) else tuple(int(v) for v in value)
    if len(values) != n:
        raise InvalidArgument(
            f"[sparse.{function}] {name} must be an integer or {n} of them. Received: {value!r}"
        )
    return values


def _out_size(size: int, k: int, s: int, p: tuple[int, int], d: int, ceil: bool = False) -> int:
    room = size + sum(p) - d * (k - 1) - 1
    return (-(-room // s) if ceil else room // s) + 1


def make_rulebook(x: SparseCooTensor, window: Window, ceil_mode: bool = False) -> Rulebook:
    """Which input rows each place of a moving kernel meets."""
    batch, *space = x.shape[: x.sparse_dim()]
    coordinates = read(x.indices())
    out = [_out_size(*parts, ceil_mode) for parts in zip(space, *window, strict=True)]
    shape = (batch, *out)
    met: list[tuple[np.ndarray, np.ndarray]] = []
    lower = np.array([p for p, _ in window.padding])[:, None]
    stride = np.array(window.stride)[:, None]
    limit = np.array(out)[:, None]
    for place in itertools.product(*map(range, window.kernel)):
        offset = np.array(place)[:, None] * np.array(window.dilation)[:, None]
        moved = coordinates[1:] + lower - offset
        target = moved // stride
        fits = ((moved % stride == 0) & (target >= 0) & (target < limit)).all(axis=0)
        rows = np.flatnonzero(fits)
        where = np.vstack([coordinates[:1, rows], target[:, rows]])
        met.append((rows, np.asarray(np.ravel_multi_index(tuple(where), shape), np.int64)))
    keys = np.unique(np.concatenate([k for _, k in met])) if met else np.zeros(0, np.int64)
    pairs = [(rows, np.searchsorted(keys, k)) for rows, k in met]
    return Rulebook(pairs, keys, shape)


def make_submanifold(x: SparseCooTensor, window: Window) -> Rulebook:
    """As `make_rulebook`, with the input's own places as outputs and the kernel centred there."""
    shape = tuple(x.shape[: x.sparse_dim()])
    coordinates = read(x.indices())
    keys = x.keys()
    order = np.argsort(keys, kind="stable")
    sorted_keys = keys[order]
    limit = np.array(shape[1:])[:, None]
    pairs = []
    for place in itertools.product(*map(range, window.kernel)):
        centre = [
            (p - k // 2) * d for p, k, d in zip(place, window.kernel, window.dilation, strict=True)
        ]
        source = coordinates[1:] + np.array(centre)[:, None]
        inside = np.flatnonzero(((source >= 0) & (source < limit)).all(axis=0))
        wanted = np.ravel_multi_index((coordinates[0, inside], *source[:, inside]), shape)
        at = np.minimum(np.searchsorted(sorted_keys, wanted), max(len(keys) - 1, 0))
        hit = sorted_keys[at] == wanted
        pairs.append((order[at[hit]], inside[hit]))
    return Rulebook(pairs, keys, shape)


def _apply(x: SparseCooTensor, weight: Tensor, book: Rulebook) -> Tensor:
    """The products of all pairs, added up by output row."""
    longest = max((len(rows) for rows, _ in book.pairs), default=0)
    count = len(book.keys)
    source = np.zeros((len(book.pairs), longest), np.int64)
    target = np.full((len(book.pairs), longest), count, np.int64)  # beyond the rows: dropped
    for i, (rows, outs) in enumerate(book.pairs):
        source[i, : len(rows)], target[i, : len(outs)] = rows, outs
    inner, outer = weight.shape[-2:]
    taken = bireme.index_select(x.values(), ids(source.reshape(-1)))
    stack = taken.reshape([len(book.pairs), longest, inner])
    made = bireme.matmul(stack, weight.reshape([len(book.pairs), inner, outer]))
    return segment_sum(made.reshape([-1, outer]), ids(target.reshape(-1)), count)


def _checked(function: str, x: Any, n: int, data_format: str) -> SparseCooTensor:
    layout = "NDHWC" if n == 3 else "NHWC"
    if not isinstance(x, SparseCooTensor):
        raise TypeMismatch(
            f"[sparse.{function}] x must be sparse with coordinates. Received: {type(x).__name__}"
        )
    if data_format != layout:
        raise InvalidArgument(
            f"[sparse.{function}] data_format must be {layout!r}. Received: {data_format!r}"
        )
    if x.ndim != n + 2 or x.sparse_dim() != n + 1:
        raise ShapeMismatch(
            f"[sparse.{function}] x must be [batch, {n} spatial axes, channels] with only the "
            f"channels dense. Received: shape {x.shape} with {x.sparse_dim()} sparse dimensions"
        )
    return x


def convolve(
    function: str,
    n: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: int | Sequence[int],
    padding: Padding,
    dilation: int | Sequence[int],
    groups: int,
    data_format: str,
    submanifold: bool,
    key: str | None = None,
) -> SparseCooTensor:
    """A convolution of the stored places; `key` names a rulebook to be used again."""
    given = _checked(function, x, n, data_format)
    if groups != 1:
        raise InvalidArgument(f"[sparse.{function}] groups must be 1. Received: {groups}")
    if weight.ndim != n + 2 or weight.shape[-2] != given.shape[-1]:
        raise ShapeMismatch(
            f"[sparse.{function}] weight must be [{n} kernel axes, channels, filters] for input "
            f"of {given.shape[-1]} channels. Received: {weight.shape}"
        )
    kernel = tuple(weight.shape[:n])
    strides = per_axis(function, "stride", stride, n)
    dilations = per_axis(function, "dilation", dilation, n)
    space = given.shape[1:-1]
    pads = padding_pairs(function, padding, n, True, space, kernel, strides, dilations)
    window = Window(kernel, strides, pads, dilations)
    name = (key, kernel, dilations)
    book = given._rulebooks.get(name) if submanifold and key is not None else None
    if book is None:
        book = (make_submanifold if submanifold else make_rulebook)(given, window)
        if submanifold and key is not None:
            given._rulebooks[name] = book
    values = _apply(given, weight, book)
    if bias is not None:
        values = values + bias
    if submanifold:
        return given._with(values)
    return from_keys(book.keys, values, book.shape, given.indices().dtype)


def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrTriple = 1,
    padding: Padding = 0,
    dilation: IntOrTriple = 1,
    groups: int = 1,
    data_format: str = "NDHWC",
    name: str | None = None,
) -> SparseCooTensor:
    """A convolution of [batch, depth, height, width, channels]: outputs where the kernel meets a
    stored place."""
    return convolve(
        "conv3d", 3, x, weight, bias, stride, padding, dilation, groups, data_format, False
    )


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrPair = 1,
    padding: Padding = 0,
    dilation: IntOrPair = 1,
    groups: int = 1,
    data_format: str = "NHWC",
    name: str | None = None,
) -> SparseCooTensor:
    """A convolution of [batch, height, width, channels]: outputs where the kernel meets a stored
    place."""
    return convolve(
        "conv2d", 2, x, weight, bias, stride, padding, dilation, groups, data_format, False
    )


def subm_conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrTriple = 1,
    padding: Padding = 0,
    dilation: IntOrTriple = 1,
    groups: int = 1,
    data_format: str = "NDHWC",
    key: str | None = None,
    name: str | None = None,
) -> SparseCooTensor:
    """A submanifold convolution: the kernel is centred on each stored place, and only there.

    The stride and the padding have no effect, as in Paddle. Layers with one `key` share the
    search for neighbours.
    """
    return convolve(
        "subm_conv3d", 3, x, weight, bias, stride, padding, dilation, groups, data_format, True, key
    )


def subm_conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrPair = 1,
    padding: Padding = 0,
    dilation: IntOrPair = 1,
    groups: int = 1,
    data_format: str = "NHWC",
    key: str | None = None,
    name: str | None = None,
) -> SparseCooTensor:
    """As `subm_conv3d`, for [batch, height, width, channels]."""
    return convolve(
        "subm_conv2d", 2, x, weight, bias, stride, padding, dilation, groups, data_format, True, key
    )


def subm_conv3d_igemm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrTriple = 1,
    padding: Padding = 0,
    dilation: IntOrTriple = 1,
    groups: int = 1,
    data_format: str = "NDHWC",
    key: str | None = None,
    name: str | None = None,
) -> SparseCooTensor:
    """`subm_conv3d`, which on this engine always is one gathered product."""
    return subm_conv3d(x, weight, bias, stride, padding, dilation, groups, data_format, key)


def subm_conv2d_igemm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrPair = 1,
    padding: Padding = 0,
    dilation: IntOrPair = 1,
    groups: int = 1,
    data_format: str = "NHWC",
    key: str | None = None,
    name: str | None = None,
) -> SparseCooTensor:
    """`subm_conv2d`, which on this engine always is one gathered product."""
    return subm_conv2d(x, weight, bias, stride, padding, dilation, groups, data_format, key)


def max_pool3d(
    x: Tensor,
    kernel_size: IntOrTriple,
    stride: IntOrTriple | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    data_format: str = "NDHWC",
    name: str | None = None,
) -> SparseCooTensor:
    """The largest stored value under each place of a moving window, channel by channel."""
    given = _checked("max_pool3d", x, 3, data_format)
    kernel = per_axis("max_pool3d", "kernel_size", kernel_size, 3)
    strides = kernel if stride is None else per_axis("max_pool3d", "stride", stride, 3)
    ones = (1, 1, 1)
    pads = padding_pairs("max_pool3d", padding, 3, True, given.shape[1:-1], kernel, strides, ones)
    book = make_rulebook(given, Window(kernel, strides, pads, ones), ceil_mode)
    rows = np.concatenate([r for r, _ in book.pairs])
    outs = np.concatenate([o for _, o in book.pairs])
    taken = bireme.index_select(given.values(), ids(rows))
    values = segment_extreme(taken, ids(outs), len(book.keys), True)
    return from_keys(book.keys, values, book.shape, given.indices().dtype)


__all__ = [
    "conv2d", "conv3d", "max_pool3d", "subm_conv2d", "subm_conv2d_igemm", "subm_conv3d",
    "subm_conv3d_igemm",
]  # fmt: skip
