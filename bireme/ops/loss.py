"""Losses between two tensors, element by element."""

from __future__ import annotations

import math
from typing import Any

from bireme.api.public import namespace
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import broadcast_shapes, op
from bireme.core.requirements import InRange
from bireme.core.tensor import Tensor
from bireme.ops.activation import sigmoid_of, softplus_of
from bireme.ops.math_unary import conj_of, direction, real_of
from bireme.ops.nn_support import (
    check_reduction,
    need_float,
    one_of,
    reduce_loss,
    spread_loss_grad,
)
from bireme.ops.reduction import sum_dtype

public = namespace("paddle.nn.functional")


def _infer_pair(
    input: Aval, label: Aval, *rest: Any, reduction: str = "none", **attrs: Any
) -> Aval:
    shape = broadcast_shapes(input.shape, label.shape)
    dtype = sum_dtype(input.dtype) if reduction == "sum" else input.dtype
    return aval(shape if reduction == "none" else (), dtype)


def _infer_size(input: Aval, label: Aval, reduction: str) -> Aval:
    return real_of(_infer_pair(input, label, reduction=reduction))


def _broadcast_shape(input: Aval, label: Aval) -> tuple[Any, ...]:
    return broadcast_shapes(input.shape, label.shape)


def _same_shapes(input: Aval, label: Aval, *rest: Any, **attrs: Any) -> None:
    need_float("input", input)
    _one_shape(input, label)


def _one_shape(input: Aval, label: Aval, *rest: Any, **attrs: Any) -> None:
    if input.shape != label.shape:
        raise ShapeMismatch(
            f"input and label must have one shape, not {list(input.shape)} and {list(label.shape)}"
        )


# --- distances ----------------------------------------------------------------------------------


def _mse_vjp(
    xp: Any, grad: Any, input: Any, label: Any, reduction: str, types: Any, needs: Any
) -> tuple[Any, Any]:
    each = spread_loss_grad(xp, grad, _broadcast_shape(*types), reduction)
    pull = 2 * each * conj_of(xp, input - label)
    return pull, (-pull if needs[1] else None)


@op(
    name="mse_loss",
    promote="binary",
    vjp=_mse_vjp,
    infer=_infer_pair,
    inputs=("input", "label"),
    takes="ifc",
)
def _mse_loss(xp, input, label, reduction="mean"):
    diff = input - label
    return reduce_loss(xp, diff * diff, reduction)


@public
def mse_loss(
    input: Tensor, label: Tensor, reduction: str = "mean", name: str | None = None
) -> Tensor:
    """(input - label)^2."""
    check_reduction("mse_loss", reduction)
    return _mse_loss(input, label, reduction)


@public
def square_error_cost(input: Tensor, label: Tensor) -> Tensor:
    """(input - label)^2, not reduced."""
    return _mse_loss(input, label, "none")


def _l1_vjp(
    xp: Any, grad: Any, input: Any, label: Any, reduction: str, types: Any, needs: Any
) -> tuple[Any, Any]:
    each = spread_loss_grad(xp, grad, _broadcast_shape(*types), reduction)
    pull = each * direction(xp, input - label)
    return pull, (-pull if needs[1] else None)


@op(
    name="l1_loss",
    promote="binary",
    vjp=_l1_vjp,
    infer=_infer_size,
    inputs=("input", "label"),
    takes="ifc",
)
def _l1_loss(xp, input, label, reduction="mean"):
    return reduce_loss(xp, xp.abs(input - label), reduction)


@public
def l1_loss(
    input: Tensor, label: Tensor, reduction: str = "mean", name: str | None = None
) -> Tensor:
    """|input - label|."""
    check_reduction("l1_loss", reduction)
    if reduction == "mean" and input.dtype.is_integer:
        raise TypeMismatch(
            "[l1_loss] integers have no mean of their type; write input.astype('float32'), or "
            f"reduction='sum'. Received: {input.dtype.name}"
        )
    return _l1_loss(input, label, reduction)


def _huber_vjp(
    xp: Any,
    grad: Any,
    input: Any,
    label: Any,
    delta: Any,
    reduction: str,
    is_huber: bool,
    types: Any,
    needs: Any,
) -> tuple[Any, ...]:
    each = spread_loss_grad(xp, grad, _broadcast_shape(*types[:2]), reduction)
    pull = each * xp.minimum(xp.maximum(input - label, -delta), delta)
    if not is_huber:
        pull = pull / delta
    return pull, (-pull if needs[1] else None), None


