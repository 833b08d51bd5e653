"""Resampling: interpolation to another size, and sampling at given places."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from bireme.api.public import namespace
from bireme.api.types import Shape
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.dims import is_dim_expression
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.ops.contents import Result, reads_contents_if_given
from bireme.ops.nn_support import ints, need_float, need_rank, one_of, wide
from bireme.ops.pooling_adaptive import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
)

public = namespace("paddle.nn.functional")

# --- one axis: which elements a result is made of, with which weights ----------------------------

Taps = list[tuple[np.ndarray, np.ndarray | None]]


def _cubic(xp: Any, x: Any, a: float) -> Any:
    """Keys' cubic convolution kernel."""
    x = xp.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return xp.where(x <= 1, near, xp.where(x < 2, far, 0.0))


def _antialiased(n: int, m: int, ratio: float, cubic: bool) -> Taps:
    """A filter as wide as the step between results where those are fewer than the elements."""
    stretch = max(ratio, 1.0)
    reach = (2.0 if cubic else 1.0) * stretch
    centre = ratio * (np.arange(m) + 0.5)
    start = np.maximum((centre - reach + 0.5).astype(np.int64), 0)
    stop = np.minimum((centre + reach + 0.5).astype(np.int64), n)
    weights = []
    places = []
    for i in range(int((stop - start).max())):
        at = start + i
        distance = (at - centre + 0.5) / stretch
        weight = _cubic(np, distance, -0.5) if cubic else np.maximum(1 - np.abs(distance), 0)
        weights.append(np.where(at < stop, weight, 0.0))
        places.append(np.minimum(at, n - 1))
    total = np.sum(weights, axis=0)
    return [(p, (w / total).astype(np.float32)) for p, w in zip(places, weights, strict=True)]


def _ratio(xp: Any, a: Any, b: Any) -> Any:
    if xp is np:
        return np.float32(a / b)
    a, b = (xp.asarray(x).astype(np.float64) for x in (a, b))
    return (a / b).astype(np.float32)


def _taps(
    xp: Any,
    n: Any,
    m: Any,
    scale: float,
    mode: str,
    align_corners: bool,
    align_mode: int,
    antialias: bool,
) -> Taps:
    """Pairs of (places, weights); float32 as in Paddle's kernels, whose rounding decides places.
    `xp` is NumPy for known sizes."""
    if align_corners:
        of_one = not is_dim_expression(m) and m <= 1
        ratio = np.float32(0) if of_one else _ratio(xp, n - 1, m - 1)
    else:
        ratio = np.float32(1 / scale) if scale > 0 else _ratio(xp, n, m)
    steps = xp.arange(m, dtype=np.float32)
    if mode == "nearest":
        return [(xp.minimum((ratio * steps).astype(np.int64), n - 1), None)]
    if antialias:
        if xp is not np:
            raise ShapeMismatch("a filter against aliasing needs sizes that are known")
        return _antialiased(n, m, float(ratio), mode == "bicubic")
    half = np.float32(0.5)
    if mode == "bicubic":
        place = ratio * steps if align_corners else ratio * (steps + half) - half
        low = xp.floor(place).astype(np.int64)
        part = (place - low).astype(np.float64)
        return [
            (xp.clip(low + i, 0, n - 1), _cubic(xp, part - i, -0.75).astype(np.float32))
            for i in range(-1, 3)
        ]
    if align_mode == 0 and not align_corners:
        place = xp.maximum(ratio * (steps + half) - half, 0)
    else:
        place = ratio * steps
    low = xp.minimum(place.astype(np.int64), n - 1)
    part = (place - low).astype(np.float32)
    return [(low, 1 - part), (xp.minimum(low + 1, n - 1), part)]


_known_taps = functools.lru_cache(maxsize=256)(functools.partial(_taps, np))


def _matrix(xp: Any, taps: Taps, n: Any) -> Any:
    """[results, n]; of known taps always by NumPy."""
    if not isinstance(taps[0][0], np.ndarray):
        columns = xp.arange(n)
        hits: list[Any] = [
            (places[:, None] == columns) * (1.0 if weights is None else weights[:, None])
            for places, weights in taps
        ]
        return functools.reduce(operator.add, hits).astype(np.float32)
    count = len(taps[0][0])
    matrix = np.zeros((count, n), np.float32)
    rows = np.arange(count)
    for places, weights in taps:
        np.add.at(matrix, (rows, places), 1.0 if weights is None else weights)
    return matrix


def _apply_matrix(xp: Any, x: Any, axis: int, matrix: np.ndarray) -> Any:
    return xp.moveaxis(xp.tensordot(x, matrix.astype(x.dtype), axes=((axis,), (1,))), -1, axis)


# Beyond so many taps a product with a matrix is quicker than gathering each of them.
_MANY = 4


