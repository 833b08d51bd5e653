"""paddle.distributed.stream: collectives that work in place, with the choice of a stream.

Results are in the tensors when a function returns. A GPU may still be busy with them then; what
uses them is queued behind. There is one stream here, so `use_calc_stream` changes nothing about
that order, and `sync_op=False` leaves the waiting to the returned task.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.errors import InvalidArgument, ShapeMismatch, not_a_tensor
from bireme.core.tensor import Tensor, constant
from bireme.core.value import value_of
from bireme.distributed import wire
from bireme.distributed.communication.group import Group, members, place_in
from bireme.distributed.communication.programs import ReduceOp, exchange
from bireme.distributed.job import DistributedError

if TYPE_CHECKING:
    from bireme.distributed.wire import Arrival, Departure


class Task:
    """What a collective returns: something to wait for."""

    def __init__(self, arrays: Sequence[Any] = ()):
        self._arrays = arrays

    def wait(self, timeout: float | None = None) -> bool:
        """Return when the exchange is over; past `timeout` seconds, raise."""
        if timeout is not None:
            end = time.monotonic() + timeout
            while not self.is_completed():
                if time.monotonic() > end:
                    raise DistributedError(f"[wait] the exchange is not over after {timeout} s")
                time.sleep(1e-3)
        for a in self._arrays:
            a.block_until_ready()
        return True

    def is_completed(self) -> bool:
        return all(a.is_ready() for a in self._arrays)

    synchronize = wait


def all_reduce(
    tensor: Tensor,
    op: int = ReduceOp.SUM,
    group: Group | None = None,
    sync_op: bool = True,
    use_calc_stream: bool = False,
) -> Task | None:
    """Replace `tensor` on every rank by the reduction of all."""
    chosen = _begin("all_reduce", group, sync_op, use_calc_stream, tensor)
    if chosen is None:
        return None
    outs = exchange("all_reduce", chosen, [tensor._array()], _reduction(op, "all_reduce"))
    return _finish([(tensor, outs[0])])


def reduce(
    tensor: Tensor,
    dst: int = 0,
    op: int = ReduceOp.SUM,
    group: Group | None = None,
    sync_op: bool = True,
    use_calc_stream: bool = False,
) -> Task | None:
    """Replace `tensor` on rank `dst` by the reduction of all; the others keep theirs."""
    chosen = _begin("reduce", group, sync_op, use_calc_stream, tensor)
    if chosen is None:
        return None
    at = place_in(chosen, dst, "reduce")
    outs = exchange("all_reduce", chosen, [tensor._array()], _reduction(op, "reduce"))
    return _finish([(tensor, outs[0])] if chosen.rank == at else [])


def broadcast(
    tensor: Tensor,
    src: int,
    group: Group | None = None,
    sync_op: bool = True,
    use_calc_stream: bool = False,
) -> Task | None:
    """Replace `tensor` on every rank by that of rank `src`."""
    chosen = _begin("broadcast", group, sync_op, use_calc_stream, tensor)
    if chosen is None:
        return None
    at = place_in(chosen, src, "broadcast")
    return _finish([(tensor, exchange("broadcast", chosen, [tensor._array()], at)[0])])


def all_gather(
    tensor_or_tensor_list: Tensor | list[Tensor],
    tensor: Tensor,
    group: Group | None = None,
    sync_op: bool = True,
    use_calc_stream: bool = False,
) -> Task | None:
    """All ranks' tensors: one below the other in a tensor, or as a list."""
    chosen = _begin("all_gather", group, sync_op, use_calc_stream, tensor)
    if chosen is None:
        return None
    (out,) = exchange("all_gather", chosen, [tensor._array()])
    return _spread("all_gather", tensor_or_tensor_list, out, [tensor] * chosen.nranks)


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int = 0,
    group: Group | None = None,
    sync_op: bool = True,
    use_calc_stream: bool = False,
) -> Task | None:
    """All ranks' tensors as a list on rank `dst`."""
    chosen = _begin("gather", group, sync_op, use_calc_stream, tensor)
    if chosen is None:
        return None
    at = place_in(chosen, dst, "gather")
    if chosen.rank == at and gather_list is None:
        raise InvalidArgument(f"[gather] rank {dst} needs gather_list, a list to put results into")
    (out,) = exchange("all_gather", chosen, [tensor._array()])
    if chosen.rank != at or gather_list is None:
        return Task()
    return _spread("gather", gather_list, out, [tensor] * chosen.nranks)


