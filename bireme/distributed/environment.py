"""Which process of a job this is. A launcher says so in environment variables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bireme.core.errors import InvalidArgument

if TYPE_CHECKING:
    from bireme.distributed.communication.group import Group


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if not text.isdigit():
        raise InvalidArgument(f"the environment variable {name} must be a number. Received: {text}")
    return int(text)


class ParallelEnv:
    """The process's place in its job.

    >>> ParallelEnv().world_size
    1
    """

    def __init__(self) -> None:
        self._rank = _number("PADDLE_TRAINER_ID", 0)
        self._world_size = _number("PADDLE_TRAINERS_NUM", 1)
        devices = os.environ.get("FLAGS_selected_gpus", "0").split(",")  # noqa: SIM112
        self._device_id = int(devices[0] or 0)
        self._endpoints = os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")
        self._endpoint = os.environ.get("PADDLE_CURRENT_ENDPOINT", "")

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def world_size(self) -> int:
        return self._world_size

    @property
    def device_id(self) -> int:
        return self._device_id

    @property
    def device_type(self) -> str:
        from bireme.core.place import default_place

        return default_place().kind

    @property
    def current_endpoint(self) -> str:
        return self._endpoint

    @property
    def trainer_endpoints(self) -> list[str]:
        return self._endpoints

    @property
    def pg_timeout(self) -> int:
        """Milliseconds that a group waits, unless it is given another limit."""
        return _number("PADDLE_PG_TIMEOUT", 1_800_000)

    @property
    def nrings(self) -> int:
        return _number("FLAGS_nccl_nrings", 1)

    # Older names.
    local_rank = rank
    nranks = world_size
    dev_id = device_id


def get_rank(group: Group | None = None) -> int:
    """This process's number, 0 for a program that nobody launched as one of many."""
    return ParallelEnv().rank if group is None else group.rank


def get_world_size(group: Group | None = None) -> int:
    """How many processes the job has."""
    return ParallelEnv().world_size if group is None else group.world_size


def is_available() -> bool:
    """Whether this package has parts for distributed work: it has."""
    return True


def init_parallel_env(nccl_config: object = None) -> Group | None:
    """Join the job that a launcher has started; returns the group of all its processes.

    A process that nobody launched is a job of its own.

    >>> dist.init_parallel_env()  # doctest: +SKIP
    """
    from bireme.distributed import job, wire
    from bireme.distributed.communication import differentiable
    from bireme.distributed.communication.group import start_global_group
    from bireme.nn.layer import sync_norm

    if nccl_config is not None:
        raise InvalidArgument(
            "[init_parallel_env] NCCL is set up by XLA; set its NCCL_... environment variables "
            "instead of nccl_config"
        )
    env = ParallelEnv()
    if not 0 <= env.rank < env.world_size:
        raise InvalidArgument(
            f"[init_parallel_env] PADDLE_TRAINER_ID must be below PADDLE_TRAINERS_NUM. Received: "
            f"{env.rank} of {env.world_size}"
        )
    if env.world_size > 1:
        job.join(env.rank, env.world_size)
        wire.start()
        sync_norm.total = differentiable.total
    return start_global_group(env.rank, env.world_size)


__all__ = [
    "ParallelEnv",
    "get_rank",
    "get_world_size",
    "init_parallel_env",
    "is_available",
]
