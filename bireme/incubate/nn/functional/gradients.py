"""Gradients and types that training code asks for by name."""

from __future__ import annotations

import bireme as paddle
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.core.views import assign
from bireme.nn import functional as F

_BLOCK = 128  # columns that share a scale


def embedding_grad_add_to_(
    token_indices: Tensor, main_grad_: Tensor, out_grad: Tensor, name: str | None = None
) -> Tensor:
    """main_grad_ [words, width] with each token's gradient added to its word's row, in place."""
    width = main_grad_.shape[-1]
    if main_grad_.ndim != 2 or out_grad.shape != [*token_indices.shape, width]:
        raise ShapeMismatch(
            "[embedding_grad_add_to_] takes indices […], main_grad_ [words, width] and out_grad […,"
            f" width]. Received: {token_indices.shape}, {main_grad_.shape} and {out_grad.shape}"
        )
    rows = out_grad.reshape([-1, width]).astype(main_grad_.dtype)
    total = paddle.scatter_nd_add(main_grad_, token_indices.reshape([-1, 1]), rows)
    return assign(main_grad_, total, "embedding_grad_add_to_")


def cross_entropy_with_softmax_bwd_w_downcast(
    label: Tensor, softmax: Tensor, loss_grad: Tensor, name: str | None = None
) -> Tensor:
    """The gradient of a cross entropy by its logits, in bfloat16: (softmax - one_hot) * grad."""
    flat = label.reshape(softmax.shape[:-1])
    wide = softmax.astype("float32") - F.one_hot(flat, softmax.shape[-1]).astype("float32")
    grad = loss_grad.reshape([*softmax.shape[:-1], 1]).astype("float32")
    return (wide * grad).astype("bfloat16")


def fused_swiglu_weighted_bwd(
    o1: Tensor, do2_s: Tensor, unzipped_probs: Tensor, name: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(gradient by o1, gradient by the probabilities, swiglu(o1) * probability), given the gradient
    of the last."""
    half = o1.shape[-1] // 2
    if o1.shape[-1] % 2 or do2_s.shape != [*o1.shape[:-1], half]:
        raise ShapeMismatch(
            "[fused_swiglu_weighted_bwd] takes o1 […, 2 * width] and do2_s […, width]. Received: "
            f"{o1.shape} and {do2_s.shape}"
        )
    gate, value = (t.astype("float32") for t in paddle.chunk(o1, 2, -1))
    above = do2_s.astype("float32")
    probs = unzipped_probs.astype("float32").reshape([*o1.shape[:-1], 1])
    slope = F.sigmoid(gate)
    made = gate * slope * value
    by_probs = (above * made).sum(-1, keepdim=True).reshape(unzipped_probs.shape)
    inner = above * probs
    by_gate = inner * value * slope * (1 + gate * (1 - slope))
    by_value = inner * gate * slope
    return (
        paddle.concat([by_gate, by_value], -1).astype(o1.dtype),
        by_probs,
        (made * probs).astype(do2_s.dtype),
    )


def fused_act_dequant(x: Tensor, x_scale: Tensor) -> Tensor:
    """float8 rows [rows, width] times their scales, one per 128 columns, in bfloat16."""
    if x_scale.dtype is not paddle.float32:
        raise InvalidArgument(
            f"[fused_act_dequant] scales are float32. Received: {x_scale.dtype.name}"
        )
    columns = x.shape[-1]
    if x.ndim != 2 or x_scale.shape != [x.shape[0], -(-columns // _BLOCK)]:
        raise ShapeMismatch(
            "[fused_act_dequant] takes x [rows, width] and x_scale [rows, width / 128]. Received: "
            f"{x.shape} and {x_scale.shape}"
        )
    scales = paddle.repeat_interleave(x_scale, _BLOCK, 1)[:, :columns]
    return (x.astype("float32") * scales).astype("bfloat16")
