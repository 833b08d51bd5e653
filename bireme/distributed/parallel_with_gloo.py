"""A barrier between processes on CPUs that needs no launcher and no job."""

from __future__ import annotations

import os

from bireme.core.errors import InvalidArgument
from bireme.distributed import wire
from bireme.distributed.hub import Hub
from bireme.distributed.job import DistributedError, is_local

_hub: Hub | None = None


def gloo_init_parallel_env(rank_id: int, rank_num: int, server_endpoint: str) -> None:
    """Meet `rank_num` processes at `server_endpoint` (host:port), where process 0 listens."""
    global _hub
    if rank_num < 2 or not 0 <= rank_id < rank_num:
        raise InvalidArgument(
            "[gloo_init_parallel_env] needs at least two processes, numbered from 0. Received: "
            f"rank_id={rank_id}, rank_num={rank_num}"
        )
    # Nothing is read but the arrival of empty messages, so processes of one machine need no secret.
    if is_local(wire.endpoint(server_endpoint)[0]) and not os.environ.get(wire.SECRET):
        key = b"bireme barrier"
    else:
        key = wire.secret("gloo_init_parallel_env")
    _hub = Hub(rank_id, rank_num, server_endpoint, key)


def gloo_barrier() -> None:
    """Return when all processes have called it."""
    if _hub is None:
        raise DistributedError("[gloo_barrier] call gloo_init_parallel_env() first")
    _hub.exchange(b"")


def gloo_release() -> None:
    """Part from the other processes."""
    global _hub
    if _hub is not None:
        _hub.close()
        _hub = None


__all__ = ["gloo_barrier", "gloo_init_parallel_env", "gloo_release"]
