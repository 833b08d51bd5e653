"""Causal attention with what language models add to it: windows, caps, slopes and masks."""

from __future__ import annotations

from collections.abc import Sequence

import bireme as paddle
from bireme.core.tensor import Tensor


def causal_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float = 0.0,
    window: int = 0,
    cap: float = 0.0,
    slopes: Sequence[float] = (),
    mask: Tensor | None = None,
) -> Tensor:
    """Attention of `query` [batch, tokens, heads, size] to the tokens up to each query's own.

    `scale` multiplies the scores (0: 1 / sqrt(size)); `window` is how many tokens a query sees, its
    own included (0: all); `cap` holds scores between -cap and cap by a tanh; `slopes` of the heads
    add that times the key's position (ALiBi); `mask` [batch, tokens] is False at padding; one
    of [batch, tokens, tokens] says of each query which keys it sees.
    """
    attention = paddle.nn.functional.scaled_dot_product_attention
    scale = scale or query.shape[-1] ** -0.5
    if not window and not cap and not slopes and mask is None:
        return attention(query, key, value, is_causal=True, scale=scale)
    seen = _visible(query.shape[1], window, mask)
    if slopes and not cap:
        columns = paddle.arange(key.shape[1], dtype="float32")
        added = paddle.to_tensor(list(slopes), "float32").reshape([1, -1, 1, 1]) * columns
        added = paddle.where(seen, added, paddle.full([1], float("-inf"), "float32"))
        return attention(query, key, value, attn_mask=added.astype(query.dtype), scale=scale)
    if not cap:
        return attention(query, key, value, attn_mask=seen, scale=scale)
    return _capped(query, key, value, scale, cap, seen)


def _visible(rows: int, window: int, mask: Tensor | None) -> Tensor:
    """Which key each query sees: bool [1 or batch, 1, rows, rows]. A query sees itself even where
    it is padding, so that no row is empty."""
    places = paddle.arange(rows)
    behind = places.unsqueeze(-1) - places
    seen = behind >= 0
    if window:
        seen = seen & (behind < window)
    seen = seen.reshape([1, 1, rows, rows])
    if mask is None:
        return seen
    real = mask.astype("bool")
    real = real.unsqueeze(1) if mask.ndim == 3 else real.reshape([-1, 1, 1, rows])
    return seen & (real | (behind == 0).reshape([1, 1, rows, rows]))


def _capped(
    query: Tensor, key: Tensor, value: Tensor, scale: float, cap: float, seen: Tensor
) -> Tensor:
    batch, rows, heads, size = query.shape
    groups = key.shape[2]
    grouped = query.reshape([batch, rows, groups, heads // groups, size]).transpose([0, 2, 3, 1, 4])
    keys = key.transpose([0, 2, 3, 1]).unsqueeze(2)
    scores = paddle.matmul(grouped, keys).astype("float32") * scale
    scores = paddle.tanh(scores / cap) * cap
    scores = paddle.where(seen.unsqueeze(2), scores, paddle.full([1], float("-inf"), "float32"))
    weights = paddle.nn.functional.softmax(scores, -1).astype(query.dtype)
    mixed = paddle.matmul(weights, value.transpose([0, 2, 1, 3]).unsqueeze(2))
    return mixed.transpose([0, 3, 1, 2, 4]).reshape([batch, rows, heads, value.shape[3]])
