"""paddle.distributed.stream: collectives that work in place, with the choice of a stream.

Results are in the tensors when a function returns. A GPU may still be busy with them then; what
uses them is queued behind. There is one stream here, so `use_calc_stream` changes nothing about
that order. With `sync_op=False` a function returns at once: who waits for the returned task, reads
a tensor or computes with it, waits for the exchange.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.errors import InvalidArgument, ShapeMismatch, not_a_tensor
from bireme.core.tensor import Tensor
from bireme.core.trace import state
from bireme.core.value import value_of
from bireme.distributed import wire
from bireme.distributed.communication.background import Coming, line
from bireme.distributed.communication.group import Group, members, place_in
from bireme.distributed.communication.programs import ReduceOp, exchange
from bireme.distributed.job import DistributedError

if TYPE_CHECKING:
    from bireme.core.aval import Aval
    from bireme.distributed.communication.background import Job
    from bireme.distributed.wire import Arrival, Departure


class Task:
    """What a collective returns: something to wait for."""

    def __init__(self, arrays: Sequence[Any] = (), coming: Coming | None = None):
        self._arrays = arrays
        self._coming = coming

    def wait(self, timeout: float | None = None) -> bool:
        """Return when the exchange is over; past `timeout` seconds, raise."""
        end = None if timeout is None else time.monotonic() + timeout
        if self._coming is not None:
            try:
                self._coming.done.result(timeout)
            except TimeoutError:
                raise _late(timeout) from None
        while end is not None and not self.is_completed():
            if time.monotonic() > end:
                raise _late(timeout)
            time.sleep(1e-3)
        for a in self._arrays:
            a.block_until_ready()
        return True

    def is_completed(self) -> bool:
        if self._coming is not None and not self._coming.done.done():
            return False
        return all(a.is_ready() for a in self._arrays)

    synchronize = wait


def _late(timeout: float | None) -> DistributedError:
    return DistributedError(f"[wait] the exchange is not over after {timeout} s")


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
    given, number = [tensor._array()], _reduction(op, "all_reduce")
    return _run(sync_op, [tensor], lambda: exchange("all_reduce", chosen, given, number))


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
    given, number = [tensor._array()], _reduction(op, "reduce")
    targets = [tensor] if chosen.rank == at else []
    return _run(
        sync_op,
        targets,
        lambda: exchange("all_reduce", chosen, given, number)[: len(targets)],
    )


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
    given = [tensor._array()]
    return _run(sync_op, [tensor], lambda: exchange("broadcast", chosen, given, at))


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
    given = [tensor._array()]
    targets = _targets("all_gather", tensor_or_tensor_list, [tensor] * chosen.nranks)
    return _run(
        sync_op,
        targets,
        lambda: _parts(exchange("all_gather", chosen, given)[0], targets),
    )


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
    given = [tensor._array()]
    targets: list[Tensor] = []
    if chosen.rank == at and gather_list is not None:
        targets = _targets("gather", gather_list, [tensor] * chosen.nranks)
    return _run(
        sync_op,
        targets,
        lambda: _parts(exchange("all_gather", chosen, given)[0], targets),
    )


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
    return _run(sync_op, [tensor], lambda: exchange("scatter", chosen, [given], at))


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
    return _run(sync_op, [tensor], lambda: exchange("reduce_scatter", chosen, [given], number))


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
    joined = _joined("alltoall", given, chosen)
    targets = _targets("alltoall", out_tensor_or_tensor_list, like)
    return _run(
        sync_op, targets, lambda: _parts(exchange("alltoall", chosen, [joined])[0], targets)
    )


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
        return _run(sync_op, [out_tensor], lambda: exchange("alltoall", chosen, [given]))
    sizes = _sizes("in_split_sizes", in_split_sizes, given.shape, n)
    wanted = _sizes("out_split_sizes", out_split_sizes, tuple(out_tensor.shape), n)
    host = np.asarray(given)
    return _run(sync_op, [out_tensor], lambda: [_in_parts(host, sizes, wanted, chosen)])


def _in_parts(host: np.ndarray, sizes: list[int], wanted: list[int], group: Group) -> np.ndarray:
    """`alltoall` of parts of different sizes, which travel padded to the largest of all ranks."""
    n = group.nranks
    (found,) = exchange("all_gather", group, [np.array(sizes, np.int64)])
    table = np.asarray(found).reshape(n, n)
    coming = table[:, group.rank].tolist()
    if coming != wanted:
        raise ShapeMismatch(
            f"[alltoall_single] the ranks send {coming} rows to rank {group.rank}, but its "
            f"out_split_sizes are {wanted}"
        )
    largest = int(table.max(initial=0))
    padded = np.zeros((n, largest, *host.shape[1:]), host.dtype)
    for row, part in zip(padded, np.split(host, np.cumsum(sizes)[:-1]), strict=True):
        row[: len(part)] = part
    (out,) = exchange("alltoall", group, [padded.reshape(n * largest, *host.shape[1:])])
    rows = np.asarray(out).reshape(padded.shape)
    return np.concatenate([row[:count] for row, count in zip(rows, coming, strict=True)])


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
    tensor._put(value_of(like, _fitting(like, array)))


def _fitting(like: Aval, array: Any) -> Any:
    """An array that arrived, for a tensor of this type."""
    if like.shape == () and array.shape == (1,):
        array = array.reshape(())
    if tuple(array.shape) != like.shape or array.dtype != like.dtype.numpy:
        raise ShapeMismatch(
            f"the tensor that takes the result has shape {list(like.shape)} and dtype "
            f"{like.dtype.name}, but {list(array.shape)} and {array.dtype} arrived"
        )
    return array


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


def _targets(what: str, given: Tensor | list[Tensor], like: list[Tensor]) -> list[Tensor]:
    """The tensors that take a result: one, or those of a list, which is filled if it is empty."""
    if isinstance(given, Tensor):
        return [given]
    if not isinstance(given, list):
        raise not_a_tensor(what, "tensor_list", given)
    if not given:
        types = [t._value.aval for t in like]
        given += [Tensor(value_of(t, np.zeros(t.shape, t.dtype.numpy)), None) for t in types]
    return list(given)


def _parts(out: Any, targets: list[Tensor]) -> list[Any]:
    """A result in equal parts, one for each tensor."""
    if not targets:
        return []
    rows = out.shape[0] // len(targets)
    return [out[i * rows : (i + 1) * rows] for i in range(len(targets))]


def _sizes(name: str, given: Any, shape: tuple[int, ...], n: int) -> list[int]:
    rows = shape[0] if shape else 0
    sizes = [rows // n] * n if given is None else [int(s) for s in given]
    if len(sizes) != n or sum(sizes) != rows or min(sizes) < 0:
        raise ShapeMismatch(
            f"[alltoall_single] {name} must be {n} numbers that add up to {rows}, the number of "
            f"rows. Received: {given}"
        )
    return sizes


def _run(sync_op: bool, targets: list[Tensor], job: Job) -> Task:
    """Make an exchange, whose results become the contents of `targets`. Without `sync_op` it is
    made in the background, and whoever reads one of them waits."""
    if sync_op:
        arrays = job()
        for tensor, array in zip(targets, arrays, strict=True):
            put(tensor, array)
        return Task([a for a in arrays if not isinstance(a, np.ndarray)])
    types = [t._value.aval for t in targets]

    def checked() -> list[Any]:
        return [_fitting(t, a) for t, a in zip(types, job(), strict=True)]

    coming, values = line.later(checked, types)
    for tensor, value in zip(targets, values, strict=True):
        tensor._put(value)
        state.trace.assigned(tensor)
    return Task((), coming)


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
