"""Rows of tokens sorted by the experts that they go to, and back.

A token may go to several experts. Each expert's rows lie together, in the order of the tokens, and
start at a multiple of an alignment; the rows between are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.api.public import namespace
from bireme.core.aval import Aval, aval
from bireme.core.dtype import int32
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor, constant
from bireme.ops.indexing import scatter_into
from bireme.ops.manipulation import unsqueeze

public = namespace("paddle.nn.functional")


@op(
    differentiable=False,
    infer=lambda routes, starts: aval((routes.shape[0], starts.shape[0]), int32),
)
def _rows_of_experts(xp, routes, starts):
    """[tokens, experts]: the row that a token has with an expert, -1 for none."""
    experts = xp.arange(starts.shape[0], dtype=routes.dtype)
    chosen = xp.any(routes[:, :, None] == experts, axis=1)
    rank = xp.cumsum(chosen.astype(np.int32), axis=0) - 1
    return xp.where(chosen, rank + starts.astype(np.int32), -1).astype(np.int32)


def _sorted_infer(x: Aval, row_map: Aval, rows: Any) -> Aval:
    return aval((rows, *x.shape[1:]), x.dtype)


def _sorted_vjp(xp: Any, grad: Any, row_map: Any, rows: Any) -> Any:
    return (_collected(xp, grad, row_map), None)


def _collected(xp: Any, x: Any, row_map: Any) -> Any:
    """The sum of each token's rows."""
    picked = xp.take(x, xp.maximum(row_map, 0), axis=0)
    seen = xp.reshape(row_map >= 0, (*row_map.shape, *[1] * (x.ndim - 1)))
    return xp.sum(xp.where(seen, picked, 0), axis=1, dtype=x.dtype)


@op(vjp=_sorted_vjp, infer=_sorted_infer)
def _sorted_by_expert(xp, x, row_map, rows=0):
    """Every token's row where `row_map` [tokens, experts] says, zeros elsewhere."""
    tokens, experts = row_map.shape
    copies = xp.reshape(
        xp.broadcast_to(x[:, None], (tokens, experts, *x.shape[1:])),
        (tokens * experts, *x.shape[1:]),
    )
    where = xp.reshape(xp.where(row_map < 0, rows, row_map), (-1,))
    out = xp.zeros((rows + 1, *x.shape[1:]), x.dtype)
    return scatter_into(xp, out, where, copies, "set")[:rows]


def _back_vjp(xp: Any, grad: Any, row_map: Any, types: Any) -> Any:
    return (_sorted_by_expert.op.body(xp, grad, row_map, types[0].shape[0]), None)


@op(vjp=_back_vjp, infer=lambda x, row_map: aval((row_map.shape[0], *x.shape[1:]), x.dtype))
def _back_to_tokens(xp, x, row_map):
    return _collected(xp, x, row_map)


@op(
    inputs=("probs", "routes"),
    infer=lambda probs, routes, experts: aval((routes.shape[0], experts), probs.dtype),
)
def _per_expert(xp, probs, routes, experts=1):
    """[tokens, choices] of probabilities as [tokens, experts]."""
    hit = routes[:, :, None] == xp.arange(experts, dtype=routes.dtype)
    return xp.sum(xp.where(hit, probs[:, :, None], 0), axis=1, dtype=probs.dtype)


@op(
    inputs=("probs", "row_map", "routes"),
    infer=lambda probs, row_map, routes: aval(routes.shape, probs.dtype),
)
def _per_choice(xp, probs, row_map, routes):
    """Probabilities by row as [tokens, choices]; 0 where a choice is -1."""
    rows = xp.take_along_axis(row_map, xp.maximum(routes, 0), axis=1)
    return xp.where((routes >= 0) & (rows >= 0), xp.take(probs, xp.maximum(rows, 0)), 0)


@op(inputs=("probs", "row_map"), infer=lambda probs, row_map, rows: aval((rows,), probs.dtype))
def _by_row(xp, probs, row_map, rows=0):
    """[tokens, experts] of probabilities in the order of the sorted rows."""
    where = xp.reshape(xp.where(row_map < 0, rows, row_map), (-1,))
    out = xp.zeros((rows + 1,), probs.dtype)
    return scatter_into(xp, out, where, xp.reshape(probs, (-1,)), "set")[:rows]


@op(differentiable=False, infer=lambda row_map, rows: aval((rows,), int32))
def _owners(xp, row_map, rows=0):
    """The expert of every sorted row, -1 for the rows between."""
    where = xp.reshape(xp.where(row_map < 0, rows, row_map), (-1,))
    experts = xp.broadcast_to(xp.arange(row_map.shape[1], dtype=np.int32), row_map.shape)
    out = xp.full((rows + 1,), -1, np.int32)
    return scatter_into(xp, out, where, xp.reshape(experts, (-1,)), "set")[:rows]