@op(
    name="smooth_l1_loss",
    promote="binary",
    vjp=_huber_vjp,
    infer=_infer_pair,
    check=_one_shape,
    inputs=("input", "label", "delta"),
)
def _smooth_l1_loss(xp, input, label, delta, reduction="mean", is_huber=True):
    size = xp.abs(input - label)
    loss = xp.where(size <= delta, 0.5 * size * size, delta * (size - 0.5 * delta))
    return reduce_loss(xp, loss if is_huber else loss / delta, reduction)


@public(takes="fc")
def smooth_l1_loss(
    input: Tensor,
    label: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    is_huber: bool = True,
    name: str | None = None,
) -> Tensor:
    """Quadratic for differences up to delta, linear beyond; divided by delta unless is_huber."""
    check_reduction("smooth_l1_loss", reduction)
    return _smooth_l1_loss(input, label, float(delta), reduction, is_huber)


# --- probabilities ------------------------------------------------------------------------------


def _bce_infer(input: Aval, label: Aval, weight: Aval | None, reduction: str) -> Aval:
    shapes = [t.shape for t in (input, label, weight) if t is not None]
    return aval(broadcast_shapes(*shapes) if reduction == "none" else (), input.dtype)


def _bce_each(xp: Any, input: Any, label: Any) -> Any:
    hit = label * xp.maximum(xp.log(input), -100.0)
    return -(hit + (1 - label) * xp.maximum(xp.log(1 - input), -100.0))


def _bce_vjp(
    xp: Any, grad: Any, input: Any, label: Any, weight: Any, reduction: str, types: Any, needs: Any
) -> tuple[Any, ...]:
    shape = _bce_infer(types[0], types[1], types[2], "none").shape
    each = spread_loss_grad(xp, grad, shape, reduction)
    by_weight = each * _bce_each(xp, input, label) if needs[2] else None
    if weight is not None:
        each = each * weight
    pull = each * (input - label) / xp.maximum((1 - input) * input, 1e-12)
    return pull, None, by_weight


@op(
    name="binary_cross_entropy",
    inputs=("input", "label", "weight"),
    vjp=_bce_vjp,
    infer=_bce_infer,
    check=_same_shapes,
    requires=lambda *_, **__: [InRange("input", 0, 1, nan=True)],
    amp="black",
)
def _binary_cross_entropy(xp, input, label, weight, reduction="mean"):
    loss = _bce_each(xp, input, label)
    return reduce_loss(xp, loss if weight is None else loss * weight, reduction)


@public
def binary_cross_entropy(
    input: Tensor,
    label: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    name: str | None = None,
) -> Tensor:
    """-(label * log(input) + (1 - label) * log(1 - input)); `input` holds probabilities."""
    check_reduction("binary_cross_entropy", reduction)
    return _binary_cross_entropy(input, label, weight, reduction)


def _logit_infer(
    logit: Aval, label: Aval, weight: Aval | None, pos_weight: Aval | None, reduction: str
) -> Aval:
    shapes = [t.shape for t in (logit, label, weight, pos_weight) if t is not None]
    return aval(broadcast_shapes(*shapes) if reduction == "none" else (), logit.dtype)


def _logit_each(xp: Any, logit: Any, label: Any, pos_weight: Any) -> Any:
    if pos_weight is None:
        return xp.maximum(logit, 0) - logit * label + xp.log1p(xp.exp(-xp.abs(logit)))
    positive = label * (pos_weight - 1) + 1
    return (1 - label) * logit + positive * softplus_of(xp, -logit)


