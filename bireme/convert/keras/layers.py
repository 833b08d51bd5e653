"""One rule per kind of layer that Keras has.

    @layer("LeakyReLU")
    def leaky_relu(n, xs, w):
        return F.leaky_relu(xs[0], n.attr("negative_slope", 0.3))

A rule gets the node with the layer's settings, its tensors, and its weights by Keras' names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

import bireme as paddle
from bireme.convert import nhwc
from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.imported import View, check_size
from bireme.convert.program import Rules
from bireme.core.tensor import Tensor
from bireme.nn import functional as F

rule = Rules("Keras", "bireme.convert.keras")

Weights = Mapping[str, Tensor]
LayerRule = Callable[[View, Sequence[Tensor], Weights], Tensor]


def layer(
    *names: str, activates: bool = True, named: bool = False, numbers: bool = False
) -> Callable[[LayerRule], LayerRule]:
    """Register a rule. The activation that a layer has behind it is added, unless it `activates`
    by itself in another way. Tensors that a call names and numbers in its place are refused,
    unless the rule looks at `named` or takes `numbers`."""

    def add(function: LayerRule) -> LayerRule:
        def run(n: View, *values: Tensor) -> Tensor:
            if n.attr("policy") not in (None, "float32", "int32", "int64", "bool"):
                raise UnsupportedModel(f"the dtype policy {n.attr('policy')!r:.60} has no rule")
            extra = n.attr("extra") or []
            if extra and not (numbers and all(type(e) in (int, float) for e in extra)):
                raise UnsupportedModel(f"a call with {n.attr('extra')!r:.100} has no rule")
            if n.attr("named") and not named:
                raise UnsupportedModel(f"a call with {n.attr('named')!r:.100} has no rule")
            count = n.attr("tensors")
            weights = dict(zip(n.attr("weights"), values[count:], strict=True))
            made = function(n, values[:count], weights)
            return activated(n, n.attr("activation"), made) if activates else made

        rule(*names)(run)
        return function

    return add


rule("alias")(lambda n, x: x)

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x,
    "relu": F.relu,
    "relu6": F.relu6,
    "sigmoid": F.sigmoid,
    "tanh": paddle.tanh,
    "softmax": lambda x: F.softmax(x, -1),
    "softplus": F.softplus,
    "softsign": F.softsign,
    "elu": F.elu,
    "selu": F.selu,
    "gelu": F.gelu,
    "swish": F.silu,
    "silu": F.silu,
    "exponential": paddle.exp,
    "hard_silu": F.hardswish,
    "hard_swish": F.hardswish,
    "mish": F.mish,
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "log_sigmoid": F.log_sigmoid,
}


def activated(n: View, kind: Any, x: Tensor) -> Tensor:
    """The activation that a configuration names."""
    if isinstance(kind, dict):
        inner = kind.get("config")
        kind = inner if isinstance(inner, str) else kind.get("class_name")
    if kind is None:
        return x
    if kind == "hard_sigmoid":  # Keras 3 has PyTorch's
        old = str(n.attr("version")).startswith(("1.", "2."))
        return paddle.clip(x * 0.2 + 0.5, 0.0, 1.0) if old else F.relu6(x + 3.0) / 6.0
    if kind not in _ACTIVATIONS:
        raise UnsupportedModel(f"the activation {kind!r:.80} has no rule")
    return _ACTIVATIONS[kind](x)


def _ints(n: View, name: str, rank: int, default: int = 1) -> list[int]:
    found = n.attr(name, default)
    made = [found] * rank if isinstance(found, int) else [int(v) for v in found]
    if len(made) != rank:
        raise ModelFileError(f"{name} has {len(made)} numbers for {rank} dimensions")
    return made


def _last(n: View, x: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
    """Runs what has its channels last."""
    if n.attr("data_format") != "channels_first":
        return run(x)
    made = run(paddle.moveaxis(x, 1, -1))
    return paddle.moveaxis(made, -1, 1) if made.ndim == x.ndim else made


def _front(weight: Tensor) -> Tensor:
    """[*kernel, in, out] as [out, in, *kernel]."""
    rank = weight.ndim - 2
    return paddle.transpose(weight, [rank + 1, rank, *range(rank)])


# --- products and convolutions --------------------------------------------------------------


@layer("Dense")
def dense(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    made = paddle.matmul(xs[0], w["kernel"])
    return made + w["bias"] if "bias" in w else made


@layer("Conv1D", "Conv2D", "Conv3D")
def conv(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    rank = w["kernel"].ndim - 2
    strides, holes = _ints(n, "strides", rank), _ints(n, "dilation_rate", rank)
    padding: Any = str(n.attr("padding", "valid")).upper()
    if padding == "CAUSAL":
        padding = (((w["kernel"].shape[0] - 1) * holes[0], 0),)
    return _last(
        n,
        xs[0],
        lambda x: nhwc.conv(x, _front(w["kernel"]), w.get("bias"), strides, padding, holes),
    )


@layer("DepthwiseConv1D", "DepthwiseConv2D")
def depthwise(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    return _last(n, xs[0], lambda x: _depthwise(n, x, w["kernel"], w.get("bias")))


def _depthwise(n: View, x: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
    """A kernel [*kernel, in, multiplier] for each channel."""
    rank = kernel.ndim - 2
    flat = kernel.reshape([*kernel.shape[:rank], 1, -1])
    strides, holes = _ints(n, "strides", rank), _ints(n, "dilation_rate", rank)
    padding = str(n.attr("padding", "valid")).upper()
    return nhwc.conv(x, _front(flat), bias, strides, padding, holes)


@layer("SeparableConv1D", "SeparableConv2D")
def separable(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    ones = [1] * (w["depthwise"].ndim - 2)

    def run(x: Tensor) -> Tensor:
        made = _depthwise(n, x, w["depthwise"], None)
        return nhwc.conv(made, _front(w["pointwise"]), w.get("bias"), ones, "VALID", ones)

    return _last(n, xs[0], run)


@layer("Conv1DTranspose", "Conv2DTranspose")
def conv_transpose(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    rank = w["kernel"].ndim - 2
    if n.attr("output_padding") is not None:
        raise UnsupportedModel("output_padding has no rule")
    strides, holes = _ints(n, "strides", rank), _ints(n, "dilation_rate", rank)
    padding = str(n.attr("padding", "valid")).upper()

    def run(x: Tensor) -> Tensor:
        space = [
            size * s + (max((k - 1) * d + 1 - s, 0) if padding == "VALID" else 0)
            for size, s, k, d in zip(x.shape[1:-1], strides, w["kernel"].shape, holes, strict=False)
        ]
        return nhwc.conv_transpose(
            x, _front(w["kernel"]), w.get("bias"), space, strides, padding, holes
        )

    return _last(n, xs[0], run)


@layer("Embedding")
def embedding(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    if n.attr("mask_zero"):
        raise UnsupportedModel("an embedding that makes a mask (mask_zero) has no rule")
    return F.embedding(xs[0].astype("int64"), w["embeddings"])


# --- pooling --------------------------------------------------------------------------------


def _pooling(kind: str, rank: int) -> LayerRule:
    def run(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
        window = _ints(n, "pool_size", rank, 2)
        strides = window if n.attr("strides") is None else _ints(n, "strides", rank)
        padding = str(n.attr("padding", "valid")).upper()
        return _last(n, xs[0], lambda x: nhwc.pool(kind, x, window, strides, padding))

    return run


def _whole(reduce: Callable[..., Tensor]) -> LayerRule:
    def run(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
        first = n.attr("data_format") == "channels_first"
        axes = list(range(2 if first else 1, xs[0].ndim - (not first)))
        return reduce(xs[0], axes, keepdim=bool(n.attr("keepdims", False)))

    return run


for _rank in (1, 2, 3):
    layer(f"MaxPooling{_rank}D")(_pooling("max", _rank))
    layer(f"AveragePooling{_rank}D")(_pooling("avg", _rank))
    layer(f"GlobalMaxPooling{_rank}D")(_whole(paddle.max))
    layer(f"GlobalAveragePooling{_rank}D")(_whole(paddle.mean))


# --- norms ----------------------------------------------------------------------------------


def _along(n: View, x: Tensor, value: Tensor, axes: Sequence[int]) -> Tensor:
    shape = [x.shape[i] if i in axes else 1 for i in range(x.ndim)]
    return value.reshape(shape)


def _axes(n: View, x: Tensor) -> list[int]:
    found = n.attr("axis", -1)
    return [a % x.ndim for a in ([found] if isinstance(found, int) else found)]


def _affine(n: View, x: Tensor, w: Weights, axes: Sequence[int]) -> Tensor:
    x = x * _along(n, x, w["gamma"], axes) if "gamma" in w else x
    return x + _along(n, x, w["beta"], axes) if "beta" in w else x


@layer("BatchNormalization")
def batch_norm(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    x = xs[0]
    axes = _axes(n, x)
    mean, variance = (_along(n, x, w[k], axes) for k in ("moving_mean", "moving_variance"))
    return _affine(n, (x - mean) * paddle.rsqrt(variance + n.attr("epsilon", 1e-3)), w, axes)


@layer("LayerNormalization")
def layer_norm(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    if n.attr("rms_scaling"):
        raise UnsupportedModel("rms_scaling has no rule")
    x = xs[0]
    axes = _axes(n, x)
    centred = x - paddle.mean(x, axes, True)
    spread = paddle.mean(centred * centred, axes, True)
    return _affine(n, centred * paddle.rsqrt(spread + n.attr("epsilon", 1e-3)), w, axes)


@layer("Normalization")
def normalization(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    x = xs[0]
    axes = [] if n.attr("axis", -1) is None else _axes(n, x)
    if "mean" in w:
        mean, variance = (_along(n, x, w[k], axes) for k in ("mean", "variance"))
    else:
        made = [np.asarray(n.attr(k), np.float32) for k in ("mean", "variance")]
        shape = [x.shape[i] if i in axes else 1 for i in range(x.ndim)]
        mean, variance = (
            paddle.to_tensor(m.reshape(shape) if m.size > 1 else m.reshape([])) for m in made
        )
    spread = paddle.clip(paddle.sqrt(variance), min=1e-7)
    return x * spread + mean if n.attr("invert") else (x - mean) / spread


@layer("Rescaling")
def rescaling(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    scale, offset = (np.asarray(n.attr(k, d), np.float32) for k, d in (("scale", 1), ("offset", 0)))
    return xs[0].astype("float32") * paddle.to_tensor(scale) + paddle.to_tensor(offset)


@layer("RMSNormalization")
def rms_norm(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    x = xs[0]
    axes = _axes(n, x)
    spread = paddle.mean(x * x, axes, True)
    return x * paddle.rsqrt(spread + n.attr("epsilon", 1e-6)) * _along(n, x, w["scale"], axes)


@layer("GroupNormalization")
def group_norm(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    x = xs[0]
    (axis,) = _axes(n, x)
    last = paddle.moveaxis(x, axis, -1)
    channels = last.shape[-1]
    groups = channels if n.attr("groups", 32) == -1 else n.attr("groups", 32)
    parts = last.reshape([last.shape[0], -1, groups, channels // groups])
    centred = parts - paddle.mean(parts, [1, 3], True)
    spread = paddle.mean(centred * centred, [1, 3], True)
    made = (centred * paddle.rsqrt(spread + n.attr("epsilon", 1e-3))).reshape(last.shape)
    return _affine(n, paddle.moveaxis(made, -1, axis), w, [axis])


@layer("UnitNormalization")
def unit_norm(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    total = paddle.sum(xs[0] * xs[0], _axes(n, xs[0]), keepdim=True)
    return xs[0] * paddle.rsqrt(paddle.clip(total, min=1e-12))


@layer("LayerScale")
def layer_scale(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    return xs[0] * w["gamma"]


# --- element by element ---------------------------------------------------------------------


@layer("Activation")
def activation(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    return xs[0]


@layer(
    "Dropout",
    "SpatialDropout1D",
    "SpatialDropout2D",
    "SpatialDropout3D",
    "AlphaDropout",
    "GaussianDropout",
    "GaussianNoise",
    "ActivityRegularization",
    "StochasticDepth",
    "Identity",
)
def unchanged(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    return xs[0]


@layer("ReLU")
def relu(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    slope, edge = n.attr("negative_slope") or 0.0, n.attr("threshold") or 0.0
    x = xs[0]
    made = paddle.where(x >= edge, x, slope * (x - edge)) if slope or edge else F.relu(x)
    most = n.attr("max_value")
    return made if most is None else paddle.clip(made, max=float(most))


@layer("LeakyReLU")
def leaky_relu(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    slope = n.attr("negative_slope", n.attr("alpha", 0.3))
    return F.leaky_relu(xs[0], float(slope))


@layer("PReLU")
def prelu(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    return paddle.where(xs[0] > 0, xs[0], xs[0] * w["alpha"])


@layer("ELU")
def elu(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    return F.elu(xs[0], float(n.attr("alpha", 1.0)))


@layer("Softmax")
def softmax(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    axes = _axes(n, xs[0])
    if len(axes) != 1:
        raise UnsupportedModel("a softmax over several axes has no rule")
    return F.softmax(xs[0], axes[0])


def _folded(function: Callable[[Tensor, Tensor], Tensor], mean: bool = False) -> LayerRule:
    def run(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
        made = xs[0]
        for x in xs[1:]:
            made = function(made, x)
        for number in n.attr("extra") or []:
            made = function(made, paddle.full([], number, made.dtype))
        return made / len(xs) if mean else made

    return run


for _name, _function in {
    "Add": paddle.add,
    "Subtract": paddle.subtract,
    "Multiply": paddle.multiply,
    "Maximum": paddle.maximum,
    "Minimum": paddle.minimum,
}.items():
    layer(_name, numbers=_name != "Subtract")(_folded(_function))
layer("Average")(_folded(paddle.add, True))


@layer("Concatenate")
def concatenate(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    return paddle.concat(list(xs), n.attr("axis", -1))


# --- shapes ---------------------------------------------------------------------------------


@layer("Flatten")
def flatten(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    x = xs[0]
    if n.attr("data_format") == "channels_first" and x.ndim > 2:
        x = paddle.moveaxis(x, 1, -1)
    return x.reshape([x.shape[0], math.prod(x.shape[1:])])


@layer("Reshape")
def reshape(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    x, sizes = xs[0], list(n.attr("target_shape"))
    if sizes.count(-1) == 1:
        known = math.prod([s for s in sizes if s != -1])
        sizes[sizes.index(-1)] = math.prod(x.shape[1:]) // known
    check_size(sizes)
    return x.reshape([x.shape[0], *sizes])


@layer("Permute")
def permute(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    return paddle.transpose(xs[0], [0, *n.attr("dims")])


@layer("RepeatVector")
def repeat_vector(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    check_size([*xs[0].shape[1:], n.attr("n")])
    return paddle.tile(xs[0].unsqueeze(1), [1, n.attr("n"), 1])


def _pairs(n: View, name: str, rank: int) -> list[tuple[int, int]]:
    found = n.attr(name, 1)
    made = [found] * rank if isinstance(found, int) else list(found)
    if rank == 1 and len(made) == 2:
        made = [made]
    return [(p, p) if isinstance(p, int) else (int(p[0]), int(p[1])) for p in made]


def _padding(rank: int) -> LayerRule:
    def run(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
        pairs = _pairs(n, "padding", rank)
        return _last(n, xs[0], lambda x: nhwc.pad(x, [(0, 0), *pairs, (0, 0)]))

    return run


def _cropping(rank: int) -> LayerRule:
    def run(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
        cuts = [slice(a, -b if b else None) for a, b in _pairs(n, "cropping", rank)]
        return _last(n, xs[0], lambda x: x[(slice(None), *cuts)])

    return run


for _rank in (1, 2, 3):
    layer(f"ZeroPadding{_rank}D")(_padding(_rank))
    layer(f"Cropping{_rank}D")(_cropping(_rank))


@layer("UpSampling1D", "UpSampling2D")
def up_sampling(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    rank = xs[0].ndim - 2
    factors, kind = _ints(n, "size", rank, 2), n.attr("interpolation", "nearest")

    def run(x: Tensor) -> Tensor:
        if kind == "bilinear":
            sizes = [s * f for s, f in zip(x.shape[1:3], factors, strict=True)]
            return nhwc.resize_bilinear(x, sizes, False, True)
        if kind != "nearest":
            raise UnsupportedModel(f"the interpolation {kind!r:.40} has no rule")
        check_size([d * f for d, f in zip(x.shape[1:-1], factors, strict=True)])
        for axis, factor in enumerate(factors, 1):
            x = paddle.repeat_interleave(x, factor, axis)
        return x

    return _last(n, xs[0], run)


import_module("bireme.convert.keras.sequences")
