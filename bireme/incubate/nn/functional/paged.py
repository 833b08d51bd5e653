"""Attention over a cache that lies in blocks, for many sequences at once."""

from __future__ import annotations

import math
from typing import Any

import bireme as paddle
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.core.views import assign
from bireme.incubate.nn.functional.common import attend
from bireme.incubate.nn.functional.decoding import dequantized, finished, hidden
from bireme.incubate.nn.functional.rotary import turn

_NAME = "block_multihead_attention"


def block_multihead_attention(
    qkv: Tensor, key_cache: Tensor, value_cache: Tensor, seq_lens_encoder: Tensor,
    seq_lens_decoder: Tensor, seq_lens_this_time: Tensor, padding_offsets: Tensor,
    cum_offsets: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, block_tables: Tensor,
    pre_key_cache: Tensor | None = None, pre_value_cache: Tensor | None = None,
    cache_k_quant_scales: Tensor | None = None, cache_v_quant_scales: Tensor | None = None,
    cache_k_dequant_scales: Tensor | None = None, cache_v_dequant_scales: Tensor | None = None,
    qkv_out_scale: Tensor | None = None, qkv_bias: Tensor | None = None,
    out_shift: Tensor | None = None, out_smooth: Tensor | None = None,
    max_enc_len_this_time: Tensor | None = None, max_dec_len_this_time: Tensor | None = None,
    rope_emb: Tensor | None = None, mask: Tensor | None = None, tgt_mask: Tensor | None = None,
    max_seq_len: int = -1, block_size: int = 64, use_neox_style: bool = False,
    use_dynamic_cachekv_quant: bool = False, quant_round_type: int = 1,
    quant_max_bound: float = 127.0, quant_min_bound: float = -127.0, out_scale: float = -1,
    compute_dtype: str = "default", rope_theta: float = 10000.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """(result [tokens, heads * size], qkv, key_cache, value_cache); the caches change in place.

    qkv [tokens, (heads + 2 * key heads) * size] holds the new tokens of all sequences end to end;
    sequence b's are cu_seqlens_q[b] up to cu_seqlens_q[b + 1], and seq_lens_decoder[b] tokens came
    before them. Place p of sequence b lies in block block_tables[b, p // block_size] of the caches
    [blocks, key heads, block_size, size]. Sequences that start (seq_lens_encoder > 0) are causal,
    or see what `mask` [batch, 1, longest, longest] says; `tgt_mask` is added for the others.
    rope_emb [2, batch or 1, longest, 1, size or size / 2] holds cosines and sines. The paddings and
    longest lengths are implied by cu_seqlens_q, and the angles' base by rope_emb.
    """
    _check(qkv, key_cache, block_tables, block_size)
    refused = {
        "pre_key_cache": pre_key_cache,
        "pre_value_cache": pre_value_cache,
        "cache_k_quant_scales": cache_k_quant_scales,
        "cache_v_quant_scales": cache_v_quant_scales,
        "cache_k_dequant_scales": cache_k_dequant_scales,
        "cache_v_dequant_scales": cache_v_dequant_scales,
        "use_dynamic_cachekv_quant": use_dynamic_cachekv_quant or None,
    }
    given = [name for name, x in refused.items() if x is not None]
    if given:
        raise InvalidArgument(
            f"[{_NAME}] the cache is in floating point and has no part before it. Received: "
            f"{', '.join(given)}"
        )
    tokens, batch = qkv.shape[0], block_tables.shape[0]
    kv_heads, size = key_cache.shape[1], key_cache.shape[3]
    packed = dequantized(_NAME, qkv, qkv_out_scale, compute_dtype).reshape([tokens, -1, size])
    if qkv_bias is not None:
        packed = packed + qkv_bias.reshape([1, -1, size]).astype(packed.dtype)
    q, k, v = paddle.split(packed, [packed.shape[1] - 2 * kv_heads, kv_heads, kv_heads], 1)

    starts = cu_seqlens_q.astype("int64")
    at = paddle.arange(tokens)
    owner = paddle.clip(paddle.searchsorted(starts, at, right=True) - 1, 0, batch - 1)
    place = at - paddle.gather(starts, owner)
    place = place + paddle.gather(seq_lens_decoder.astype("int64").reshape([-1]), owner)
    if rope_emb is not None:
        q, k = _turned(q, k, rope_emb, owner, place, use_neox_style)

    tables = block_tables.astype("int64")
    block = paddle.take_along_axis(
        paddle.gather(tables, owner), (place // block_size).unsqueeze(1), 1
    )
    slot = block.reshape([-1]) * block_size + place % block_size
    caches = []
    for cache, fresh in ((key_cache, k), (value_cache, v)):
        flat = cache.transpose([0, 2, 1, 3]).reshape([-1, kv_heads, size])
        flat = paddle.scatter(flat, slot, fresh.astype(flat.dtype))
        caches.append(flat)
        shape = [cache.shape[0], block_size, kv_heads, size]
        assign(cache, flat.reshape(shape).transpose([0, 2, 1, 3]), _NAME)

    one_each = tokens == batch  # as in generation: every token brings its own keys
    rows = 1 if one_each else min(tokens, max_seq_len) if max_seq_len > 0 else tokens
    grouped = _grouped(q, owner, at, starts, rows, one_each)
    places = _grouped(place.unsqueeze(-1), owner, at, starts, rows, one_each).squeeze(-1)
    sequence = owner if one_each else paddle.arange(batch)
    all_slots = paddle.clip(tables, min=0).unsqueeze(-1) * block_size + paddle.arange(block_size)
    slots = paddle.gather(all_slots.reshape([batch, -1]), sequence)
    starting = seq_lens_encoder.reshape([-1]) > 0
    bias = _bias(places, slots.shape[1], paddle.gather(starting, sequence), sequence, mask,
                 tgt_mask, seq_lens_this_time)  # fmt: skip
    keys, values = (
        paddle.gather(c, slots.reshape([-1]))
        .reshape([*slots.shape, kv_heads, size])
        .transpose([0, 2, 1, 3])
        .astype(q.dtype)
        for c in caches
    )
    out = attend(grouped.transpose([0, 2, 1, 3]), keys, values, 1 / math.sqrt(size), bias)
    out = out.transpose([0, 2, 1, 3])
    if one_each:
        out = out.reshape([tokens, -1])
    else:
        row = owner * rows + paddle.minimum(at - paddle.gather(starts, owner), at * 0 + rows - 1)
        out = paddle.gather(out.reshape([batch * rows, -1]), row)
    out = finished(
        out, out_shift, out_smooth, out_scale, quant_round_type, quant_max_bound, quant_min_bound
    )
    return out, qkv, key_cache, value_cache


def _check(qkv: Tensor, cache: Tensor, tables: Tensor, block_size: int) -> None:
    if qkv.ndim != 2 or cache.ndim != 4 or tables.ndim != 2:
        raise ShapeMismatch(
            f"[{_NAME}] takes qkv [tokens, width], caches [blocks, key heads, block_size, size] "
            f"and block_tables [batch, blocks]. Received: {qkv.shape}, {cache.shape} and "
            f"{tables.shape}"
        )
    if cache.shape[2] != block_size:
        raise InvalidArgument(
            f"[{_NAME}] block_size must be the caches'. Received: {block_size} for {cache.shape}"
        )


def _grouped(
    x: Tensor, owner: Tensor, at: Tensor, starts: Tensor, rows: int, one_each: bool
) -> Tensor:
    """Tokens [tokens, …] as [sequences, rows, …], or as [tokens, 1, …]."""
    if one_each:
        return x.unsqueeze(1)
    batch = starts.shape[0] - 1
    pick = paddle.minimum(
        starts[:-1].unsqueeze(1) + paddle.arange(rows), paddle.to_tensor(at.shape[0] - 1)
    )
    return paddle.gather(x, pick.reshape([-1])).reshape([batch, rows, *x.shape[1:]])


def _bias(
    places: Tensor,
    length: int,
    starting: Tensor,
    sequence: Tensor,
    mask: Tensor | None,
    tgt_mask: Tensor | None,
    counts: Tensor,
) -> Tensor:
    """What is added to the scores, [groups, 1 or heads, rows, length]."""
    columns = paddle.arange(length).reshape([1, 1, 1, -1])
    causal = hidden(columns <= places.unsqueeze(1).unsqueeze(-1))
    total = causal
    first = starting.reshape([-1, 1, 1, 1])
    if mask is not None:
        shown = paddle.gather(mask.astype("float32"), sequence)
        rows = paddle.minimum(places, paddle.to_tensor(mask.shape[2] - 1))
        index = rows.unsqueeze(1).unsqueeze(-1).expand([*shown.shape[:2], rows.shape[1], 1])
        shown = paddle.take_along_axis(shown, index.expand([*index.shape[:3], shown.shape[3]]), 2)
        there = paddle.gather(counts.astype("int64").reshape([-1]), sequence)
        within = hidden(columns < there.reshape([-1, 1, 1, 1]))
        total = paddle.where(first, within + _widened(shown, length), causal)
    if tgt_mask is not None:
        later = paddle.gather(tgt_mask.astype("float32"), sequence)
        total = total + paddle.where(first, paddle.zeros([1]), _widened(later, length))
    return total


def _widened(x: Tensor, length: int) -> Tensor:
    """The last axis cut or filled up with zeros."""
    x = x[..., :length]
    missing = length - x.shape[-1]
    return x if missing == 0 else paddle.nn.functional.pad(x, [0, 0, 0, 0, 0, 0, 0, missing])


def _turned(
    q: Tensor, k: Tensor, rope: Tensor, owner: Tensor, place: Tensor, neox: bool
) -> tuple[Any, Any]:
    """q and k [tokens, heads, size] turned to their places."""
    size = q.shape[-1]
    width, longest = rope.shape[-1], rope.shape[2]
    if rope.ndim != 5 or rope.shape[0] != 2 or width not in (size, size // 2):
        raise ShapeMismatch(
            f"[{_NAME}] rope_emb must be [2, batch, longest, 1, {size} or {size // 2}]. Received: "
            f"{rope.shape}"
        )
    tables = rope.reshape([2, rope.shape[1] * longest, width])
    row = place if rope.shape[1] == 1 else owner * longest + place
    picked = paddle.gather(tables, row, axis=1).unsqueeze(2)
    if width != size:
        picked = (
            paddle.concat([picked, picked], -1) if neox else paddle.repeat_interleave(picked, 2, -1)
        )
    cos, sin = picked[0], picked[1]
    return turn(q, sin, cos, not neox), turn(k, sin, cos, not neox)