def _logit_vjp(
    xp: Any,
    grad: Any,
    logit: Any,
    label: Any,
    weight: Any,
    pos_weight: Any,
    reduction: str,
    types: Any,
    needs: Any,
) -> tuple[Any, ...]:
    shape = _logit_infer(types[0], types[1], types[2], types[3], "none").shape
    each = spread_loss_grad(xp, grad, shape, reduction)
    by_weight = each * _logit_each(xp, logit, label, pos_weight) if needs[2] else None
    if weight is not None:
        each = each * weight
    by_label = -each * logit if needs[1] else None
    if pos_weight is None:
        return each * (sigmoid_of(xp, logit) - label), by_label, by_weight, None
    if needs[1]:
        by_label = each * ((pos_weight - 1) * softplus_of(xp, -logit) - logit)
    positive = label * (pos_weight - 1) + 1
    pull = each * ((1 - label) - positive * sigmoid_of(xp, -logit))
    by_positive = each * label * softplus_of(xp, -logit) if needs[3] else None
    return pull, by_label, by_weight, by_positive


def _logit_check(logit: Aval, label: Aval, weight: Any, pos_weight: Any, reduction: str) -> None:
    _same_shapes(logit, label)


@op(
    inputs=("logit", "label", "weight", "pos_weight"),
    vjp=_logit_vjp,
    infer=_logit_infer,
    check=_logit_check,
    amp="black",
)
def _bce_with_logits(xp, logit, label, weight, pos_weight, reduction="mean"):
    loss = _logit_each(xp, logit, label, pos_weight)
    return reduce_loss(xp, loss if weight is None else loss * weight, reduction)


@public
def binary_cross_entropy_with_logits(
    logit: Tensor,
    label: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
    name: str | None = None,
) -> Tensor:
    """binary_cross_entropy(sigmoid(logit), label) without overflow."""
    check_reduction("binary_cross_entropy_with_logits", reduction)
    return _bce_with_logits(logit, label, weight, pos_weight, reduction)


def _kl_vjp(
    xp: Any, grad: Any, label: Any, reduction: str, log_target: bool, types: Any
) -> tuple[Any, None]:
    shape = types[0].shape
    each = spread_loss_grad(xp, grad, shape, reduction)
    if reduction == "batchmean" and shape:
        each = grad / shape[0]
    target = xp.exp(label) if log_target else xp.maximum(label, 0)
    return -each * target, None


@op(
    name="kl_div",
    promote="binary",
    inputs=("input", "label"),
    vjp=_kl_vjp,
    infer=_infer_pair,
    check=_same_shapes,
    amp="black",
)
def _kl_div(xp, input, label, reduction="mean", log_target=False):
    if log_target:
        loss = xp.exp(label) * (label - input)
    else:
        positive = label > 0
        loss = xp.where(positive, label * (xp.log(xp.where(positive, label, 1)) - input), 0)
    if reduction == "batchmean":
        total = xp.sum(loss)
        return total / input.shape[0] if input.ndim else total
    return reduce_loss(xp, loss, reduction)


@public
def kl_div(
    input: Tensor,
    label: Tensor,
    reduction: str = "mean",
    log_target: bool = False,
    name: str | None = None,
) -> Tensor:
    """label * (log(label) - input), the Kullback-Leibler divergence; `input` is logarithmic."""
    one_of("kl_div", "reduction", reduction, ("mean", "sum", "none", "batchmean"))
    return _kl_div(input, label, reduction, log_target)


def _log_loss_vjp(xp: Any, grad: Any, input: Any, label: Any, epsilon: Any) -> tuple[Any, ...]:
    pull = (1 - label) / (1 - input + epsilon) - label / (input + epsilon)
    return grad * pull, None, None


@op(name="log_loss", vjp=_log_loss_vjp, infer=_infer_pair, check=_same_shapes, amp="black")
def _log_loss(xp, input, label, epsilon):
    return -label * xp.log(input + epsilon) - (1 - label) * xp.log(1 - input + epsilon)


@public
def log_loss(
    input: Tensor, label: Tensor, epsilon: float = 1e-4, name: str | None = None
) -> Tensor:
    """Cross entropy of probabilities [N, 1], not reduced, with `epsilon` inside the logarithms."""
    return _log_loss(input, label, float(epsilon))


@op(name="sigmoid_focal_loss", inputs=("logit", "label", "normalizer", "alpha", "gamma"))
def _sigmoid_focal_loss(xp, logit, label, normalizer, alpha, gamma, reduction="sum"):
    p = sigmoid_of(xp, logit)
    loss = xp.maximum(logit, 0) - logit * label + xp.log1p(xp.exp(-xp.abs(logit)))
    miss = 1 - (p * label + (1 - p) * (1 - label))
    balance = alpha * label + (1 - alpha) * (1 - label)
    loss = balance * loss * miss**gamma
    return reduce_loss(xp, loss if normalizer is None else loss / normalizer, reduction)


