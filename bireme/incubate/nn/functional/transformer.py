"""The blocks of a transformer as single functions."""

from __future__ import annotations

import math
from typing import Any

import bireme as paddle
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.incubate.nn.functional.common import activation as named_activation
from bireme.incubate.nn.functional.common import attend, check_alone, check_mode
from bireme.nn import functional as F


def _check_rate(name: str, rate: Any) -> None:
    if not isinstance(rate, int | float) or not 0 <= rate <= 1:
        raise InvalidArgument(f"[{name}] dropout rates are between 0 and 1. Received: {rate!r}")


def fused_feedforward(
    x: Tensor,
    linear1_weight: Tensor,
    linear2_weight: Tensor,
    linear1_bias: Tensor | None = None,
    linear2_bias: Tensor | None = None,
    ln1_scale: Tensor | None = None,
    ln1_bias: Tensor | None = None,
    ln2_scale: Tensor | None = None,
    ln2_bias: Tensor | None = None,
    dropout1_rate: float = 0.5,
    dropout2_rate: float = 0.5,
    activation: str = "relu",
    ln1_epsilon: float = 1e-5,
    ln2_epsilon: float = 1e-5,
    pre_layer_norm: bool = False,
    training: bool = True,
    mode: str = "upscale_in_train",
    ring_id: int = -1,
    add_residual: bool = True,
    name: str | None = None,
) -> Tensor:
    """x + dropout2(linear2(dropout1(activation(linear1(x))))), normalised before (the first
    norm) or after (the second)."""
    check_mode("fused_feedforward", mode)
    check_alone("fused_feedforward", ring_id)
    _check_rate("fused_feedforward", dropout1_rate)
    _check_rate("fused_feedforward", dropout2_rate)
    act = named_activation("fused_feedforward", activation)
    out = x
    if pre_layer_norm:
        out = F.layer_norm(x, x.shape[-1:], ln1_scale, ln1_bias, ln1_epsilon)
    out = act(F.linear(out, linear1_weight, linear1_bias))
    out = F.dropout(out, dropout1_rate, training=training, mode=mode)
    out = F.linear(out, linear2_weight, linear2_bias)
    out = F.dropout(out, dropout2_rate, training=training, mode=mode)
    if add_residual:
        out = x + out
    if pre_layer_norm:
        return out
    return F.layer_norm(out, out.shape[-1:], ln2_scale, ln2_bias, ln2_epsilon)


def _heads(
    x: Tensor, weight: Tensor, bias: Tensor | None, num_heads: int, flat: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v as [batch, heads, time, size]."""
    width = x.shape[-1]
    if flat:
        if num_heads <= 0 or weight.ndim != 2 or weight.shape[0] != width:
            raise ShapeMismatch(
                "[fused_multi_head_attention] transpose_qkv_wb needs num_heads and a weight "
                f"[width, 3 * width]. Received: num_heads={num_heads}, {weight.shape}"
            )
        heads, matrix = num_heads, weight
    else:
        if weight.ndim != 4 or weight.shape[0] != 3 or weight.shape[3] != width:
            raise ShapeMismatch(
                "[fused_multi_head_attention] qkv_weight must be [3, heads, size, width]. "
                f"Received: {weight.shape} for x {x.shape}"
            )
        heads, matrix = weight.shape[1], weight.reshape([-1, width]).transpose([1, 0])
    packed = F.linear(x, matrix, None if bias is None else bias.reshape([-1]))
    packed = packed.reshape([x.shape[0], x.shape[1], 3, heads, -1]).transpose([2, 0, 3, 1, 4])
    return packed[0], packed[1], packed[2]


def fused_multi_head_attention(
    x: Tensor,
    qkv_weight: Tensor,
    linear_weight: Tensor,
    pre_layer_norm: bool = False,
    pre_ln_scale: Tensor | None = None,
    pre_ln_bias: Tensor | None = None,
    ln_scale: Tensor | None = None,
    ln_bias: Tensor | None = None,
    pre_ln_epsilon: float = 1e-5,
    qkv_bias: Tensor | None = None,
    linear_bias: Tensor | None = None,
    cache_kv: Tensor | None = None,
    attn_mask: Tensor | None = None,
    dropout_rate: float = 0.5,
    attn_dropout_rate: float = 0.5,
    ln_epsilon: float = 1e-5,
    training: bool = True,
    mode: str = "upscale_in_train",
    ring_id: int = -1,
    add_residual: bool = True,
    num_heads: int = -1,
    transpose_qkv_wb: bool = False,
    name: str | None = None,
) -> Tensor | tuple[Any, ...]:
    """x + dropout(linear(self-attention of x)), normalised before or after.

    qkv_weight is [3, heads, size, width], or [width, 3 * width] with transpose_qkv_wb. With
    cache_kv, [2, batch, heads, earlier, size], the result is (out, the longer cache).
    """
    check_mode("fused_multi_head_attention", mode)
    check_alone("fused_multi_head_attention", ring_id)
    if x.ndim != 3:
        raise ShapeMismatch(
            f"[fused_multi_head_attention] takes [batch, time, width]. Received: {x.shape}"
        )
    inner = x
    if pre_layer_norm:
        inner = F.layer_norm(x, x.shape[-1:], pre_ln_scale, pre_ln_bias, pre_ln_epsilon)
    q, k, v = _heads(inner, qkv_weight, qkv_bias, num_heads, transpose_qkv_wb)
    cache = None
    if cache_kv is not None:
        k, v = paddle.concat([cache_kv[0], k], 2), paddle.concat([cache_kv[1], v], 2)
        cache = paddle.stack([k, v])
    out = attend(
        q,
        k,
        v,
        1 / math.sqrt(q.shape[-1]),
        attn_mask,
        lambda w: F.dropout(w, attn_dropout_rate, training=training, mode=mode),
    )
    out = out.transpose([0, 2, 1, 3]).reshape([x.shape[0], x.shape[1], -1])
    out = F.linear(out, linear_weight, linear_bias)
    out = F.dropout(out, dropout_rate, training=training, mode=mode)
    if add_residual:
        out = x + out
    if not pre_layer_norm:
        out = F.layer_norm(out, out.shape[-1:], ln_scale, ln_bias, ln_epsilon)
    return out if cache is None else (out, cache)
