"""Messages from nodes (and edges) along the edges of a graph."""

from __future__ import annotations

from typing import Any

import bireme
from bireme.api.keywords import guarded
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.ops.axes import ints
from bireme.ops.segment import reduce_rows, row_numbers

_REDUCE = ("sum", "mean", "max", "min")
_MESSAGE = ("add", "sub", "mul", "div")


def _known(function: str, name: str, given: Any, known: tuple[str, ...]) -> None:
    if given not in known:
        raise InvalidArgument(
            f"[{function}] {name} must be one of {', '.join(known)}. Received: {given!r}"
        )


def _rows(x: Tensor, out_size: int | Tensor | None) -> Any:
    """How many rows the result has: as many as x unless `out_size` says otherwise."""
    if x.ndim == 0:
        raise ShapeMismatch("x must have a row for each node. Received: a 0-d tensor")
    if out_size is None:
        return x._value.aval.shape[0]
    [wanted] = ints(out_size, "out_size")
    return wanted if wanted > 0 else x._value.aval.shape[0]


def _combined(message_op: str, x: Tensor, y: Tensor) -> Tensor:
    if message_op == "add":
        return x + y
    if message_op == "sub":
        return x - y
    return x * y if message_op == "mul" else x * (1.0 / (y + 1e-12))  # as Paddle divides


def _same_rank(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Features of nodes and edges with as many dimensions, so that they broadcast."""
    rank = max(x.ndim, y.ndim, 2)
    widened = []
    for t in (x, y):
        shape = list(t.shape)
        if len(shape) == 1:
            shape.append(1)
        shape[1:1] = [1] * (rank - len(shape))
        widened.append(t if len(shape) == t.ndim else t.reshape([-1, *shape[1:]]))
    return widened[0], widened[1]


@guarded
def send_u_recv(
    x: Tensor,
    src_index: Tensor,
    dst_index: Tensor,
    reduce_op: str = "sum",
    out_size: int | Tensor | None = None,
    name: str | None = None,
) -> Tensor:
    """What each node receives: `reduce_op` of x[source] over the edges that end in it.

    send_u_recv(features, src, dst, "mean")   # the mean of the neighbours
    """
    _known("send_u_recv", "reduce_op", reduce_op, _REDUCE)
    rows = _rows(x, out_size)
    message = bireme.index_select(x, src_index)
    return reduce_rows(reduce_op, message, row_numbers(dst_index, rows), rows)


@guarded
def send_ue_recv(
    x: Tensor,
    y: Tensor,
    src_index: Tensor,
    dst_index: Tensor,
    message_op: str = "add",
    reduce_op: str = "sum",
    out_size: int | Tensor | None = None,
    name: str | None = None,
) -> Tensor:
    """As `send_u_recv`, with the edges' features y added to (or multiplied with) the messages."""
    _known("send_ue_recv", "message_op", message_op, _MESSAGE)
    _known("send_ue_recv", "reduce_op", reduce_op, _REDUCE)
    nodes, edges = _same_rank(x, y)
    message = _combined(message_op, bireme.index_select(nodes, src_index), edges)
    rows = _rows(x, out_size)
    return reduce_rows(reduce_op, message, row_numbers(dst_index, rows), rows)


@guarded
def send_uv(
    x: Tensor,
    y: Tensor,
    src_index: Tensor,
    dst_index: Tensor,
    message_op: str = "add",
    name: str | None = None,
) -> Tensor:
    """A feature for each edge: x of its source combined with y of its destination."""
    _known("send_uv", "message_op", message_op, _MESSAGE)
    source, target = _same_rank(x, y)
    return _combined(
        message_op,
        bireme.index_select(source, src_index),
        bireme.index_select(target, dst_index),
    )
