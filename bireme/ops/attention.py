"""Scaled dot-product attention over [batch, length, heads, width].

One op from query, key and value to the result. Its gradient makes the weights again instead of
keeping [batch, heads, length, length] arrays; inside one compiled step XLA finds the expression
it already has. Products run in the inputs' type, softmax in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.api.public import namespace
from bireme.core.aval import Aval, aval
from bireme.core.dtype import bool_, float32
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.random import next_key
from bireme.core.tensor import Tensor
from bireme.ops.dropout import drop_threshold, kept
from bireme.ops.nn_support import wide
from bireme.ops.softmax import softmax_of

public = namespace("paddle.nn.functional")


def _product(xp: Any, a: Any, b: Any) -> Any:
    """a @ b with sums in float32."""
    if a.dtype.itemsize >= 4:
        return xp.matmul(a, b)
    if xp is np:
        return np.matmul(wide(np, a), wide(np, b))
    return xp.matmul(a, b, preferred_element_type=np.float32)


def _heads_first(xp: Any, x: Any, key_heads: Any) -> Any:
    """[B, L, H, D] as [B, K, H / K * L, D]: the queries of one key head together."""
    batch, length, heads, width = x.shape
    if key_heads == heads:
        return xp.transpose(x, (0, 2, 1, 3))
    x = xp.reshape(x, (batch, length, key_heads, heads // key_heads, width))
    x = xp.transpose(x, (0, 2, 3, 1, 4))
    return xp.reshape(x, (batch, key_heads, heads // key_heads * length, width))


def _heads_last(xp: Any, x: Any, heads: Any) -> Any:
    """The inverse of `_heads_first`."""
    batch, key_heads, rows, width = x.shape
    if key_heads == heads:
        return xp.transpose(x, (0, 2, 1, 3))
    group = heads // key_heads
    x = xp.reshape(x, (batch, key_heads, group, rows // group, width))
    x = xp.transpose(x, (0, 3, 1, 2, 4))
    return xp.reshape(x, (batch, rows // group, heads, width))


def _weights(xp: Any, q: Any, k: Any, mask: Any, scale: Any, causal: bool, heads: Any) -> Any:
    """softmax(q k^T * scale + mask) as [B, H, Lq, Lk]; q and k are heads first."""
    scores = _product(xp, q, xp.swapaxes(k, -1, -2))
    scores = scores * xp.asarray(scale).astype(scores.dtype)
    batch, rows, length = q.shape[0], q.shape[1] * q.shape[2] // heads, k.shape[2]
    scores = xp.reshape(scores, (batch, heads, rows, length))
    if causal:
        later = xp.arange(length) > xp.arange(rows)[:, None]
        scores = xp.where(later, -xp.inf, scores)
    elif mask is not None:
        if mask.dtype == np.bool_:
            scores = xp.where(mask, scores, -xp.inf)
        else:
            scores = scores + wide(xp, mask)
    return softmax_of(xp, scores, -1)


def _drop(xp: Any, x: Any, threshold: Any, keep_scale: Any, seed: Any, offset: Any) -> Any:
    if threshold is None:
        return x
    keep = kept(xp, threshold, seed, offset, x.shape)
    return xp.where(keep, x * xp.asarray(keep_scale).astype(x.dtype), 0)


def _grouped(xp: Any, x: Any, key_heads: Any) -> Any:
    """[B, H, Lq, Lk] as [B, K, H / K * Lq, Lk]."""
    batch, heads, rows, length = x.shape
    if heads == key_heads:
        return x
    return xp.reshape(x, (batch, key_heads, heads // key_heads * rows, length))


def _attention_check(
    query: Aval, key: Aval, value: Aval, mask: Aval | None, *rest: Any, causal: bool
) -> None:
    for what, x in (("key", key), ("value", value)):
        if x.dtype is not query.dtype:
            raise TypeMismatch(
                f"query, key and value must have one dtype, not {query.dtype.name} and "
                f"{x.dtype.name} for {what}"
            )
    if query.ndim != 4 or key.ndim != 4 or value.ndim != 4:
        raise ShapeMismatch(
            "query, key and value must have 4 dimensions [batch, length, heads, width]"
        )
    if key.shape[:3] != value.shape[:3] or query.shape[0] != key.shape[0]:
        raise ShapeMismatch("key and value must agree in batch, length and heads; query in batch")
    if query.shape[3] != key.shape[3]:
        raise ShapeMismatch("query and key must have the same width per head")
    if query.shape[2] % key.shape[2] != 0:
        raise ShapeMismatch(
            f"the {query.shape[2]} heads of query must be a multiple of the {key.shape[2]} of key"
        )
    scores = (query.shape[0], query.shape[2], query.shape[1], key.shape[1])
    if mask is not None and not _fits(mask.shape, scores):
        raise ShapeMismatch(
            f"attn_mask must broadcast to [batch, heads, length, length], here {list(scores)}"
        )


def _fits(shape: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    """Whether `shape` broadcasts to `wanted`, as far as sizes are known."""
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    known = [(a, b) for a, b in pairs if type(a) is int and type(b) is int]
    return len(shape) <= len(wanted) and all(a in (1, b) for a, b in known)


def _attention_infer(query: Aval, key: Aval, value: Aval, *rest: Any, causal: bool) -> Aval:
    dtype = query.dtype if query.dtype.is_floating else float32
    return aval((*query.shape[:3], value.shape[3]), dtype)


def _as_floats(*xs: Any) -> Any:
    """Integers, of which Paddle takes the attention too, as float32."""
    return [x.astype(np.float32) if x.dtype.kind in "iu" else x for x in xs]


def _attention_vjp(
    xp: Any, grad: Any, query: Any, key: Any, value: Any, mask: Any, scale: Any, threshold: Any,
    keep_scale: Any, seed: Any, offset: Any, out: Any, causal: bool, types: Any, needs: Any,
) -> tuple[Any, ...]:  # fmt: skip
    heads, key_heads = query.shape[2], key.shape[2]
    q = _heads_first(xp, query, key_heads)
    k = _heads_first(xp, key, key_heads)
    v = _heads_first(xp, value, key_heads)
    g = _heads_first(xp, grad, key_heads)
    weights = _weights(xp, q, k, mask, scale, causal, heads)
    grad_value = None
    if needs[2]:
        used = _drop(xp, weights, threshold, keep_scale, seed, offset).astype(grad.dtype)
        used = _grouped(xp, used, key_heads)
        grad_value = _heads_last(xp, _product(xp, xp.swapaxes(used, -1, -2), g), key_heads)
    pull = xp.reshape(_product(xp, g, xp.swapaxes(v, -1, -2)), weights.shape)
    pull = _drop(xp, pull, threshold, keep_scale, seed, offset)
    # The rows' sum of weights * pull is the sum of grad * out: a much smaller array.
    mean = xp.sum(wide(xp, grad) * wide(xp, out), axis=-1, keepdims=True)
    pull = weights * (pull - xp.transpose(mean, (0, 2, 1, 3)))
    grad_mask = pull if needs[3] else None
    pull = _grouped(xp, pull * xp.asarray(scale).astype(pull.dtype), key_heads)
    pull = pull.astype(grad.dtype)
    grad_query = _heads_last(xp, _product(xp, pull, k), heads) if needs[0] else None
    grad_key = None
    if needs[1]:
        grad_key = _heads_last(xp, _product(xp, xp.swapaxes(pull, -1, -2), q), key_heads)
    return grad_query, grad_key, grad_value, grad_mask, None, None, None, None, None


@op(
    name="attention",
    inputs=(
        "query", "key", "value", "mask", "scale", "threshold", "keep_scale", "seed", "offset",
    ),
    vjp=_attention_vjp,
    infer=_attention_infer,
    check=_attention_check,
    takes={"query": "if"},
    amp="white",
    usual=("ttt-fifii", "ttt-f----"),
)  # fmt: skip
def _attention(
    xp, query, key, value, mask, scale, threshold, keep_scale, seed, offset, causal=False
):
    """softmax(query key^T * scale + mask) value for every head."""
    query, key, value = _as_floats(query, key, value)
    heads, key_heads = query.shape[2], key.shape[2]
    q = _heads_first(xp, query, key_heads)
    k = _heads_first(xp, key, key_heads)
    v = _heads_first(xp, value, key_heads)
    weights = _weights(xp, q, k, mask, scale, causal, heads)
    weights = _drop(xp, weights, threshold, keep_scale, seed, offset).astype(query.dtype)
    out = _product(xp, _grouped(xp, weights, key_heads), v).astype(query.dtype)
    return _heads_last(xp, out, heads)


@op(inputs=("query", "key", "mask", "scale"), differentiable=False)
def _attention_weights(xp, query, key, mask, scale, causal=False):
    query, key = _as_floats(query, key)
    heads, key_heads = query.shape[2], key.shape[2]
    q, k = _heads_first(xp, query, key_heads), _heads_first(xp, key, key_heads)
    return _weights(xp, q, k, mask, scale, causal, heads).astype(query.dtype)


def _scale_of(query: Tensor) -> float:
    """1 / sqrt(width of a head)."""
    shape = query._value.aval.shape
    if len(shape) < 3:
        raise ShapeMismatch(
            "[attention] query must be [batch, length, heads, width]. Received: shape "
            f"{query.shape}"
        )
    if type(shape[-1]) is not int:
        raise ShapeMismatch(
            f"[attention] the width of a head must be known. Received: shape {query.shape}"
        )
    return shape[-1] ** -0.5 if shape[-1] else 1.0


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    causal: bool,
    training: bool,
    scale: float | None,
) -> Tensor:
    if not scale:
        scale = _scale_of(query)
    if dropout == 0.0 or not training:
        return _attention(query, key, value, mask, scale, None, None, None, None, causal)
    if not 0.0 <= dropout <= 1.0:
        raise InvalidArgument(f"[attention] dropout must be in [0, 1]. Received: {dropout}")
    keep_scale = 0.0 if dropout == 1.0 else 1.0 / (1.0 - dropout)
    seed, offset = next_key()
    return _attention(
        query, key, value, mask, scale, drop_threshold(dropout), keep_scale, seed, offset, causal
    )


@op(
    vjp=lambda xp, grad, types: (xp.reshape(grad, types[0].shape),),
    infer=lambda x: aval((1, *x.shape), x.dtype),
)
def _add_batch(xp, x):
    return xp.expand_dims(x, 0)


@op(
    vjp=lambda xp, grad, types: (xp.reshape(grad, types[0].shape),),
    infer=lambda x: aval(x.shape[1:], x.dtype),
)
def _drop_batch(xp, x):
    return xp.squeeze(x, axis=0)


@public
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    training: bool = True,
    backend: str | None = None,
    scale: float | None = None,
    enable_gqa: bool = True,
    name: str | None = None,
) -> Tensor:
    """softmax(query key^T / sqrt(width) + attn_mask) value; tensors are [batch, length, heads,
    width], or without the batch.

    A boolean mask keeps where it is True. As in Paddle, is_causal replaces `attn_mask`. Fewer
    heads in key and value than in query are shared in groups. `backend` is accepted for
    compatibility: one op serves every device.
    """
    if not enable_gqa and query.shape[-2:-1] != key.shape[-2:-1]:
        raise ShapeMismatch(
            "[scaled_dot_product_attention] with enable_gqa=False query and key must have equally "
            f"many heads. Received: {query.shape[-2:-1]} and {key.shape[-2:-1]}"
        )
    mask = None if is_causal else attn_mask
    if query._value.aval.ndim == 3:
        query, key, value = _add_batch(query), _add_batch(key), _add_batch(value)
        return _drop_batch(_attend(query, key, value, mask, dropout_p, is_causal, training, scale))
    return _attend(query, key, value, mask, dropout_p, is_causal, training, scale)


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout: float = 0.0,
    causal: bool = False,
    return_softmax: bool = False,
    *,
    training: bool = True,
    name: str | None = None,
    softmax_scale: float | None = None,
) -> tuple[Tensor, Tensor | None]:
    """(result, weights or None) of attention over [batch, length, heads, width]."""
    out = _attend(query, key, value, None, dropout, causal, training, softmax_scale)
    if not return_softmax:
        return out, None
    scale = softmax_scale or _scale_of(query)
    return out, _attention_weights(query, key, None, float(scale), causal)


# --- sequences of different lengths, one after the other ----------------------------------------


@op(
    differentiable=False,
    infer=lambda total_q, total_k, starts_q, starts_k, causal, window: aval(
        (total_q.shape[0], total_k.shape[0]), bool_
    ),
)
def _same_sequence(xp, total_q, total_k, starts_q, starts_k, causal=False, window=(-1, -1)):
    """Which key each query may see: those of its own sequence, up to its own place if causal, and
    at most `window` places before and after it (-1 for any)."""
    places_q, places_k = xp.arange(total_q.shape[0]), xp.arange(total_k.shape[0])
    of_q = xp.searchsorted(starts_q, places_q, side="right")
    of_k = xp.searchsorted(starts_k, places_k, side="right")
    visible = of_q[:, None] == of_k
    if not causal and window == (-1, -1):
        return visible
    # Counted from the ends, so that a longer key sequence is the past.
    left_q = xp.take(starts_q, xp.minimum(of_q, starts_q.shape[0] - 1)) - places_q
    left_k = xp.take(starts_k, xp.minimum(of_k, starts_k.shape[0] - 1)) - places_k
    ahead = left_q[:, None] - left_k
    before, after = window[0], 0 if causal else window[1]
    if before >= 0:
        visible = visible & (ahead >= -before)
    return visible & (ahead <= after) if after >= 0 else visible


def flash_attn_unpadded(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    scale: float,
    dropout: float = 0.0,
    causal: bool = False,
    return_softmax: bool = False,
    *,
    training: bool = True,
    name: str | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Attention over sequences laid end to end, [total, heads, width].

    `cu_seqlens_*` are the places where sequences start, and the total at the end; the maximal
    lengths are implied by them.
    """
    mask = _same_sequence(query, key, cu_seqlens_q, cu_seqlens_k, causal)
    q, k, v = _add_batch(query), _add_batch(key), _add_batch(value)
    out = _drop_batch(_attend(q, k, v, mask, dropout, False, training, scale))
    if not return_softmax:
        return out, None
    return out, _attention_weights(q, k, mask, float(scale), False)
