"""UtilBase: small helpers among workers, with plain Python values."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.api.types import TensorLike
from bireme.core.errors import InvalidArgument, TypeMismatch

_REDUCERS = {"sum": np.sum, "max": np.max, "min": np.min}


class UtilBase:
    """Collectives over NumPy values, and the files that are this worker's share."""

    def __init__(self) -> None:
        self._role_maker: Any = None

    def _set_role_maker(self, role_maker: Any) -> None:
        self._role_maker = role_maker

    def _maker(self) -> Any:
        if self._role_maker is None:
            raise InvalidArgument("[fleet.util] call fleet.init(is_collective=True) first")
        return self._role_maker

    def _gathered(self, value: Any) -> list[Any]:
        if self._maker()._worker_num() == 1:
            return [value]
        import bireme.distributed as dist

        found: list[Any] = []
        dist.all_gather_object(found, value)
        return found

    def all_reduce(self, input: TensorLike, mode: str = "sum", comm_world: str = "worker") -> Any:
        """The elementwise sum, max or min of all workers' arrays.

        >>> fleet.util.all_reduce(np.array([1, 2]))  # doctest: +SKIP
        """
        if mode not in _REDUCERS:
            raise InvalidArgument(f"[all_reduce] mode is sum, max or min. Received: {mode!r}")
        _check_world(comm_world, "all_reduce")
        found = self._gathered(np.asarray(input))
        return _REDUCERS[mode](np.stack(found), axis=0)

    def all_gather(self, input: object, comm_world: str = "worker") -> list[Any]:
        """All workers' values, in their order."""
        _check_world(comm_world, "all_gather")
        return self._gathered(input)

    def barrier(self, comm_world: str = "worker") -> None:
        """Wait for the other workers."""
        _check_world(comm_world, "barrier")
        if self._maker()._worker_num() > 1:
            import bireme.distributed as dist

            dist.barrier()

    def get_file_shard(self, files: list[str]) -> list[str]:
        """This worker's share of a list of files: consecutive ones, sizes as equal as can be."""
        if not isinstance(files, list):
            raise TypeMismatch(f"[get_file_shard] takes a list. Received: {type(files).__name__}")
        count, own = self._maker()._worker_num(), self._maker()._worker_index()
        share, rest = divmod(len(files), count)
        begin = own * share + min(own, rest)
        return files[begin : begin + share + (own < rest)]

    def print_on_rank(self, message: str, rank_id: int) -> None:
        """Print in one worker only."""
        if self._maker()._worker_index() == rank_id:
            print(message)  # noqa: T201 (it is asked to)


def _check_world(comm_world: str, who: str) -> None:
    if comm_world != "worker":
        raise InvalidArgument(f"[{who}] there are workers only. Received: {comm_world!r}")