def _resize_axis(xp: Any, x: Any, axis: int, taps: Taps) -> Any:
    if len(taps) > _MANY:
        return _apply_matrix(xp, x, axis, _matrix(xp, taps, x.shape[axis]))
    total = None
    for places, weights in taps:
        part = xp.take(x, places, axis=axis)
        if weights is not None:
            shape = [1] * x.ndim
            shape[axis] = -1
            part = part * weights.reshape(shape).astype(x.dtype)
        total = part if total is None else total + part
    return total


def _plan(
    xp: Any, x: Any, axes: Any, sizes: Any, scales: Any, how: tuple[Any, ...]
) -> list[tuple[int, Taps]]:
    plan = []
    for axis, m, scale in zip(axes, sizes, scales, strict=True):
        n = x.shape[axis]
        if is_dim_expression(n) or is_dim_expression(m):
            plan.append((axis, _taps(xp, n, m, scale, *how)))
        else:
            plan.append((axis, _known_taps(n, m, scale, *how)))
    return plan


def _resize_infer(x: Aval, axes: Any, sizes: Any, **rest: Any) -> Aval:
    shape = list(x.shape)
    for a, m in zip(axes, sizes, strict=True):
        shape[a] = m
    return aval(tuple(shape), x.dtype)


def _resize_check(x: Aval, axes: Any, mode: str, **rest: Any) -> None:
    # Integers have a nearest neighbour; images of bytes are also blended, as in Paddle.
    if not (x.dtype.is_integer and (mode == "nearest" or x.dtype is dt.uint8)):
        need_float("x", x)
    if 0 in [x.shape[a] for a in axes]:
        raise ShapeMismatch("an image without pixels cannot be resized")


def _resize_vjp(
    xp: Any,
    grad: Any,
    types: Any,
    axes: Any,
    sizes: Any,
    scales: Any,
    mode: str,
    align_corners: bool,
    align_mode: int,
    antialias: bool,
) -> tuple[Any]:
    grad = wide(xp, grad)
    how = (mode, align_corners, align_mode, antialias)
    for axis, taps in _plan(xp, types[0], axes, sizes, scales, how):
        # A product with the transposed matrix: on a CPU far quicker than a scatter.
        grad = _apply_matrix(xp, grad, axis, _matrix(xp, taps, types[0].shape[axis]).T)
    return (grad,)


@op(
    name="interpolate",
    inputs=("x",),
    vjp=_resize_vjp,
    infer=_resize_infer,
    check=_resize_check,
)
def _interpolate(
    xp,
    x,
    axes=(),
    sizes=(),
    scales=(),
    mode="nearest",
    align_corners=False,
    align_mode=0,
    antialias=False,
):
    how = (mode, align_corners, align_mode, antialias)
    out = x.astype(np.float32) if x.dtype == np.uint8 and mode != "nearest" else wide(xp, x)
    for axis, taps in _plan(xp, x, axes, sizes, scales, how):
        out = _resize_axis(xp, out, axis, taps)
    return out.astype(x.dtype)


_RANKS = {
    "linear": (3,),
    "nearest": (4, 5),
    "bilinear": (4,),
    "bicubic": (4,),
    "trilinear": (5,),
    "area": (3, 4, 5),
}
_LAYOUTS = {3: ("NCW", "NWC"), 4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}


def _scales(function: str, scale_factor: Any, n: int) -> tuple[float, ...]:
    if hasattr(scale_factor, "tolist"):
        scale_factor = scale_factor.tolist()
    if not isinstance(scale_factor, list | tuple):
        scale_factor = [scale_factor] * n
    scales = tuple([float(s) for s in scale_factor])
    if len(scales) != n or min(scales) <= 0:
        raise InvalidArgument(
            f"[{function}] scale_factor must be a positive number or {n} of them. Received: "
            f"{scale_factor!r}"
        )
    return scales


def _scaled(size: Any, scale: float) -> Any:
    """`size * scale` rounded down; an open size is multiplied as a fraction."""
    if type(size) is int:
        return int(size * scale)
    exact = Fraction(scale)
    simple = exact.limit_denominator(1000)
    ratio = simple if float(simple) == scale else exact
    return size * ratio.numerator // ratio.denominator


def _resized(
    x: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    align_mode: int = 0,
    data_format: str | None = None,
    *rest: Any,
    **options: Any,
) -> Result:
    shape = [*x._value.aval.shape]
    first = _LAYOUTS[x.ndim][0]
    inner = slice(2, None) if (data_format or first) == first else slice(1, -1)
    shape[inner] = [None] * (x.ndim - 2)
    return Result(shape, x.dtype)


