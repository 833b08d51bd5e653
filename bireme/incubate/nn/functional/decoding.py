"""Attention over sequences of different lengths, and one step at a time over a cache."""

from __future__ import annotations

import math
from typing import Any

import bireme as paddle
from bireme.api.types import DTypeLike
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.core.views import assign
from bireme.incubate.nn.functional.common import attend, quantized
from bireme.incubate.nn.functional.rotary import turn

_LOW = -1e30  # finite, so that a row that sees nothing is not NaN


def hidden(visible: Tensor) -> Tensor:
    """What is added to the scores: nothing where visible."""
    return paddle.where(visible, 0.0, _LOW)


def variable_length_memory_efficient_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seq_lens: Tensor,
    kv_seq_lens: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
    causal: bool = False,
    pre_cache_length: int = 0,
) -> Tensor:
    """Attention on [batch, heads, time, size] where sample b has seq_lens[b] queries and
    kv_seq_lens[b] keys after the first pre_cache_length; rows beyond are zero."""
    if query.ndim != 4 or key.ndim != 4 or query.shape[1] % key.shape[1]:
        raise ShapeMismatch(
            "[variable_length_memory_efficient_attention] takes [batch, heads, time, size], with a "
            f"multiple of key's heads in query. Received: {query.shape} and {key.shape}"
        )
    size = query.shape[-1]
    rows = paddle.arange(query.shape[2]).reshape([1, 1, -1, 1])
    columns = paddle.arange(key.shape[2]).reshape([1, 1, 1, -1])
    batch = [query.shape[0], 1, 1, 1]
    visible = columns < kv_seq_lens.astype("int64").reshape(batch) + pre_cache_length
    if causal:
        visible = paddle.logical_and(visible, columns <= rows + pre_cache_length)
    bias = hidden(visible)
    if mask is not None:
        bias = bias + mask[..., : key.shape[2]].astype(bias.dtype)
    out = attend(query, key, value, 1 / math.sqrt(size) if scale is None else scale, bias)
    asked = rows < seq_lens.astype("int64").reshape(batch)
    return paddle.where(asked, out, paddle.zeros_like(out))


