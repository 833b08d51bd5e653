"""Laying tensors out over a mesh in place, and many of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.core.value import value_of
from bireme.distributed import dtensor
from bireme.distributed.mesh import ProcessMesh, get_mesh
from bireme.distributed.placement import Placement, Replicate, Shard
from bireme.host import config, jax_door
from bireme.nn.grouped import Repeated, put_all, same_types

Layout = tuple[ProcessMesh, tuple[Placement, ...]]


@op(name="shard_all", inputs=("*xs",), differentiable=False, infer=same_types)
def _shard_all(xp: Any, xs: Any, layouts: Any = ()) -> Any:
    """The same contents, each laid out in its own way; None leaves one alone."""
    if xp is np:
        return list(xs)
    return [
        x if layout is None else dtensor._constrain(xp, x, *layout)
        for x, layout in zip(xs, layouts, strict=True)
    ]


class Keeper:
    """Keeps tensors in their layouts while updates replace their contents: one entry per step."""

    def __init__(self) -> None:
        self._recorder = Repeated(_shard_all.op)

    def __call__(self, tensors: list[Tensor], layouts: tuple[Layout | None, ...]) -> None:
        put_all(tensors, self._recorder((tensors,), (layouts,)))


def everywhere(mesh: ProcessMesh) -> Layout:
    """A whole copy on each device of the mesh."""
    return mesh, (Replicate(),) * mesh.ndim


def lay_out(tensor: Tensor, mesh: ProcessMesh, placements: Sequence[Placement]) -> Tensor:
    """Move a leaf's contents to the mesh, in place: whoever holds the tensor sees it there."""
    chosen = dtensor._checked(mesh, placements, tensor.shape)
    config.sharded |= mesh.size > 1
    buf = jax_door.jax().device_put(tensor._array(), dtensor._sharding(mesh, chosen, tensor.ndim))
    tensor._put(value_of(tensor._value.aval, buf))
    return dtensor._noted(tensor, mesh, chosen)


def layout_of(tensor: Tensor) -> Layout | None:
    """(mesh, placements) of a tensor over several devices, else None."""
    found = dtensor.layout_of(tensor)
    return None if found is None else (found[0], tuple(found[1]))


def with_axis(layout: Layout, shape: Sequence[int], axis: int) -> Layout:
    """The layout that is also cut along dimension `axis` of the mesh, in the first dimension of
    the tensor that divides; unchanged where none does."""
    mesh, placements = layout
    size = mesh.shape[axis]
    if size == 1 or not isinstance(placements[axis], Replicate):
        return layout
    parts = [1] * len(shape)
    for count, p in zip(mesh.shape, placements, strict=True):
        if isinstance(p, Shard):
            parts[p.dim] *= count
    # A dimension that nobody cuts yet comes before one that would be cut twice.
    order = sorted(range(len(shape)), key=lambda d: parts[d] > 1)
    for dim in order:
        if shape[dim] and shape[dim] % (parts[dim] * size) == 0:
            changed = list(placements)
            changed[axis] = Shard(dim)
            return mesh, tuple(changed)
    return layout


def axis_of(mesh: ProcessMesh, dim: int | str, who: str) -> int:
    """The number of a mesh dimension that is given by name or number."""
    if isinstance(dim, str):
        return mesh._axis(dim)
    if isinstance(dim, bool) or not isinstance(dim, int) or not -mesh.ndim <= dim < mesh.ndim:
        raise InvalidArgument(
            f"[{who}] the mesh has no dimension {dim!r}. It has: {', '.join(mesh.dim_names)}"
        )
    return dim % mesh.ndim


def current_mesh(given: ProcessMesh | None, who: str) -> ProcessMesh:
    """The mesh that was given, or the one that `set_mesh` was."""
    mesh = get_mesh() if given is None else given
    if not isinstance(mesh, ProcessMesh):
        raise InvalidArgument(
            f"[{who}] needs a mesh: pass a ProcessMesh, or call "
            f"paddle.distributed.set_mesh(mesh) before. Received: {type(given).__name__}"
        )
    return mesh
