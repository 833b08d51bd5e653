"""paddle.distributed's collectives: those of `stream`, on the stream of the computation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.distributed.communication import stream
from bireme.distributed.communication.group import Group, get_global_group, members
from bireme.distributed.communication.programs import ReduceOp, exchange
from bireme.distributed.communication.stream import Task
from bireme.distributed.job import DistributedError

if TYPE_CHECKING:
    from bireme.distributed.wire import Arrival, Departure


def all_reduce(
    tensor: Tensor, op: int = ReduceOp.SUM, group: Group | None = None, sync_op: bool = True
) -> Task | None:
    """Replace `tensor` on every rank by the reduction of all.

    >>> dist.all_reduce(loss, dist.ReduceOp.AVG)  # doctest: +SKIP
    """
    return stream.all_reduce(tensor, op, group, sync_op)


def reduce(
    tensor: Tensor,
    dst: int,
    op: int = ReduceOp.SUM,
    group: Group | None = None,
    sync_op: bool = True,
) -> Task | None:
    """Replace `tensor` on rank `dst` by the reduction of all; the others keep theirs."""
    return stream.reduce(tensor, dst, op, group, sync_op)


def broadcast(
    tensor: Tensor, src: int, group: Group | None = None, sync_op: bool = True
) -> Task | None:
    """Replace `tensor` on every rank by that of rank `src`."""
    return stream.broadcast(tensor, src, group, sync_op)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Group | None = None, sync_op: bool = True
) -> Task | None:
    """All ranks' tensors as a list; an empty one is filled."""
    return stream.all_gather(tensor_list, tensor, group, sync_op)


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int = 0,
    group: Group | None = None,
    sync_op: bool = True,
) -> Task | None:
    """All ranks' tensors as a list on rank `dst`."""
    return stream.gather(tensor, gather_list, dst, group, sync_op)


def scatter(
    tensor: Tensor,
    tensor_list: Sequence[Tensor] | None = None,
    src: int = 0,
    group: Group | None = None,
    sync_op: bool = True,
) -> Task | None:
    """Tensor i of rank `src`'s list becomes `tensor` on rank i."""
    return stream.scatter(tensor, tensor_list, src, group, sync_op)


def reduce_scatter(
    tensor: Tensor,
    tensor_list: Sequence[Tensor],
    op: int = ReduceOp.SUM,
    group: Group | None = None,
    sync_op: bool = True,
) -> Task | None:
    """The reduction of all ranks' tensors i becomes `tensor` on rank i."""
    return stream.reduce_scatter(tensor, tensor_list, op, group, sync_op)


def alltoall(
    out_tensor_list: list[Tensor],
    in_tensor_list: Sequence[Tensor],
    group: Group | None = None,
    sync_op: bool = True,
) -> Task | None:
    """Tensor i of this rank's list goes to rank i; results come in the order of their ranks."""
    return stream.alltoall(out_tensor_list, in_tensor_list, group, sync_op)


def alltoall_single(
    out_tensor: Tensor,
    in_tensor: Tensor,
    in_split_sizes: Sequence[int] | None = None,
    out_split_sizes: Sequence[int] | None = None,
    group: Group | None = None,
    sync_op: bool = True,
) -> Task | None:
    """`alltoall` of the rows of one tensor, in equal parts or in parts of the given sizes."""
    return stream.alltoall_single(
        out_tensor, in_tensor, out_split_sizes, in_split_sizes, group, sync_op
    )


def send(
    tensor: Tensor, dst: int = 0, group: Group | None = None, sync_op: bool = True
) -> Departure | None:
    """Send `tensor` to rank `dst`, which receives it with `recv`."""
    return stream.send(tensor, dst, group, sync_op)


def recv(
    tensor: Tensor, src: int = 0, group: Group | None = None, sync_op: bool = True
) -> Arrival | None:
    """Replace `tensor` by what rank `src` sends."""
    return stream.recv(tensor, src, group, sync_op)


def isend(tensor: Tensor, dst: int, group: Group | None = None) -> Departure | None:
    """`send` that returns at once; `wait()` for its task."""
    return stream.send(tensor, dst, group, sync_op=False)


def irecv(tensor: Tensor, src: int | None = None, group: Group | None = None) -> Arrival | None:
    """`recv` that returns at once; the tensor is new after the task's `wait()`."""
    return stream.recv(tensor, 0 if src is None else src, group, sync_op=False)


class P2POp:
    """One of several sends and receives for `batch_isend_irecv`."""

    def __init__(
        self, op: Callable[..., Any], tensor: Tensor, peer: int, group: Group | None = None
    ) -> None:
        if op not in (isend, irecv):
            raise DistributedError(
                "[P2POp] op must be paddle.distributed.isend or irecv. Received: "
                f"{getattr(op, '__name__', op)!r}"
            )
        self.op, self.tensor, self.peer = op, tensor, peer
        self.group = get_global_group() if group is None else group


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Any]:
    """Start all of them; returns a task each."""
    if not isinstance(p2p_op_list, list) or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise DistributedError(
            f"[batch_isend_irecv] takes a list of P2POp. Received: {p2p_op_list!r:.100}"
        )
    tasks = [p.op(p.tensor, p.peer, p.group) for p in p2p_op_list]
    return [t for t in tasks if t is not None]


def barrier(group: Group | None = None) -> None:
    """Return when all ranks of the group have called it."""
    outside = group is not None and group.rank < 0  # no warning here, as in Paddle
    chosen = None if outside else members(group, "barrier")
    if chosen is not None:
        (done,) = exchange("all_reduce", chosen, [np.ones(1, np.int32)], ReduceOp.SUM)
        np.asarray(done)


def wait(tensor: Tensor, group: Group | None = None, use_calc_stream: bool = True) -> None:
    """Return when the tensor's contents are there, by whichever stream they come."""
    if not isinstance(tensor, Tensor):
        raise InvalidArgument(f"[wait] takes a Tensor. Received: {type(tensor).__name__}")
    ready = getattr(tensor._array(), "block_until_ready", None)
    if ready is not None and (group is None or group.rank >= 0):
        ready()


__all__ = [
    "P2POp",
    "all_gather",
    "all_reduce",
    "alltoall",
    "alltoall_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "gather",
    "irecv",
    "isend",
    "recv",
    "reduce",
    "reduce_scatter",
    "scatter",
    "send",
    "wait",
]
