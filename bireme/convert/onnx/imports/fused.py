"""ONNX Runtime's own ops (`com.microsoft`): several of ONNX's in one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bireme as paddle
from bireme.convert.onnx.imports import RULES, onnx_op
from bireme.convert.onnx.imports.elementwise import dtype_of, like, number
from bireme.convert.onnx.imports.products import product
from bireme.convert.onnx.imports.shapes import shape_of
from bireme.core.tensor import Tensor
from bireme.nn import functional as F

if TYPE_CHECKING:
    from bireme.convert.onnx.interpreter import NodeView, Values

MICROSOFT = "com.microsoft"


# --- activations ----------------------------------------------------------------------------


@onnx_op("FastGelu", domain=MICROSOFT)
def fast_gelu(n: NodeView, x: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.gelu(x if bias is None else x + bias, approximate=True)


@onnx_op("BiasGelu", domain=MICROSOFT)
def bias_gelu(n: NodeView, x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias)


@onnx_op("Gelu", domain=MICROSOFT)
def gelu(n: NodeView, x: Tensor) -> Tensor:
    return F.gelu(x)


@onnx_op("QuickGelu", domain=MICROSOFT)
def quick_gelu(n: NodeView, x: Tensor) -> Tensor:
    return x * F.sigmoid(x * n.attr("alpha", 1.702))


# --- products -------------------------------------------------------------------------------


@onnx_op("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(n: NodeView, a: Tensor, b: Tensor) -> Tensor:
    a = _turned(a, n.attr("transA", 0), n.attr("transBatchA", 0))
    b = _turned(b, n.attr("transB", 0), n.attr("transBatchB", 0))
    made, alpha = product(a, b), n.attr("alpha", 1.0)
    return made if alpha == 1 else made * number(alpha, made)


def _turned(x: Tensor, swap: int, batch: int) -> Tensor:
    """A matrix transposed, and its batch dimensions moved behind the rows."""
    order = list(range(x.ndim))
    if batch and x.ndim > 2:
        order = [*order[1:-1], 0, order[-1]]
    if swap and x.ndim > 1:
        order[-2:] = order[:-3:-1]
    return x if order == list(range(x.ndim)) else paddle.transpose(x, order)


def _activated(n: NodeView, x: Tensor) -> Tensor:
    """The activation that a fused op ends with."""
    name = n.attr("activation", "")
    if not name:
        return x
    given = n.attr("activation_params") or []
    alpha, beta = [*given, None, None][:2]
    if name == "LeakyRelu":
        return F.leaky_relu(x, 0.01 if alpha is None else alpha)
    if name == "HardSigmoid":
        return F.hardsigmoid(x, 0.2 if alpha is None else alpha, 0.5 if beta is None else beta)
    if name == "Clip":
        return paddle.clip(x, alpha, beta)
    if name not in ("Relu", "Tanh", "Sigmoid"):
        raise n.fail(f"the activation {name!r:.40} is not known")
    return RULES["", name].rule(n, x)


@onnx_op("FusedGemm", domain=MICROSOFT)
def fused_gemm(n: NodeView, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    return _activated(n, RULES["", "Gemm"].rule(n, a, b, c))


@onnx_op("FusedConv", domain=MICROSOFT)
def fused_conv(
    n: NodeView, x: Tensor, w: Tensor, b: Tensor | None = None, z: Tensor | None = None
) -> Tensor:
    made = RULES["", "Conv"].rule(n, x, w, b)
    return _activated(n, made if z is None else made + z)


@onnx_op("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(
    n: NodeView,
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    zeros: Tensor | None = None,
    g_idx: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    rows, columns, block = n.attr("N"), n.attr("K"), n.attr("block_size")
    bits = n.attr("bits", 4)
    if bits not in (2, 4, 8):
        raise n.fail(f"weights of {bits} bits have no rule")
    blocks = -(-columns // block)
    steps = _unpacked(b.reshape([rows, blocks, -1]), bits)[:, :, :block]
    scale = scales.reshape([rows, blocks, 1])
    if zeros is None:
        shift: Tensor = number(1 << (bits - 1), scale)
    elif dtype_of(zeros).kind in "iu":
        each = -(-blocks * bits // 8)
        shift = _unpacked(zeros.reshape([rows, each]), bits)[:, :blocks].reshape([rows, blocks, 1])
    else:
        shift = zeros.reshape([rows, blocks, 1])
    weight = (steps.astype(scale.dtype) - shift.astype(scale.dtype)) * scale
    weight = weight.reshape([rows, blocks * block])[:, :columns]
    if g_idx is not None:
        raise n.fail("a g_idx, which reorders the columns, has no rule")
    made = paddle.matmul(a, like(weight, a), transpose_y=True)
    return made if bias is None else made + bias


def _unpacked(packed: Tensor, bits: int) -> Tensor:
    """Several small numbers of one byte, the lowest bits first."""
    wide = packed.astype("int32")
    if bits == 8:
        return wide
    each = 8 // bits
    parts = [(wide // (1 << (bits * i))) % (1 << bits) for i in range(each)]
    return paddle.stack(parts, -1).reshape([*shape_of(packed)[:-1], shape_of(packed)[-1] * each])


# --- normalisation --------------------------------------------------------------------------


def _normed(
    n: NodeView, x: Tensor, scale: Tensor, bias: Tensor | None, epsilon: float, simple: bool
) -> list[Tensor]:
    """(normalised, mean, 1 / deviation) over the last dimension, in float32."""
    wide = x.astype("float32") if dtype_of(x).itemsize < 4 else x
    mean = wide.mean(-1, keepdim=True)
    centred = wide if simple else wide - mean
    inverse = paddle.rsqrt((centred * centred).mean(-1, keepdim=True) + number(epsilon, wide))
    made = like(centred * inverse, x) * scale
    return [made if bias is None else made + bias, mean, inverse]


@onnx_op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(
    n: NodeView,
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
) -> Values:
    total = x + skip if bias is None else x + skip + bias
    made = _normed(n, total, gamma, beta, n.attr("epsilon", 1e-12), False)
    return (*made, total)


@onnx_op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_norm(
    n: NodeView, x: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None
) -> Values:
    total = x + skip if bias is None else x + skip + bias
    made = _normed(n, total, gamma, None, n.attr("epsilon", 1e-12), True)
    return (*made, total)


@onnx_op("SimplifiedLayerNormalization")
@onnx_op("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_norm(n: NodeView, x: Tensor, scale: Tensor) -> Values:
    if n.attr("axis", -1) % x.ndim != x.ndim - 1:
        raise n.fail("a simplified layer norm over several dimensions has no rule")
    made, _, inverse = _normed(n, x, scale, None, n.attr("epsilon", 1e-5), True)
    return made, inverse


@onnx_op("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(
    n: NodeView,
    ids: Tensor,
    segments: Tensor | None,
    words: Tensor,
    places: Tensor,
    kinds: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None = None,
    positions: Tensor | None = None,
) -> Values:
    total = F.embedding(ids, words)
    if positions is None:
        total = total + places[: shape_of(ids)[1]]
    else:
        total = total + F.embedding(positions, places)
    if segments is not None and kinds is not None:
        total = total + F.embedding(segments, kinds)
    made = _normed(n, total, gamma, beta, n.attr("epsilon", 1e-12), False)[0]
    if mask is None:
        lengths = paddle.zeros([shape_of(ids)[0]], "int32")
    else:
        lengths = paddle.sum(mask.astype("int32"), 1).astype("int32")
    return made, lengths, total


@onnx_op("Inverse", domain=MICROSOFT)
def inverse(n: NodeView, x: Tensor) -> Tensor:
    return paddle.linalg.inv(x)


@onnx_op("ExpandDims", static=(1,), domain=MICROSOFT)
def expand_dims(n: NodeView, x: Tensor, axis: Any) -> Tensor:
    return paddle.unsqueeze(x, int(axis.reshape(-1)[0]))


def _as_onnx(*names: str, static: tuple[int, ...] = (), host: bool = False) -> None:
    """Ops that ONNX has taken over since, with the same meaning."""
    for name in names:
        onnx_op(name, static=static, host=host, domain=MICROSOFT)(RULES["", name].rule)


_as_onnx("Trilu", static=(1,))
_as_onnx("QuantizeLinear", "DequantizeLinear", host=True)
_as_onnx("GatherND", "GridSample")