def scatter(
    tensor: Tensor,
    tensor_or_tensor_list: Tensor | Sequence[Tensor] | None = None,
    src: int = 0,
    group: Group | None = None,
    sync_op: bool = True,
    use_calc_stream: bool = False,
) -> Task | None:
    """Part i of what rank `src` gives becomes `tensor` on rank i."""
    chosen = _begin("scatter", group, sync_op, use_calc_stream, tensor)
    if chosen is None:
        return None
    at = place_in(chosen, src, "scatter")
    if chosen.rank == at:
        if tensor_or_tensor_list is None or (
            not isinstance(tensor_or_tensor_list, Tensor) and not tensor_or_tensor_list
        ):
            raise DistributedError(f"[scatter] rank {src} must give one tensor per rank")
        given = _joined("scatter", tensor_or_tensor_list, chosen)
    else:
        like = tensor._value.aval
        rows = like.shape or (1,)
        given = np.zeros((rows[0] * chosen.nranks, *rows[1:]), like.dtype.numpy)
    return _finish([(tensor, exchange("scatter", chosen, [given], at)[0])])


def reduce_scatter(
    tensor: Tensor,
    tensor_or_tensor_list: Tensor | Sequence[Tensor],
    op: int = ReduceOp.SUM,
    group: Group | None = None,
    sync_op: bool = True,
    use_calc_stream: bool = False,
) -> Task | None:
    """The reduction of all ranks' parts i becomes `tensor` on rank i."""
    chosen = _begin("reduce_scatter", group, sync_op, use_calc_stream, tensor)
    if chosen is None:
        return None
    given = _joined("reduce_scatter", tensor_or_tensor_list, chosen)
    number = _reduction(op, "reduce_scatter")
    return _finish([(tensor, exchange("reduce_scatter", chosen, [given], number)[0])])


def alltoall(
    out_tensor_or_tensor_list: Tensor | list[Tensor],
    in_tensor_or_tensor_list: Tensor | Sequence[Tensor],
    group: Group | None = None,
    sync_op: bool = True,
    use_calc_stream: bool = False,
) -> Task | None:
    """Part i of this rank's input goes to rank i; results come in the order of their ranks."""
    chosen = _begin("alltoall", group, sync_op, use_calc_stream)
    if chosen is None:
        return None
    given = in_tensor_or_tensor_list
    if not isinstance(given, Tensor) and not given:
        raise DistributedError("[alltoall] the list of inputs is empty: give one tensor per rank")
    like = [given] if isinstance(given, Tensor) else list(given)
    (out,) = exchange("alltoall", chosen, [_joined("alltoall", given, chosen)])
    return _spread("alltoall", out_tensor_or_tensor_list, out, like)


def alltoall_single(
    out_tensor: Tensor,
    in_tensor: Tensor,
    out_split_sizes: Sequence[int] | None = None,
    in_split_sizes: Sequence[int] | None = None,
    group: Group | None = None,
    sync_op: bool = True,
    use_calc_stream: bool = False,
) -> Task | None:
    """`alltoall` of the rows of one tensor, in equal parts or in parts of the given sizes.

    Sizes are given on all ranks or on none.
    """
    chosen = _begin("alltoall_single", group, sync_op, use_calc_stream, out_tensor, in_tensor)
    if chosen is None:
        return None
    given, n = in_tensor._array(), chosen.nranks
    if in_split_sizes is None and out_split_sizes is None:
        given = _joined("alltoall_single", in_tensor, chosen)
        return _finish([(out_tensor, exchange("alltoall", chosen, [given])[0])])
    sizes = _sizes("in_split_sizes", in_split_sizes, given.shape, n)
    wanted = _sizes("out_split_sizes", out_split_sizes, tuple(out_tensor.shape), n)
    # Parts travel padded to the largest one of all ranks.
    (table,) = exchange("all_gather", chosen, [np.array(sizes, np.int64)])
    table = np.asarray(table).reshape(n, n)
    coming = table[:, chosen.rank].tolist()
    if coming != wanted:
        raise ShapeMismatch(
            f"[alltoall_single] the ranks send {coming} rows to rank {chosen.rank}, but its "
            f"out_split_sizes are {wanted}"
        )
    largest = int(table.max(initial=0))
    host = np.asarray(given)
    padded = np.zeros((n, largest, *host.shape[1:]), host.dtype)
    for row, part in zip(padded, np.split(host, np.cumsum(sizes)[:-1]), strict=True):
        row[: len(part)] = part
    (out,) = exchange("alltoall", chosen, [padded.reshape(n * largest, *host.shape[1:])])
    rows = np.asarray(out).reshape(padded.shape)
    parts = [row[:count] for row, count in zip(rows, coming, strict=True)]
    return _finish([(out_tensor, np.concatenate(parts))])


