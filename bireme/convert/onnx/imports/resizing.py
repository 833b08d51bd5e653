"""Resize and Upsample: every mode, as a few weighted picks along each axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

import bireme as paddle
from bireme.convert.onnx.imports import onnx_op
from bireme.convert.onnx.imports.elementwise import dtype_of
from bireme.convert.onnx.imports.shapes import shape_of, sizes
from bireme.convert.onnx.reader import OnnxError, check_size
from bireme.core.errors import CaptureError
from bireme.core.tensor import Tensor
from bireme.ops.indexing import _gather

if TYPE_CHECKING:
    from bireme.convert.onnx.interpreter import NodeView, Value


class Axis:
    """How one axis is resized: its old and new size, and the scale between them."""

    def __init__(self, old: int, new: int, scale: float, roi: tuple[float, float] = (0.0, 1.0)):
        self.old, self.new, self.scale, self.roi = old, new, scale, roi

    def sources(self, mode: str) -> np.ndarray:
        """Where in the old axis each new element lies."""
        i = np.arange(self.new, dtype=np.float64)
        old, new, scale = self.old, self.new, self.scale
        if mode == "half_pixel":
            return (i + 0.5) / scale - 0.5
        if mode == "half_pixel_symmetric":
            offset = old / 2 * (1 - new / (scale * old))
            return offset + (i + 0.5) / scale - 0.5
        if mode == "pytorch_half_pixel":
            return (i + 0.5) / scale - 0.5 if new > 1 else np.zeros(1)
        if mode == "align_corners":
            return i * (old - 1) / (new - 1) if new > 1 else np.zeros(new)
        if mode == "asymmetric":
            return i / scale
        if mode == "tf_half_pixel_for_nn":
            return (i + 0.5) / scale
        if mode == "tf_crop_and_resize":
            start, end = self.roi
            if new > 1:
                return start * (old - 1) + i * (end - start) * (old - 1) / (new - 1)
            return np.full(new, 0.5 * (start + end) * (old - 1))
        raise OnnxError(f"the coordinate transformation {mode!r} is not known")


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _nearest(x: np.ndarray, how: str) -> np.ndarray:
    if how == "round_prefer_floor":
        return np.ceil(x - 0.5)
    if how == "round_prefer_ceil":
        return np.floor(x + 0.5)
    return np.floor(x) if how in ("floor", "simple") else np.ceil(x)


def taps(
    axis: Axis, mode: str, coordinates: str, how: str, a: float, antialias: bool, exclude: bool
) -> tuple[np.ndarray, np.ndarray]:
    """For each new element the old ones it is made of, and their weights: two [new, k]."""
    x = axis.sources(coordinates)
    if mode == "nearest":
        index = _nearest(x, how).astype(np.int64)[:, None]
        return index.clip(0, axis.old - 1), np.ones_like(index, np.float64)
    shrink = min(axis.scale, 1.0) if antialias else 1.0
    reach = 1 if mode == "linear" else 2
    before = math.floor(-reach / shrink) + 1
    places = np.floor(x)[:, None] + np.arange(before, 2 - before)[None]
    distance = (places - x[:, None]) * shrink
    weights = np.clip(1 - np.abs(distance), 0, 1) if mode == "linear" else _cubic(distance, a)
    if exclude:
        weights = np.where((places >= 0) & (places < axis.old), weights, 0.0)
    weights = weights / weights.sum(1, keepdims=True)
    return places.astype(np.int64).clip(0, axis.old - 1), weights


def _apply(x: Tensor, at: int, index: np.ndarray, weights: np.ndarray) -> Tensor:
    shape = [1] * x.ndim
    shape[at] = -1
    total = None
    for k in range(index.shape[1]):
        if not weights[:, k].any():
            continue
        part = _gather(x, paddle.to_tensor(index[:, k].copy()), at)
        if not (weights[:, k] == 1).all():
            part = part * paddle.to_tensor(weights[:, k].astype(dtype_of(x))).reshape(shape)
        total = part if total is None else total + part
    return x if total is None else total


def _repeat(x: Tensor, at: int, times: int) -> Tensor:
    """Every element `times` times; works for sizes that are not known yet."""
    shape = list(shape_of(x))
    wide = paddle.expand(x.unsqueeze(at + 1), [*shape[: at + 1], times, *shape[at + 1 :]])
    shape[at] = shape[at] * times
    return wide.reshape(shape)


def _repeats(mode: str, coordinates: str, how: str, scale: float) -> bool:
    """Whether new element i is simply the old one i // scale."""
    even = coordinates == "asymmetric" and how in ("floor", "simple")
    middle = coordinates in ("half_pixel", "pytorch_half_pixel") and how.startswith("round")
    return mode == "nearest" and scale >= 1 and float(scale).is_integer() and (even or middle)


