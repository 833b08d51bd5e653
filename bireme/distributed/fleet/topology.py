"""Devices in a grid whose axes have meanings: data, pipe, sharding, sep, context, model.

A rank is a device here: a process's number where each process drives one, or a device's number
where one process drives all.
"""

from __future__ import annotations

import zlib
from collections import namedtuple
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.distributed.communication import group as groups
from bireme.distributed.communication.group import Group
from bireme.distributed.environment import get_rank, get_world_size
from bireme.distributed.mesh import ProcessMesh

_FIRST_ID = 1 << 32  # above those of `new_group`

# The mesh's name of each axis.
MESH_NAMES = {
    "data": "dp",
    "pipe": "pp",
    "sharding": "sharding",
    "sep": "sep",
    "context": "cp",
    "model": "mp",
}


class CommunicateTopology:
    """Ranks in a grid; the last axis counts fastest.

    >>> CommunicateTopology(["data", "model"], [2, 4]).get_comm_list("data")[1]
    [1, 5]
    """

    def __init__(
        self,
        hybrid_group_names: list[str] = ["data", "pipe", "sharding", "sep", "context", "model"],  # noqa: B006 (Paddle's signature)
        dims: list[int] = [1, 1, 1, 1, 1, 1],  # noqa: B006
    ) -> None:
        if len(hybrid_group_names) != len(dims):
            raise InvalidArgument(
                f"[CommunicateTopology] there are {len(hybrid_group_names)} names and {len(dims)} "
                "sizes"
            )
        self._parallel_names = list(hybrid_group_names)
        self._dims = list(dims)
        self.coordinate: Any = namedtuple("Coordinate", self._parallel_names)
        self._grid = np.arange(int(np.prod(dims))).reshape(dims)

    def get_hybrid_group_names(self) -> list[str]:
        return self._parallel_names

    def _axis(self, axis_name: str) -> int:
        if axis_name not in self._parallel_names:
            raise InvalidArgument(
                f"[CommunicateTopology] there is no axis {axis_name!r}; there are "
                f"{', '.join(self._parallel_names)}"
            )
        return self._parallel_names.index(axis_name)

    def get_dim(self, axis_name: str) -> int:
        return self._dims[self._axis(axis_name)]

    get_dim_size = get_dim

    def world_size(self) -> int:
        return self._grid.size

    def get_rank(self, **args: int) -> int:
        """The rank at a coordinate; every axis must be named."""
        missing = set(self._parallel_names) ^ set(args)
        if missing:
            raise InvalidArgument(
                f"[get_rank] takes {', '.join(self._parallel_names)}. Missing or unknown: "
                f"{', '.join(sorted(missing))}"
            )
        at = tuple([args[n] for n in self._parallel_names])
        if any(not 0 <= i < d for i, d in zip(at, self._dims, strict=True)):
            raise InvalidArgument(f"[get_rank] {args} is outside of the grid {self._dims}")
        return int(self._grid[at])

    def get_coord(self, rank: int) -> Any:
        """The coordinate of a rank, a named tuple with a field per axis."""
        if not 0 <= rank < self._grid.size:
            raise InvalidArgument(f"[get_coord] ranks are 0 to {self._grid.size - 1}. Got: {rank}")
        return self.coordinate(*[int(i) for i in np.unravel_index(rank, self._grid.shape)])

    def get_axis_list(self, axis_name: str, index: int) -> list[int]:
        """All ranks with this index along an axis."""
        return sorted(np.take(self._grid, index, self._axis(axis_name)).ravel().tolist())

    def get_comm_list(self, axis_name: str) -> list[list[int]]:
        """The groups of ranks that differ along one axis only."""
        return self.get_fused_ranks([axis_name])

    def get_fused_ranks(self, fused_axis: Sequence[str]) -> list[list[int]]:
        """The groups of ranks that differ along these axes only."""
        inner = [self._axis(n) for n in fused_axis]
        outer = [i for i in range(len(self._dims)) if i not in inner]
        moved = self._grid.transpose([*outer, *inner])
        count = int(np.prod([self._dims[i] for i in inner]))
        return moved.reshape(-1, count).tolist()

    def get_rank_from_stage(self, global_rank: int, **kwargs: int) -> int:
        """The rank at the coordinate of `global_rank` with some indices replaced."""
        return self.get_rank(**self.get_coord(global_rank)._replace(**kwargs)._asdict())


class ParallelMode:
    """What kind of parallel training a model has."""

    DATA_PARALLEL = 0
    TENSOR_PARALLEL = 1
    PIPELINE_PARALLEL = 2
    SHARDING_PARALLEL = 3
    SEGMENT_PARALLEL = 4


