"""Tensors in float8 with a scale for each block of 128 numbers, and products of them.

A block's numbers are multiplied by 448 / (largest of them), 448 being the largest float8_e4m3fn;
what is returned as its scale is the factor that turns them back.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import bireme as paddle
from bireme.api.types import DTypeLike
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.incubate.nn.functional.experts import moe_gate_dispatch

_BLOCK = 128
_LARGEST = 448.0


@op(name="float8_blocks", differentiable=False)
def _blocks(xp, x, rows=1, pow2=True, epsilon=0.0):
    """(numbers in float8, scales that turn them back) of a tensor [..., M, N], in blocks of
    [rows, 128]."""
    *lead, height, width = x.shape
    edges = [(0, 0)] * len(lead) + [(0, -height % rows), (0, -width % _BLOCK)]
    padded = xp.pad(x.astype(np.float32), edges)
    tall, wide = padded.shape[-2] // rows, padded.shape[-1] // _BLOCK
    parts = padded.reshape((*lead, tall, rows, wide, _BLOCK))
    largest = xp.maximum(xp.max(xp.abs(parts), axis=(-3, -1)), np.float32(epsilon))
    factor = np.float32(_LARGEST) / xp.where(largest == 0, np.float32(_LARGEST), largest)
    # The smallest subnormals would be multiplied by infinity.
    factor = xp.minimum(factor, np.float32(2.0**127 if pow2 else 2.0**127 * 1.9921875))
    if pow2:
        _, exponent = xp.frexp(factor)
        factor = xp.ldexp(xp.ones_like(factor), exponent - 1)
    scaled = (parts * factor[..., :, None, :, None]).reshape(padded.shape)
    kept = scaled[..., :height, :width].astype(dt.float8_e4m3fn.numpy)
    return kept, np.float32(1) / factor


@op(name="float8_exponents", differentiable=False)
def _packed_exponents(xp, scale):
    """The exponents of scales that are powers of two, four in an int32, the first one lowest."""
    _, exponent = xp.frexp(scale)
    biased = (exponent - 1 + 127).astype(np.uint32)
    edges = [(0, 0)] * (scale.ndim - 1) + [(0, -scale.shape[-1] % 4)]
    four = xp.pad(biased, edges).reshape((*scale.shape[:-1], -1, 4))
    shifts = np.array([0, 8, 16, 24], np.uint32)
    return xp.sum(four << shifts, axis=-1, dtype=np.uint32).astype(np.int32)


def fp8_quant_blockwise(
    x: Tensor,
    epsilon: float = 0.0,
    input_transpose: bool = False,
    output_scale_transpose: bool = True,
    return_transpose_only: bool = False,
    using_pow2_scale: bool = True,
    using_ue8m0_scale: bool = False,
    quant_method: str = "1x128",
    output_type: str = "e4m3",
    name: str | None = None,
) -> tuple[Tensor, ...]:
    """(x [M, N] in float8, scales [M, N / 128]) for blocks "1x128", or [M / 128, N / 128] for
    "128x128"; with `output_scale_transpose` scales are turned.

    With `input_transpose` the same of the transposed x follows, or comes alone
    (`return_transpose_only`). No block counts as smaller than `epsilon`. Scales are powers of two
    with `using_pow2_scale`; `using_ue8m0_scale` packs the exponents of four into an int32.
    """
    if quant_method not in ("1x128", "128x128"):
        raise InvalidArgument(
            f"[fp8_quant_blockwise] blocks are '1x128' or '128x128'. Received: {quant_method!r}"
        )
    if output_type != "e4m3":
        raise InvalidArgument(
            f"[fp8_quant_blockwise] output_type must be 'e4m3'. Received: {output_type!r}"
        )
    if x.ndim != 2:
        raise ShapeMismatch(f"[fp8_quant_blockwise] takes a matrix. Received: {x.shape}")
    if using_ue8m0_scale and not using_pow2_scale:
        raise InvalidArgument("[fp8_quant_blockwise] only powers of two have a ue8m0 scale")
    rows = 1 if quant_method == "1x128" else _BLOCK

    def quantized(matrix: Tensor) -> tuple[Tensor, Tensor]:
        numbers, scale = _blocks(matrix, rows, bool(using_pow2_scale), float(epsilon))
        if using_ue8m0_scale:
            scale = _packed_exponents(scale)
        return numbers, scale.transpose([1, 0]) if output_scale_transpose else scale

    if not input_transpose:
        return quantized(x)
    turned = quantized(x.transpose([1, 0]))
    return turned if return_transpose_only else (*quantized(x), *turned)


def fp8_gemm_blockwise(
    a: Tensor,
    a_decode_scale: Tensor,
    b: Tensor,
    b_decode_scale: Tensor,
    out_dtype: DTypeLike,
    out: Tensor | None = None,
    bias: Tensor | None = None,
    accumulate: bool = False,
    use_split_accumulator: bool = True,
    is_a_1d_scaled: bool = True,
    is_b_1d_scaled: bool = True,
) -> Tensor:
    """a [M, K] times b [N, K] transposed, both float8 with the scales of `fp8_quant_blockwise`.

    Scales of blocks 1x128 (`is_*_1d_scaled`) are turned, [K / 128, rows]; others [rows / 128,
    K / 128]. The result goes into `out`, with `accumulate` on top of what is there. Sums are in
    float32, `use_split_accumulator` or not.
    """
    if bias is not None:
        raise InvalidArgument("[fp8_gemm_blockwise] there is no bias; add it to the result")
    full_a = _decoded(a, a_decode_scale, is_a_1d_scaled, "a")
    full_b = _decoded(b, b_decode_scale, is_b_1d_scaled, "b")
    made = paddle.matmul(full_a, full_b, transpose_y=True)
    if out is None:
        if accumulate:
            raise InvalidArgument("[fp8_gemm_blockwise] accumulate=True needs out, to add to")
        return made.astype(out_dtype)
    if out.shape != made.shape:
        raise ShapeMismatch(f"[fp8_gemm_blockwise] out is {made.shape}. Received: {out.shape}")
    if accumulate:
        made = made + out.astype("float32")
    return paddle.assign(made.astype(out.dtype), out)


def _decoded(x: Tensor, scale: Tensor, by_row: bool, which: str) -> Tensor:
    rows, width = x.shape
    wide = -(-width // _BLOCK)
    want = [wide, rows] if by_row else [-(-rows // _BLOCK), wide]
    if scale.shape != want:
        raise ShapeMismatch(
            f"[fp8_gemm_blockwise] {which} of shape {x.shape} has scales {want}. Received: "
            f"{scale.shape}"
        )
    if by_row:
        spread = scale.transpose([1, 0])
    else:
        spread = paddle.repeat_interleave(scale, _BLOCK, 0)[:rows]
    return x.astype("float32") * paddle.repeat_interleave(spread, _BLOCK, 1)[:, :width]


def fused_stack_transpose_quant(
    x: Sequence[Tensor], transpose: bool = True
) -> tuple[Tensor, Tensor]:
    """Matrices [M, K] end to end in float8, each turned first: ([n * K, M], scales
    [n * K / 128, M / 128]), or as they are."""
    stacked = paddle.stack(list(x))
    if stacked.ndim != 3 or stacked.shape[1] % _BLOCK or stacked.shape[2] % _BLOCK:
        raise ShapeMismatch(
            "[fused_stack_transpose_quant] takes matrices of multiples of 128. Received: "
            f"{[t.shape for t in x]}"
        )
    if transpose:
        stacked = stacked.transpose([0, 2, 1])
    numbers, scale = _blocks(stacked, _BLOCK, False, 0.0)
    return numbers.reshape([-1, numbers.shape[2]]), scale.reshape([-1, scale.shape[2]])


def fused_transpose_split_quant(
    x: Tensor,
    input_scales: Tensor | None,
    tokens_per_expert: Sequence[int],
    pow_2_scales: bool = False,
) -> tuple[list[Tensor], list[Tensor]]:
    """Each expert's rows of x [M, K], turned and in float8: (matrices [K, rows], their scales
    [rows / 128, K]). x is a float tensor, or float8 with `input_scales` [M, K / 128].
    """
    who = "fused_transpose_split_quant"
    if 0 in x.shape:
        return [], []
    if (x.dtype is dt.float8_e4m3fn) != (input_scales is not None):
        raise TypeMismatch(f"[{who}] input_scales belong to a float8 x. Received: {x.dtype.name}")
    if input_scales is not None:
        spread = paddle.repeat_interleave(input_scales, _BLOCK, 1)[:, : x.shape[1]]
        x = (x.astype("float32") * spread).astype("bfloat16")
    return _by_expert(who, x, tokens_per_expert, pow_2_scales)


def fused_transpose_wlch_split_quant(
    x: Tensor, tokens_per_expert: Sequence[int], pow_2_scales: bool = False
) -> tuple[list[Tensor], list[Tensor]]:
    """`fused_transpose_split_quant` of x [W, L, C, H] read as [L, W, C, H] and then as rows."""
    if x.ndim != 4:
        raise ShapeMismatch(
            f"[fused_transpose_wlch_split_quant] takes [W, L, C, H]. Received: {x.shape}"
        )
    rows = x.transpose([1, 0, 2, 3]).reshape([-1, x.shape[3]])
    return _by_expert("fused_transpose_wlch_split_quant", rows, tokens_per_expert, pow_2_scales)


def _by_expert(
    who: str, x: Tensor, tokens: Sequence[int], pow2: bool
) -> tuple[list[Tensor], list[Tensor]]:
    counts = [int(t) for t in tokens]
    if any(c % _BLOCK for c in counts) or sum(counts) != x.shape[0]:
        raise InvalidArgument(
            f"[{who}] tokens_per_expert are multiples of 128 that add up to {x.shape[0]}. "
            f"Received: {counts}"
        )
    outs: list[Tensor] = []
    scales: list[Tensor] = []
    start = 0
    for count in counts:
        numbers, scale = _blocks(x[start : start + count].transpose([1, 0]), 1, bool(pow2), 0.0)
        outs.append(numbers)
        scales.append(scale.transpose([1, 0]))
        start += count
    return outs, scales


def fused_weighted_swiglu_act_quant(
    x: Tensor,
    prob: Tensor | None = None,
    using_pow2_scaling: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """silu(first half of x) * second half, times `prob` for each row, in float8: ([rows, half],
    scales [rows, half / 128])."""
    if x.shape[-1] % 2:
        raise ShapeMismatch(
            f"[fused_weighted_swiglu_act_quant] x has two halves. Received: {x.shape}"
        )
    gate, value = paddle.split(x.astype("float32").reshape([-1, x.shape[-1]]), 2, -1)
    made = paddle.nn.functional.silu(gate) * value
    if prob is not None:
        made = made * prob.astype("float32").reshape([-1, 1])
    numbers, scale = _blocks(made, 1, bool(using_pow2_scaling), 0.0)
    return numbers, scale


def moe_gate_dispatch_and_quant(
    x: Tensor,
    gate_logits: Tensor,
    corr_bias: Tensor | None,
    k: int,
    capacity: int,
    use_pad: bool,
    use_pow2_scale: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`moe_gate_dispatch` with its rows in float8, and their scales [rows, width / 128] second."""
    rows, *rest = moe_gate_dispatch(x, gate_logits, corr_bias, k, capacity, use_pad)
    numbers, scale = _blocks(rows, 1, bool(use_pow2_scale), 0.0)
    return numbers, scale, rest[0], rest[1], rest[2], rest[3]