@public(takes="bfc")
def sigmoid_focal_loss(
    logit: Tensor,
    label: Tensor,
    normalizer: Tensor | None = None,
    alpha: float = 0.25,
    gamma: float = 2.0,
    reduction: str = "sum",
    name: str | None = None,
) -> Tensor:
    """Binary cross entropy weighted by (1 - p)^gamma, which fades out easy samples."""
    check_reduction("sigmoid_focal_loss", reduction)
    if normalizer is not None and normalizer.ndim > 1:
        raise ShapeMismatch(
            "[sigmoid_focal_loss] normalizer must have at most one dimension. Received: shape "
            f"{normalizer.shape}"
        )
    return _sigmoid_focal_loss(logit, label, normalizer, float(alpha), float(gamma), reduction)


@op(
    name="poisson_nll_loss",
    inputs=("input", "label", "epsilon"),
    check=_one_shape,
    amp="black",
    takes={"input": "fc"},
)
def _poisson_nll_loss(xp, input, label, epsilon, log_input=True, full=False, reduction="mean"):
    if log_input:
        loss = xp.exp(input) - label * input
    else:
        loss = input - label * xp.log(input + epsilon)
    if full:
        above = xp.real(label) > 1
        count = xp.where(above, label, 1)
        stirling = count * xp.log(count) - count + 0.5 * xp.log(2 * math.pi * count)
        loss = loss + xp.where(above, stirling, 0)
    return reduce_loss(xp, loss, reduction)


@public
def poisson_nll_loss(
    input: Tensor,
    label: Tensor,
    log_input: bool = True,
    full: bool = False,
    epsilon: float = 1e-8,
    reduction: str = "mean",
    name: str | None = None,
) -> Tensor:
    """Negative log likelihood of counts `label` under a Poisson distribution."""
    check_reduction("poisson_nll_loss", reduction)
    if epsilon <= 0:
        raise InvalidArgument(f"[poisson_nll_loss] epsilon must be positive. Received: {epsilon}")
    return _poisson_nll_loss(input, label, float(epsilon), log_input, full, reduction)


def _gaussian_vjp(
    xp: Any,
    grad: Any,
    input: Any,
    label: Any,
    variance: Any,
    epsilon: Any,
    reduction: str,
    types: Any,
) -> tuple[Any, ...]:
    if variance.ndim < input.ndim:
        variance = xp.expand_dims(variance, -1)
    each = spread_loss_grad(xp, grad, _broadcast_shape(types[0], types[1]), reduction)
    pull = each * (input - label) / xp.maximum(variance, epsilon)
    return pull, -pull, None, None


@op(
    name="gaussian_nll_loss",
    inputs=("input", "label", "variance", "epsilon"),
    vjp=_gaussian_vjp,
    amp="black",
)
def _gaussian_nll_loss(xp, input, label, variance, epsilon, full=False, reduction="mean"):
    if variance.ndim < input.ndim:
        variance = xp.expand_dims(variance, -1)
    bound = xp.maximum(variance, epsilon)
    diff = input - label
    loss = 0.5 * (xp.log(bound) + diff * diff / bound)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduce_loss(xp, loss, reduction)


@public(takes="bfc")
def gaussian_nll_loss(
    input: Tensor,
    label: Tensor,
    variance: Tensor,
    full: bool = False,
    epsilon: float = 1e-6,
    reduction: str = "mean",
    name: str | None = None,
) -> Tensor:
    """Negative log likelihood of `label` under normal distributions; no gradient for variance."""
    check_reduction("gaussian_nll_loss", reduction)
    need, have = list(input.shape), list(variance.shape)
    if have not in (need, need[:-1], [*need[:-1], 1]):
        raise ShapeMismatch(
            "[gaussian_nll_loss] variance must have input's shape, or lack its last dimension, or "
            f"have 1 there. Received: input {need}, variance {have}"
        )
    return _gaussian_nll_loss(input, label, variance.detach(), float(epsilon), full, reduction)