class HybridCommunicateGroup:
    """This rank's place in the topology, and its groups along the axes. What `hybrid_configs` says
    about each group's NCCL is for NCCL's environment variables to say."""

    def __init__(
        self, topology: CommunicateTopology, hybrid_configs: dict[str, Any] | None = None
    ) -> None:
        self._topo = topology
        self.global_rank = get_rank()
        self.nranks = topology.world_size()
        world = get_world_size()
        if world > 1 and world != self.nranks:
            sizes = dict(zip(topology._parallel_names, topology._dims, strict=True))
            raise InvalidArgument(
                f"[HybridCommunicateGroup] the job has {world} processes, and the degrees "
                f"{sizes} multiply to {self.nranks}"
            )
        self._groups: dict[tuple[str, ...], Group] = {}

    @cached_property
    def mesh(self) -> ProcessMesh:
        """The same grid as a ProcessMesh, without axes of one rank."""
        names, sizes = self._topo._parallel_names, self._topo._dims
        kept = [(MESH_NAMES.get(n, n), d) for n, d in zip(names, sizes, strict=True) if d > 1]
        kept = kept or [("dp", 1)]
        grid = np.arange(self.nranks).reshape([d for _, d in kept])
        return ProcessMesh(grid, [n for n, _ in kept])

    def _group(self, *axes: str) -> Group:
        if axes not in self._groups:
            found = next(g for g in self._topo.get_fused_ranks(axes) if self.global_rank in g)
            # Groups along the same axes have no process in common, so they share a number, which
            # all processes know without having made groups in the same order.
            number = _FIRST_ID + zlib.crc32("+".join(axes).encode())
            self._groups[axes] = groups.make_axis_group(found, self.global_rank, number)
        return self._groups[axes]

    def _index(self, axis: str) -> int:
        return getattr(self._topo.get_coord(self.global_rank), axis)

    def topology(self) -> CommunicateTopology:
        return self._topo

    def get_global_rank(self) -> int:
        return self.global_rank

    def get_parallel_mode(self) -> int:
        """The first that applies: pipeline, tensor, segment, sharding, data."""
        for axis, mode in (
            ("pipe", ParallelMode.PIPELINE_PARALLEL),
            ("model", ParallelMode.TENSOR_PARALLEL),
            ("sep", ParallelMode.SEGMENT_PARALLEL),
            ("sharding", ParallelMode.SHARDING_PARALLEL),
        ):
            if axis in self._topo._parallel_names and self._topo.get_dim(axis) > 1:
                return mode
        return ParallelMode.DATA_PARALLEL

    def get_stage_id(self) -> int:
        return self._index("pipe")

    def get_rank_from_stage(self, stage_id: int, **kwargs: int) -> int:
        return self._topo.get_rank_from_stage(self.global_rank, pipe=stage_id, **kwargs)

    def get_check_parallel_group(self, sharding: bool = False) -> Group:
        """Ranks that share a model: all axes but data."""
        names = self._topo._parallel_names
        left_out = ("data",) if sharding else ("data", "sharding")
        return self._group(*[n for n in names if n not in left_out])

    def get_copies_group(self) -> Group:
        """The ranks that train the same weights on other data."""
        return self._group("data", "sharding", "sep")

    def get_model_group(self, sharding: bool = False) -> Group:
        """The ranks that hold a model together, and with `sharding` those that share its state."""
        return self._group(*(("sharding",) if sharding else ()), "pipe", "model")

    def get_dp_sep_parallel_group(self) -> Group:
        return self._group("data", "sep")

    def get_pp_mp_parallel_group(self) -> Group:
        return self._group("pipe", "model")

    def create_fuse_group(self, fused_strategy_list: list[str]) -> tuple[Any, Any]:
        """The group along several axes together: its ranks and the group."""
        group = self._group(*fused_strategy_list)
        return group.ranks, group

    def get_data_parallel_rank(self) -> int:
        return self._index("data")

    def get_data_parallel_world_size(self) -> int:
        return self._topo.get_dim("data")

    def get_data_parallel_group(self) -> Group:
        return self._group("data")

    def get_data_parallel_group_src_rank(self) -> int:
        return self._group("data").ranks[0]

    def get_model_parallel_rank(self) -> int:
        return self._index("model")

    def get_model_parallel_world_size(self) -> int:
        return self._topo.get_dim("model")

    def get_model_parallel_group(self) -> Group:
        return self._group("model")

    def get_model_parallel_group_src_rank(self) -> int:
        return self._group("model").ranks[0]

    def get_pipe_parallel_world_size(self) -> int:
        return self._topo.get_dim("pipe")

    def get_pipe_parallel_group(self) -> Group:
        return self._group("pipe")

    def get_sep_parallel_rank(self) -> int:
        return self._index("sep")

    def get_sep_parallel_world_size(self) -> int:
        return self._topo.get_dim("sep")

    def get_sep_parallel_group(self) -> Group:
        return self._group("sep")

    def get_sep_parallel_group_src_rank(self) -> int:
        return self._group("sep").ranks[0]

    def get_sharding_parallel_rank(self) -> int:
        return self._index("sharding")

    def get_sharding_parallel_world_size(self) -> int:
        return self._topo.get_dim("sharding")

    def get_sharding_parallel_group(self) -> Group:
        return self._group("sharding")

    def get_sharding_parallel_group_src_rank(self) -> int:
        return self._group("sharding").ranks[0]
