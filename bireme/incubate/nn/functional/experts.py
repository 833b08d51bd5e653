"""Mixtures of experts: choosing experts, sending tokens there and taking them back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import bireme as paddle
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.nn import functional as F


def _check(name: str, x: Tensor, gate_logits: Tensor, k: int, capacity: int) -> None:
    if x.ndim != 2 or gate_logits.ndim != 2 or x.shape[0] != gate_logits.shape[0]:
        raise ShapeMismatch(
            f"[{name}] takes x [tokens, width] and gate_logits [tokens, experts]. Received: "
            f"{x.shape} and {gate_logits.shape}"
        )
    if not 0 < k <= gate_logits.shape[1] or capacity < 1:
        raise InvalidArgument(
            f"[{name}] k is between 1 and the number of experts, and capacity positive. Received: "
            f"k={k} of {gate_logits.shape[1]}, capacity={capacity}"
        )


def _routes(
    gate_logits: Tensor, corr_bias: Tensor | None, k: int, capacity: int, choices_first: bool
) -> tuple[Tensor, ...]:
    """(weights [tokens, k], experts [tokens, k], place in the sorted order [k, tokens], place
    within the expert [k, tokens], how many come before the next expert [experts]).

    An expert's first choices come before its second ones with `choices_first`; otherwise tokens
    come in their own order. What exceeds the capacity has weight 0.
    """
    tokens, experts = gate_logits.shape
    scores = gate_logits if corr_bias is None else gate_logits + corr_bias.reshape([1, -1])
    chosen = paddle.topk(scores.detach(), k, axis=1)[1]
    weights = paddle.take_along_axis(gate_logits, chosen, 1)
    key = chosen * k + paddle.arange(k) if choices_first else chosen
    order = paddle.argsort(key.reshape([-1]), stable=True)
    place = paddle.argsort(order).reshape([tokens, k])
    counts = F.one_hot(chosen, experts).sum([0, 1]).astype("int64")
    ends = paddle.cumsum(counts)
    within = place - paddle.gather(ends - counts, chosen.reshape([-1])).reshape([tokens, k])
    weights = paddle.where(within < capacity, weights, paddle.zeros_like(weights))
    return weights, chosen, place.transpose([1, 0]), within.transpose([1, 0]), ends


def _sent(x: Tensor, rows: Tensor, kept: Tensor, total: int) -> Tensor:
    """x's tokens once per choice, each in its row of [total, width]; those not kept are left."""
    copies = paddle.tile(x, [rows.shape[0], 1])
    where = paddle.where(kept, rows, paddle.full_like(rows, total)).reshape([-1, 1])
    return paddle.scatter_nd(where, copies, [total + 1, x.shape[1]])[:total]