@public(also={"input": "x"})
@reads_contents_if_given("size", "scale_factor", results=_resized)
def interpolate(
    x: Tensor,
    size: Shape | None = None,
    scale_factor: float | Sequence[float] | Tensor | None = None,
    mode: str = "nearest",
    align_corners: bool = False,
    align_mode: int = 0,
    data_format: str | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
    name: str | None = None,
) -> Tensor:
    """`x` resampled to `size`, or to `scale_factor` times its size.

    'linear' takes 3 dimensions, 'bilinear' and 'bicubic' 4, 'trilinear' 5, 'nearest' 4 or 5,
    'area' any of them.
    """
    mode = one_of("interpolate", "mode", mode.lower(), tuple(_RANKS))
    ndim = x._value.aval.ndim
    if ndim not in _RANKS[mode]:
        raise ShapeMismatch(
            f"[interpolate] mode={mode!r} takes {' or '.join(map(str, _RANKS[mode]))} dimensions. "
            f"Received: x of shape {x.shape}"
        )
    n = ndim - 2
    if (size is None) == (scale_factor is None):
        raise InvalidArgument(
            f"[interpolate] give either size or scale_factor. Received: size={size}, "
            f"scale_factor={scale_factor}"
        )
    if not isinstance(align_corners, bool):
        raise TypeMismatch(
            f"[interpolate] align_corners must be True or False. Received: {align_corners!r}"
        )
    if align_corners and mode == "nearest":
        raise InvalidArgument("[interpolate] align_corners=True needs a mode other than 'nearest'")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise InvalidArgument("[interpolate] antialias=True needs mode 'bilinear' or 'bicubic'")
    one_of("interpolate", "align_mode", align_mode, (0, 1))
    first, last = _LAYOUTS[ndim]
    layout = one_of("interpolate", "data_format", data_format or first, (first, last))
    axes = tuple(range(1, n + 1)) if layout == last else tuple(range(2, ndim))
    shape = x._value.aval.shape
    scales = (0.0,) * n
    if size is None:
        scales = _scales("interpolate", scale_factor, n)
        sizes = tuple([_scaled(shape[a], s) for a, s in zip(axes, scales, strict=True)])
        if recompute_scale_factor:
            scales = (0.0,) * n
    else:
        sizes: tuple[Any, ...]
        if isinstance(size, list | tuple) and any(map(is_dim_expression, size)):
            sizes = tuple(size)
        else:
            sizes = ints("interpolate", "size", size, n)
    if any(type(m) is int and m < 1 for m in sizes):
        raise InvalidArgument(f"[interpolate] the new size must be positive. Received: {sizes}")
    if mode == "area":
        pools = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)
        return pools[n - 1](x, sizes)
    return _interpolate(x, axes, sizes, scales, mode, align_corners, align_mode, antialias)


@public
def upsample(
    x: Tensor,
    size: Shape | None = None,
    scale_factor: float | Sequence[float] | Tensor | None = None,
    mode: str = "nearest",
    align_corners: bool = False,
    align_mode: int = 0,
    data_format: str | None = None,
    name: str | None = None,
) -> Tensor:
    """Another name of `interpolate`."""
    return interpolate(x, size, scale_factor, mode, align_corners, align_mode, data_format)


# --- grids --------------------------------------------------------------------------------------


def _line(n: int, align_corners: bool) -> np.ndarray:
    """Where `n` samples lie on [-1, 1]."""
    if align_corners:
        return np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
    return (2 * np.arange(n) + 1) / n - 1


def _base_grid(space: tuple[int, ...], align_corners: bool) -> np.ndarray:
    """[points, dimensions + 1]: x, y(, z), 1 of every place."""
    lines = np.meshgrid(*[_line(n, align_corners) for n in space], indexing="ij")
    columns = [line.reshape(-1) for line in reversed(lines)]
    return np.stack([*columns, np.ones_like(columns[0])], axis=1)


def _grid_check(theta: Aval, space: Any, align_corners: bool) -> None:
    n = len(space)
    if theta.ndim != 3 or theta.shape[1:] != (n, n + 1):
        raise ShapeMismatch(f"'theta' must be [batch, {n}, {n + 1}] for this out_shape")


def _grid_vjp(xp: Any, grad: Any, types: Any, space: Any, align_corners: bool) -> tuple[Any]:
    n = len(space)
    rows = xp.reshape(grad, (types[0].shape[0], -1, n))
    base = _base_grid(space, align_corners).astype(grad.dtype)
    return (xp.matmul(xp.swapaxes(rows, 1, 2), base),)


@op(
    name="affine_grid",
    inputs=("theta",),
    vjp=_grid_vjp,
    check=_grid_check,
    infer=lambda theta, space, align_corners: aval(
        (theta.shape[0], *space, len(space)), theta.dtype
    ),
)
def _affine_grid(xp, theta, space=(), align_corners=True):
    base = _base_grid(space, align_corners).astype(theta.dtype)
    points = xp.matmul(base, xp.swapaxes(theta, 1, 2))
    return xp.reshape(points, (theta.shape[0], *space, len(space)))


