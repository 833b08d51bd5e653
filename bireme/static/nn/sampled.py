"""A loss over many classes, estimated from a few samples of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor, constant
from bireme.nn import functional as F
from bireme.nn.attributes import ParamAttrLike
from bireme.ops.indexing import gather
from bireme.ops.joining import concat
from bireme.ops.manipulation import reshape
from bireme.ops.math_unary import exp, floor, log
from bireme.ops.random import uniform
from bireme.ops.search import searchsorted
from bireme.static.nn.helper import Maker, known

_SAMPLERS = ("uniform", "log_uniform", "custom_dist")


def nce(
    input: Tensor,
    label: Tensor,
    num_total_classes: int,
    sample_weight: Tensor | None = None,
    param_attr: ParamAttrLike | None = None,
    bias_attr: ParamAttrLike | None = None,
    num_neg_samples: int | None = None,
    name: str | None = None,
    sampler: str = "uniform",
    custom_dist: Sequence[float] | None = None,
    seed: int = 0,
    is_sparse: bool = False,
) -> Tensor:
    """Noise-contrastive estimation, [batch, 1]: each row's labels against classes drawn at random.

    Classes are drawn evenly, by log_uniform (frequent ones have small numbers) or by `custom_dist`.
    A `seed` other than 0 draws the same ones in every run. The gradient of the weight is dense
    whatever `is_sparse` says.
    """
    if input.ndim != 2 or label.ndim != 2:
        raise ShapeMismatch(
            "[nce] takes input [batch, width] and label [batch, labels]. Received: "
            f"{input._value.aval} and {label._value.aval}"
        )
    if not label.dtype.is_integer:
        raise TypeMismatch(f"[nce] labels are integers. Received: {label.dtype.name}")
    if sampler not in _SAMPLERS or (sampler == "custom_dist") != (custom_dist is not None):
        raise InvalidArgument(
            f"[nce] sampler must be one of {', '.join(_SAMPLERS)}, and custom_dist goes with the "
            f"last. Received: {sampler!r}, custom_dist={custom_dist!r}"
        )
    if num_total_classes < 2:
        raise InvalidArgument(f"[nce] there are two classes or more. Received: {num_total_classes}")
    if custom_dist is not None and len(custom_dist) != num_total_classes:
        raise InvalidArgument(
            f"[nce] custom_dist needs {num_total_classes} probabilities. Received: "
            f"{len(custom_dist)}"
        )
    count = 10 if num_neg_samples is None else int(num_neg_samples)
    maker = Maker("nce", name, input.dtype)
    weight = maker.weight([num_total_classes, known(input, 1, "nce")], param_attr)
    bias = maker.bias([num_total_classes, 1], bias_attr)

    true = known(label, 1, "nce")
    label = label.astype("int64")
    # Symbolic sizes: the noise has as many rows as the labels have.
    noise = _drawn(label.shape[0], count, num_total_classes, sampler, custom_dist, seed)
    classes = concat([label, noise], 1)
    flat = reshape(classes, [-1])
    rows = reshape(gather(weight, flat), [-1, true + count, weight.shape[1]])
    scores = (rows * input.unsqueeze(1)).sum(-1)
    if bias is not None:
        scores = scores + reshape(gather(bias, flat), [-1, true + count])
    odds = F.sigmoid(scores)
    noisy = _probability(classes, num_total_classes, sampler, custom_dist).astype(odds.dtype)
    noisy = noisy * count
    hit = -log(odds[:, :true] / (odds[:, :true] + noisy[:, :true]))
    missed = -log(noisy[:, true:] / (odds[:, true:] + noisy[:, true:]))
    cost = hit.sum(1, keepdim=True) + missed.sum(1, keepdim=True)
    if sample_weight is not None:
        cost = cost * reshape(sample_weight, [-1, 1]).astype(cost.dtype)
    return cost / (count + 1)


def _drawn(
    rows: Any, count: int, classes: int, sampler: str, dist: Sequence[float] | None, seed: int
) -> Tensor:
    unit = uniform([rows, count], "float32", 0.0, 1.0, seed)
    if sampler == "uniform":
        drawn = floor(unit * classes)
    elif sampler == "log_uniform":
        drawn = floor(exp(unit * math.log(classes))) - 1  # as in Paddle, never the last
    else:
        ends = np.cumsum(np.asarray(dist, "float32"))
        drawn = searchsorted(constant(ends / ends[-1]), unit, right=True)
    return drawn.astype("int64").clip(0, classes - 1)


def _probability(classes: Tensor, total: int, sampler: str, dist: Sequence[float] | None) -> Tensor:
    """How likely each class is to be drawn."""
    if sampler == "uniform":
        return (classes * 0).astype("float32") + 1 / total
    if sampler == "log_uniform":
        wide = classes.astype("float32")
        return log((wide + 2) / (wide + 1)) / math.log(total)
    table = constant(np.asarray(dist, "float32"))
    return reshape(gather(table, reshape(classes, [-1])), [-1, classes.shape[1]])


__all__ = ["nce"]
