"""Losses that compare distances, similarities and margins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bireme.api.public import namespace
from bireme.core.aval import Aval
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.op import op
from bireme.core.requirements import InRange
from bireme.core.tensor import Tensor
from bireme.ops.activation import softplus_of
from bireme.ops.common import pairwise_distance
from bireme.ops.nn_support import check_reduction, need_float, need_integer, reduce_loss
from bireme.ops.softmax import log_softmax_of

public = namespace("paddle.nn.functional")


def _one_shape(**shapes: Any) -> None:
    first, *others = shapes.values()
    if any(s != first for s in others):
        names = ", ".join(shapes)
        shown = ", ".join(str(list(s)) for s in shapes.values())
        raise ShapeMismatch(f"{names} must have one shape, not {shown}")


def _pair_check(input: Aval, label: Aval, *rest: Any, **attrs: Any) -> None:
    need_float("input", input)
    _one_shape(input=input.shape, label=label.shape)


@op(name="margin_ranking_loss", inputs=("input", "other", "label", "margin"))
def _margin_ranking_loss(xp, input, other, label, margin, reduction="mean"):
    return reduce_loss(xp, xp.maximum((other - input) * label + margin, 0), reduction)


@public(takes="bfc")
def margin_ranking_loss(
    input: Tensor,
    other: Tensor,
    label: Tensor,
    margin: float = 0.0,
    reduction: str = "mean",
    name: str | None = None,
) -> Tensor:
    """max(0, -label * (input - other) + margin): label 1 wants input above other."""
    check_reduction("margin_ranking_loss", reduction)
    return _margin_ranking_loss(input, other, label, float(margin), reduction)


@op(name="hinge_embedding_loss", inputs=("input", "label", "margin"))
def _hinge_embedding_loss(xp, input, label, margin, reduction="mean"):
    near = xp.where(label == 1, input, 0)
    far = xp.where(label == -1, xp.maximum(margin - input, 0), 0)
    return reduce_loss(xp, near + far, reduction)


@public(takes="fc")
def hinge_embedding_loss(
    input: Tensor,
    label: Tensor,
    margin: float = 1.0,
    reduction: str = "mean",
    name: str | None = None,
) -> Tensor:
    """`input` where label is 1, max(0, margin - input) where it is -1."""
    check_reduction("hinge_embedding_loss", reduction)
    return _hinge_embedding_loss(input, label, float(margin), reduction)


def _cosine_check(input1: Aval, input2: Aval, label: Aval, margin: Any, reduction: str) -> None:
    need_float("input1", input1)
    _one_shape(input1=input1.shape, input2=input2.shape)
    if input1.ndim > 2 or label.ndim > 1:
        raise ShapeMismatch("inputs must be vectors or matrices, label one number per row")


@op(
    name="cosine_embedding_loss",
    inputs=("input1", "input2", "label", "margin"),
    check=_cosine_check,
)
def _cosine_embedding_loss(xp, input1, input2, label, margin, reduction="mean"):
    dot = xp.sum(input1 * input2, axis=-1)
    n1 = xp.sum(input1 * input1, axis=-1) + 1e-11
    n2 = xp.sum(input2 * input2, axis=-1) + 1e-11
    cosine = dot / xp.sqrt(n1 * n2)
    alike = xp.where(label == 1, 1 - cosine, 0)
    unlike = xp.where(label == -1, xp.maximum(cosine - margin, 0), 0)
    return reduce_loss(xp, alike + unlike, reduction)


@public
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    label: Tensor,
    margin: float = 0,
    reduction: str = "mean",
    name: str | None = None,
) -> Tensor:
    """1 - cos where label is 1, max(0, cos - margin) where it is -1."""
    check_reduction("cosine_embedding_loss", reduction)
    return _cosine_embedding_loss(input1, input2, label, float(margin), reduction)


@op(inputs=("near", "far", "swapped", "margin"))
def _triplet(xp, near, far, swapped, margin, reduction="mean"):
    if swapped is not None:
        far = xp.minimum(far, swapped)
    return reduce_loss(xp, xp.maximum(near - far + margin, 0), reduction)


@public(takes="bfc")
def triplet_margin_with_distance_loss(
    input: Tensor,
    positive: Tensor,
    negative: Tensor,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
    name: str | None = None,
) -> Tensor:
    """max(0, d(input, positive) - d(input, negative) + margin) with any distance d."""
    check_reduction("triplet_margin_with_distance_loss", reduction)
    _check_triplet("triplet_margin_with_distance_loss", input, positive, negative, margin)
    distance = distance_function or pairwise_distance
    near, far = distance(input, positive), distance(input, negative)
    swapped = distance(positive, negative) if swap else None
    return _triplet(near, far, swapped, float(margin), reduction)


@public(takes="bfc")
def triplet_margin_loss(
    input: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    epsilon: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
    name: str | None = None,
) -> Tensor:
    """max(0, |input - positive|_p - |input - negative|_p + margin)."""
    check_reduction("triplet_margin_loss", reduction)
    _check_triplet("triplet_margin_loss", input, positive, negative, margin)
    near = pairwise_distance(input, positive, p, epsilon)
    far = pairwise_distance(input, negative, p, epsilon)
    swapped = pairwise_distance(positive, negative, p, epsilon) if swap else None
    return _triplet(near, far, swapped, float(margin), reduction)


def _check_triplet(
    function: str, input: Tensor, positive: Tensor, negative: Tensor, margin: float
) -> None:
    if margin < 0:
        raise InvalidArgument(f"[{function}] margin must not be negative. Received: {margin}")
    shapes = [list(t.shape) for t in (input, positive, negative)]
    if shapes[0] != shapes[1] or shapes[0] != shapes[2]:
        raise ShapeMismatch(
            f"[{function}] input, positive and negative must have one shape. Received: {shapes}"
        )


def _multi_margin_check(
    input: Aval, label: Aval, weight: Aval | None, margin: Any, p: int, reduction: str
) -> None:
    need_float("input", input)
    need_integer("label", label)
    if input.ndim != 2 or label.shape != input.shape[:1]:
        raise ShapeMismatch("input must be [batch, classes] and label [batch]")
    if weight is not None and weight.shape != input.shape[1:]:
        raise ShapeMismatch("'weight' must hold one number per class")


@op(
    name="multi_margin_loss",
    inputs=("input", "label", "weight", "margin"),
    check=_multi_margin_check,
    requires=lambda input, *_, **__: [InRange("label", 0, input.shape[1] - 1)],
)
def _multi_margin_loss(xp, input, label, weight, margin, p=1, reduction="mean"):
    index = xp.reshape(label, (-1, 1))
    own = xp.take_along_axis(input, index, axis=1)
    is_other = index != xp.arange(input.shape[1], dtype=index.dtype)
    terms = xp.where(is_other, xp.maximum(margin - own + input, 0), 0) ** p
    if weight is not None:
        terms = terms * xp.take(weight, index)
    return reduce_loss(xp, xp.mean(terms, axis=1), reduction)


@public
def multi_margin_loss(
    input: Tensor,
    label: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    reduction: str = "mean",
    name: str | None = None,
) -> Tensor:
    """Mean over the other classes of max(0, margin - own score + other score)^p."""
    check_reduction("multi_margin_loss", reduction)
    return _multi_margin_loss(input, label, weight, float(margin), p, reduction)


def _multi_label_check(input: Aval, label: Aval, reduction: str) -> None:
    need_integer("label", label)
    if input.ndim != 2 or label.ndim != 2:
        raise ShapeMismatch("input and label must be matrices [batch, classes]")


@op(
    name="multi_label_margin_loss",
    inputs=("input", "label"),
    check=_multi_label_check,
    takes={"input": "if"},
)
def _multi_label_margin_loss(xp, input, label, reduction="mean"):
    if input.dtype.kind in "iu":
        input = input.astype(np.float32)
    # Labels count up to the first -1.
    valid = xp.cumprod((label != -1).astype(label.dtype), axis=1) > 0
    safe = xp.where(valid, label, 0)
    classes = xp.arange(input.shape[1], dtype=label.dtype)
    chosen = (safe[:, :, None] == classes) & valid[:, :, None]
    is_target = xp.any(chosen, axis=1)
    own = xp.take_along_axis(input, safe, axis=1)
    terms = xp.maximum(1 - own[:, :, None] + input[:, None, :], 0)
    counted = valid[:, :, None] & ~is_target[:, None, :]
    loss = xp.sum(xp.where(counted, terms, 0), axis=(1, 2)) / input.shape[1]
    return reduce_loss(xp, loss, reduction)


@public
def multi_label_margin_loss(
    input: Tensor, label: Tensor, reduction: str = "mean", name: str | None = None
) -> Tensor:
    """Hinge loss between every target class of a row and every other class.

    A row of `label` lists class numbers; a -1 ends the list.
    """
    check_reduction("multi_label_margin_loss", reduction)
    return _multi_label_margin_loss(input, label, reduction)


def _soft_label_check(input: Aval, label: Aval, weight: Aval | None, reduction: str) -> None:
    _one_shape(input=input.shape, label=label.shape)


@op(
    name="multi_label_soft_margin_loss",
    inputs=("input", "label", "weight"),
    check=_soft_label_check,
    takes={"input": "fc"},
)
def _multi_label_soft_margin_loss(xp, input, label, weight, reduction="mean"):
    loss = label * softplus_of(xp, -input) + (1 - label) * softplus_of(xp, input)
    if weight is not None:
        loss = loss * weight
    return reduce_loss(xp, xp.mean(loss, axis=-1), reduction)


@public
def multi_label_soft_margin_loss(
    input: Tensor,
    label: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    name: str | None = None,
) -> Tensor:
    """Binary cross entropy of every class, the mean over the classes."""
    check_reduction("multi_label_soft_margin_loss", reduction)
    return _multi_label_soft_margin_loss(input, label, weight, reduction)


@op(
    name="soft_margin_loss",
    inputs=("input", "label"),
    takes={"input": "ifc"},
    check=lambda input, label, reduction: _one_shape(input=input.shape, label=label.shape),
)
def _soft_margin_loss(xp, input, label, reduction="mean"):
    if input.dtype.kind in "iu":
        input = input.astype(np.float32)
    return reduce_loss(xp, softplus_of(xp, -label.astype(input.dtype) * input), reduction)


@public
def soft_margin_loss(
    input: Tensor, label: Tensor, reduction: str = "mean", name: str | None = None
) -> Tensor:
    """log(1 + exp(-label * input)) with labels 1 and -1."""
    check_reduction("soft_margin_loss", reduction)
    return _soft_margin_loss(input, label, reduction)


# --- large sets of classes ----------------------------------------------------------------------


def _angular_check(
    logits: Aval, label: Aval, margin1: Any, margin2: Any, margin3: Any, scale: Any
) -> None:
    need_float("logits", logits)
    need_integer("label", label)
    if logits.ndim != 2 or label.shape != logits.shape[:1]:
        raise ShapeMismatch("logits must be [batch, classes] and label [batch] or [batch, 1]")


@op(
    name="margin_cross_entropy",
    check=_angular_check,
    amp="black",
    requires=lambda logits, *_, **__: [InRange("label", 0, logits.shape[1] - 1)],
)
def _angular_margin(xp, logits, label, margin1, margin2, margin3, scale):
    """(loss [batch, 1], softmax); the target's cosine becomes cos(m1 * angle + m2) - m3."""
    hit = label[:, None] == xp.arange(logits.shape[1], dtype=label.dtype)
    # Just inside (-1, 1), where the slope of arccos is finite.
    angle = xp.arccos(xp.clip(xp.where(hit, logits, 0.0), -1 + 1e-7, 1 - 1e-7))
    scores = scale * xp.where(hit, xp.cos(margin1 * angle + margin2) - margin3, logits)
    log_p = log_softmax_of(xp, scores, 1)
    return -xp.sum(xp.where(hit, log_p, 0), axis=1, keepdims=True), xp.exp(log_p)