@public(takes="fc")
def affine_grid(
    theta: Tensor, out_shape: Shape, align_corners: bool = True, name: str | None = None
) -> Tensor:
    """Where the pixels of an image of `out_shape` [N, C, (D,) H, W] come from under `theta`."""
    shape: Any = out_shape
    shape = shape.tolist() if hasattr(shape, "tolist") else list(shape)
    if len(shape) not in (4, 5):
        raise InvalidArgument(
            f"[affine_grid] out_shape must have 4 or 5 numbers. Received: {shape}"
        )
    return _affine_grid(theta, tuple([int(s) for s in shape[2:]]), align_corners)


def _sample_check(x: Aval, grid: Aval, mode: str, padding_mode: str, align_corners: bool) -> None:
    need_float("x", x)
    need_rank("x", x, 4, 5)
    n = x.ndim - 2
    if grid.ndim != x.ndim or grid.shape[-1] != n or grid.shape[0] != x.shape[0]:
        raise ShapeMismatch(
            f"'grid' must be [batch, {'depth, ' if n == 3 else ''}height, width, {n}] with x's "
            "batch"
        )


def _reflected(xp: Any, place: Any, low: float, span: float) -> Any:
    """Folded back into [low, low + span] at both ends."""
    if span == 0:
        return xp.zeros_like(place)
    away = xp.abs(place - low)
    turns = xp.floor(away / span)
    rest = away - turns * span
    return xp.where(turns % 2 == 0, rest + low, span - rest + low)


def _place(xp: Any, at: Any, n: int, padding_mode: str, align_corners: bool) -> Any:
    """Coordinates on [-1, 1] as places among `n` elements."""
    at = (at + 1) / 2 * (n - 1) if align_corners else ((at + 1) * n - 1) / 2
    if padding_mode == "reflection":
        low, span = (0.0, n - 1.0) if align_corners else (-0.5, float(n))
        at = _reflected(xp, at, low, span)
    return at if padding_mode == "zeros" else xp.clip(at, 0, n - 1)


def _gather(xp: Any, x: Any, corner: list[Any]) -> Any:
    """x [N, C, *space] at integer places [N, P] per axis, zero outside: [N, C, P]."""
    space = x.shape[2:]
    flat = inside = None
    for place, n in zip(corner, space, strict=True):
        valid = (place >= 0) & (place < n)
        inside = valid if inside is None else inside & valid
        index = xp.clip(place, 0, n - 1)
        flat = index if flat is None else flat * n + index
    rows = xp.reshape(x, (x.shape[0], x.shape[1], math.prod(space)))
    taken = xp.take_along_axis(rows, xp.expand_dims(flat, 1), axis=2)
    return xp.where(xp.expand_dims(inside, 1), taken, 0)


@op(
    name="grid_sample",
    inputs=("x", "grid"),
    check=_sample_check,
    infer=lambda x, grid, **rest: aval((*x.shape[:2], *grid.shape[1:-1]), x.dtype),
)
def _grid_sample(xp, x, grid, mode="bilinear", padding_mode="zeros", align_corners=True):
    space = x.shape[2:]
    count = -1 if grid.shape[0] else math.prod(grid.shape[1:-1])
    points = xp.reshape(grid, (grid.shape[0], count, len(space)))
    # The grid's last axis is x, y(, z): the other way round than the image's.
    places = [
        _place(xp, points[:, :, len(space) - 1 - i], n, padding_mode, align_corners)
        for i, n in enumerate(space)
    ]
    if mode == "nearest":
        out = _gather(xp, x, [xp.round(p).astype(np.int64) for p in places])
    else:
        lows = [xp.floor(p) for p in places]
        out: Any = None
        for bits in np.ndindex(*(2 for _ in space)):
            weight = None
            for p, low, bit in zip(places, lows, bits, strict=True):
                share = p - low if bit else 1 - (p - low)
                weight = share if weight is None else weight * share
            corner = [low.astype(np.int64) + bit for low, bit in zip(lows, bits, strict=True)]
            part = _gather(xp, x, corner) * xp.expand_dims(weight, 1)
            out = part if out is None else out + part
    return xp.reshape(out.astype(x.dtype), (*x.shape[:2], *grid.shape[1:-1]))


@public(also={"input": "x"})
def grid_sample(
    x: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = True,
    name: str | None = None,
) -> Tensor:
    """`x` read at the places of `grid`, whose coordinates run from -1 to 1."""
    one_of("grid_sample", "mode", mode, ("bilinear", "nearest"))
    one_of("grid_sample", "padding_mode", padding_mode, ("zeros", "border", "reflection"))
    return _grid_sample(x, grid, mode, padding_mode, align_corners)