def moe_gate_dispatch(
    x: Tensor,
    gate_logits: Tensor,
    corr_bias: Tensor | None,
    k: int,
    capacity: int,
    use_pad: bool,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(rows by expert, weights [tokens, k], rows of the choices [k, tokens], where each expert's
    rows end, chosen experts [tokens, k]).

    Each token goes to the k experts with the largest gate_logits + corr_bias; its weights are
    gate_logits themselves. An expert takes `capacity` tokens; the others get weight 0 and row 0.
    With use_pad every expert has `capacity` rows, otherwise the tokens lie end to end.
    """
    _check("moe_gate_dispatch", x, gate_logits, k, capacity)
    weights, chosen, place, within, ends = _routes(gate_logits, corr_bias, k, capacity, use_pad)
    kept = within < capacity
    rows = chosen.transpose([1, 0]) * capacity + within if use_pad else place
    total = gate_logits.shape[1] * capacity if use_pad else x.shape[0] * k
    sent = _sent(x, rows, kept, total)
    index = paddle.where(kept, rows, paddle.zeros_like(rows)).astype("int32")
    return sent, weights, index, ends, chosen.astype("int32")


def moe_gate_dispatch_permute(
    x: Tensor,
    gate_logits: Tensor,
    corr_bias: Tensor | None,
    k: int,
    capacity: int,
    world_size: int,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`moe_gate_dispatch` with padding, its rows as [experts of a rank, ranks, capacity, width]:
    the first experts of all ranks, then the second ones. Row numbers stay those before that."""
    experts = gate_logits.shape[-1]
    if world_size < 1 or experts % world_size:
        raise InvalidArgument(
            "[moe_gate_dispatch_permute] the experts must divide among the ranks. Received: "
            f"{experts} experts, world_size={world_size}"
        )
    rows, *rest = moe_gate_dispatch(x, gate_logits, corr_bias, k, capacity, True)
    by_rank = rows.reshape([world_size, experts // world_size, capacity, x.shape[1]])
    return by_rank.transpose([1, 0, 2, 3]), rest[0], rest[1], rest[2], rest[3]


def moe_gate_dispatch_partial_nosoftmaxtopk(
    x: Tensor,
    combine_weights: Tensor,
    expert_id: Tensor,
    k: int,
    capacity: int,
    num_experts: int,
    use_pad: bool,
    expert_start_index: int,
    expert_end_index: int,
    reverse_token_drop: bool,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """One rank's part of a dispatch that is decided already: the tokens x [tokens, width] whose
    choices `expert_id` [tokens, k] are among the experts from expert_start_index up to, not
    including, expert_end_index.

    Returns (rows by expert, combine_weights with 0 for what is not here, row of each choice
    [k, tokens], token of each row, how many choose each expert, how many are here for each). An
    expert takes `capacity` tokens, first choices before second ones; with reverse_token_drop the
    last ones instead of the first. With use_pad every expert has `capacity` rows, those without a
    token being zero and of token number `tokens`. How many rows there are depends on the choices,
    so this is not for captured functions.
    """
    tokens = x.shape[0]
    if expert_id.shape != [tokens, k] or combine_weights.shape != [tokens, k]:
        raise ShapeMismatch(
            "[moe_gate_dispatch_partial_nosoftmaxtopk] combine_weights and expert_id are "
            f"{[tokens, k]}. Received: {combine_weights.shape} and {expert_id.shape}"
        )
    chosen = expert_id.numpy()
    by_choice = chosen.T.reshape(-1)  # first choices of all tokens, then second ones …
    row_of = np.zeros(k * tokens, np.int32)
    kept = np.zeros(k * tokens, bool)
    here = np.zeros(num_experts, np.int64)
    sources: list[np.ndarray] = []
    start = 0
    for expert in range(expert_start_index, expert_end_index):
        found = np.flatnonzero(by_choice == expert)
        found = found[-capacity:] if reverse_token_drop else found[:capacity]
        found = found[np.argsort(found % tokens, kind="stable")]
        row_of[found] = start + np.arange(len(found))
        kept[found] = True
        here[expert] = len(found)
        fill = capacity - len(found) if use_pad else 0
        sources.append(np.append(found % tokens, np.full(fill, tokens)))
        start += len(found) + fill
    source = np.concatenate(sources).astype(np.int32) if sources else np.zeros(0, np.int32)
    padded = paddle.concat([x, paddle.zeros([1, x.shape[1]], x.dtype)])
    mask = paddle.to_tensor(kept.reshape(k, tokens).T)
    weights = paddle.where(mask, combine_weights, paddle.zeros_like(combine_weights))
    counts = np.bincount(by_choice, minlength=num_experts)[:num_experts].astype(np.int64)
    return (
        paddle.gather(padded, paddle.to_tensor(source)),
        weights,
        paddle.to_tensor(row_of.reshape(k, tokens)),
        paddle.to_tensor(source),
        paddle.to_tensor(counts),
        paddle.to_tensor(here),
    )


def moe_combine(
    x: Tensor, combine_weights: Tensor, scatter_index: Tensor, name: str | None = None
) -> Tensor:
    """The weighted sum of each token's rows: sum_k combine_weights[i, k] x[scatter_index[i, k]].

    >>> out = moe_combine(rows, weights, scatter_index.transpose([1, 0]))  # of moe_gate_dispatch
    """
    if combine_weights.ndim != 2 or scatter_index.size != combine_weights.size:
        raise ShapeMismatch(
            "[moe_combine] combine_weights and scatter_index are [tokens, k]. Received: "
            f"{combine_weights.shape} and {scatter_index.shape}"
        )
    tokens, k = combine_weights.shape
    picked = paddle.gather(x, scatter_index.reshape([-1])).reshape([tokens, k, -1])
    return (picked * combine_weights.astype(x.dtype).unsqueeze(-1)).sum(1)


def expand_modality_expert_id(
    expert_id: Tensor,
    num_expert_per_modality: int,
    group_size: int,
    modality_offset: int,
    is_group_expert: bool,
    name: str | None = None,
) -> Tensor:
    """Numbers of experts [tokens, k] where every rank holds those of two kinds of input.

    With is_group_expert choice i counts from group i. A rank then has num_expert_per_modality
    experts of each kind, the second kind's (modality_offset=1) after the first's.
    """
    if expert_id.ndim != 2:
        raise ShapeMismatch(
            f"[expand_modality_expert_id] takes [tokens, k]. Received: {expert_id.shape}"
        )
    out = expert_id
    if is_group_expert:
        out = out + (paddle.arange(expert_id.shape[1]) * group_size).astype(out.dtype)
    if num_expert_per_modality <= 0:
        return out
    n = num_expert_per_modality
    return (out // n) * (2 * n) + out % n + modality_offset * n


def cal_aux_loss(
    gate_prob: Tensor,
    dispatch_mask: Tensor,
    tokens_mask: Tensor | None,
    dispatch_tokens_mask: Tensor | None,
    num_experts: int,
    use_group: bool,
    moe_k: int,
    clip_min: float,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(loss, number of tokens, each expert's share of them): the loss that spreads tokens evenly,
    num_experts * sum_e (mean probability of e) * (share of e).

    Masks say which tokens count, tokens_mask here and dispatch_tokens_mask on all ranks; a loss of
    this rank's tokens is scaled to all of them, its gradient is not.
    """
    kind = gate_prob.dtype
    scale = None
    if dispatch_tokens_mask is not None:
        count = dispatch_tokens_mask.astype(kind).sum()
    elif tokens_mask is not None:
        count = tokens_mask.astype(kind).sum()
    else:
        count = paddle.full([], gate_prob.shape[0] * gate_prob.shape[1] / num_experts, kind)
    count = paddle.clip(count, min=clip_min)
    if tokens_mask is not None and dispatch_tokens_mask is not None:
        scale = count / paddle.clip(tokens_mask.astype(kind).sum(), min=clip_min)
    sent = dispatch_mask.sum(0) if dispatch_mask.ndim == 2 else dispatch_mask
    share = sent.astype(kind).detach() / count
    loss = (gate_prob.sum(0) / count * share).sum() * num_experts
    if use_group:
        loss = loss / moe_k
    if scale is not None:
        loss = loss + (scale - 1) * loss.detach()
    return loss, count, share


def build_src_rank_and_local_expert_id(
    expert_num_global_tensor: Tensor,
    expert_num_global: Sequence[int],
    num_local_experts: int,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """(rank, expert within the rank) of every token, from how many each expert of each rank has.

    The counts come twice: as a tensor, and as a list that says how many tokens there are.
    """
    if num_local_experts < 1:
        raise InvalidArgument(
            "[build_src_rank_and_local_expert_id] num_local_experts must be positive. Received: "
            f"{num_local_experts}"
        )
    total = sum(int(n) for n in expert_num_global)
    ends = paddle.cumsum(expert_num_global_tensor.astype("int64").reshape([-1]))
    expert = paddle.searchsorted(ends, paddle.arange(total), right=True)
    return (
        (expert // num_local_experts).astype("int32"),
        (expert % num_local_experts).astype("int32"),
    )
