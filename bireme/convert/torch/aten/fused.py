"""PyTorch's fast paths of attention and of an encoder's layer, as scripted modules have them."""

from __future__ import annotations

from collections.abc import Sequence

import bireme as paddle
from bireme.convert.torch.aten import aten
from bireme.convert.torch.aten.norms import layer_norm
from bireme.convert.torch.program import TorchFileError
from bireme.core.tensor import Tensor
from bireme.nn import functional as F

_SQUARE, _PADDING, _BOTH = 0, 1, 2  # kinds of masks


def _masked(scores: Tensor, mask: Tensor | None, kind: int | None) -> Tensor:
    if mask is None:
        return scores
    if kind not in (_SQUARE, _PADDING, _BOTH):
        raise TorchFileError(f"a mask of the kind {kind} has no rule")
    if kind == _PADDING:
        mask = mask.reshape([mask.shape[0], 1, 1, mask.shape[1]])
    if mask.dtype.name == "bool":
        return paddle.where(mask, paddle.full_like(scores, float("-inf")), scores)
    return scores + mask


@aten("_native_multi_head_attention")
def native_multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> list[Tensor | None]:
    size = embed_dim // num_head
    weights = paddle.split(qkv_weight, 3, 0)
    biases = paddle.split(qkv_bias, 3, 0)
    q, k, v = [
        paddle.transpose(
            (paddle.matmul(x, w, transpose_y=True) + b).reshape(
                [x.shape[0], x.shape[1], num_head, size]
            ),
            [0, 2, 1, 3],
        )
        for x, w, b in zip((query, key, value), weights, biases, strict=True)
    ]
    scores = paddle.matmul(q, k, transpose_y=True) / size**0.5
    chosen = F.softmax(_masked(scores, mask, mask_type), -1)
    joined = paddle.transpose(paddle.matmul(chosen, v), [0, 2, 1, 3])
    joined = joined.reshape([query.shape[0], query.shape[1], embed_dim])
    made = paddle.matmul(joined, proj_weight, transpose_y=True) + proj_bias
    if not need_weights:
        return [made, None]
    return [made, paddle.mean(chosen, 1) if average_attn_weights else chosen]


@aten("_transformer_encoder_layer_fwd")
def transformer_encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    def attended(x: Tensor) -> Tensor:
        made, _ = native_multi_head_attention(
            x,
            x,
            x,
            embed_dim,
            num_heads,
            qkv_weight,
            qkv_bias,
            proj_weight,
            proj_bias,
            mask,
            False,
            False,
            mask_type,
        )
        return made

    def fed(x: Tensor) -> Tensor:
        inner = paddle.matmul(x, ffn_weight_1, transpose_y=True) + ffn_bias_1
        inner = F.gelu(inner) if use_gelu else F.relu(inner)
        return paddle.matmul(inner, ffn_weight_2, transpose_y=True) + ffn_bias_2

    width: Sequence[int] = [embed_dim]

    def first(x: Tensor) -> Tensor:
        return layer_norm(x, width, norm_weight_1, norm_bias_1, eps)

    def second(x: Tensor) -> Tensor:
        return layer_norm(x, width, norm_weight_2, norm_bias_2, eps)

    if norm_first:
        src = src + attended(first(src))
        return src + fed(second(src))
    src = first(src + attended(src))
    return second(src + fed(src))


@aten("_nested_tensor_from_mask_left_aligned", "_nested_tensor_from_mask", "to_padded_tensor")
def nested(self: Tensor, *_: object, **__: object) -> Tensor:
    """Scripted encoders have this path, which few calls take."""
    raise TorchFileError(
        "tensors of rows of several lengths (nested tensors) have no rule. Build the encoder with "
        "enable_nested_tensor=False, or call it without a padding mask"
    )