@op(inputs=("loss",))
def _reduced(xp, loss, reduction="mean"):
    return reduce_loss(xp, loss, reduction)


@op(inputs=("label",), differentiable=False)
def _flat_labels(xp, label):
    return xp.reshape(label, (-1,))


@public
def margin_cross_entropy(
    logits: Tensor,
    label: Tensor,
    margin1: float = 1.0,
    margin2: float = 0.5,
    margin3: float = 0.0,
    scale: float = 64.0,
    group: Any = None,
    return_softmax: bool = False,
    reduction: str | None = "mean",
) -> Any:
    """Cross entropy of cosines with a margin for the target (ArcFace, CosFace, SphereFace).

    `group` must be None or False here: classes that are split over processes are a sharding of
    `logits`, which this function follows by itself.
    """
    if group:
        raise InvalidArgument(
            "[margin_cross_entropy] group must be None or False; shard logits over the mesh "
            f"instead. Received: {group!r}"
        )
    reduction = reduction or "none"
    check_reduction("margin_cross_entropy", reduction)
    if label.ndim == 2:
        label = _flat_labels(label)
    margins = (float(margin1), float(margin2), float(margin3), float(scale))
    loss, weights = _angular_margin(logits, label, *margins)
    loss = _reduced(loss, reduction)
    return (loss, weights) if return_softmax else loss


