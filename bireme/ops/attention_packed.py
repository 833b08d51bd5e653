"""Attention with packed inputs or masks given as row ranges, by the names of fused kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.api.public import namespace
from bireme.core.aval import Aval, aval
from bireme.core.dtype import bool_
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.ops.attention import (
    _attend,
    _attention_weights,
    _same_sequence,
    flash_attention,
    flash_attn_unpadded,
)
from bireme.ops.manipulation import reshape, transpose
from bireme.ops.nn_support import need_rank

public = namespace("paddle.nn.functional")


def _plain_generator(function: str, fixed_seed_offset: Any, rng_name: str) -> None:
    """The one generator of this process draws for dropout; others cannot be named."""
    if fixed_seed_offset is not None or rng_name:
        raise InvalidArgument(
            f"[{function}] fixed_seed_offset and rng_name name states of Paddle's generator; use "
            "paddle.seed(...) to repeat a dropout. Received: "
            f"fixed_seed_offset={fixed_seed_offset!r}, rng_name={rng_name!r}"
        )


def _unpacked(function: str, qkv: Tensor, ndim: int) -> tuple[Tensor, Tensor, Tensor]:
    """query, key and value of [..., groups + 2, key heads, width]."""
    if qkv.ndim != ndim or qkv._value.aval.shape[-3] < 3:
        lead = "batch, length" if ndim == 5 else "total"
        raise ShapeMismatch(
            f"[{function}] qkv must be [{lead}, query heads / key heads + 2, key heads, width]. "
            f"Received: {qkv.shape}"
        )
    lead = [0] * (ndim - 3)
    query = reshape(qkv[..., :-2, :, :], [*lead, -1, qkv._value.aval.shape[-1]])
    return query, qkv[..., -2, :, :], qkv[..., -1, :, :]


@public
def flash_attn_qkvpacked(
    qkv: Tensor,
    dropout: float = 0.0,
    causal: bool = False,
    return_softmax: bool = False,
    *,
    fixed_seed_offset: Tensor | None = None,
    rng_name: str = "",
    training: bool = True,
    name: str | None = None,
) -> tuple[Tensor, Tensor | None]:
    """`flash_attention` of [batch, length, groups + 2, key heads, width]: queries, key, value."""
    _plain_generator("flash_attn_qkvpacked", fixed_seed_offset, rng_name)
    query, key, value = _unpacked("flash_attn_qkvpacked", qkv, 5)
    return flash_attention(query, key, value, dropout, causal, return_softmax, training=training)


@public
def flash_attn_varlen_qkvpacked(
    qkv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    scale: float,
    dropout: float = 0.0,
    causal: bool = False,
    return_softmax: bool = False,
    fixed_seed_offset: Tensor | None = None,
    rng_name: str = "",
    varlen_padded: bool = True,
    training: bool = True,
    name: str | None = None,
) -> tuple[Tensor, Tensor | None]:
    """`flash_attn_unpadded` of [total, groups + 2, key heads, width]: queries, key and value.

    The sequences must lie end to end: `varlen_padded` (room left after each, up to the longest)
    must be False, or all sequences as long as the longest.
    """
    _plain_generator("flash_attn_varlen_qkvpacked", fixed_seed_offset, rng_name)
    total = qkv._value.aval.shape[0]
    rows = cu_seqlens_q._value.aval.shape[0] - 1
    if varlen_padded and total != rows * max_seqlen_q:
        raise InvalidArgument(
            "[flash_attn_varlen_qkvpacked] varlen_padded=True means rows * max_seqlen_q = "
            f"{rows * max_seqlen_q} places. Received: {total}; pass varlen_padded=False for "
            "sequences laid end to end"
        )
    query, key, value = _unpacked("flash_attn_varlen_qkvpacked", qkv, 4)
    if not varlen_padded:
        return flash_attn_unpadded(
            query, key, value, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, scale,
            dropout, causal, return_softmax, training=training,
        )  # fmt: skip
    return _padded_attention(
        query, key, value, (cu_seqlens_q, cu_seqlens_k), (rows, max_seqlen_q), scale, dropout,
        causal, return_softmax, training,
    )  # fmt: skip


@op(
    differentiable=False,
    infer=lambda starts, length: aval((starts.shape[0] - 1, 1, 1, length), bool_),
)
def _filled(xp, starts, length=1):
    """Which of the `length` places of each row hold a sequence: [rows, 1, 1, length]."""
    sizes = starts[1:] - starts[:-1]
    return (xp.arange(length) < sizes[:, None])[:, None, None, :]


def _padded_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: Any,
    size: tuple[int, int],
    scale: float,
    dropout: float,
    causal: bool,
    return_softmax: bool,
    training: bool,
) -> tuple[Tensor, Tensor | None]:
    """Sequences with room after each: a batch whose keys beyond the end are not seen."""
    rows, length = size
    q, k, v = (reshape(x, [rows, length, *x.shape[1:]]) for x in (query, key, value))
    mask = _filled(starts[1], length)
    if causal:
        mask = mask & _row_mask(q, k, None, True)
    out = _attend(q, k, v, mask, dropout, False, training, scale)
    out = reshape(out, [rows * length, *out.shape[2:]])
    return out, _attention_weights(q, k, mask, float(scale), False) if return_softmax else None


@public
def flash_attention_v3_varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
) -> tuple[Tensor, Tensor]:
    """(result, log of the softmax's sums [heads, total]) of `flash_attn_unpadded`.

    `window_size` bounds how far a query looks back and ahead. The last three arguments tune
    Paddle's kernel and change no numbers; XLA makes its own choices.
    """
    refused = {
        "seqused_q": seqused_q, "seqused_k": seqused_k, "qv": qv, "q_descale": q_descale,
        "k_descale": k_descale, "v_descale": v_descale, "softcap": softcap or None,
    }  # fmt: skip
    given = [name for name, x in refused.items() if x is not None]
    if given:
        raise InvalidArgument(
            "[flash_attention_v3_varlen] sequences are whole and in floating point, and scores "
            f"have no cap. Received: {', '.join(given)}"
        )
    scale = query._value.aval.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    window = (int(window_size[0]), int(window_size[1]))
    seen = _same_sequence(query, key, cu_seqlens_q, cu_seqlens_k, causal, window)
    mask = reshape(seen, [1, 1, *seen.shape])
    q, k, v = (reshape(x, [1, *x.shape]) for x in (query, key, value))
    out = _masked(q, k, v, mask, 0.0, True, scale)
    sums = _log_sums(q, k, mask, float(scale))
    return reshape(out, query.shape[:2] + value.shape[2:]), reshape(sums, sums.shape[1:])


# --- masks as ranges of rows --------------------------------------------------------------------


def _rows_check(query: Aval, key: Aval, bounds: Aval | None, causal: bool) -> None:
    need_rank("query", query, 4)
    need_rank("key", key, 4)
    if bounds is None:
        return
    allowed = (1, 2) if causal else (2, 4)
    heads = (1, query.shape[2], key.shape[2])
    if bounds.ndim != 4 or bounds.shape[-1] not in allowed:
        raise ShapeMismatch(
            f"startend_row_indices must be [batch, heads, key length, {allowed[0]} or "
            f"{allowed[1]}] where causal={causal}"
        )
    if bounds.shape[1] not in heads or bounds.shape[2] != key.shape[1]:
        raise ShapeMismatch(
            f"startend_row_indices must have 1, {key.shape[2]} or {query.shape[2]} heads and "
            f"{key.shape[1]} keys"
        )
    if not bounds.dtype.is_integer:
        raise TypeMismatch(f"startend_row_indices must be int32, not {bounds.dtype.name}")


def _rows_infer(query: Aval, key: Aval, bounds: Aval | None, causal: bool) -> Aval:
    batch, heads = (1, 1) if bounds is None else (bounds.shape[0], bounds.shape[1])
    if heads != 1:
        heads = query.shape[2]
    return aval((batch, heads, query.shape[1], key.shape[1]), bool_)


@op(
    inputs=("query", "key", "bounds"),
    differentiable=False,
    check=_rows_check,
    infer=_rows_infer,
)
def _row_mask(xp, query, key, bounds=None, causal=False):
    """Which query (row) may see which key (column): [batch, heads, rows, columns]."""
    rows, columns = query.shape[1], key.shape[1]
    row = xp.arange(rows)[:, None]
    column = xp.arange(columns)
    # The last rows belong to the last columns where there are fewer rows.
    seen = (column <= row + (columns - rows) if causal else column >= 0)[None, None]
    seen = xp.broadcast_to(seen, (1, 1, rows, columns))
    if bounds is None:
        return seen
    parts = [bounds[:, :, None, :, i] for i in range(bounds.shape[-1])]
    if causal:  # hidden from a row on, perhaps up to another
        hidden = row >= parts[0]
        if len(parts) == 2:
            hidden = hidden & (row < parts[1])
    elif len(parts) == 2:  # hidden from a row on, and up to a row
        hidden = (row >= parts[0]) | (row < parts[1])
    else:
        hidden = ((row >= parts[0]) & (row < parts[1])) | ((row >= parts[2]) & (row < parts[3]))
    if bounds.shape[1] not in (1, query.shape[2]):
        hidden = xp.repeat(hidden, query.shape[2] // bounds.shape[1], axis=1)
    return seen & ~hidden


@op(inputs=("query", "key", "mask", "scale"), differentiable=False)
def _log_sums(xp, query, key, mask, scale):
    """log sum exp of every row's scores, [batch, heads, rows], in float32."""
    q = xp.transpose(query, (0, 2, 1, 3)).astype(np.float32)
    k = xp.transpose(key, (0, 2, 3, 1)).astype(np.float32)
    if k.shape[1] != q.shape[1]:
        k = xp.repeat(k, q.shape[1] // k.shape[1], axis=1)
    scores = xp.where(mask, xp.matmul(q, k) * xp.asarray(scale).astype(np.float32), -xp.inf)
    peak = xp.max(scores, axis=-1, keepdims=True)
    peak = xp.where(xp.isfinite(peak), peak, 0.0)
    with np.errstate(divide="ignore"):
        return (xp.log(xp.sum(xp.exp(scores - peak), axis=-1, keepdims=True)) + peak)[..., 0]


@op(vjp=lambda xp, grad, mask: (xp.where(mask, grad, 0), None), infer=lambda x, mask: x)
def _blank(xp, x, mask):
    """Zeros for the rows that see nothing, where softmax has no answer."""
    return xp.where(mask, x, 0)


@op(differentiable=False)
def _opened(xp, mask):
    """The mask with the rows that see nothing opened, which keeps numbers finite there; and
    which rows see something, [batch, rows, heads, 1]."""
    some = xp.any(mask, axis=-1, keepdims=True)
    return mask | ~some, xp.transpose(some, (0, 2, 1, 3))


def _masked(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    dropout: float,
    training: bool,
    scale: float | None,
) -> Tensor:
    opened, some = _opened(mask)
    return _blank(_attend(query, key, value, opened, dropout, False, training, scale), some)


def _windowed(query: Tensor, window: Any, causal: bool) -> Tensor:
    """startend_row_indices of a window of keys around each row."""
    from bireme.ops.creation import to_tensor

    before, after = (window, window) if isinstance(window, int) else window
    batch, length = query._value.aval.shape[:2]
    place = np.arange(length)
    parts = [place + before + 1] if causal else [place + before + 1, place - after]
    bounds = np.clip(np.stack(parts, -1), 0, length).astype(np.int32)
    return to_tensor(np.broadcast_to(bounds, (batch, 1, *bounds.shape)).copy())


@public
def flashmask_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    startend_row_indices: Tensor | None = None,
    *,
    dropout: float = 0.0,
    causal: bool = False,
    window_size: int | Sequence[int] | None = None,
    return_softmax_lse: bool = False,
    return_seed_offset: bool = False,
    fixed_seed_offset: Tensor | None = None,
    rng_name: str = "",
    training: bool = True,
    name: str | None = None,
    softmax_scale: float | None = None,
    block_mask: Tensor | None = None,
) -> Any:
    """Attention where each key is hidden from ranges of queries (rows).

    `startend_row_indices` [batch, heads, key length, n] holds for each key, if causal: the row from
    which on it is hidden (and up to which, n = 2); otherwise the row from which on and the row up
    to which (n = 2), or two ranges (n = 4). `window_size` hides all but the keys nearby.
    """
    function = "flashmask_attention"
    _plain_generator(function, fixed_seed_offset, rng_name)
    if return_seed_offset or block_mask is not None:
        raise InvalidArgument(
            f"[{function}] return_seed_offset and block_mask belong to Paddle's GPU kernels; give "
            "the mask in startend_row_indices"
        )
    if window_size is not None:
        if startend_row_indices is not None:
            raise InvalidArgument(
                f"[{function}] give window_size or startend_row_indices, not both"
            )
        startend_row_indices = _windowed(query, window_size, causal)
    mask = _row_mask(query, key, startend_row_indices, causal)
    out = _masked(query, key, value, mask, dropout, training, softmax_scale)
    if not return_softmax_lse:
        return out
    scale = softmax_scale or query._value.aval.shape[-1] ** -0.5
    return [out, _log_sums(query, key, mask, float(scale))]


# --- masks as sparse rows -----------------------------------------------------------------------


@op(
    differentiable=False,
    infer=lambda offset, columns: aval(
        (*offset.shape[:2], offset.shape[2] - 1, offset.shape[2] - 1), bool_
    ),
)
def _csr_mask(xp, offset, columns):
    """[batch, heads, rows, columns]: the places that compressed rows name."""
    size = offset.shape[2] - 1
    place = xp.arange(columns.shape[2])
    row = xp.sum(place[None, None, :, None] >= offset[:, :, None, 1:], axis=-1)
    valid = place < offset[:, :, -1:]
    hit = (row[..., None] == xp.arange(size)) & valid[..., None]  # [b, h, entries, rows]
    at = columns[..., None] == xp.arange(size)  # [b, h, entries, columns]
    count = xp.matmul(xp.swapaxes(hit, -1, -2).astype(np.float32), at.astype(np.float32))
    return count > 0


@public
def sparse_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sparse_csr_offset: Tensor,
    sparse_csr_columns: Tensor,
    key_padding_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    name: str | None = None,
) -> Tensor:
    """Attention over [batch, heads, length, width] at the places that compressed rows name.

    `sparse_csr_offset` [batch, heads, length + 1] and `sparse_csr_columns` [batch, heads, entries]
    are the layout's rows; the other two masks are 0 where something is hidden.
    """
    mask = _csr_mask(sparse_csr_offset, sparse_csr_columns)
    if key_padding_mask is not None:
        mask = mask & reshape(key_padding_mask != 0, [key_padding_mask.shape[0], 1, 1, -1])
    if attn_mask is not None:
        mask = mask & reshape(attn_mask != 0, [1, 1, *attn_mask.shape[-2:]])
    order = [0, 2, 1, 3]
    q, k, v = (transpose(x, order) for x in (query, key, value))
    return transpose(_masked(q, k, v, mask, 0.0, False, None), order)
