"""What the fused functions share: checks, quantisation, heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bireme as paddle
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn import functional as F

MODES = ("upscale_in_train", "downscale_in_infer")
ACTIVATIONS: dict[str, Any] = {
    "gelu": lambda x: F.gelu(x, approximate=False),
    "relu": F.relu,
    "silu": F.silu,
    "swiglu": F.swiglu,
    "none": lambda x: x,
    "identity": lambda x: x,
}


def check_mode(name: str, mode: str) -> None:
    if mode not in MODES:
        raise InvalidArgument(f"[{name}] mode must be one of {MODES}. Received: {mode!r}")


def check_alone(name: str, ring_id: int) -> None:
    """Tensor parallelism is done by shardings here, not by communicators."""
    if ring_id != -1:
        raise InvalidArgument(
            f"[{name}] there are no communicator rings; shard the weights with "
            f"paddle.distributed.shard_tensor instead. Received: ring_id={ring_id}"
        )


def activation(name: str, method: str) -> Callable[..., Tensor]:
    if method not in ACTIVATIONS:
        raise InvalidArgument(
            f"[{name}] the activation must be one of {', '.join(ACTIVATIONS)}. Received: {method!r}"
        )
    return ACTIVATIONS[method]


def quantized(
    x: Tensor, scale: float, round_type: int, max_bound: float, min_bound: float
) -> Tensor:
    """x in int8: max_bound * scale * x, rounded to even (0) or away from zero (1), and clipped."""
    wide = x.astype("float32") * (max_bound * scale)
    if round_type == 0:
        whole = paddle.round(wide)
    else:
        whole = paddle.sign(wide) * paddle.floor(paddle.abs(wide) + 0.5)
    return paddle.clip(whole, min_bound, max_bound).astype("int8")


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    mask: Tensor | None,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """softmax(scale * q k^T + mask) v on [batch, heads, rows, size]; k and v may have fewer
    heads, each of which serves a group of q's."""
    if q.shape[1] != k.shape[1]:
        k, v = (paddle.repeat_interleave(t, q.shape[1] // k.shape[1], 1) for t in (k, v))
    scores = paddle.matmul(q * scale, k, transpose_y=True)
    if mask is not None:
        scores = scores + mask.astype(scores.dtype)
    weights = F.softmax(scores, -1)
    return paddle.matmul(weights if dropout is None else dropout(weights), v)
