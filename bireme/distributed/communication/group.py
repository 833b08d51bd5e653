"""Groups: which processes take part in an exchange."""

from __future__ import annotations

import warnings

from bireme.core.errors import InvalidArgument
from bireme.distributed import job
from bireme.distributed.environment import get_rank
from bireme.distributed.job import DistributedError


class Group:
    """Some processes of the job, in the order of their ranks.

    >>> group = dist.new_group([0, 1])  # doctest: +SKIP
    >>> dist.all_reduce(x, group=group)  # doctest: +SKIP
    """

    def __init__(
        self,
        rank_in_group: int,
        id: int,
        ranks: list[int],
        pg: object = None,
        name: str | None = None,
    ) -> None:
        self._rank_in_group = rank_in_group
        self._world_size = len(ranks) if rank_in_group >= 0 else -1
        self._id = id
        self._ranks = list(ranks)
        self._pg = pg
        self._name = name
        self.timeout: float | None = None  # seconds that a receive waits
        self.is_shut_down = False

    @property
    def rank(self) -> int:
        """This process's place in the group; -1 outside of it."""
        return self._rank_in_group

    @property
    def ranks(self) -> list[int]:
        return self._ranks

    @property
    def nranks(self) -> int:
        return len(self._ranks)

    @property
    def name(self) -> str | None:
        return self._name

    @property
    def process_group(self) -> object:
        return self._pg

    @property
    def world_size(self) -> int:
        """The group's size; -1 outside of it."""
        return self._world_size

    @property
    def backend(self) -> str:
        """What carries the data: NCCL between GPUs, GLOO between CPUs."""
        return {"gpu": "NCCL", "cpu": "GLOO"}.get(job.kind(), job.kind().upper())

    @property
    def id(self) -> int:
        return self._id

    def is_member(self) -> bool:
        return self.rank >= 0 and self.nranks > 1

    def get_group_rank(self, rank: int) -> int:
        """A process's place in the group, from its rank in the job; -1 outside."""
        return self.ranks.index(rank) if self.rank >= 0 and rank in self.ranks else -1

    def get_global_rank(self, rank: int) -> int:
        """A process's rank in the job, from its place in the group; -1 outside."""
        return self.ranks[rank] if self.rank >= 0 else -1

    def __repr__(self) -> str:
        ranks = ", ".join(map(str, self.ranks))
        return (
            f"rank: {self.rank}, nranks: {self.nranks}, id: {self.id}, ranks: {ranks}; "
            f"name: {self.name}"
        )


_GLOBAL = 0
_FIRST_ID = 10
_groups: dict[int, Group] = {}
_made = 0


def start_global_group(rank: int, world: int) -> Group:
    """The group of all processes, made once."""
    if _GLOBAL not in _groups:
        _groups[_GLOBAL] = Group(rank, _GLOBAL, list(range(world)), name="_default_pg")
    return _groups[_GLOBAL]


def get_global_group() -> Group:
    if _GLOBAL not in _groups:
        raise DistributedError(
            "there is no group of processes yet: call paddle.distributed.init_parallel_env() first"
        )
    return _groups[_GLOBAL]


def make_group(ranks: list[int] | None, timeout: float | None = None) -> Group:
    """A group of these processes. Every process of the job makes all groups in the same order."""
    global _made
    everyone = get_global_group()
    chosen = sorted(everyone.ranks if ranks is None else ranks)
    if len(set(chosen)) != len(chosen) or not set(chosen) <= set(everyone.ranks):
        raise InvalidArgument(
            f"[new_group] ranks must be different numbers from 0 to {everyone.nranks - 1}. "
            f"Received: {ranks}"
        )
    number = _FIRST_ID + _made
    _made += 1
    mine = chosen.index(everyone.rank) if everyone.rank in chosen else -1
    group = Group(mine, number, chosen, name=f"_default_pg{number}")
    group.timeout = timeout
    _groups[number] = group
    return group


def make_axis_group(ranks: list[int], rank: int, number: int) -> Group:
    """This process's group along some axes of a grid. Only its members need to make it."""
    group = Group(ranks.index(rank), number, ranks, name=f"_axis_pg{number}")
    _groups[number] = group
    return group


def is_initialized() -> bool:
    """Whether `init_parallel_env` was called, and `destroy_process_group` not yet."""
    return _GLOBAL in _groups


def destroy_process_group(group: Group | None = None) -> None:
    """Forget a group; without one, all of them."""
    chosen = get_global_group() if group is None else group
    if chosen.id not in _groups:
        raise InvalidArgument(f"[destroy_process_group] group {chosen.id} was destroyed already")
    if chosen.id == _GLOBAL:
        _groups.clear()
    else:
        del _groups[chosen.id]


def get_group(id: int = 0) -> Group | None:
    """The group with this number, or None with a warning."""
    if id not in _groups:
        warnings.warn(f"Group {id} is not initialized.", stacklevel=2)
    return _groups.get(id)


def get_backend(group: Group | None = None) -> str:
    """What carries a group's data: 'NCCL' or 'GLOO'."""
    chosen = get_global_group() if group is None else group
    if chosen.rank < 0:
        raise DistributedError(f"[get_backend] process {get_rank()} is not in group {chosen.name}")
    return chosen.backend


def shutdown_process_group(group: Group | None = None) -> None:
    """Close a group until it is restarted; without one, all but the group of all processes."""
    for chosen in [g for g in _groups.values() if g.id != _GLOBAL] if group is None else [group]:
        chosen.is_shut_down = True


def restart_process_group(group: Group | None = None) -> None:
    """Open a group again that was shut down; without one, all of them."""
    for chosen in list(_groups.values()) if group is None else [group]:
        chosen.is_shut_down = False


def members(group: Group | None, what: str) -> Group | None:
    """The group of an exchange; None, with a warning, where this process has no part in it."""
    chosen = get_global_group() if group is None else group
    if chosen.is_shut_down:
        raise DistributedError(
            f"[{what}] group {chosen.name} was shut down; open it with restart_process_group(group)"
        )
    if chosen.rank >= 0:
        return chosen
    warnings.warn(
        f"Current global rank {get_rank()} is not in group {chosen.name}, so {what} does nothing",
        stacklevel=4,
    )
    return None


def place_in(group: Group, rank: int, what: str) -> int:
    """The place in the group of a process given by its rank in the job."""
    found = group.get_group_rank(rank)
    if found < 0:
        raise InvalidArgument(
            f"[{what}] process {rank} is not in the group. Its processes: {group.ranks}"
        )
    return found


# Names that libraries on top of Paddle import.
_get_global_group = get_global_group


__all__ = [
    "Group",
    "destroy_process_group",
    "get_backend",
    "get_group",
    "is_initialized",
    "restart_process_group",
    "shutdown_process_group",
]
