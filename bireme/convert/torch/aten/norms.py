"""Normalisations."""

from __future__ import annotations

from collections.abc import Sequence

import bireme as paddle
from bireme.convert.torch.aten import aten
from bireme.core.tensor import Tensor
from bireme.nn import functional as F


def _per_channel(value: Tensor, rank: int) -> Tensor:
    return value.reshape([1, -1, *[1] * (rank - 2)])


@aten("batch_norm", "_native_batch_norm_legit_no_training", "cudnn_batch_norm")
def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    if training or running_mean is None or running_var is None:
        axes = [0, *range(2, input.ndim)]
        mean = paddle.mean(input, axes)
        centred = input - _per_channel(mean, input.ndim)
        spread = paddle.mean(centred * centred, axes)
        if running_mean is not None and running_var is not None:
            count = input.size // input.shape[1]
            _update(running_mean, mean, momentum)
            _update(running_var, spread * (count / max(count - 1, 1)), momentum)
        running_mean, running_var = mean, spread
    return F.batch_norm(input, running_mean, running_var, weight, bias, False, 1 - momentum, eps)


def _update(statistic: Tensor, new: Tensor, momentum: float) -> None:
    with paddle.no_grad():
        statistic.copy_(statistic * (1 - momentum) + new.detach() * momentum)


@aten("layer_norm")
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    return F.layer_norm(input, list(normalized_shape), weight, bias, eps)


@aten("native_layer_norm")
def native_layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> list[Tensor]:
    axes = list(range(input.ndim - len(normalized_shape), input.ndim))
    mean = paddle.mean(input, axes, True)
    centred = input - mean
    scale = paddle.rsqrt(paddle.mean(centred * centred, axes, True) + eps)
    return [layer_norm(input, normalized_shape, weight, bias, eps), mean, scale]


@aten("group_norm")
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    shape = list(input.shape)
    grouped = input.reshape([shape[0], num_groups, -1])
    centred = grouped - paddle.mean(grouped, -1, True)
    scaled = centred * paddle.rsqrt(paddle.mean(centred * centred, -1, True) + eps)
    return _affine(scaled.reshape(shape), weight, bias)


@aten("native_group_norm")
def native_group_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> list[Tensor]:
    grouped = input.reshape([N, group, -1])
    mean = paddle.mean(grouped, -1)
    centred = grouped - mean.unsqueeze(-1)
    scale = paddle.rsqrt(paddle.mean(centred * centred, -1) + eps)
    return [group_norm(input, group, weight, bias, eps), mean, scale]


@aten("instance_norm")
def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    if not use_input_stats:
        return batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)
    axes = list(range(2, input.ndim))
    centred = input - paddle.mean(input, axes, True)
    scaled = centred * paddle.rsqrt(paddle.mean(centred * centred, axes, True) + eps)
    return _affine(scaled, weight, bias)


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * _per_channel(weight, x.ndim)
    return x if bias is None else x + _per_channel(bias, x.ndim)


@aten("rms_norm", "_fused_rms_norm")
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    axes = list(range(input.ndim - len(normalized_shape), input.ndim))
    eps = paddle.finfo(input.dtype).eps if eps is None else eps
    made = input * paddle.rsqrt(paddle.mean(input * input, axes, True) + eps)
    return made if weight is None else made * weight
