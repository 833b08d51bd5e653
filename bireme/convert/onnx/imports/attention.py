"""ONNX Runtime's attention ops (`com.microsoft`), as optimised transformers carry them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import bireme as paddle
from bireme.convert.onnx.imports import onnx_op
from bireme.convert.onnx.imports.elementwise import dtype_of, number
from bireme.convert.onnx.imports.fused import MICROSOFT
from bireme.convert.onnx.imports.shapes import shape_of
from bireme.core.tensor import Tensor
from bireme.nn import functional as F

if TYPE_CHECKING:
    from bireme.convert.onnx.interpreter import NodeView, Values


def _refuse(n: NodeView, *names: str) -> None:
    """Settings that have no rule, where they are on."""
    for name in names:
        if n.attr(name, 0):
            raise n.fail(f"{n.kind} with {name} has no rule")


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, S, H * D] -> [B, H, S, D]."""
    batch, length, width = shape_of(x)
    return paddle.transpose(x.reshape([batch, length, heads, width // heads]), [0, 2, 1, 3])


def join_heads(x: Tensor) -> Tensor:
    """[B, H, S, D] -> [B, S, H * D]."""
    batch, heads, length, size = shape_of(x)
    return paddle.transpose(x, [0, 2, 1, 3]).reshape([batch, length, heads * size])


def _attended(
    n: NodeView, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool
) -> Tensor:
    """softmax(q k' * scale + bias) v over [B, H, S, D], computed in float32."""
    size = shape_of(q)[3]
    scale = n.attr("scale", 0.0) or 1 / math.sqrt(size)
    wide = "float32" if dtype_of(q).itemsize < 4 else q.dtype
    scores = paddle.matmul(q.astype(wide), k.astype(wide), transpose_y=True) * scale
    cap = n.attr("softcap", 0.0)
    if cap:
        scores = paddle.tanh(scores / cap) * cap
    if bias is not None:
        scores = scores + bias.astype(wide)
    if causal:
        rows, columns = shape_of(q)[2], shape_of(k)[2]
        seen = paddle.arange(columns).reshape([1, 1, 1, -1]) <= (
            paddle.arange(rows) + (columns - rows)
        ).reshape([1, 1, -1, 1])
        scores = paddle.where(seen, scores, number(-3.4e38, scores))
    return paddle.matmul(F.softmax(scores, -1), v.astype(wide)).astype(q.dtype)


def _mask_bias(n: NodeView, mask: Tensor | None, batch: Any, rows: Any, columns: Any) -> Any:
    """What a mask adds to the scores: lengths, their ends and starts, or zeros and ones."""
    if mask is None:
        return None
    filler = n.attr("mask_filter_value", -10000.0)
    if mask.ndim == 1:
        count = shape_of(mask)[0]
        at = paddle.arange(columns, dtype="int32").reshape([1, -1])
        mask = mask.astype("int32")
        if _same(count, batch):
            seen = at < mask.reshape([-1, 1])
        elif _same(count, 2 * batch):
            seen = (at < mask[:batch].reshape([-1, 1])) & (at >= mask[batch:].reshape([-1, 1]))
        else:
            raise n.fail(f"a mask of shape {list(shape_of(mask))} has no rule")
        seen = seen.reshape([batch, 1, 1, columns])
    elif mask.ndim == 2:
        seen = (mask > 0).reshape([batch, 1, 1, columns])
    elif mask.ndim == 3:
        seen = (mask > 0).reshape([batch, 1, rows, columns])
    else:  # Megatron's: the whole square
        past = columns - rows
        seen = mask[:, :, past : past + rows, :columns] > 0
    return (1.0 - seen.astype("float32")) * filler


def _same(a: Any, b: Any) -> bool:
    return bool(a == b)


def _joined(past: Tensor | None, new: Tensor) -> Tensor:
    return new if past is None else paddle.concat([past, new], 2)


def _together(*biases: Tensor | None) -> Tensor | None:
    found = [b for b in biases if b is not None]
    return None if not found else (found[0] if len(found) == 1 else found[0] + found[1])


@onnx_op("Attention", domain=MICROSOFT)
def attention(
    n: NodeView,
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    past: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_length: Tensor | None = None,
) -> Values:
    _refuse(n, "do_rotary", "past_present_share_buffer")
    heads = n.attr("num_heads")
    total = shape_of(weights)[1]
    sizes = n.attr("qkv_hidden_sizes") or [total // 3] * 3
    made = paddle.matmul(x, weights)
    made = made if bias is None else made + bias
    q, k, v = [split_heads(part, heads) for part in paddle.split(made, list(sizes), -1)]
    if past is not None:
        k, v = _joined(past[0], k), _joined(past[1], v)
    rows, columns = shape_of(q)[2], shape_of(k)[2]
    added = _mask_bias(n, mask, shape_of(x)[0], rows, columns)
    causal = bool(n.attr("unidirectional", 0))
    out = join_heads(_attended(n, q, k, v, _together(attention_bias, added), causal))
    return out, (paddle.stack([k, v], 0) if n.wants(1) else None)


@onnx_op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    n: NodeView,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    *more: Tensor | None,
) -> Values:
    if any(m is not None for m in more):
        raise n.fail("a cache of several beams has no rule")
    heads = n.attr("num_heads")
    if query.ndim == 5:  # queries, keys and values in one: [B, S, H, 3, D]
        if bias is not None:
            raise n.fail("a bias for packed queries, keys and values has no rule")
        q, k, v = [paddle.transpose(query[:, :, :, i], [0, 2, 1, 3]) for i in range(3)]
        return _multi_head(n, q, k, v, mask, attention_bias, past_key, past_value)
    width = shape_of(query)[2]
    parts: list[Tensor | None] = [None, None, None]
    if bias is not None:
        rest = shape_of(bias)[0] - 2 * width
        parts = list(paddle.split(bias, [width, width, rest], 0))
    q = split_heads(query if parts[0] is None else query + parts[0], heads)
    if key is None:
        raise n.fail("a MultiHeadAttention without keys has no rule")
    if key.ndim == 5:  # keys and values in one: [B, L, H, 2, D]
        k, v = [paddle.transpose(key[:, :, :, i], [0, 2, 1, 3]) for i in range(2)]
    elif key.ndim == 4:
        if value is None:
            raise n.fail("keys without values")
        k, v = key, value
    else:
        if value is None:
            raise n.fail("keys without values")
        k = split_heads(key if parts[1] is None else key + parts[1], heads)
        v = split_heads(value if parts[2] is None else value + parts[2], heads)
    return _multi_head(n, q, k, v, mask, attention_bias, past_key, past_value)


def _multi_head(
    n: NodeView,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
) -> Values:
    k, v = _joined(past_key, k), _joined(past_value, v)
    added = _mask_bias(n, mask, shape_of(q)[0], shape_of(q)[2], shape_of(k)[2])
    causal = bool(n.attr("unidirectional", 0))
    out = join_heads(_attended(n, q, k, v, _together(bias, added), causal))
    return out, k, v


# --- positions ------------------------------------------------------------------------------


def turned(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Rotary embedding of [B, H, S, D]; cos and sin are [B or 1, 1, S, R / 2], where R is how much
    of D turns."""
    half = shape_of(cos)[3]
    rest = None
    if 2 * half != shape_of(x)[3]:
        x, rest = x[:, :, :, : 2 * half], x[:, :, :, 2 * half :]
    if interleaved:
        a, b = x[:, :, :, 0::2], x[:, :, :, 1::2]
        made = paddle.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(list(shape_of(x)))
    else:
        a, b = x[:, :, :, :half], x[:, :, :, half:]
        made = paddle.concat([a * cos - b * sin, a * sin + b * cos], -1)
    return made if rest is None else paddle.concat([made, rest], -1)


def _at(table: Tensor, positions: Tensor) -> Tensor:
    """The rows of a table of cosines or sines: [B, 1, S, R / 2]."""
    return paddle.unsqueeze(F.embedding(positions, table), 1)


@onnx_op("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(n: NodeView, x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    _refuse(n, "is_packed_batching")
    if n.attr("scale", 1.0) != 1.0:
        raise n.fail("a RotaryEmbedding with a scale has no rule")
    flat = x.ndim == 3
    if flat:
        turning = n.attr("rotary_embedding_dim", 0)
        heads = n.attr("num_heads", 0)
        if not heads:
            if turning:
                raise n.fail("rotary_embedding_dim needs num_heads")
            heads = shape_of(x)[2] // (2 * shape_of(cos)[1])
        x = split_heads(x, heads)
    if positions.ndim == 1:
        steps = paddle.arange(shape_of(x)[2], dtype=positions.dtype)
        positions = (positions + steps).reshape([1, -1])
    made = turned(x, _at(cos, positions), _at(sin, positions), bool(n.attr("interleaved", 0)))
    return join_heads(made) if flat else made


@onnx_op("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    n: NodeView,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    lengths: Tensor,
    total: Tensor,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    positions: Tensor | None = None,
    attention_bias: Tensor | None = None,
    *more: Tensor | None,
) -> Values:
    _refuse(n, "smooth_softmax", "qk_output", "k_quant_type", "v_quant_type")
    if any(m is not None for m in more):
        raise n.fail("attention sinks and quantised caches have no rule")
    heads, groups = n.attr("num_heads"), n.attr("kv_num_heads")
    if key is None or value is None:  # queries, keys and values in one
        size = shape_of(query)[2] // (heads + 2 * groups)
        query, key, value = paddle.split(query, [heads * size, groups * size, groups * size], -1)
    q, k, v = split_heads(query, heads), split_heads(key, groups), split_heads(value, groups)
    rows = shape_of(q)[2]
    # How many positions each row of the batch has already had.
    before = lengths.astype("int64").reshape([-1, 1]) + 1 - rows
    if past_key is None or _same(shape_of(past_key)[2], 0):
        before = paddle.zeros_like(before)
    if n.attr("do_rotary", 0):
        if cos is None or sin is None:
            raise n.fail("do_rotary needs cosines and sines")
        where = positions
        if where is None:
            where = before + paddle.arange(rows, dtype="int64").reshape([1, -1])
        interleaved = bool(n.attr("rotary_interleaved", 0))
        q = turned(q, _at(cos, where), _at(sin, where), interleaved)
        k = turned(k, _at(cos, where), _at(sin, where), interleaved)
    return _cached(n, q, k, v, past_key, past_value, before, attention_bias, heads // groups)


def _cached(
    n: NodeView,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    past_key: Tensor | None,
    past_value: Tensor | None,
    before: Tensor,
    bias: Tensor | None,
    share: int,
) -> Values:
    """Attention over a cache whose rows are filled differently far: new keys follow the old ones
    of each row, and what lies behind is not seen."""
    rows = shape_of(q)[2]
    if past_key is not None and past_value is not None and not _same(shape_of(past_key)[2], 0):
        old = shape_of(past_key)[2]
        width = old + rows
        at = paddle.arange(width, dtype="int64").reshape([1, -1])
        # Of old and new keys side by side, which one belongs at each position.
        source = paddle.where(at < before, at, at - before + old)
        source = paddle.clip(source, 0, width - 1).reshape([shape_of(q)[0], 1, width, 1])
        k = _picked(paddle.concat([past_key, k], 2), source)
        v = _picked(paddle.concat([past_value, v], 2), source)
    columns = shape_of(k)[2]
    place = before.reshape([-1, 1, 1, 1]) + paddle.arange(rows, dtype="int64").reshape(
        [1, 1, -1, 1]
    )
    at = paddle.arange(columns, dtype="int64").reshape([1, 1, 1, -1])
    seen = at <= place
    window = n.attr("local_window_size", -1)
    if window > 0:
        seen = seen & (at > place - window)
    added = paddle.where(seen, paddle.zeros([], "float32"), paddle.full([], -3e38, "float32"))
    wide_k, wide_v = [paddle.repeat_interleave(t, share, 1) if share > 1 else t for t in (k, v)]
    out = join_heads(_attended(n, q, wide_k, wide_v, _together(bias, added), False))
    return out, k, v


def _picked(x: Tensor, source: Tensor) -> Tensor:
    batch, heads, _, size = shape_of(x)
    rows = paddle.broadcast_to(source, [batch, heads, shape_of(source)[2], size])
    return paddle.take_along_axis(x, rows, 2)