_COMPUTE = {"default": None, "fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


def masked_multihead_attention(
    x: Tensor,
    cache_kv: Tensor | None = None,
    bias: Tensor | None = None,
    src_mask: Tensor | None = None,
    cum_offsets: Tensor | None = None,
    sequence_lengths: Tensor | None = None,
    rotary_tensor: Tensor | None = None,
    beam_cache_offset: Tensor | None = None,
    qkv_out_scale: Tensor | None = None,
    out_shift: Tensor | None = None,
    out_smooth: Tensor | None = None,
    seq_len: int = 1,
    rotary_emb_dims: int = 0,
    use_neox_rotary_style: bool = False,
    compute_dtype: str = "default",
    out_scale: float = -1,
    quant_round_type: int = 1,
    quant_max_bound: float = 127.0,
    quant_min_bound: float = -127.0,
) -> tuple[Tensor, ...]:
    """One step of generation: x [batch, 3 * heads * size] attends to the cache and is put there.

    cache_kv [2, batch, heads, longest, size] is changed in place. The step's place in it is
    sequence_lengths [batch, 1], or one less than the length of src_mask [batch, 1, 1, length].
    rotary_tensor [2, batch, 1, length, size] holds the cosines and sines of all places, or with
    length 1 those of this one. int32 sums in x are scaled
    by qkv_out_scale; the result is quantised to int8 where out_scale is positive.
    """
    if cache_kv is None or cache_kv.ndim != 5 or cache_kv.shape[0] != 2 or x.ndim != 2:
        raise ShapeMismatch(
            "[masked_multihead_attention] takes x [batch, 3 * heads * size] and cache_kv [2, "
            f"batch, heads, longest, size]. Received: {x.shape} and "
            f"{None if cache_kv is None else cache_kv.shape}"
        )
    if seq_len != 1 or cum_offsets is not None or beam_cache_offset is not None:
        raise InvalidArgument(
            "[masked_multihead_attention] works on one position per sample, without padding "
            f"offsets or beams. Received: seq_len={seq_len}, cum_offsets="
            f"{cum_offsets is not None}, beam_cache_offset={beam_cache_offset is not None}"
        )
    batch, kv_heads, longest, size = cache_kv.shape[1:]
    packed = dequantized("masked_multihead_attention", x, qkv_out_scale, compute_dtype).reshape(
        [batch, -1, size]
    )
    if bias is not None:
        packed = packed + bias.reshape([1, -1, size]).astype(packed.dtype)
    heads = packed.shape[1] - 2 * kv_heads
    q, k, v = paddle.split(packed, [heads, kv_heads, kv_heads], 1)
    if sequence_lengths is not None:
        place = sequence_lengths.astype("int64").reshape([batch, 1, 1, 1])
    elif src_mask is not None:
        place = paddle.full([batch, 1, 1, 1], src_mask.shape[-1] - 1, "int64")
    else:
        raise InvalidArgument(
            "[masked_multihead_attention] sequence_lengths or src_mask must say which step this "
            "is. Received: neither"
        )
    if rotary_tensor is not None and rotary_emb_dims > 0:
        q, k = _turned(q, k, rotary_tensor, place, use_neox_rotary_style)
    columns = paddle.arange(longest).reshape([1, 1, 1, -1])
    here = (columns == place).reshape([1, batch, 1, longest, 1])
    fresh = paddle.stack([k, v]).unsqueeze(3).astype(cache_kv.dtype)
    cache = paddle.where(here, fresh, cache_kv)
    added = hidden(columns <= place)
    if src_mask is not None:
        shown = src_mask.astype(added.dtype)[..., :longest]
        rest = longest - shown.shape[-1]
        added = added + paddle.nn.functional.pad(shown, [0, 0, 0, 0, 0, 0, 0, rest])
    out = attend(
        q.unsqueeze(2),
        cache[0].astype(q.dtype),
        cache[1].astype(q.dtype),
        1 / math.sqrt(size),
        added,
    )
    out = out.reshape([batch, -1])
    assign(cache_kv, cache, "masked_multihead_attention")
    out = finished(
        out, out_shift, out_smooth, out_scale, quant_round_type, quant_max_bound, quant_min_bound
    )
    return out, cache_kv


def finished(
    out: Tensor,
    shift: Tensor | None,
    smooth: Tensor | None,
    scale: float,
    round_type: int,
    max_bound: float,
    min_bound: float,
) -> Tensor:
    """(out + shift) * smooth, in int8 where scale is positive."""
    for moved, function in ((shift, paddle.add), (smooth, paddle.multiply)):
        if moved is not None:
            out = function(out, moved.reshape([1, -1]).astype(out.dtype))
    return quantized(out, scale, round_type, max_bound, min_bound) if scale > 0 else out


def dequantized(name: str, x: Tensor, scale: Tensor | None, compute_dtype: str) -> Tensor:
    """x, or int32 sums times their scale, in the type that is computed in."""
    if compute_dtype not in _COMPUTE or (x.dtype is paddle.int32 and not _COMPUTE[compute_dtype]):
        raise InvalidArgument(
            f"[{name}] compute_dtype must be one of {list(_COMPUTE)}, and "
            f"named for int32 sums. Received: {compute_dtype!r} for {x.dtype.name}"
        )
    to = _COMPUTE[compute_dtype] or x.dtype
    if scale is None:
        return x.astype(to)
    return (x.astype("float32") * scale.reshape([1, -1]).astype("float32")).astype(to)


def _turned(q: Tensor, k: Tensor, rotary: Tensor, place: Tensor, neox: bool) -> tuple[Any, Any]:
    """q and k [batch, heads, size] turned to their place."""
    tables = rotary.reshape([2, q.shape[0], -1, q.shape[-1]])
    if tables.shape[2] == 1:  # those of this step alone
        place = paddle.zeros_like(place)
    at = place.reshape([1, -1, 1, 1]).expand([2, q.shape[0], 1, q.shape[-1]])
    cos, sin = paddle.take_along_axis(tables, at, 2)
    return turn(q, sin, cos, not neox), turn(k, sin, cos, not neox)


def blha_get_max_len(
    seq_lens_encoder: Tensor, seq_lens_decoder: Tensor, batch_size: Tensor
) -> tuple[Tensor, Tensor]:
    """The longest of the lengths in the encoder and in the decoder, each [1]."""
    return seq_lens_encoder.max().reshape([1]), seq_lens_decoder.max().reshape([1])


def int_bincount(
    x: Tensor, low: int, high: int, dtype: DTypeLike | None = None, name: str | None = None
) -> Tensor:
    """How often each integer from low up to, not including, high occurs in x."""
    if high < low:
        raise InvalidArgument(f"[int_bincount] high must not be below low. Received: {low}, {high}")
    found = x.reshape([-1, 1]) == paddle.arange(low, high, dtype=x.dtype)
    return found.astype(x.dtype if dtype is None else dtype).sum(0, dtype=dtype or x.dtype)
