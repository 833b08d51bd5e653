"""Products of matrices, attention, einsum, linear algebra."""

from __future__ import annotations

import math
from collections.abc import Sequence

import bireme as paddle
from bireme.convert.torch.aten import aten
from bireme.convert.torch.aten.reductions import norm
from bireme.convert.torch.aten.types import Number, cast, floating
from bireme.core.tensor import Tensor
from bireme.nn import functional as F


@aten("linear")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    made = paddle.matmul(input, weight, transpose_y=weight.ndim > 1)
    return made if bias is None else made + bias


@aten("matmul", "mm", "bmm", "mv", "linalg_matmul")
def matmul(
    self: Tensor,
    other: Tensor | None = None,
    mat2: Tensor | None = None,
    vec: Tensor | None = None,
) -> Tensor:
    second = next(x for x in (other, mat2, vec) if x is not None)
    return paddle.matmul(self, second)


@aten("dot", "vdot", "inner")
def dot(self: Tensor, tensor: Tensor | None = None, other: Tensor | None = None) -> Tensor:
    second = tensor if other is None else other
    assert second is not None  # noqa: S101 (one of both is an argument of every overload)
    return paddle.inner(self, second)


@aten("outer", "ger")
def outer(self: Tensor, vec2: Tensor) -> Tensor:
    return paddle.outer(self, vec2)


@aten("addmm", "addmv")
def addmm(
    self: Tensor,
    mat1: Tensor | None = None,
    mat2: Tensor | None = None,
    beta: Number = 1,
    alpha: Number = 1,
    mat: Tensor | None = None,
    vec: Tensor | None = None,
) -> Tensor:
    first, second = (mat if mat1 is None else mat1), (vec if mat2 is None else mat2)
    product = paddle.matmul(first, second)  # type: ignore[arg-type] (one of each pair is there)
    product = product if alpha == 1 else product * alpha
    return product + (self if beta == 1 else self * beta)


@aten("baddbmm")
def baddbmm(
    self: Tensor, batch1: Tensor, batch2: Tensor, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    product = paddle.matmul(batch1, batch2)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (self if beta == 1 else self * beta)


@aten("addbmm")
def addbmm(
    self: Tensor, batch1: Tensor, batch2: Tensor, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    product = paddle.sum(paddle.matmul(batch1, batch2), 0)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (self if beta == 1 else self * beta)


@aten("addr")
def addr(self: Tensor, vec1: Tensor, vec2: Tensor, beta: Number = 1, alpha: Number = 1) -> Tensor:
    product = paddle.outer(vec1, vec2)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (self if beta == 1 else self * beta)


@aten("trace")
def trace(self: Tensor) -> Tensor:
    return paddle.sum(paddle.diagonal(self))


@aten("pairwise_distance")
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    return norm(x1 - x2 + eps, p, -1, keepdim)


@aten("dist")
def dist(self: Tensor, other: Tensor, p: float = 2) -> Tensor:
    return norm(self - other, p)


@aten("einsum")
def einsum(equation: str, tensors: Sequence[Tensor], path: object = None) -> Tensor:
    return paddle.einsum(equation, *tensors)


@aten("bilinear")
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    made = paddle.einsum("...i,oij,...j->...o", input1, weight, input2)
    return made if bias is None else made + bias


@aten("tensordot")
def tensordot(
    self: Tensor, other: Tensor, dims_self: Sequence[int], dims_other: Sequence[int]
) -> Tensor:
    return paddle.tensordot(self, other, [list(dims_self), list(dims_other)])


@aten(
    "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Heads before rows, as PyTorch has them; ours has rows first."""
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        times = query.shape[-3] // key.shape[-3]
        key, value = (paddle.repeat_interleave(x, times, -3) for x in (key, value))
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = paddle.matmul(query * scale, key, transpose_y=True)
    if is_causal:
        rows, columns = scores.shape[-2], scores.shape[-1]
        seen = paddle.arange(rows).reshape([-1, 1]) >= paddle.arange(columns).reshape([1, -1])
        scores = paddle.where(seen, scores, paddle.full_like(scores, float("-inf")))
    if attn_mask is not None and attn_mask.dtype.name == "bool":
        scores = paddle.where(attn_mask, scores, paddle.full_like(scores, float("-inf")))
    elif attn_mask is not None:
        scores = scores + cast(attn_mask, scores.dtype)
    weights = F.softmax(scores, -1)
    # A row that sees nothing gives zeros, as in PyTorch.
    weights = paddle.where(paddle.isnan(weights), paddle.zeros_like(weights), weights)
    if dropout_p:
        weights = F.dropout(weights, dropout_p)
    return paddle.matmul(weights, value)


for _name, _function in {
    "linalg_inv": paddle.linalg.inv,
    "inverse": paddle.linalg.inv,
    "linalg_det": paddle.linalg.det,
}.items():

    def _rule(self: Tensor | None = None, A: Tensor | None = None, _function=_function) -> Tensor:
        return _function(self if A is None else A)

    aten(_name)(_rule)


@aten("linalg_cholesky")
def linalg_cholesky(self: Tensor, upper: bool = False) -> Tensor:
    return paddle.linalg.cholesky(self, upper)


@aten("cross", "linalg_cross")
def cross(self: Tensor, other: Tensor, dim: int = -1) -> Tensor:
    return paddle.cross(self, other, dim)


@aten("cosine_similarity")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    def length(x: Tensor) -> Tensor:
        return paddle.clip(paddle.sqrt(paddle.sum(x * x, dim, keepdim=True)), min=eps)

    x1, x2 = floating(x1), floating(x2)
    return paddle.sum((x1 / length(x1)) * (x2 / length(x2)), dim)


@aten("cdist", "_cdist_forward")
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    return paddle.cdist(x1, x2, p)