def _starts(counts: Sequence[int], alignment: int) -> tuple[np.ndarray, int]:
    """Where each expert's rows start, and how many rows there are with those between."""
    room = [-(-int(n) // alignment) * alignment for n in counts]
    ends = np.cumsum([0, *room])
    return ends[:-1].astype(np.int32), int(ends[-1])


@public
def moe_permute(
    hidden_states: Tensor,
    scale: Tensor | None,
    expert_routemap_topk: Tensor,
    expert_prob_topk: Tensor,
    num_experts: int,
    tokens_per_expert: Sequence[int],
    padding_alignment: int,
    do_gather: bool = True,
    using_ue8m0_scale: bool = False,
    return_expert_indices: bool = False,
    override_buffer_size: int = -1,
    name: str | None = None,
) -> tuple[Tensor, ...]:
    """(rows by expert, their places [tokens, experts], their probabilities, their scales).

    `expert_routemap_topk` [tokens, choices] names each token's experts, -1 for none, and
    `tokens_per_expert` counts them. Without `do_gather` the rows stay empty; `scale`, one line per
    token, goes along with float8 rows. `return_expert_indices` adds the expert of every row.
    """
    if len(tokens_per_expert) != num_experts or padding_alignment < 1:
        raise InvalidArgument(
            "[moe_permute] tokens_per_expert needs a count for each of the num_experts experts, "
            f"and padding_alignment is positive. Received: {len(tokens_per_expert)} counts, "
            f"num_experts={num_experts}, padding_alignment={padding_alignment}"
        )
    if expert_routemap_topk.shape != expert_prob_topk.shape:
        raise ShapeMismatch(
            "[moe_permute] expert_routemap_topk and expert_prob_topk must have one shape, [tokens, "
            f"choices]. Received: {expert_routemap_topk.shape} and {expert_prob_topk.shape}"
        )
    if scale is not None and using_ue8m0_scale != (scale.dtype is int32):
        raise InvalidArgument(
            "[moe_permute] scales are int32 (four to a word) with using_ue8m0_scale and float32 "
            f"without. Received: {scale.dtype.name}, using_ue8m0_scale={using_ue8m0_scale}"
        )
    starts, rows = _starts(tokens_per_expert, padding_alignment)
    if override_buffer_size > 0:
        if override_buffer_size < rows:
            raise InvalidArgument(
                f"[moe_permute] override_buffer_size must hold the {rows} rows. Received: "
                f"{override_buffer_size}"
            )
        rows = override_buffer_size
    row_map = _rows_of_experts(expert_routemap_topk, constant(starts))
    probs = _by_row(_per_expert(expert_prob_topk, expert_routemap_topk, num_experts), row_map, rows)
    made = [hidden_states[:0], row_map, probs, hidden_states[:0] if scale is None else scale[:0]]
    if do_gather:
        made[0] = _sorted_by_expert(hidden_states, row_map, rows)
        if scale is not None:
            made[3] = _sorted_by_expert(scale, row_map, rows)
    return (*made, _owners(row_map, rows)) if return_expert_indices else tuple(made)


@public
def moe_unpermute(
    hidden_states_unzipped: Tensor,
    zipped_expertwise_rowmap: Tensor,
    expert_routemap_topk: Tensor,
    token_prob_unzipped: Tensor,
    total_zipped_tokens: int,
    num_experts: int,
    using_mix_precision: bool = True,
    using_weighted_combine: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """(the sum of each token's rows, its probabilities [tokens, choices]).

    Sums are in float32 with `using_mix_precision`; `using_weighted_combine` weighs the rows with
    their probabilities.
    """
    wanted = [total_zipped_tokens, num_experts]
    if zipped_expertwise_rowmap.shape != wanted:
        raise ShapeMismatch(
            "[moe_unpermute] zipped_expertwise_rowmap must be [total_zipped_tokens, num_experts] "
            f"= {wanted}. Received: {zipped_expertwise_rowmap.shape}"
        )
    probs = token_prob_unzipped.reshape([-1])
    rows = hidden_states_unzipped
    if using_mix_precision or using_weighted_combine:
        rows = rows.astype("float32")
    if using_weighted_combine:
        rows = rows * unsqueeze(probs, -1).astype(rows.dtype)
    out = _back_to_tokens(rows, zipped_expertwise_rowmap).astype(hidden_states_unzipped.dtype)
    return out, _per_choice(probs, zipped_expertwise_rowmap, expert_routemap_topk)
