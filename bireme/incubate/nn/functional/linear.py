"""Products with bias and activation, dropout with addition."""

from __future__ import annotations

import bireme as paddle
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.incubate.nn.functional.common import activation, check_mode, quantized
from bireme.nn import functional as F


def fused_matmul_bias(
    x: Tensor,
    y: Tensor,
    bias: Tensor | None = None,
    transpose_x: bool = False,
    transpose_y: bool = False,
    name: str | None = None,
) -> Tensor:
    """x @ y + bias."""
    product = paddle.matmul(x, y, transpose_x, transpose_y)
    return product if bias is None else product + bias


def fused_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    transpose_weight: bool = False,
    name: str | None = None,
) -> Tensor:
    """x @ weight + bias."""
    return fused_matmul_bias(x, weight, bias, False, transpose_weight)


def fused_linear_activation(
    x: Tensor,
    y: Tensor,
    bias: Tensor,
    trans_x: bool = False,
    trans_y: bool = False,
    activation: str | None = None,
) -> Tensor:
    """The activation ("gelu", "relu" or none) of x @ y + bias."""
    if activation not in (None, "none", "gelu", "relu"):
        raise InvalidArgument(
            f"[fused_linear_activation] activation must be 'gelu', 'relu' or None. Received: "
            f"{activation!r}"
        )
    out = fused_matmul_bias(x, y, bias, trans_x, trans_y)
    if activation == "gelu":
        return F.gelu(out)
    return F.relu(out) if activation == "relu" else out


def fused_dropout_add(
    x: Tensor,
    y: Tensor,
    p: float = 0.5,
    training: bool = True,
    mode: str = "upscale_in_train",
    name: str | None = None,
) -> Tensor:
    """dropout(x) + y."""
    return paddle.add(F.dropout(x, p, training=training, mode=mode), y)


def fused_bias_dropout_residual_layer_norm(
    x: Tensor,
    residual: Tensor,
    bias: Tensor | None = None,
    ln_scale: Tensor | None = None,
    ln_bias: Tensor | None = None,
    dropout_rate: float = 0.5,
    ln_epsilon: float = 1e-5,
    training: bool = True,
    mode: str = "upscale_in_train",
    name: str | None = None,
) -> Tensor:
    """layer_norm(residual + dropout(x + bias))."""
    check_mode("fused_bias_dropout_residual_layer_norm", mode)
    moved = x if bias is None else x + bias
    total = residual + F.dropout(moved, dropout_rate, training=training, mode=mode)
    return F.layer_norm(total, total.shape[-1:], ln_scale, ln_bias, ln_epsilon)


_COMPUTE = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "default": None}


def fused_bias_act(
    x: Tensor,
    bias: Tensor | None = None,
    dequant_scales: Tensor | None = None,
    shift: Tensor | None = None,
    smooth: Tensor | None = None,
    act_method: str = "gelu",
    compute_dtype: str = "default",
    quant_scale: float = -1,
    quant_round_type: int = 0,
    quant_max_bound: float = 0,
    quant_min_bound: float = 0,
) -> Tensor:
    """act(x + bias); x may be int32 sums with `dequant_scales`, the result may be smoothed,
    (out + shift) * smooth, and quantised to int8 where quant_scale is positive."""
    if compute_dtype not in _COMPUTE:
        raise InvalidArgument(
            f"[fused_bias_act] compute_dtype must be one of {list(_COMPUTE)}. Received: "
            f"{compute_dtype!r}"
        )
    if x.dtype is paddle.int32 and _COMPUTE[compute_dtype] is None:
        raise InvalidArgument(
            "[fused_bias_act] int32 sums need compute_dtype 'fp16', 'bf16' or 'fp32'. Received: "
            "'default'"
        )
    function = activation("fused_bias_act", act_method)
    to = _COMPUTE[compute_dtype] or x.dtype
    out = x.astype(to)
    if dequant_scales is not None:
        out = (x.astype("float32") * dequant_scales.astype("float32")).astype(to)
    out = function(out if bias is None else out + bias.astype(to))
    if shift is not None:
        out = out + shift.astype(to)
    if smooth is not None:
        out = out * smooth.astype(to)
    if quant_scale <= 0:
        return out
    return quantized(out, quant_scale, quant_round_type, quant_max_bound, quant_min_bound)
