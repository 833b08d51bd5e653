"""TensorFlow's convolutions, pooling, norms, and changes of an image's size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import bireme as paddle
from bireme.convert import nhwc
from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.imported import View, check_size
from bireme.convert.nhwc import sizes_of
from bireme.convert.tensorflow.products import after
from bireme.convert.tensorflow.rules import rule
from bireme.core.tensor import Tensor


def _first(n: View) -> bool:
    return str(n.attr("data_format", "NHWC")).startswith("NC")


def last(n: View, x: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
    """Runs what has its channels last."""
    if not _first(n):
        return run(x)
    return paddle.moveaxis(run(paddle.moveaxis(x, 1, -1)), -1, 1)


def _space(n: View, name: str, rank: int) -> list[int]:
    """The numbers of an attr that has one for each dimension, without batch and channels."""
    found = n.attr(name) or [1] * (rank + 2)
    if len(found) != rank + 2 or not all(type(v) is int and 0 < v < 1 << 16 for v in found):
        raise ModelFileError(f"{name} cannot be {found!r:.100}")
    made = found[2:] if _first(n) else found[1:-1]
    if found[0] != 1 or (found[1] if _first(n) else found[-1]) != 1:
        raise UnsupportedModel(f"{name} over images or channels has no rule")
    return list(made)


def _padding(n: View, rank: int) -> Any:
    kind = n.attr("padding", "VALID")
    if kind in ("SAME", "VALID"):
        return kind
    flat = n.attr("explicit_paddings") or []
    if kind != "EXPLICIT" or len(flat) != 2 * rank + 4:
        raise ModelFileError(f"the padding {kind!r:.40} has no meaning")
    pairs = tuple([(flat[i], flat[i + 1]) for i in range(0, len(flat), 2)])
    if any(not 0 <= p < 1 << 16 for pair in pairs for p in pair):
        raise ModelFileError(f"padding cannot be {pairs!r:.100}")
    return pairs[2:] if _first(n) else pairs[1:-1]


def _front(weight: Tensor) -> Tensor:
    """[*kernel, in, out] as [out, in, *kernel]."""
    rank = weight.ndim - 2
    return paddle.transpose(weight, [rank + 1, rank, *range(rank)])


@rule("Conv2D", "Conv3D")
def conv(n: View, x: Tensor, weight: Tensor) -> Tensor:
    rank = weight.ndim - 2
    steps, holes, pads = _space(n, "strides", rank), _space(n, "dilations", rank), _padding(n, rank)
    return last(n, x, lambda v: nhwc.conv(v, _front(weight), None, steps, pads, holes))


@rule("DepthwiseConv2dNative")
def depthwise(n: View, x: Tensor, weight: Tensor) -> Tensor:
    height, width, channels, each = weight.shape
    flat = weight.reshape([height, width, 1, channels * each])
    steps, holes, pads = _space(n, "strides", 2), _space(n, "dilations", 2), _padding(n, 2)
    return last(n, x, lambda v: nhwc.conv(v, _front(flat), None, steps, pads, holes))


@rule("_FusedConv2D")
def fused_conv(n: View, x: Tensor, weight: Tensor, *more: Tensor) -> Tensor:
    return after(n, conv(n, x, weight), more)


@rule("FusedDepthwiseConv2dNative", "_FusedDepthwiseConv2dNative")
def fused_depthwise(n: View, x: Tensor, weight: Tensor, *more: Tensor) -> Tensor:
    return after(n, depthwise(n, x, weight), more)


@rule("Conv2DBackpropInput", "Conv3DBackpropInputV2", static=(0,))
def conv_transpose(n: View, shape: np.ndarray, weight: Tensor, x: Tensor) -> Tensor:
    rank = weight.ndim - 2
    wanted = sizes_of(shape)
    if len(wanted) == 2:  # only the sizes of the image
        space = wanted
    else:
        space = wanted[2:] if _first(n) else wanted[1:-1]
    steps, holes, pads = _space(n, "strides", rank), _space(n, "dilations", rank), _padding(n, rank)
    return last(
        n, x, lambda v: nhwc.conv_transpose(v, _front(weight), None, space, steps, pads, holes)
    )


def _pooling(kind: str, rank: int) -> Callable[..., Tensor]:
    def run(n: View, x: Tensor) -> Tensor:
        window, steps = _space(n, "ksize", rank), _space(n, "strides", rank)
        return last(n, x, lambda v: nhwc.pool(kind, v, window, steps, _padding(n, rank)))

    return run


rule("MaxPool")(_pooling("max", 2))
rule("AvgPool")(_pooling("avg", 2))
rule("MaxPool3D")(_pooling("max", 3))
rule("AvgPool3D")(_pooling("avg", 3))


@rule("MaxPoolV2", static=(1, 2))
def max_pool_sizes(n: View, x: Tensor, window: np.ndarray, steps: np.ndarray) -> Tensor:
    sides = slice(2, None) if _first(n) else slice(1, -1)
    sizes, strides = sizes_of(window)[sides], sizes_of(steps)[sides]
    return last(n, x, lambda v: nhwc.pool("max", v, sizes, strides, _padding(n, 2)))


@rule("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "_FusedBatchNormEx")
def batch_norm(
    n: View, x: Tensor, scale: Tensor, offset: Tensor, mean: Tensor, variance: Tensor, *more: Tensor
) -> list[Tensor]:
    shape = [1, -1, *[1] * (x.ndim - 2)] if _first(n) else [-1]
    if n.attr("is_training", True):
        axes = [i for i in range(x.ndim) if i != (1 if _first(n) else x.ndim - 1)]
        mean = paddle.mean(x, axes)
        centred = x - mean.reshape(shape)
        variance = paddle.mean(centred * centred, axes)
    factor = scale * paddle.rsqrt(variance + n.attr("epsilon", 1e-4))
    made = (x - mean.reshape(shape)) * factor.reshape(shape) + offset.reshape(shape)
    if n.node.op == "_FusedBatchNormEx":
        if n.attr("num_side_inputs"):
            made = made + more[0]
        kind = n.attr("activation_mode", "Identity")
        if kind not in ("Identity", "Relu"):
            raise UnsupportedModel(f"the activation {kind!r:.40} has no rule")
        made = paddle.nn.functional.relu(made) if kind == "Relu" else made
    return [made.astype(x.dtype), mean, variance]


@rule("BatchNormWithGlobalNormalization")
def batch_norm_old(
    n: View, x: Tensor, mean: Tensor, variance: Tensor, beta: Tensor, gamma: Tensor
) -> Tensor:
    made = (x - mean) * paddle.rsqrt(variance + n.attr("variance_epsilon", 1e-3))
    return made * gamma + beta if n.attr("scale_after_normalization") else made + beta


# --- sizes of images ------------------------------------------------------------------------


def _flags(n: View) -> tuple[bool, bool]:
    return bool(n.attr("align_corners")), bool(n.attr("half_pixel_centers"))


@rule("ResizeBilinear", static=(1,))
def resize_bilinear(n: View, x: Tensor, sizes: np.ndarray) -> Tensor:
    return nhwc.resize_bilinear(x.astype("float32"), sizes_of(sizes), *_flags(n))


@rule("ResizeNearestNeighbor", static=(1,))
def resize_nearest(n: View, x: Tensor, sizes: np.ndarray) -> Tensor:
    return nhwc.resize_nearest(x, sizes_of(sizes), *_flags(n))


@rule("ResizeBicubic", static=(1,))
def resize_bicubic(n: View, x: Tensor, sizes: np.ndarray) -> Tensor:
    return _by_matrices(x.astype("float32"), sizes_of(sizes), _cubic(*_flags(n)))


@rule("ResizeArea", static=(1,))
def resize_area(n: View, x: Tensor, sizes: np.ndarray) -> Tensor:
    corners = bool(n.attr("align_corners"))
    return _by_matrices(x.astype("float32"), sizes_of(sizes), lambda a, b: _areas(a, b, corners))


def _by_matrices(
    x: Tensor, wanted: Sequence[Any], matrix: Callable[[int, int], np.ndarray]
) -> Tensor:
    have = list(x.shape[1:3])
    if not all(type(d) is int and 0 < d <= 1 << 13 for d in (*have, *wanted)):
        raise UnsupportedModel(f"an image of {have} cannot become {list(wanted)}")
    rows = paddle.to_tensor(matrix(have[0], wanted[0]))
    columns = paddle.to_tensor(matrix(have[1], wanted[1]))
    return paddle.einsum("ah,nhwc,bw->nabc", rows, x, columns)


_STEPS = 1024  # TensorFlow looks weights up in a table with so many steps


def _cubic(align_corners: bool, half: bool) -> Callable[[int, int], np.ndarray]:
    a = -0.5 if half else -0.75

    def matrix(size: int, wanted: int) -> np.ndarray:
        at = nhwc.positions(size, wanted, align_corners, half)
        low = np.floor(at)
        part = np.round((at - low) * _STEPS) / _STEPS
        made = np.zeros((wanted, size), np.float32)
        weights = []
        for shift in (-1, 0, 1, 2):
            d = np.abs(part - shift)
            near = ((a + 2) * d - (a + 3)) * d * d + 1
            far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
            weight = np.where(d <= 1, near, far)
            inside = (low + shift >= 0) & (low + shift < size)
            weights.append(np.where(inside, weight, 0.0) if half else weight)
        total = sum(weights) if half else 1.0
        for shift, weight in zip((-1, 0, 1, 2), weights, strict=True):
            place = np.clip(low + shift, 0, size - 1).astype(int)
            np.add.at(made, (np.arange(wanted), place), weight / total)
        return made

    return matrix


def _areas(size: int, wanted: int, align_corners: bool) -> np.ndarray:
    scale = (size - 1) / (wanted - 1) if align_corners and wanted > 1 else size / wanted
    made = np.zeros((wanted, size), np.float32)
    for i in range(wanted):
        start, end = i * scale, (i + 1) * scale
        for j in range(int(start), int(np.ceil(end))):
            part = min(j + 1, end) - max(j, start)
            made[i, min(j, size - 1)] += part / scale
    return made


@rule("CropAndResize", static=(3,))
def crop_and_resize(n: View, x: Tensor, boxes: Tensor, owners: Tensor, sizes: np.ndarray) -> Tensor:
    """A part of an image for each box (y1, x1, y2, x2 between 0 and 1)."""
    method, outside = n.attr("method", "bilinear"), n.attr("extrapolation_value", 0.0)
    if method not in ("bilinear", "nearest"):
        raise UnsupportedModel(f"the method {method!r:.40} has no rule")
    wanted = sizes_of(sizes)
    check_size([boxes.shape[0], *wanted, x.shape[-1]])
    picked = paddle.index_select(x, owners.astype("int64"), 0).astype("float32")
    valid = None
    for axis, count in enumerate(wanted):
        size = x.shape[1 + axis]
        first, end = boxes[:, axis].unsqueeze(1), boxes[:, axis + 2].unsqueeze(1)
        steps = paddle.to_tensor(np.arange(count, dtype=np.float32).reshape(1, -1))
        if count > 1:
            at = first * (size - 1) + steps * ((end - first) * (size - 1) / (count - 1))
        else:
            at = (first + end) * 0.5 * (size - 1)
        inside = paddle.logical_and(at >= 0, at <= size - 1)
        shape = [-1, count, 1, 1] if axis == 0 else [-1, 1, count, 1]
        inside = inside.reshape(shape)
        valid = inside if valid is None else paddle.logical_and(valid, inside)
        low = paddle.floor(at) if method == "bilinear" else paddle.floor(at + 0.5)
        lower = _rows(picked, low, axis + 1, size)
        if method == "bilinear":
            upper = _rows(picked, low + 1, axis + 1, size)
            picked = lower + (upper - lower) * (at - low).reshape(shape)
        else:
            picked = lower
    if valid is None:
        raise ModelFileError("there are no sizes")
    return paddle.where(valid, picked, paddle.full_like(picked, float(outside)))


def _rows(x: Tensor, at: Tensor, axis: int, size: Any) -> Tensor:
    """For each image of a batch the rows `at` along an axis."""
    index = paddle.clip(at, 0, size - 1).astype("int64")
    shape = [1] * x.ndim
    shape[0], shape[axis] = index.shape[0], index.shape[1]
    wide = list(x.shape)
    wide[axis] = index.shape[1]
    return paddle.take_along_axis(x, paddle.broadcast_to(index.reshape(shape), wide), axis)


rule("DepthToSpace")(
    lambda n, x: last(n, x, lambda v: nhwc.depth_to_space(v, n.attr("block_size")))
)
rule("SpaceToDepth")(
    lambda n, x: last(n, x, lambda v: nhwc.space_to_depth(v, n.attr("block_size")))
)
rule("SpaceToBatchND", static=(1, 2))(
    lambda n, x, block, pads: nhwc.space_to_batch(x, sizes_of(block), pads)
)
rule("BatchToSpaceND", static=(1, 2))(
    lambda n, x, block, crops: nhwc.batch_to_space(x, sizes_of(block), crops)
)


@rule("ExtractImagePatches")
def patches(n: View, x: Tensor) -> Tensor:
    """Windows of an image side by side in the channels."""
    window, steps = _space(n, "ksizes", 2), _space(n, "strides", 2)
    holes, kind = _space(n, "rates", 2), n.attr("padding", "VALID")
    pads = nhwc.pads_of(kind, x.shape[1:3], window, steps, holes)
    x = nhwc.pad(x, [(0, 0), *pads, (0, 0)])
    reach = [(k - 1) * h + 1 for k, h in zip(window, holes, strict=True)]
    counts = [(s - r) // t + 1 for s, r, t in zip(x.shape[1:3], reach, steps, strict=True)]
    if window[0] * window[1] > 4096:
        raise UnsupportedModel(f"windows of {window} are too large")
    parts = []
    for i in range(window[0]):
        for j in range(window[1]):
            top, left = i * holes[0], j * holes[1]
            rows = slice(top, top + (counts[0] - 1) * steps[0] + 1, steps[0])
            columns = slice(left, left + (counts[1] - 1) * steps[1] + 1, steps[1])
            parts.append(x[:, rows, columns])
    return paddle.concat(parts, -1)
