"""Tokens in the rows of their experts: every expert has the same number of rows.

A token may go to several experts. Its row with an expert is its number in that expert's queue, in
the order of the tokens. Where a queue is longer than the expert has rows, the rest is left out.
"""

from __future__ import annotations

from typing import Any

from bireme.core.aval import Aval, aval
from bireme.core.dtype import int32
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.ops.indexing import scatter_into


@op(
    name="queue_places",
    differentiable=False,
    infer=lambda index, experts: aval(index.shape, int32),
)
def _queue_places(xp, index, experts=1):
    """[tokens, choices]: the place of each choice in its expert's queue; -1 where the choice is
    -1. Choices are queued token by token."""
    flat = xp.reshape(index, (-1,))
    hit = (flat[:, None] == xp.arange(experts, dtype=flat.dtype)).astype(xp.int32)
    rank = xp.sum((xp.cumsum(hit, axis=0) - 1) * hit, axis=1)
    return xp.reshape(xp.where(flat >= 0, rank, -1), index.shape).astype(xp.int32)


@op(
    name="queue_lengths",
    differentiable=False,
    infer=lambda index, experts: aval((experts,), int32),
)
def _queue_lengths(xp, index, experts=1):
    """How many choices fall on each expert."""
    flat = xp.reshape(index, (-1,))
    hit = flat[:, None] == xp.arange(experts, dtype=flat.dtype)
    return xp.sum(hit.astype(xp.int32), axis=0, dtype=xp.int32)


def _rows(xp: Any, index: Any, place: Any, experts: int, room: int) -> Any:
    """The row of each choice among all experts' rows; one past the end for those left out."""
    kept = (index >= 0) & (place >= 0) & (place < room)
    return xp.where(kept, index * room + place, experts * room)


def _to_infer(x: Aval, index: Aval, place: Aval, experts: Any, room: Any) -> Aval:
    return aval((experts, room, x.shape[-1]), x.dtype)


def _to_vjp(xp: Any, grad: Any, index: Any, place: Any, experts: Any, room: Any) -> Any:
    rows = _picked(xp, grad, index, place)
    return (xp.sum(rows, axis=1, dtype=grad.dtype), None, None)


def _picked(xp: Any, y: Any, index: Any, place: Any) -> Any:
    experts, room, width = y.shape
    rows = _rows(xp, index, place, experts, room)
    flat = xp.reshape(y, (experts * room, width))
    found = xp.take(flat, xp.minimum(rows, experts * room - 1), axis=0)
    return xp.where((rows < experts * room)[..., None], found, xp.zeros((), y.dtype))


@op(name="tokens_to_experts", vjp=_to_vjp, infer=_to_infer)
def _tokens_to_experts(xp, x, index, place, experts=1, room=1):
    """[experts, room, width]: each token of x [tokens, width] in a row of each of its experts;
    zeros where no token is."""
    rows = _rows(xp, index, place, experts, room)
    choices = rows.shape[1]
    copies = xp.repeat(x, choices, axis=0)
    out = xp.zeros((experts * room + 1, x.shape[-1]), x.dtype)
    out = scatter_into(xp, out, xp.reshape(rows, (-1,)), copies, "set")
    return xp.reshape(out[: experts * room], (experts, room, x.shape[-1]))


def _from_vjp(xp: Any, grad: Any, index: Any, place: Any, types: Any) -> Any:
    experts, room, width = types[0].shape
    rows = xp.reshape(_rows(xp, index, place, experts, room), (-1,))
    out = xp.zeros((experts * room + 1, width), grad.dtype)
    out = scatter_into(xp, out, rows, xp.reshape(grad, (-1, width)), "set")
    return (xp.reshape(out[: experts * room], (experts, room, width)), None, None)


@op(
    name="experts_to_tokens",
    vjp=_from_vjp,
    infer=lambda y, index, place: aval((*index.shape, y.shape[-1]), y.dtype),
)
def _experts_to_tokens(xp, y, index, place):
    """[tokens, choices, width]: the rows of y [experts, room, width] that the tokens went to;
    zeros for what was left out."""
    return _picked(xp, y, index, place)


def queue_places(index: Tensor, experts: int) -> Tensor:
    """[tokens, choices]: the place of each choice in its expert's queue; -1 where it is -1."""
    return _queue_places(index, experts)


def queue_lengths(index: Tensor, experts: int) -> Tensor:
    """How many choices fall on each expert."""
    return _queue_lengths(index, experts)


def tokens_to_experts(x: Tensor, index: Tensor, place: Tensor, experts: int, room: int) -> Tensor:
    """[experts, room, width]: each token in a row of each of its experts."""
    return _tokens_to_experts(x, index, place, experts, room)


def experts_to_tokens(y: Tensor, index: Tensor, place: Tensor) -> Tensor:
    """[tokens, choices, width]: the rows that the tokens went to; zeros for what was left out."""
    return _experts_to_tokens(y, index, place)
