"""Layer norm and RMS norm together with bias, residual and quantisation."""

from __future__ import annotations

from typing import Any

import bireme as paddle
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.incubate.nn.functional.common import quantized
from bireme.nn import functional as F


def _rows(name: str, x: Tensor, begin_norm_axis: int) -> tuple[Tensor, Any]:
    """x as [rows, normalised], and how many rows."""
    first = begin_norm_axis + x.ndim if begin_norm_axis < 0 else begin_norm_axis
    if not 0 <= first < x.ndim:
        raise InvalidArgument(
            f"[{name}] begin_norm_axis must be a dimension of x {x.shape}. Received: "
            f"{begin_norm_axis}"
        )
    width = 1
    for d in x.shape[first:]:
        width = width * d
    return x.reshape([-1, width]), width


def _check_weight(name: str, width: Any, *weights: Tensor | None) -> None:
    for w in weights:
        if w is not None and list(w.shape) != [width]:
            raise ShapeMismatch(
                f"[{name}] weights need the {width} elements of what is normalised. Received: "
                f"{w.shape}"
            )


def _finished(out: Tensor, like: Tensor, quant: tuple[Any, ...]) -> Tensor:
    out = out.reshape(like.shape)
    return out if quant[0] <= 0 else quantized(out, *quant)


def fused_rms_norm(
    x: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor | None,
    epsilon: float,
    begin_norm_axis: int = 1,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    quant_scale: float = -1,
    quant_round_type: int = 0,
    quant_max_bound: float = 0,
    quant_min_bound: float = 0,
) -> tuple[Tensor, Tensor]:
    """(rms_norm(total), total) with total = x + bias + residual.

    Without a residual x alone is normalised and the second result is empty, as in Paddle.
    """
    total = x
    if residual is not None:
        total = x + residual if bias is None else x + bias + residual
    rows, width = _rows("fused_rms_norm", total, begin_norm_axis)
    _check_weight("fused_rms_norm", width, norm_weight, norm_bias)
    out = F.rms_norm(rows, [width], norm_weight, epsilon)
    out = out if norm_bias is None else out + norm_bias
    quant = (quant_scale, quant_round_type, quant_max_bound, quant_min_bound)
    return _finished(out, x, quant), paddle.empty([0], x.dtype) if residual is None else total


def fused_layer_norm(
    x: Tensor,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    epsilon: float,
    residual_alpha: float = 1.0,
    begin_norm_axis: int = 1,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    quant_scale: float = -1,
    quant_round_type: int = 0,
    quant_max_bound: float = 0,
    quant_min_bound: float = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(layer_norm(total), total, means, 1 / standard deviations) with total = x + bias +
    residual_alpha * residual.

    As in Paddle: without norm_weight and norm_bias the first result is the total itself; without
    a residual x alone is normalised, and the second result is empty.
    """
    plain = norm_weight is None and norm_bias is None
    total = x
    if residual is not None:
        total = x + residual * residual_alpha
    if bias is not None and (residual is not None or plain):
        total = total + bias
    rows, width = _rows("fused_layer_norm", total, begin_norm_axis)
    _check_weight("fused_layer_norm", width, norm_weight, norm_bias)
    wide = rows.astype("float32")
    mean, inverse = _moments(wide, epsilon)
    out = rows if plain else F.layer_norm(rows, [width], norm_weight, norm_bias, epsilon)
    quant = (quant_scale, quant_round_type, quant_max_bound, quant_min_bound)
    rest = paddle.empty([0], x.dtype) if residual is None else total
    return _finished(out, x, quant), rest, mean, inverse


def _moments(rows: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    mean = rows.mean(-1)
    off = rows - mean.unsqueeze(-1)
    return mean, paddle.rsqrt((off * off).mean(-1) + epsilon)


def fast_ln(
    x: Tensor, scale: Tensor, bias: Tensor, epsilon: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    """(layer_norm(x), means, 1 / standard deviations) over the last dimension."""
    mean, inverse = _moments(x.astype("float32"), epsilon)
    return F.layer_norm(x, x.shape[-1:], scale, bias, epsilon), mean, inverse


def fast_rms_norm(x: Tensor, scale: Tensor, epsilon: float = 1e-5) -> tuple[Tensor, Tensor]:
    """(rms_norm(x), 1 / root mean squares) over the last dimension."""
    wide = x.astype("float32")
    inverse = paddle.rsqrt((wide * wide).mean(-1) + epsilon)
    return F.rms_norm(x, x.shape[-1:], scale, epsilon), inverse


def fused_rms_norm_ext(
    x: Tensor, scale: Tensor, epsilon: float = 1e-5, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """(rms_norm(x), 1 / root mean squares) over the last dimension."""
    return fast_rms_norm(x, scale, epsilon)
