"""One rule per kind of layer that Caffe has."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import bireme as paddle
from bireme.convert.caffe.rules import rule
from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.imported import View, check_size
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.ops.conv import _conv, _conv_transpose
from bireme.ops.pooling import _avg_pool, _max_pool


def _axis(n: View, x: Tensor, name: str = "axis", default: int = 1) -> int:
    """An axis of x; negative ones count from the end."""
    axis = n.attr(name, default)
    made = axis + x.ndim if axis < 0 else axis
    if not 0 <= made <= x.ndim:
        raise ModelFileError(f"there is no axis {axis} in a shape of {x.ndim} sizes")
    return made


def weights_of(values: Sequence[Any], count: int) -> list[Any]:
    """The weights of a layer, None for those that it does not have."""
    return [*values, *[None] * count][:count]


# --- convolution and pooling ----------------------------------------------------------------


def _spatial(n: View, name: str, rank: int, default: int) -> list[int]:
    """A setting of a convolution for each dimension."""
    sides = [n.attr(f"{name.removesuffix('_size')}_{side}") for side in "hw"]
    if rank == 2 and None not in sides:
        return sides
    given = n.attr(name) or []
    if len(given) not in (0, 1, rank):
        raise ModelFileError(f"{name} has {len(given)} numbers for {rank} dimensions")
    made = (given or [default]) * (1 if len(given) == rank else rank)
    return [have if side is None else side for side, have in zip(sides, made, strict=False)] + (
        made[2:] if rank > 2 else []
    )


def _windows(n: View, x: Tensor) -> tuple[list[int], list[int], list[int], list[int]]:
    rank = x.ndim - 2
    if n.attr("axis", 1) != 1 or rank < 1 or rank > 3:
        raise UnsupportedModel("only channels at axis 1 and one to three dimensions have a rule")
    found = [
        _spatial(n, *setting)
        for setting in (
            ("kernel_size", rank, 0),
            ("stride", rank, 1),
            ("pad", rank, 0),
            ("dilation", rank, 1),
        )
    ]
    for name, values, least in zip(("kernel", "stride", "pad"), found, (1, 1, 0), strict=False):
        if min(values) < least:
            raise ModelFileError(f"{name} cannot be {values}")
    return found[0], found[1], found[2], found[3]


@rule("Convolution", "ConvolutionDepthwise", "DepthwiseConvolution")
def convolution(n: View, x: Tensor, *weights: Tensor) -> Tensor:
    weight, bias = weights_of(weights, 2)
    kernel, stride, pads, dilation = _windows(n, x)
    groups = n.attr("group", 1) if n.node.op == "Convolution" else x.shape[1]
    weight = _shaped(weight, [n.attr("num_output", weight.shape[0]), -1, *kernel])
    pairs = tuple((p, p) for p in pads)
    return _conv(x, weight, _row(bias), tuple(stride), pairs, tuple(dilation), groups, False)


@rule("Deconvolution")
def deconvolution(n: View, x: Tensor, *weights: Tensor) -> Tensor:
    weight, bias = weights_of(weights, 2)
    kernel, stride, pads, dilation = _windows(n, x)
    groups = n.attr("group", 1)
    weight = _shaped(weight, [x.shape[1], -1, *kernel])
    space = tuple(
        s * (size - 1) + d * (k - 1) + 1 - 2 * p
        for size, k, s, p, d in zip(x.shape[2:], kernel, stride, pads, dilation, strict=True)
    )
    check_size(space)
    pairs = tuple((p, p) for p in pads)
    return _conv_transpose(
        x, weight, _row(bias), space, tuple(stride), pairs, tuple(dilation), groups, False
    )


def _shaped(weight: Tensor, shape: list[Any]) -> Tensor:
    """Weights of V1 files have four sizes, whatever they are for."""
    return weight if list(weight.shape[2:]) == shape[2:] else weight.reshape(shape)


def _row(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else bias.reshape([-1])


@rule("Pooling")
def pooling(n: View, x: Tensor) -> Tensor:
    kind = n.attr("pool", "MAX")
    if kind not in ("MAX", "AVE"):
        raise UnsupportedModel("stochastic pooling has no rule")
    if n.attr("outputs", 1) > 1:
        raise UnsupportedModel("the mask of a pooling layer has no rule")
    if n.attr("global_pooling", False):
        axes = list(range(2, x.ndim))
        return paddle.max(x, axes, True) if kind == "MAX" else paddle.mean(x, axes, True)
    kernel = _pair(n, "kernel", n.attr("kernel_size", 0))
    stride, pads = _pair(n, "stride", n.attr("stride", 1)), _pair(n, "pad", n.attr("pad", 0))
    return pooled(x, kind, kernel, stride, pads, n.attr("ceil_mode", True))


def _pair(n: View, name: str, both: int) -> list[int]:
    found = [n.attr(f"{name}_{side}", both) for side in "hw"]
    if min(found) < (0 if name == "pad" else 1):
        raise ModelFileError(f"{name} cannot be {found}")
    return found


def pooled(
    x: Tensor,
    kind: str,
    kernel: Sequence[int],
    stride: Sequence[int],
    pads: Sequence[int],
    ceil_mode: bool = True,
) -> Tensor:
    """Windows that Caffe's rounding up adds may reach over the end, but start inside."""
    plans, grown, counted = [], [], []
    for size, k, s, p in zip(x.shape[2:], kernel, stride, pads, strict=True):
        room = size + 2 * p - k
        count = (-(-room // s) if ceil_mode else room // s) + 1
        if p and type(count) is int and (count - 1) * s >= size + p:
            count -= 1
        plans.append((k, s, count))
        grown.append((p, (count - 1) * s + k - size - p))
        counted.append((p, p))
    axes = tuple(range(2, x.ndim))
    if kind == "MAX":
        return _max_pool(x, axes, tuple(plans), tuple(grown))
    return _avg_pool(x, axes, tuple(plans), tuple(grown), tuple(counted))


@rule("Padding")
def padding(n: View, x: Tensor) -> Tensor:
    pad = n.attr("pad", 0)
    return F.pad(x, [pad, pad, pad, pad])


@rule("LRN")
def lrn(n: View, x: Tensor) -> Tensor:
    size, alpha, beta = n.attr("local_size", 5), n.attr("alpha", 1.0), n.attr("beta", 0.75)
    if size % 2 == 0 or size < 1:
        raise ModelFileError(f"local_size must be odd, not {size}")
    half = size // 2
    squares = x * x
    if n.attr("norm_region", "ACROSS_CHANNELS") == "WITHIN_CHANNEL":
        mean = pooled(squares, "AVE", [size] * 2, [1] * 2, [half] * 2)
        return x * paddle.pow(1.0 + alpha * mean, -beta)
    # The channels are the rows of an image, so that other runtimes have a pooling op for it.
    rows = squares.reshape([x.shape[0], 1, x.shape[1], math.prod(x.shape[2:])])
    mean = pooled(rows, "AVE", [size, 1], [1, 1], [half, 0]).reshape(x.shape)
    return x * paddle.pow(n.attr("k", 1.0) + alpha * mean, -beta)


# --- products -------------------------------------------------------------------------------


@rule("InnerProduct")
def inner_product(n: View, x: Tensor, *weights: Tensor) -> Tensor:
    weight, bias = weights_of(weights, 2)
    axis = _axis(n, x)
    kept = list(x.shape[:axis])
    lumped = math.prod(x.shape[axis:])
    flat = x.reshape([*kept, lumped])
    count = n.attr("num_output", 0) or weight.size // max(lumped, 1)
    if n.attr("transpose", False):
        made = paddle.matmul(flat, weight.reshape([lumped, count]))
    else:
        made = paddle.matmul(flat, weight.reshape([count, lumped]), transpose_y=True)
    return made if bias is None else made + bias.reshape([-1])


@rule("Embed")
def embed(n: View, x: Tensor, *weights: Tensor) -> Tensor:
    weight, bias = weights_of(weights, 2)
    made = F.embedding(x.astype("int64"), weight.reshape([-1, n.attr("num_output", 1)]))
    return made if bias is None else made + bias.reshape([-1])


# --- norms ----------------------------------------------------------------------------------


@rule("BatchNorm")
def batch_norm(n: View, x: Tensor, *weights: Tensor) -> Tensor:
    mean, variance, weight, bias = weights_of(weights, 4)
    shape = [1, -1, *[1] * (x.ndim - 2)]
    if n.attr("use_global_stats", True):
        mean, variance = mean.reshape(shape), variance.reshape(shape)
    else:
        axes = [i for i in range(x.ndim) if i != 1]
        mean = paddle.mean(x, axes, True)
        variance = paddle.mean((x - mean) * (x - mean), axes, True)
    made = (x - mean) * paddle.rsqrt(variance + n.attr("eps", 1e-5))
    made = made if weight is None else made * weight.reshape(shape)
    return made if bias is None else made + bias.reshape(shape)


@rule("MVN")
def mvn(n: View, x: Tensor) -> Tensor:
    axes = list(range(1 if n.attr("across_channels", False) else 2, x.ndim))
    centred = x - paddle.mean(x, axes, True)
    if not n.attr("normalize_variance", True):
        return centred
    spread = paddle.sqrt(paddle.mean(centred * centred, axes, True))
    return centred / (spread + n.attr("eps", 1e-9))


@rule("Normalize")
def normalize(n: View, x: Tensor, *weights: Tensor) -> Tensor:
    (weight,) = weights_of(weights, 1)
    axes = list(range(1, x.ndim)) if n.attr("across_spatial", True) else [1]
    norm = paddle.sqrt(paddle.sum(x * x, axes, keepdim=True) + n.attr("eps", 1e-10))
    return x / norm * weight.reshape([1, -1, *[1] * (x.ndim - 2)])


def _spread(n: View, x: Tensor, factor: Tensor, learned: bool) -> Tensor:
    """A factor in the shape in which it broadcasts over x from `axis` on."""
    axis = _axis(n, x)
    sizes = list(factor.shape)
    if learned and n.attr("num_axes", 1) == 0:
        return factor.reshape([])
    if learned:
        count = n.attr("num_axes", 1)
        sizes = list(x.shape[axis:] if count < 0 else x.shape[axis : axis + count])
    return factor.reshape([*sizes, *[1] * (x.ndim - axis - len(sizes))])


@rule("Scale")
def scale(n: View, x: Tensor, *factors: Tensor) -> Tensor:
    learned = n.attr("bottoms", 1) == 1
    factor, bias = weights_of(factors, 2)
    made = x * _spread(n, x, factor, learned)
    return made if bias is None else made + _spread(n, x, bias, learned)


@rule("Bias")
def bias(n: View, x: Tensor, *values: Tensor) -> Tensor:
    (added,) = weights_of(values, 1)
    return x + _spread(n, x, added, n.attr("bottoms", 1) == 1)


# --- element by element ---------------------------------------------------------------------


@rule("ReLU")
def relu(n: View, x: Tensor) -> Tensor:
    slope = n.attr("negative_slope", 0.0)
    return F.leaky_relu(x, slope) if slope else F.relu(x)


rule("ReLU6")(lambda n, x: F.relu6(x))
rule("Sigmoid")(lambda n, x: F.sigmoid(x))
rule("TanH")(lambda n, x: paddle.tanh(x))
rule("AbsVal")(lambda n, x: paddle.abs(x))
rule("BNLL")(lambda n, x: F.softplus(x))
rule("Dropout")(lambda n, x: _dropout(n, x))
rule("Threshold")(lambda n, x: (x > n.attr("threshold", 0.0)).astype(x.dtype))
rule("ELU")(lambda n, x: F.elu(x, n.attr("alpha", 1.0)))
rule("Swish")(lambda n, x: F.silu(x))


def _dropout(n: View, x: Tensor) -> Tensor:
    if not n.attr("scale_train", True):
        raise UnsupportedModel("dropout that scales at inference (scale_train: false) has no rule")
    return x


@rule("PReLU")
def prelu(n: View, x: Tensor, *weights: Tensor) -> Tensor:
    (slope,) = weights_of(weights, 1)
    return paddle.where(x > 0, x, x * slope.reshape([1, -1, *[1] * (x.ndim - 2)]))


@rule("Power")
def power(n: View, x: Tensor) -> Tensor:
    made = x * n.attr("scale", 1.0) + n.attr("shift", 0.0)
    exponent = n.attr("power", 1.0)
    return made if exponent == 1.0 else paddle.pow(made, exponent)


@rule("Exp")
def exp(n: View, x: Tensor) -> Tensor:
    base = n.attr("base", -1.0)
    inner = x * n.attr("scale", 1.0) + n.attr("shift", 0.0)
    return paddle.exp(inner if base == -1.0 else inner * math.log(base))


@rule("Log")
def log(n: View, x: Tensor) -> Tensor:
    base = n.attr("base", -1.0)
    made = paddle.log(x * n.attr("scale", 1.0) + n.attr("shift", 0.0))
    return made if base == -1.0 else made / math.log(base)


@rule("Eltwise")
def eltwise(n: View, *xs: Tensor) -> Tensor:
    kind = n.attr("operation", "SUM")
    coefficients = n.attr("coeff") or [1.0] * len(xs)
    if len(coefficients) != len(xs) or (kind != "SUM" and n.attr("coeff")):
        raise ModelFileError(f"{kind} of {len(xs)} inputs cannot have coeff {coefficients}")
    parts = [x if c == 1.0 else x * c for x, c in zip(xs, coefficients, strict=True)]
    made = parts[0]
    for part in parts[1:]:
        if kind == "SUM":
            made = made + part
        else:
            made = made * part if kind == "PROD" else paddle.maximum(made, part)
    return made


@rule("Axpy")
def axpy(n: View, factor: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return factor * x + y


@rule("Softmax")
def softmax(n: View, x: Tensor) -> Tensor:
    return F.softmax(x, _axis(n, x))


@rule("ArgMax")
def argmax(n: View, x: Tensor) -> Tensor:
    top, with_values = n.attr("top_k", 1), n.attr("out_max_val", False)
    if n.attr("axis") is not None:
        axis = _axis(n, x)
        values, places = paddle.topk(x, top, axis)
        return values if with_values else places.astype(x.dtype)
    values, places = paddle.topk(x.reshape([x.shape[0], -1]), top, 1)
    parts = [places.astype(x.dtype), values] if with_values else [places.astype(x.dtype)]
    return paddle.stack(parts, 1)


@rule("Reduction")
def reduction(n: View, x: Tensor) -> Tensor:
    axes = list(range(_axis(n, x, default=0), x.ndim))
    kind, factor = n.attr("operation", "SUM"), n.attr("coeff", 1.0)
    if kind == "MEAN":
        return paddle.mean(x, axes) * factor
    terms = {"SUM": x, "ASUM": paddle.abs(x), "SUMSQ": x * x}
    return paddle.sum(terms[kind], axes) * factor


# --- shapes ---------------------------------------------------------------------------------


@rule("Split")
def split(n: View, x: Tensor) -> list[Tensor]:
    return [x] * n.attr("outputs", 1)


@rule("Silence")
def silence(n: View, *xs: Tensor) -> list[Tensor]:
    return []


@rule("Concat")
def concat(n: View, *xs: Tensor) -> Tensor:
    name = "axis" if n.attr("axis") is not None else "concat_dim"
    return paddle.concat(list(xs), _axis(n, xs[0], name))


@rule("Slice")
def slice_(n: View, x: Tensor) -> list[Tensor]:
    name = "axis" if n.attr("axis") is not None else "slice_dim"
    axis, points, count = _axis(n, x, name), n.attr("slice_point"), n.attr("outputs", 1)
    if not points:
        return list(paddle.split(x, count, axis)) if count > 1 else [x]
    ends = [0, *points, x.shape[axis]]
    sizes = [b - a for a, b in itertools.pairwise(ends)]
    if len(sizes) != count or min(sizes) <= 0:
        raise ModelFileError(f"{x.shape[axis]} channels cannot be cut at {points}")
    return list(paddle.split(x, sizes, axis))


@rule("Flatten")
def flatten(n: View, x: Tensor) -> Tensor:
    start, end = _axis(n, x), _axis(n, x, "end_axis", -1)
    whole = math.prod(x.shape[start : end + 1])
    return x.reshape([*x.shape[:start], whole, *x.shape[end + 1 :]])


@rule("Reshape")
def reshape(n: View, x: Tensor) -> Tensor:
    sizes = (n.attr("shape") or {}).get("dim", [])
    axis, count = n.attr("axis", 0), n.attr("num_axes", -1)
    start = axis + x.ndim + 1 if axis < 0 else axis
    end = x.ndim if count < 0 else start + count
    if not 0 <= start <= end <= x.ndim:
        raise ModelFileError(f"{x.ndim} sizes have no axes {start} to {end}")
    inner = x.shape[start:end]
    made = [inner[i] if d == 0 else d for i, d in enumerate(sizes)]
    if made.count(-1) == 1:
        at = made.index(-1)
        rest = math.prod([d for i, d in enumerate(made) if i != at])
        made[at] = math.prod(inner) // rest
    whole = [*x.shape[:start], *made, *x.shape[end:]]
    check_size(whole)
    return x.reshape(whole)


@rule("Permute")
def permute(n: View, x: Tensor) -> Tensor:
    order = list(n.attr("order") or [])
    return paddle.transpose(x, [*order, *[i for i in range(x.ndim) if i not in order]])


@rule("Tile")
def tile(n: View, x: Tensor) -> Tensor:
    repeats = [1] * x.ndim
    repeats[_axis(n, x)] = n.attr("tiles", 1)
    check_size([d * r for d, r in zip(x.shape, repeats, strict=True)])
    return paddle.tile(x, repeats)


@rule("Crop")
def crop(n: View, x: Tensor, like: Tensor) -> Tensor:
    axis, offsets = _axis(n, x, default=2), list(n.attr("offset") or [0])
    if len(offsets) == 1:
        offsets = offsets * (x.ndim - axis)
    if len(offsets) != x.ndim - axis:
        raise ModelFileError(f"{len(offsets)} offsets for {x.ndim - axis} axes")
    cut: list[Any] = [slice(None)] * axis
    for i, offset in enumerate(offsets):
        size = like.shape[axis + i]
        have = x.shape[axis + i]
        if type(size) is int and type(have) is int and offset + size > have:
            raise ModelFileError(f"{size} elements from {offset} on do not lie in {have}")
        cut.append(slice(offset, offset + size))
    return x[tuple(cut)]


@rule("ShuffleChannel")
def shuffle_channel(n: View, x: Tensor) -> Tensor:
    b, c, *space = x.shape
    groups = n.attr("group", 1)
    parts = x.reshape([b, groups, c // groups, *space])
    return paddle.transpose(parts, [0, 2, 1, *range(3, parts.ndim)]).reshape([b, c, *space])


@rule("Parameter")
def parameter(n: View, *weights: Tensor) -> Tensor:
    return weights_of(weights, 1)[0]