def _new_sizes(n: NodeView, old: list[Any], wanted: list[Any]) -> tuple[list[Any], list[float]]:
    policy = n.attr("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        scales = [
            w / o if type(o) is int and type(w) is int and o else 1.0
            for w, o in zip(wanted, old, strict=True)
        ]
        return wanted, scales
    pick = min if policy == "not_larger" else max
    scale = pick(w / o for w, o in zip(wanted, old, strict=True))
    return [math.floor(scale * o + 0.5) for o in old], [scale] * len(old)


@onnx_op("Resize", static=(1, 2, 3))
def resize(
    n: NodeView,
    x: Tensor,
    roi: Value | None = None,
    scales: Value | None = None,
    target: Value | None = None,
) -> Tensor:
    if n.opset < 11:
        return _resized(n, x, roi, None, None, "asymmetric", "simple")
    coordinates = n.attr("coordinate_transformation_mode", "half_pixel")
    how = n.attr("nearest_mode", "round_prefer_floor")
    if scales is not None and not np.size(scales):
        scales = None
    return _resized(n, x, scales, target, roi, coordinates, how)


@onnx_op("Upsample", static=(1,))
def upsample(n: NodeView, x: Tensor, scales: Value | None = None) -> Tensor:
    given = n.attr("scales") if scales is None else scales
    return _resized(n, x, np.asarray(given), None, None, "asymmetric", "simple")


def _resized(
    n: NodeView, x: Tensor, scales: Any, target: Any, roi: Any, coordinates: str, how: str
) -> Tensor:
    shape = shape_of(x)
    axes = [a % x.ndim for a in n.attr("axes") or range(x.ndim)]
    old = [shape[a] for a in axes]
    if scales is not None:
        factors = [float(s) for s in np.ravel(scales)]
        new: list[Any] = [
            math.floor(o * s) if type(o) is int else None for o, s in zip(old, factors, strict=True)
        ]
    elif target is not None:
        new, factors = _new_sizes(n, old, sizes(target))
    else:
        raise OnnxError("neither scales nor sizes are given")
    check_size([w for w in new if type(w) is int], dtype_of(x).itemsize, "the result")
    mode: str = n.attr("mode", "nearest")
    mode = "linear" if mode == "bilinear" else mode
    bounds = np.ravel(roi) if roi is not None and np.size(roi) else None
    crops = coordinates == "tf_crop_and_resize"
    floating = dtype_of(x).kind == "f"
    out = x if floating or mode == "nearest" else x.astype("float32")
    outside: list[tuple[int, np.ndarray]] = []
    for k, (at, o, w, factor) in enumerate(zip(axes, old, new, factors, strict=True)):
        if not crops and (factor == 1 if w is None else w == o and factor == 1):
            continue
        if _repeats(mode, coordinates, how, factor):
            out = _repeat(out, at, int(factor))
            continue
        if type(o) is not int or type(w) is not int:
            raise CaptureError(
                f"resizing ({mode}, by {factor:g}) needs sizes that are known when the graph is "
                "captured: give them in input_spec"
            )
        part = (0.0, 1.0) if bounds is None else (float(bounds[k]), float(bounds[k + len(axes)]))
        axis = Axis(o, w, factor, part)
        index, weights = taps(
            axis,
            mode,
            coordinates,
            how,
            n.attr("cubic_coeff_a", -0.75),
            bool(n.attr("antialias", 0)),
            bool(n.attr("exclude_outside", 0)),
        )
        out = _apply(out, at, index, weights)
        if crops:
            x_at = axis.sources(coordinates)
            outside.append((at, (x_at < 0) | (x_at > o - 1)))
    for at, mask in outside:
        if mask.any():
            spread = [1] * x.ndim
            spread[at] = -1
            fill = paddle.full([], n.attr("extrapolation_value", 0.0), dtype_of(out).name)
            out = paddle.where(paddle.to_tensor(mask).reshape(spread), fill, out)
    if out.dtype == x.dtype:
        return out
    edge = np.iinfo(dtype_of(x))
    return paddle.clip(paddle.round(out), float(edge.min), float(edge.max)).astype(x.dtype)
