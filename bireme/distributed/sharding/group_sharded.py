"""group_sharded_parallel: optimizer state, gradients and parameters in parts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.distributed.auto_parallel.layouts import everywhere, lay_out, layout_of
from bireme.distributed.auto_parallel.sharded_optimizer import (
    ShardingStage1,
    ShardingStage2,
    ShardingStage3,
    shard_optimizer,
    shard_scaler,
)
from bireme.distributed.communication.group import get_global_group
from bireme.distributed.environment import get_world_size
from bireme.distributed.fleet.meta_parallel.batches import Batches, OwnPart, equal_weights
from bireme.distributed.fleet.meta_parallel.hybrid_optimizer import over_processes
from bireme.distributed.fleet.meta_parallel.parts import Parts
from bireme.distributed.fleet.meta_parallel.wrappers import ShardingParallel
from bireme.distributed.mesh import ProcessMesh, get_mesh
from bireme.host import jax_door
from bireme.io import serialization
from bireme.nn.layer.layer import Layer
from bireme.optimizer.optimizer import Optimizer

if TYPE_CHECKING:
    from bireme.amp.grad_scaler import AmpScaler
    from bireme.distributed.auto_parallel.sharded_optimizer import ShardOptimizer
    from bireme.distributed.communication.group import Group


_LEVELS = {"os": ShardingStage1, "os_g": ShardingStage2, "p_g_os": ShardingStage3}


def _sharding_mesh(group: Group | None) -> ProcessMesh:
    """The mesh that `set_mesh` was given if it has a dimension to cut over, else all devices."""
    mesh = get_mesh()
    if mesh is not None and _dimension(mesh) is not None:
        return mesh
    ranks = getattr(group, "ranks", None)
    devices = ranks or range(jax_door.jax().device_count())
    return ProcessMesh(np.asarray(list(devices)), ["sharding"])


def _dimension(mesh: ProcessMesh) -> str | None:
    return next((n for n in ("sharding", "dp") if n in mesh.dim_names), None)


def group_sharded_parallel(
    model: Layer,
    optimizer: Optimizer | ShardOptimizer,
    level: str,
    scaler: AmpScaler | None = None,
    group: Group | None = None,
    offload: bool = False,
    sync_buffers: bool = False,
    buffer_max_size: int = 2**23,
    segment_size: int = 2**20,
    sync_comm: bool = False,
    dp_group: Group | None = None,
    exclude_layer: Sequence[str | int] | None = None,
) -> tuple[Any, Any, Any]:
    """Cut the optimizer's state ("os"), also gradients ("os_g"), also parameters ("p_g_os").

    In a job of several processes, those of `group` (or all) share the work, and each trains on its
    own part of the batch. One process that drives all devices uses the mesh of `set_mesh` if it
    has a dimension "sharding" or "dp", else all devices or those of `group`. `exclude_layer` names
    classes or ids of layers whose parameters stay whole in level "p_g_os". The sizes of buffers
    and segments and `sync_comm` have nothing to steer: messages are as large as they can be.
    Buffers of the model start equal everywhere, and stay the processes' own with or without
    `sync_buffers`.

    >>> model, opt, scaler = group_sharded_parallel(model, opt, "os_g")  # doctest: +SKIP
    """
    if level not in _LEVELS:
        raise InvalidArgument(
            f"[group_sharded_parallel] level is 'os', 'os_g' or 'p_g_os'. Received: {level!r}"
        )
    if not isinstance(model, Layer) or not isinstance(optimizer, Optimizer):
        raise TypeMismatch(
            "[group_sharded_parallel] takes a Layer and an Optimizer. Received: "
            f"{type(model).__name__}, {type(optimizer).__name__}"
        )
    if offload:
        raise InvalidArgument(
            "[group_sharded_parallel] offload=True, state that lives on the host, is not built; "
            "use level 'p_g_os' over more devices, or recompute"
        )
    if dp_group is not None:
        raise InvalidArgument(
            "[group_sharded_parallel] copies of the groups are a dimension of the mesh: "
            'set_mesh(ProcessMesh(..., dim_names=["dp", "sharding"])) instead of dp_group'
        )
    if get_world_size() > 1:
        kept = _excluded(model, exclude_layer)
        own = _over_processes(model, optimizer, level, group, kept)
        return *own, scaler
    mesh = _sharding_mesh(group)
    stage = _LEVELS[level](_dimension(mesh) or mesh.dim_names[0], mesh)
    kept_whole = _excluded(model, exclude_layer)
    for tensor in (*model.parameters(), *model.buffers()):
        if layout_of(tensor) is None:
            lay_out(tensor, *everywhere(mesh))
    if kept_whole:
        stage.keep_whole = kept_whole
    optimizer = shard_optimizer(optimizer, stage)
    grid: Any = SimpleNamespace(mesh=mesh)
    wrapped = ShardingParallel(model, grid)
    return wrapped, optimizer, None if scaler is None else shard_scaler(scaler)


def _over_processes(
    model: Layer, optimizer: Any, level: str, group: Group | None, keep_whole: set[int]
) -> tuple[ProcessSharding, Any]:
    sharers = get_global_group() if group is None else group
    if sharers.rank < 0:
        raise InvalidArgument(
            f"[group_sharded_parallel] this process is not in the group {sharers.ranks}"
        )
    wrapped = ProcessSharding(model, sharers, level == "p_g_os", keep_whole)
    first = sharers.rank == 0
    own = over_processes(
        optimizer,
        sharers,
        lambda p: level != "p_g_os" or first or getattr(p, "is_part", False),
        sharers=None if level == "p_g_os" else sharers,
        drops=level == "os_g",
    )
    return wrapped, own


class ProcessSharding(ShardingParallel):
    """A model whose training state several processes share; what `group_sharded_parallel` returns
    in a job of several processes."""

    def __init__(self, layers: Layer, group: Group, cut: bool, keep_whole: set[int]) -> None:
        self._group, self._cut, self._keep_whole = group, cut, keep_whole
        grid: Any = SimpleNamespace(mesh=None)
        super().__init__(layers, grid)

    def _own_batches(self) -> Batches:
        equal_weights(self._layers, self._group)
        parts = Parts(self._layers, self._group, self._keep_whole) if self._cut else None
        return OwnPart(self._layers, self._group, parts=parts)


def _excluded(model: Layer, exclude_layer: Sequence[str | int] | None) -> set[int]:
    if not exclude_layer:
        return set()
    return {
        id(p)
        for layer in model.sublayers(include_self=True)
        if type(layer).__name__ in exclude_layer or id(layer) in exclude_layer
        for p in layer.parameters()
    }


def save_group_sharded_model(
    model: Layer, output: str, optimizer: Optimizer | ShardOptimizer | None = None
) -> None:
    """Save the whole model, and the optimizer's state, into the folder `output`.

    >>> save_group_sharded_model(model, "folder", opt)  # doctest: +SKIP
    """
    if not isinstance(model, ShardingParallel):
        raise InvalidArgument(
            "[save_group_sharded_model] takes what group_sharded_parallel returned. Received: "
            f"{type(model).__name__}"
        )
    if os.path.isfile(output):
        raise InvalidArgument(f"[save_group_sharded_model] {output!r} is a file, not a folder")
    os.makedirs(output, exist_ok=True)
    # Without an optimizer an older one's state goes: it is not that of these weights.
    state = None if optimizer is None else optimizer.state_dict()
    serialization.save_together(
        {
            os.path.join(output, "model.pdmodel"): model.state_dict(),
            os.path.join(output, "model.pdopt"): state,
        }
    )
