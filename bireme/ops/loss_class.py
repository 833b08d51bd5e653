"""Losses over classes: cross entropy with hard, soft and smoothed labels, and its relatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.api.public import namespace
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.requirements import InRange
from bireme.core.tensor import Tensor
from bireme.host.arrays import Array, Namespace
from bireme.ops.manipulation import reshape
from bireme.ops.nn_support import (
    channel_shape,
    check_reduction,
    need_float,
    need_integer,
    normal_axis,
    wide,
)
from bireme.ops.softmax import softmax

public = namespace("paddle.nn.functional")

# --- hard labels --------------------------------------------------------------------------------
#
# One op from logits to the (reduced) loss. It also returns log(sum(exp(x))), from which the
# backward makes the softmax with one exp and no second pass for maximum and sum. The label's
# logit is gathered on the way forward (few elements) and compared on the way back, where a
# scatter would be slow and a comparison fuses.


def _label_shape(x: Aval, axis: int, keepdim: bool) -> tuple[Any, ...]:
    axis %= x.ndim
    return (*x.shape[:axis], *((1,) if keepdim else ()), *x.shape[axis + 1 :])


def _may_agree(shape: tuple[Any, ...], expected: tuple[Any, ...]) -> bool:
    """Whether the shapes are equal as far as their sizes are known: a program's runs tell the
    open ones, and are checked again."""
    if len(shape) != len(expected):
        return False
    pairs = zip(shape, expected, strict=True)
    return all(type(a) is not int or type(b) is not int or a == b for a, b in pairs)


def _hard_check(
    input: Aval, label: Aval, weight: Aval | None, smoothing: Any, axis: int, **rest: Any
) -> None:
    need_float("input", input)
    axis = normal_axis(axis, input.ndim)
    if not label.dtype.is_integer:
        raise TypeMismatch(
            f"'label' must hold class numbers, not {label.dtype.name}; for probabilities per "
            "class pass soft_label=True"
        )
    expected = _label_shape(input, axis, label.ndim == input.ndim)
    if not _may_agree(label.shape, expected):
        raise ShapeMismatch(
            f"label must have the shape of input without the class axis {axis}, "
            f"{list(expected)}, not {list(label.shape)}"
        )
    _check_class_weight(weight, input.shape[axis])


def _hard_labels(
    input: Aval, label: Aval, weight: Any, smoothing: Any, axis: int, ignore_index: int, **rest: Any
) -> list[InRange]:
    return [InRange("label", 0, input.shape[axis] - 1, ignored=ignore_index)]


def _check_class_weight(weight: Aval | None, classes: Any) -> None:
    if weight is not None and weight.shape != (classes,):
        raise ShapeMismatch(
            f"'weight' must hold one number for each of the {classes} classes, not have shape "
            f"{list(weight.shape)}"
        )


def _hard_infer(
    input: Aval,
    label: Aval,
    weight: Aval | None,
    smoothing: Any,
    axis: int,
    reduction: str,
    keepdim: bool,
    **rest: Any,
) -> tuple[Aval, Aval]:
    shape = _label_shape(input, axis, keepdim) if reduction == "none" else ()
    total = aval(_label_shape(input, axis, True), input.dtype)
    return aval(shape, input.dtype), total


def hard_terms(
    xp: Namespace,
    label: Array,
    weight: Array | None,
    smoothing: Array | None,
    ndim: int,
    axis: int,
    ignore_index: int,
    reduction: str,
    dtype: type | np.dtype[Any],
) -> tuple[Any, Any]:
    """(class numbers with the ignored ones replaced, factor of every sample's loss)."""
    if label.ndim < ndim:
        label = xp.expand_dims(label, axis)
    valid: Any = label != ignore_index
    safe = xp.where(valid, label, 0)
    factor = valid.astype(dtype)
    if weight is not None:
        of_class = xp.take(weight, safe)
        if smoothing is not None:
            of_class = (1 - smoothing) * of_class + smoothing * xp.mean(weight)
        factor = factor * of_class.astype(dtype)
    if reduction == "mean":
        if weight is None and ignore_index < 0:
            factor = factor / _count(xp, factor)
        else:
            total = xp.sum(factor)
            factor = factor / xp.where(total == 0, xp.ones_like(total), total)
    return safe, factor


def _summed(xp: Any, loss: Any, reduction: str) -> Any:
    """The sum of losses that are divided already; the mean of no losses is NaN."""
    total = xp.sum(loss)
    nothing = any(type(d) is int and d == 0 for d in loss.shape)
    return xp.full_like(total, np.nan) if nothing and reduction == "mean" else total


def _count(xp: Any, x: Any) -> Any:
    size: Any = 1
    for d in x.shape:
        size = size * d
    return max(size, 1) if size.__class__ is int else xp.asarray(size).astype(x.dtype)


def _hard_vjp(
    xp: Any,
    grads: Any,
    input: Any,
    label: Any,
    weight: Any,
    smoothing: Any,
    out: Any,
    axis: int,
    ignore_index: int,
    reduction: str,
    use_softmax: bool,
    keepdim: bool,
    needs: Any,
) -> tuple[Any, ...]:
    x = wide(xp, input)
    axis %= x.ndim
    grad = wide(xp, grads[0])
    if reduction == "none" and not keepdim:
        grad = xp.expand_dims(grad, axis)
    safe, factor = hard_terms(
        xp, label, weight, smoothing, x.ndim, axis, ignore_index, reduction, x.dtype
    )
    pull = grad * factor
    # Counted in 32 bits: comparing 64 took half the time of this gradient on a GPU.
    classes = xp.reshape(xp.arange(x.shape[axis], dtype=np.int32), channel_shape(x.ndim, axis))
    target = hits = (classes == safe.astype(np.int32)).astype(x.dtype)
    if smoothing is not None:
        target = (1 - smoothing) * target + smoothing / x.shape[axis]
    by_weight = None
    if needs[2]:
        score = xp.sum(target * (x if use_softmax else xp.log(x)), axis=axis, keepdims=True)
        each = wide(xp, out[1]) - score
        own = hard_terms(xp, label, weight, smoothing, x.ndim, axis, ignore_index, "sum", x.dtype)[
            1
        ]
        counts = xp.expand_dims(label, axis) if label.ndim < x.ndim else label
        tug = _factor_pull(xp, grad, each, own, wide(xp, out[0]), reduction)
        tug = xp.where(counts != ignore_index, tug, 0)
        by_weight = xp.sum(hits * tug, axis=tuple(i for i in range(x.ndim) if i != axis))
        if smoothing is not None:
            by_weight = (1 - smoothing) * by_weight + smoothing * xp.sum(tug) / x.shape[axis]
    if not use_softmax:
        return xp.where(target > 0, -target / x, 0) * pull, None, by_weight, None
    return (xp.exp(x - wide(xp, out[1])) - target) * pull, None, by_weight, None


def _factor_pull(xp: Any, grad: Any, each: Any, own: Any, mean: Any, reduction: str) -> Any:
    """The gradient of every sample's own factor; a weighted mean divides by their sum."""
    if reduction != "mean":
        return grad * each
    total = xp.sum(own)
    return grad * (each - mean) / xp.where(total == 0, xp.ones_like(total), total)


@op(
    inputs=("input", "label", "weight", "smoothing"),
    vjp=_hard_vjp,
    infer=_hard_infer,
    check=_hard_check,
    requires=_hard_labels,
    amp="black",
)
def _cross_entropy(
    xp,
    input,
    label,
    weight,
    smoothing,
    axis=-1,
    ignore_index=-100,
    reduction="mean",
    use_softmax=True,
    keepdim=False,
):
    """-log p[label] for every sample, weighted and reduced; and log(sum(exp(x)))."""
    x = wide(xp, input)
    axis %= x.ndim
    safe, factor = hard_terms(
        xp, label, weight, smoothing, x.ndim, axis, ignore_index, reduction, x.dtype
    )
    if use_softmax:
        peak = xp.max(x, axis=axis, keepdims=True)
        total = xp.log(xp.sum(xp.exp(x - peak), axis=axis, keepdims=True)) + peak
    else:
        x = xp.log(x)
        total = xp.zeros_like(xp.sum(x, axis=axis, keepdims=True))
    score = xp.take_along_axis(x, safe, axis=axis)
    if smoothing is not None:
        score = (1 - smoothing) * score + smoothing * xp.mean(x, axis=axis, keepdims=True)
    return hard_results(xp, total, score, factor, axis, reduction, keepdim, input.dtype)


def hard_results(
    xp: Namespace,
    total: Array,
    score: Array,
    factor: Array,
    axis: int,
    reduction: str,
    keepdim: bool,
    dtype: np.dtype[Any],
) -> tuple[Any, Any]:
    """What `_cross_entropy` returns, from log(sum(exp(x))), the labels' x and their factors."""
    loss = (total - score) * factor
    if reduction != "none":
        loss = _summed(xp, loss, reduction)
    elif not keepdim:
        loss = xp.squeeze(loss, axis=axis)
    return loss.astype(dtype), total.astype(dtype)


# --- soft labels --------------------------------------------------------------------------------


def _soft_check(input: Aval, label: Aval, weight: Aval | None, axis: int, **rest: Any) -> None:
    need_float("input", input)
    axis = normal_axis(axis, input.ndim)
    if label.shape != input.shape:
        raise ShapeMismatch(
            f"soft labels must have input's shape {list(input.shape)}, not {list(label.shape)}"
        )
    need_float("label", label)
    _check_class_weight(weight, input.shape[axis])
    if input.shape[axis] == 0:
        raise ShapeMismatch("there are no classes: the dimension of the classes is 0")


def _soft_infer(
    input: Aval, label: Aval, weight: Aval | None, axis: int, reduction: str, **rest: Any
) -> Aval:
    shape = _label_shape(input, axis, True) if reduction == "none" else ()
    return aval(shape, input.dtype)


def _soft_factor(xp: Any, label: Any, weight: Any, axis: int, reduction: str) -> Any:
    """The factor of every sample's loss, of shape [.., 1, ..]."""
    if weight is None:
        ones = xp.ones_like(xp.sum(label, axis=axis, keepdims=True))
        return ones / _count(xp, ones) if reduction == "mean" else ones
    of_class = xp.reshape(weight, channel_shape(label.ndim, axis)).astype(label.dtype)
    factor = xp.sum(label * of_class, axis=axis, keepdims=True)
    if reduction == "mean":
        total = xp.sum(factor)
        factor = factor / xp.where(total == 0, xp.ones_like(total), total)
    return factor


def _soft_each(xp: Any, x: Any, target: Any, axis: int, use_softmax: bool) -> Any:
    if use_softmax:
        x = x - xp.max(x, axis=axis, keepdims=True)
        log_p = x - xp.log(xp.sum(xp.exp(x), axis=axis, keepdims=True))
    else:
        log_p = xp.log(x)
    return -xp.sum(xp.where(target != 0, target * log_p, 0), axis=axis, keepdims=True)


def _soft_vjp(
    xp: Any,
    grad: Any,
    input: Any,
    label: Any,
    weight: Any,
    out: Any,
    axis: int,
    reduction: str,
    use_softmax: bool,
    needs: Any,
) -> tuple[Any, ...]:
    x = wide(xp, input)
    axis %= x.ndim
    target = label.astype(x.dtype)
    grad = wide(xp, grad)
    pull = grad * _soft_factor(xp, target, weight, axis, reduction)
    by_weight = None
    if needs[2]:
        each = _soft_each(xp, x, target, axis, use_softmax)
        own = _soft_factor(xp, target, weight, axis, "sum")
        tug = _factor_pull(xp, grad, each, own, wide(xp, out), reduction)
        by_weight = xp.sum(target * tug, axis=tuple(i for i in range(x.ndim) if i != axis))
    if not use_softmax:
        return xp.where(target != 0, -target / x, 0) * pull, None, by_weight
    e = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    mass = xp.sum(target, axis=axis, keepdims=True) / xp.sum(e, axis=axis, keepdims=True)
    return (e * mass - target) * pull, None, by_weight


@op(
    inputs=("input", "label", "weight"),
    vjp=_soft_vjp,
    infer=_soft_infer,
    check=_soft_check,
    amp="black",
)
def _soft_cross_entropy(xp, input, label, weight, axis=-1, reduction="mean", use_softmax=True):
    """-sum(label * log p) for every sample, weighted and reduced."""
    x = wide(xp, input)
    axis %= x.ndim
    target = label.astype(x.dtype)
    loss = _soft_each(xp, x, target, axis, use_softmax)
    loss = loss * _soft_factor(xp, target, weight, axis, reduction)
    if reduction != "none":
        loss = _summed(xp, loss, reduction)
    return loss.astype(input.dtype)


@public(also={"target": "label"})
def cross_entropy(
    input: Tensor,
    label: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    soft_label: bool = False,
    axis: int = -1,
    use_softmax: bool = True,
    label_smoothing: float = 0.0,
    name: str | None = None,
) -> Tensor:
    """Cross entropy between `input` (logits; probabilities with use_softmax=False) and `label`.

    `label` holds class numbers, or probabilities per class with soft_label=True. `weight` has
    one number per class. Samples whose label is `ignore_index` do not count.
    """
    check_reduction("cross_entropy", reduction)
    rank, label_rank = input._value.aval.ndim, label._value.aval.ndim
    if label_rank not in (rank, rank - 1) or rank == 0:
        raise ShapeMismatch(
            "[cross_entropy] label must have as many dimensions as input, or one less. Received: "
            f"input of shape {input.shape}, label of shape {label.shape}"
        )
    if label_smoothing > 0.0 and label_rank < rank:
        soft_label = False  # class numbers, which smoothing makes soft
    if soft_label or (label_smoothing > 0.0 and label_rank == rank and not _is_ints(label)):
        if ignore_index > 0:
            raise InvalidArgument(
                "[cross_entropy] ignore_index has no meaning with soft labels. Received: "
                f"{ignore_index}"
            )
        if label_smoothing > 0.0:
            from bireme.ops.common import label_smooth

            label = label_smooth(label, epsilon=label_smoothing)
        return _soft_cross_entropy(input, label, weight, axis, reduction, use_softmax)
    if label_rank < rank or label.shape[axis] == 1:
        label = _class_numbers(label)
    smoothing = float(label_smoothing) if label_smoothing > 0.0 else None
    # Paddle keeps the class axis of unreduced losses for smoothed labels.
    keepdim = label_rank == rank or smoothing is not None
    return _cross_entropy(
        input, label, weight, smoothing, axis, ignore_index, reduction, use_softmax, keepdim
    )[0]


def _class_numbers(label: Tensor) -> Tensor:
    """Whole numbers, also out of a file of floats and of yes and no."""
    return label if label.dtype.is_integer else label.astype("int64")


def _is_ints(label: Tensor) -> bool:
    return label.dtype.is_integer


@public
def softmax_with_cross_entropy(
    logits: Tensor,
    label: Tensor,
    soft_label: bool = False,
    ignore_index: int = -100,
    numeric_stable_mode: bool = True,
    return_softmax: bool = False,
    axis: int = -1,
) -> Tensor | tuple[Tensor, Tensor]:
    """Unreduced cross entropy that keeps the class axis; with the softmax if asked.

    `numeric_stable_mode` is accepted for compatibility: the computation always is stable.
    """
    if soft_label:
        loss = _soft_cross_entropy(logits, label, None, axis, "none", True)
    else:
        numbers = _class_numbers(label)
        loss = _cross_entropy(logits, numbers, None, None, axis, ignore_index, "none", True, True)[
            0
        ]
    return (loss, softmax(logits, axis)) if return_softmax else loss


# --- negative log likelihood --------------------------------------------------------------------


def _nll_check(
    input: Aval, label: Aval, weight: Aval | None, ignore_index: int, reduction: str
) -> None:
    need_float("input", input)
    need_integer("label", label)
    if input.ndim < 2:
        raise ShapeMismatch("'input' must have at least 2 dimensions, [batch, classes, ...]")
    expected = (input.shape[0], *input.shape[2:])
    if label.shape != expected:
        raise ShapeMismatch(f"label must have the shape {list(expected)}, not {list(label.shape)}")
    _check_class_weight(weight, input.shape[1])


def _nll_factor(
    xp: Any, label: Any, weight: Any, ignore_index: int, reduction: str, dtype: Any
) -> tuple[Any, Any]:
    valid = label != ignore_index
    safe = xp.where(valid, label, 0)
    factor = valid.astype(dtype)
    if weight is not None:
        factor = factor * xp.take(weight, safe).astype(dtype)
    if reduction == "mean":
        factor = factor / xp.sum(factor)
    return safe, factor


def _nll_vjp(
    xp: Any, grad: Any, label: Any, weight: Any, types: Any, ignore_index: int, reduction: str
) -> tuple[Any, ...]:
    x = types[0]
    safe, factor = _nll_factor(xp, label, weight, ignore_index, reduction, grad.dtype)
    classes = xp.reshape(xp.arange(x.shape[1]), channel_shape(x.ndim, 1))
    hit = classes == xp.expand_dims(safe, 1)
    return xp.where(hit, -xp.expand_dims(grad * factor, 1), 0), None, None


@op(
    name="nll_loss",
    inputs=("input", "label", "weight"),
    vjp=_nll_vjp,
    check=_nll_check,
    requires=lambda input, label, weight, ignore_index, reduction: [
        InRange("label", 0, input.shape[1] - 1, ignored=ignore_index)
    ],
    infer=lambda input, label, weight, ignore_index, reduction: aval(
        label.shape if reduction == "none" else (), input.dtype
    ),
    amp="black",
)
def _nll_loss(xp, input, label, weight, ignore_index=-100, reduction="mean"):
    safe, factor = _nll_factor(xp, label, weight, ignore_index, reduction, input.dtype)
    score = xp.squeeze(xp.take_along_axis(input, xp.expand_dims(safe, 1), axis=1), axis=1)
    loss = -score * factor
    return loss if reduction == "none" else xp.sum(loss)


@public
def nll_loss(
    input: Tensor,
    label: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    name: str | None = None,
) -> Tensor:
    """Minus the log-probability `input` [N, C, ...] at the class `label` [N, ...], or [N, 1]."""
    check_reduction("nll_loss", reduction)
    if input.ndim == label.ndim == 2 and label.shape[1] == 1:
        label = reshape(label, (-1,))
    return _nll_loss(input, label, weight, ignore_index, reduction)


# --- others over classes ------------------------------------------------------------------------


def _dice_check(input: Aval, label: Aval, epsilon: Any) -> None:
    need_float("input", input)
    need_integer("label", label)
    if input.ndim < 2 or label.shape != (*input.shape[:-1], 1):
        raise ShapeMismatch("label must have input's shape with a last dimension of 1")


@op(
    name="dice_loss",
    check=_dice_check,
    amp="black",
    requires=lambda input, *_: [InRange("label", 0, input.shape[-1] - 1)],
)
def _dice_loss(xp, input, label, epsilon):
    target = (label == xp.arange(input.shape[-1], dtype=label.dtype)).astype(input.dtype)
    axes = tuple(range(1, input.ndim))
    overlap = xp.sum(input * target, axis=axes)
    mass = xp.sum(input, axis=axes) + xp.sum(target, axis=axes)
    return xp.mean(1 - 2 * overlap / (mass + epsilon))


@public
def dice_loss(
    input: Tensor, label: Tensor, epsilon: float = 1e-5, name: str | None = None
) -> Tensor:
    """1 - 2 |overlap| / (|input| + |label|), the mean over the batch."""
    return _dice_loss(input, label, float(epsilon))


def _npair_check(anchor: Aval, positive: Aval, labels: Aval, l2_reg: Any) -> None:
    if anchor.ndim != 2 or anchor.shape != positive.shape:
        raise ShapeMismatch("anchor and positive must be matrices of one shape")


@op(name="npair_loss", check=_npair_check, amp="black")
def _npair_loss(xp, anchor, positive, labels, l2_reg):
    n = labels.shape[0]
    same = (xp.reshape(labels, (n, 1)) == xp.reshape(labels, (1, n))).astype(anchor.dtype)
    target = same / xp.sum(same, axis=1, keepdims=True)
    length = xp.mean(xp.sum(anchor * anchor, axis=1)) + xp.mean(xp.sum(positive * positive, axis=1))
    scores = xp.matmul(anchor, positive.T)
    scores = scores - xp.max(scores, axis=1, keepdims=True)
    log_p = scores - xp.log(xp.sum(xp.exp(scores), axis=1, keepdims=True))
    entropy = -xp.sum(target * log_p, axis=1, keepdims=True)
    return length * 0.25 * l2_reg + xp.mean(xp.sum(target * entropy, axis=0))


@public(takes="bfc")
def npair_loss(anchor: Tensor, positive: Tensor, labels: Tensor, l2_reg: float = 0.002) -> Tensor:
    """The N-pair loss: cross entropy of anchor-positive similarities, plus an L2 term."""
    return _npair_loss(anchor, positive, labels, float(l2_reg))


def _hsigmoid_paths(num_classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inner nodes, turns and validity on the way from the root of a complete binary tree."""
    depth = int(num_classes - 1).bit_length()
    codes = np.arange(num_classes) + num_classes
    steps = np.arange(depth + 1)
    length = np.array([int(c).bit_length() - 1 for c in codes])
    valid = steps[None, :] < length[:, None]
    node = np.where(valid, (codes[:, None] >> (steps + 1)) - 1, 0)
    turn = np.where(valid, (codes[:, None] >> steps) & 1, 0)
    return node, turn, valid


def _hsigmoid_check(
    input: Aval, label: Aval, weight: Aval, bias: Aval | None, *rest: Any, num_classes: int
) -> None:
    if bias is not None and bias.size != weight.shape[0]:
        raise ShapeMismatch("bias must hold one number for each row of weight")


def _hsigmoid_rows(
    input: Aval,
    label: Aval,
    weight: Aval,
    bias: Any,
    path_table: Aval | None,
    path_code: Any,
    num_classes: int,
) -> list[InRange]:
    if path_table is None:
        return [InRange("label", 0, num_classes - 1)]
    # Negative numbers end a path.
    return [InRange("path_table", -np.inf, weight.shape[0] - 1)]


@op(
    name="hsigmoid_loss",
    inputs=("input", "label", "weight", "bias", "path_table", "path_code"),
    check=_hsigmoid_check,
    takes={"input": "f", "weight": "f"},
    amp="black",
    requires=_hsigmoid_rows,
)
def _hsigmoid_loss(xp, input, label, weight, bias, path_table, path_code, num_classes=2):
    if path_table is None:
        nodes, turns, valid = (xp.asarray(a) for a in _hsigmoid_paths(num_classes))
        label = xp.reshape(label, (-1,))
        node, turn, valid = nodes[label], turns[label], valid[label]
    else:
        valid = path_table >= 0
        node, turn = xp.where(valid, path_table, 0), path_code
    score = xp.einsum("bd,bsd->bs", wide(xp, input), wide(xp, weight[node])).astype(input.dtype)
    if bias is not None:
        score = score + xp.reshape(bias, (-1,))[node]
    score = xp.clip(score, -40.0, 40.0)
    terms = xp.log1p(xp.exp(score)) - turn.astype(input.dtype) * score
    return xp.sum(xp.where(valid, terms, 0), axis=1, keepdims=True)


@public
def hsigmoid_loss(
    input: Tensor,
    label: Tensor,
    num_classes: int,
    weight: Tensor,
    bias: Tensor | None = None,
    path_table: Tensor | None = None,
    path_code: Tensor | None = None,
    is_sparse: bool = False,
    name: str | None = None,
) -> Tensor:
    """Hierarchical sigmoid over a complete binary tree, or over the given paths.

    `is_sparse` is accepted for compatibility: the gradient is part of the compiled step.
    """
    if num_classes < 2:
        raise InvalidArgument(
            f"[hsigmoid_loss] num_classes must be at least 2. Received: {num_classes}"
        )
    return _hsigmoid_loss(input, label, weight, bias, path_table, path_code, num_classes)
