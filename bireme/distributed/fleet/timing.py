"""How long collectives take, as fleet's `…_perf` methods report it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from bireme.core.errors import InvalidArgument
from bireme.distributed.communication import collectives, stream
from bireme.distributed.fleet.utils.log_util import logger

if TYPE_CHECKING:
    from bireme.core.tensor import Tensor
    from bireme.distributed.communication.group import Group
    from bireme.distributed.fleet.topology import HybridCommunicateGroup

_LEAST, _MOST = 1 << 20, 1 << 30
_ACROSS = ("allreduce", "broadcast", "reduce")  # over data parallelism; the others over "mp"


def timed(
    kind: str,
    iteration: int,
    x: Tensor,
    group: Group | None,
    perf_size: int,
    perf_threshold_time: float,
    warmup: bool = False,
) -> None:
    """Log the mean seconds of a collective, and a warning if they are above the threshold."""
    if group is None or group.nranks <= 1:
        logger.warning("%s_perf measures nothing: the group has one process", kind)
        return
    collectives.barrier(group)
    call = _call(kind, x, group)
    start = time.perf_counter()
    for _ in range(iteration):
        call()
    took = (time.perf_counter() - start) / iteration
    if warmup:
        return
    logger.info("[%s] %s bytes: %.6f s each", kind, perf_size, took)
    if -1 < perf_threshold_time < took:
        logger.warning("[%s] slower than %s s: %.6f s", kind, perf_threshold_time, took)


def _call(kind: str, x: Tensor, group: Group) -> Callable[[], object]:
    first = min(group.ranks)
    if kind == "reduce_scatter":
        if x.shape[0] % group.nranks:
            raise InvalidArgument(
                f"[reduce_scatter_perf] {x.shape[0]} rows do not divide into {group.nranks} parts"
            )
        part = x[: x.shape[0] // group.nranks].clone()
        return lambda: stream.reduce_scatter(part, x, group=group)
    calls: dict[str, Callable[[], object]] = {
        "allreduce": lambda: collectives.all_reduce(x, group=group),
        "reduce": lambda: collectives.reduce(x, first, group=group),
        "broadcast": lambda: collectives.broadcast(x, first, group=group),
        "allgather": lambda: collectives.all_gather([], x, group=group),
    }
    return calls[kind]


def timed_sizes(
    kind: str, rounds: int, sizes: Mapping[int, float], hcg: HybridCommunicateGroup
) -> None:
    """Time a collective for these numbers of bytes, or from 1 MiB to 1 GiB."""
    from bireme.ops.creation import zeros

    if kind not in (*_ACROSS, "allgather", "reduce_scatter"):
        raise InvalidArgument(
            "[collective_perf] comm_type is allreduce, broadcast, reduce, allgather or "
            f"reduce_scatter. Received: {kind!r}"
        )
    group = hcg.get_model_parallel_group()
    if kind in _ACROSS:
        group = hcg.get_data_parallel_group()
        if group.nranks == 1:
            group = hcg.get_sharding_parallel_group()
    chosen = dict(sizes)
    size = _LEAST
    while not sizes and size <= _MOST:
        chosen[size], size = 0.0, 2 * size
    for nbytes, threshold in chosen.items():
        if nbytes < 4:
            raise InvalidArgument(f"[collective_perf] a size is 4 bytes or more. Got: {nbytes}")
        x = zeros([nbytes // 4], "float32")
        timed(kind, 10, x, group, nbytes, -1, warmup=True)
        timed(kind, rounds, x, group, nbytes, threshold or -1)
