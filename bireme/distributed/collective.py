"""paddle.distributed.collective: groups, as programs written for Paddle make them."""

from __future__ import annotations

import datetime

from bireme.core.errors import InvalidArgument
from bireme.distributed.communication import group as groups
from bireme.distributed.communication.group import (
    Group,
    _get_global_group,
    get_group,
    restart_process_group,
    shutdown_process_group,
)
from bireme.distributed.environment import is_available

_DEFAULT_TIMEOUT = datetime.timedelta(seconds=1800)


def new_group(
    ranks: list[int] | None = None,
    backend: str | None = None,
    timeout: datetime.timedelta = _DEFAULT_TIMEOUT,
    nccl_comm_init_option: int = 0,
    nccl_config: object = None,
) -> Group:
    """A group of some processes; all processes of the job make all groups in the same order.

    `timeout` limits how long a receive or an exchange of objects waits. The backend is the job's.

    >>> evens = dist.new_group([0, 2])  # doctest: +SKIP
    """
    everyone = groups.get_global_group()
    if backend is not None and backend.upper() != everyone.backend:
        raise InvalidArgument(
            f"[new_group] this job exchanges data by {everyone.backend}; leave backend out. "
            f"Received: {backend!r}"
        )
    if nccl_comm_init_option or nccl_config is not None:
        raise InvalidArgument("[new_group] NCCL is set up by XLA and its environment variables")
    if timeout.total_seconds() <= 0:
        raise InvalidArgument(f"[new_group] timeout must be positive. Received: {timeout}")
    return groups.make_group(ranks, timeout.total_seconds())


_NCCL = {
    "ll_buffsize": "NCCL_LL_BUFFSIZE", "ll128_buffsize": "NCCL_LL128_BUFFSIZE",
    "simple_buffsize": "NCCL_BUFFSIZE", "nchannels": "NCCL_MAX_NCHANNELS",
    "algoStr": "NCCL_ALGO", "protoStr": "NCCL_PROTO", "commName": "", "buffsize_align": "",
}  # fmt: skip


def create_nccl_config(nccl_config: dict[str, int | str] | None = None) -> None:
    """None where the job does not use NCCL, as in Paddle. Where it does, XLA makes NCCL's groups
    for the whole process, so what one group could ask for is an error that says what to set.

    >>> create_nccl_config({"nchannels": 4})
    """
    if nccl_config is None:
        return
    unknown = sorted(set(nccl_config) - set(_NCCL))
    if unknown:
        raise InvalidArgument(
            f"[create_nccl_config] there is no {unknown[0]!r}; there are {', '.join(_NCCL)}"
        )
    if is_available() and groups.is_initialized() and groups.get_global_group().backend == "NCCL":
        said = [f"{_NCCL[k]}={v}" for k, v in nccl_config.items() if _NCCL[k]]
        raise InvalidArgument(
            "[create_nccl_config] NCCL is set up once for a process, by its environment "
            f"variables. Start with: {' '.join(said) or 'nothing to set'}"
        )


__all__ = [
    "Group",
    "_get_global_group",
    "create_nccl_config",
    "get_group",
    "is_available",
    "new_group",
    "restart_process_group",
    "shutdown_process_group",
]
