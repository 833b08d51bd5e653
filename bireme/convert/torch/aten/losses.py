"""Losses that models compute themselves."""

from __future__ import annotations

import bireme as paddle
from bireme.convert.torch.aten import aten
from bireme.core.tensor import Tensor
from bireme.nn import functional as F

_REDUCTIONS = ("none", "mean", "sum")


def _reduced(loss: Tensor, reduction: int) -> Tensor:
    return loss if not reduction else (loss.mean() if reduction == 1 else loss.sum())


@aten("mse_loss")
def mse_loss(self: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    return F.mse_loss(self, target, _REDUCTIONS[reduction])


@aten("l1_loss")
def l1_loss(self: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    return F.l1_loss(self, target, _REDUCTIONS[reduction])


@aten("smooth_l1_loss")
def smooth_l1_loss(self: Tensor, target: Tensor, reduction: int = 1, beta: float = 1.0) -> Tensor:
    gap = paddle.abs(self - target)
    near = gap * gap * (0.5 / beta) if beta else gap
    return _reduced(paddle.where(gap < beta, near, gap - 0.5 * beta), reduction)


@aten("nll_loss", "nll_loss_nd")
def nll_loss(
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
) -> Tensor:
    return F.nll_loss(self, target, weight, ignore_index, _REDUCTIONS[reduction])


@aten("cross_entropy_loss")
def cross_entropy_loss(
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    return F.cross_entropy(
        self, target, weight, ignore_index, _REDUCTIONS[reduction],
        soft_label=target.dtype.is_floating, axis=1 if self.ndim > 1 else 0,
        label_smoothing=label_smoothing,
    )  # fmt: skip


@aten("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 1,
) -> Tensor:
    return F.binary_cross_entropy_with_logits(
        self, target, weight, _REDUCTIONS[reduction], pos_weight
    )


@aten("binary_cross_entropy")
def binary_cross_entropy(
    self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    return F.binary_cross_entropy(self, target, weight, _REDUCTIONS[reduction])


@aten("soft_margin_loss")
def soft_margin_loss(self: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    loss = paddle.log1p(paddle.exp(-target * self))
    return _reduced(loss, reduction)


@aten("kl_div")
def kl_div(self: Tensor, target: Tensor, reduction: int = 1, log_target: bool = False) -> Tensor:
    log = target if log_target else paddle.log(paddle.clip(target, min=1e-45))
    weight = paddle.exp(target) if log_target else target
    loss = weight * (log - self)
    if not log_target:
        loss = paddle.where(target > 0, loss, paddle.zeros_like(loss))
    return _reduced(loss, reduction)


@aten("huber_loss")
def huber_loss(self: Tensor, target: Tensor, reduction: int = 1, delta: float = 1.0) -> Tensor:
    gap = paddle.abs(self - target)
    loss = paddle.where(gap <= delta, gap * gap * 0.5, delta * (gap - 0.5 * delta))
    return _reduced(loss, reduction)