def send(
    tensor: Tensor,
    dst: int = 0,
    group: Group | None = None,
    sync_op: bool = True,
    use_calc_stream: bool = False,
) -> Departure | None:
    """Send `tensor` to rank `dst`, which receives it with `recv`."""
    chosen = _begin("send", group, sync_op, use_calc_stream, tensor)
    if chosen is None:
        return None
    place_in(chosen, dst, "send")
    task = wire.send_array(dst, chosen.id, np.asarray(tensor._array()))
    if sync_op:
        task.wait()
    return task


def recv(
    tensor: Tensor,
    src: int = 0,
    group: Group | None = None,
    sync_op: bool = True,
    use_calc_stream: bool = False,
) -> Arrival | None:
    """Replace `tensor` by what rank `src` sends; shape and dtype must be its own."""
    chosen = _begin("recv", group, sync_op, use_calc_stream, tensor)
    if chosen is None:
        return None
    place_in(chosen, src, "recv")
    task = wire.Arrival(src, chosen, lambda array: put(tensor, array))
    if sync_op:
        task.wait()
    return task


def put(tensor: Tensor, array: np.ndarray) -> None:
    """New contents for a tensor; not part of any gradient, as in Paddle."""
    like = tensor._value.aval
    if like.shape == () and array.shape == (1,):
        array = array.reshape(())
    if tuple(array.shape) != like.shape or array.dtype != like.dtype.numpy:
        raise ShapeMismatch(
            f"the tensor that takes the result has shape {list(like.shape)} and dtype "
            f"{like.dtype.name}, but {list(array.shape)} and {array.dtype} arrived"
        )
    tensor._put(value_of(like, array))


def _begin(
    what: str, group: Group | None, sync_op: bool, use_calc_stream: bool, *tensors: Any
) -> Group | None:
    for t in tensors:
        if not isinstance(t, Tensor):
            raise not_a_tensor(what, "tensor", t)
    if use_calc_stream and not sync_op:
        raise DistributedError(f"[{what}] use_calc_stream=True needs sync_op=True")
    return members(group, what)


def _reduction(op: Any, what: str) -> int:
    if op not in range(5) or isinstance(op, bool):
        raise InvalidArgument(
            f"[{what}] op must be ReduceOp.SUM, MAX, MIN, PROD or AVG. Received: {op!r}"
        )
    return op


def _joined(what: str, given: Tensor | Sequence[Tensor], group: Group) -> Any:
    """The parts for all ranks, one below the other."""
    if isinstance(given, Tensor):
        array = given._array()
        if array.ndim == 0 or array.shape[0] % group.nranks:
            raise ShapeMismatch(
                f"[{what}] the first dimension must divide into {group.nranks} equal parts. "
                f"Received: shape {list(array.shape)}"
            )
        return array
    for t in given:
        if not isinstance(t, Tensor):
            raise not_a_tensor(what, "tensor_list", t)
    types = {t._value.aval for t in given}
    if len(given) != group.nranks or len(types) != 1:
        shown = ", ".join(f"{t.dtype.name}{t.shape}" for t in given)
        raise ShapeMismatch(
            f"[{what}] the list must hold {group.nranks} tensors of one shape and dtype, one per "
            f"rank. Received: {shown}"
        )
    return np.concatenate([np.atleast_1d(np.asarray(t._array())) for t in given])


def _spread(what: str, target: Tensor | list[Tensor], out: Any, like: list[Tensor]) -> Task:
    """Put a result into one tensor, or its equal parts into a list (filled if it is empty)."""
    if isinstance(target, Tensor):
        return _finish([(target, out)])
    if not isinstance(target, list):
        raise not_a_tensor(what, "tensor_list", target)
    count = len(target) or len(like)
    rows = out.shape[0] // count
    parts = [out[i * rows : (i + 1) * rows] for i in range(count)]
    if not target:
        shapes = [t.shape for t in like]
        target += [constant(p.reshape(s)) for p, s in zip(parts, shapes, strict=True)]
        return Task(parts)
    return _finish(list(zip(target, parts, strict=True)))


def _sizes(name: str, given: Any, shape: tuple[int, ...], n: int) -> list[int]:
    rows = shape[0] if shape else 0
    sizes = [rows // n] * n if given is None else [int(s) for s in given]
    if len(sizes) != n or sum(sizes) != rows or min(sizes) < 0:
        raise ShapeMismatch(
            f"[alltoall_single] {name} must be {n} numbers that add up to {rows}, the number of "
            f"rows. Received: {given}"
        )
    return sizes


def _finish(results: list[tuple[Tensor, Any]]) -> Task:
    for tensor, array in results:
        put(tensor, array)
    return Task([a for _, a in results if not isinstance(a, np.ndarray)])


__all__ = [
    "all_gather",
    "all_reduce",
    "alltoall",
    "alltoall_single",
    "broadcast",
    "gather",
    "recv",
    "reduce",
    "reduce_scatter",
    "scatter",
    "send",
]