def _adaptive_check(
    input: Aval, label: Aval, head: Aval, tails: Any, head_bias: Aval | None, cutoffs: Any
) -> None:
    need_float("input", input)
    need_integer("label", label)
    if input.ndim != label.ndim + 1 or label.ndim > 1 or input.shape[:-1] != label.shape:
        raise ShapeMismatch("input must be [batch, width] with label [batch], or [width] with []")
    if len(tails) != 2 * (len(cutoffs) - 1):
        raise ShapeMismatch(
            f"{len(cutoffs)} cutoffs need {len(cutoffs) - 1} pairs of tail weights, not "
            f"{len(tails) // 2}"
        )


@op(
    name="adaptive_log_softmax_with_loss",
    inputs=("input", "label", "head", "*tails", "head_bias"),
    check=_adaptive_check,
    requires=lambda *_, cutoffs, **__: [InRange("label", 0, cutoffs[-1] - 1)],
)
def _adaptive_log_softmax(xp, input, label, head, tails, head_bias, cutoffs=()):
    rows = xp.reshape(input, (-1, input.shape[-1]))
    target = xp.reshape(label, (-1,))
    scores = xp.matmul(rows, head)
    if head_bias is not None:
        scores = scores + head_bias
    place = xp.where(target < cutoffs[0], target, 0)
    total = xp.zeros_like(rows[:, 0])
    for i in range(len(cutoffs) - 1):
        low, high = cutoffs[i], cutoffs[i + 1]
        here = (target >= low) & (target < high)
        place = xp.where(here, cutoffs[0] + i, place)
        inner = xp.matmul(xp.matmul(rows, tails[2 * i]), tails[2 * i + 1])
        own = xp.where(here, target - low, 0)[:, None]
        log_p = xp.take_along_axis(log_softmax_of(xp, inner, 1), own, axis=1)[:, 0]
        total = total + xp.where(here, log_p, 0)
    total = total + xp.take_along_axis(log_softmax_of(xp, scores, 1), place[:, None], axis=1)[:, 0]
    return xp.reshape(total, label.shape), xp.mean(-total)


@public
def adaptive_log_softmax_with_loss(
    input: Tensor,
    label: Tensor,
    head_weight: Tensor,
    tail_weights: Sequence[Sequence[Tensor]],
    cutoffs: Sequence[int],
    head_bias: Tensor | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """(log-probability of every label, mean loss) of a softmax over clusters of classes."""
    cuts = tuple([int(c) for c in cutoffs])
    tails = [w for pair in tail_weights[: len(cuts) - 1] for w in pair]
    out, loss = _adaptive_log_softmax(input, label, head_weight, tails, head_bias, cuts)
    return out, loss
