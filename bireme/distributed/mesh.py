"""ProcessMesh: devices in a grid whose dimensions have names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.host import jax_door

if TYPE_CHECKING:
    import numpy.typing as npt


class ProcessMesh:
    """A grid of devices, numbered as in `bireme.device`. In one process with several devices
    each of them plays the part of a process."""

    def __init__(
        self,
        mesh: npt.ArrayLike | ProcessMesh | None = None,
        dim_names: Sequence[str] | None = None,
        shape: Sequence[int] | None = None,
        process_ids: Sequence[int] | None = None,
    ):
        if mesh is None:
            if shape is None or process_ids is None:
                raise InvalidArgument(
                    "ProcessMesh needs a mesh, such as [[0, 1], [2, 3]], or shape and process_ids"
                )
            mesh = np.reshape(np.asarray(process_ids), tuple(shape))
        elif not isinstance(mesh, list | tuple | np.ndarray):
            raise InvalidArgument(
                f"the mesh must be a list or a NumPy array. Received: {type(mesh).__name__}"
            )
        try:
            grid = np.array(mesh)
        except ValueError:
            raise InvalidArgument("the mesh must be rectangular: rows of one length") from None
        if grid.size and grid.dtype.kind not in "iu":
            raise InvalidArgument(f"the mesh must hold integers. Received: {mesh!r}")
        if len(set(grid.ravel().tolist())) != grid.size or (grid < 0).any():
            raise InvalidArgument(
                f"the mesh must hold each device once, numbered from 0. Received: {grid.tolist()}"
            )
        if dim_names is None:
            dim_names = [f"d{i}" for i in range(grid.ndim)]
        names = list(dim_names)
        if len(names) != grid.ndim or len(set(names)) != len(names):
            raise InvalidArgument(
                f"a mesh of {grid.ndim} dimensions needs as many different names. Received: {names}"
            )
        self._mesh = grid.astype(np.int64)
        self._dim_names = names

    @property
    def mesh(self) -> np.ndarray:
        return self._mesh

    @property
    def shape(self) -> list[int]:
        return list(self._mesh.shape)

    @property
    def ndim(self) -> int:
        return self._mesh.ndim

    @property
    def size(self) -> int:
        return self._mesh.size

    @property
    def dim_names(self) -> list[str]:
        return list(self._dim_names)

    @property
    def process_ids(self) -> list[int]:
        return self._mesh.ravel().tolist()

    def contains(self, process_id: int) -> bool:
        return process_id in self.process_ids

    def get_dim_size(self, dim_name: str) -> int:
        """How many devices lie along a dimension."""
        return self._mesh.shape[self._axis(dim_name)]

    def get_mesh_with_dim(self, dim_name: str, index: int | None = None) -> ProcessMesh:
        """The mesh with this dimension in front, or its `index`-th slice."""
        axis = self._axis(dim_name)
        rest = [n for n in self._dim_names if n != dim_name]
        moved = np.moveaxis(self._mesh, axis, 0)
        if index is None:
            return ProcessMesh(moved, [dim_name, *rest])
        if not rest:
            return ProcessMesh(moved[index : index + 1], [dim_name])
        return ProcessMesh(moved[index], rest)

    def get_submesh_with_dim(self, dim_name: str) -> ProcessMesh | None:
        """The line along a dimension that this process's first device lies on; None if the mesh
        does not have that device."""
        jax = jax_door.jax()
        here = jax.devices().index(jax.local_devices()[0])
        found = np.argwhere(self._mesh == here)
        axis = self._axis(dim_name)
        if not len(found):
            return None
        line = tuple(slice(None) if i == axis else int(at) for i, at in enumerate(found[0]))
        return ProcessMesh(self._mesh[line], [dim_name])

    def get_rank_by_dim_and_process_id(self, dim: int | str, process_id: int) -> int:
        """The position of a device along a dimension; -1 if it is not in the mesh."""
        found = np.argwhere(self._mesh == process_id)
        axis = self._axis(dim) if isinstance(dim, str) else dim
        return int(found[0][axis]) if len(found) else -1

    def _axis(self, dim_name: str) -> int:
        if dim_name not in self._dim_names:
            raise InvalidArgument(
                f"the mesh has no dimension {dim_name!r}. It has: {', '.join(self._dim_names)}"
            )
        return self._dim_names.index(dim_name)

    def __getitem__(self, index: Any) -> ProcessMesh:
        """A part of the mesh; dimensions that an integer picks from fall away."""
        picked = self._mesh[index]
        indices = index if isinstance(index, tuple) else (index,)
        names = [
            n
            for i, n in enumerate(self._dim_names)
            if i >= len(indices) or isinstance(indices[i], slice)
        ]
        if picked.ndim == 0:
            return ProcessMesh([int(picked)], [self._dim_names[-1]])
        return ProcessMesh(picked, names)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProcessMesh):
            return False
        return self._dim_names == other._dim_names and np.array_equal(self._mesh, other._mesh)

    def __hash__(self) -> int:
        return hash((tuple(self._dim_names), self._mesh.shape, tuple(self.process_ids)))

    def __repr__(self) -> str:
        return f"shape {self.shape}, process_ids {self.process_ids}, dim_names {self.dim_names}"

    def is_there(self) -> bool:
        """Whether there is a device for each place of the mesh. One process without them computes
        on its own device; a job of several processes must have them."""
        jax = jax_door.jax()
        enough = max(self.process_ids, default=0) < len(jax.devices())
        return enough or jax.process_count() > 1

    def devices(self) -> Any:
        """The same grid as JAX's mesh."""
        jax = jax_door.jax()
        have = jax.devices()
        largest = max(self.process_ids, default=0)
        if largest >= len(have):
            raise InvalidArgument(
                f"the mesh uses device {largest}, but there are {len(have)}. To try a mesh on one "
                "machine, start Python with XLA_FLAGS=--xla_force_host_platform_device_count=8"
            )
        grid = np.empty(self._mesh.shape, object)
        for at, number in np.ndenumerate(self._mesh):
            grid[at] = have[number]
        return jax.sharding.Mesh(grid, tuple(self._dim_names))

    @staticmethod
    def from_devices(mesh: Any) -> ProcessMesh:
        """The ProcessMesh of a JAX mesh."""
        numbers = {d: i for i, d in enumerate(jax_door.jax().devices())}
        grid = np.empty(mesh.devices.shape, np.int64)
        for at, device in np.ndenumerate(mesh.devices):
            grid[at] = numbers[device]
        return ProcessMesh(grid, list(mesh.axis_names))


_global: ProcessMesh | None = None


def set_mesh(mesh: ProcessMesh) -> None:
    """Make `mesh` the one that functions use when they are given none."""
    global _global
    if not isinstance(mesh, ProcessMesh):
        raise InvalidArgument(f"set_mesh takes a ProcessMesh. Received: {type(mesh).__name__}")
    _global = mesh


def get_mesh() -> ProcessMesh | None:
    """The mesh that `set_mesh` was given."""
    return _global
