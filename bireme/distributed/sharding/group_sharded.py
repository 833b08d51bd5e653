"""group_sharded_parallel: optimizer state, gradients and parameters in parts."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import numpy as np

from bireme.core import jax_door
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.distributed.auto_parallel.layouts import everywhere, lay_out, layout_of
from bireme.distributed.auto_parallel.sharded_optimizer import (
    ShardingStage1,
    ShardingStage2,
    ShardingStage3,
    shard_optimizer,
    shard_scaler,
)
from bireme.distributed.fleet.meta_parallel.wrappers import ShardingParallel
from bireme.distributed.mesh import ProcessMesh, get_mesh
from bireme.nn.layer.layer import Layer
from bireme.optimizer.optimizer import Optimizer

_LEVELS = {"os": ShardingStage1, "os_g": ShardingStage2, "p_g_os": ShardingStage3}


def _sharding_mesh(group: Any) -> ProcessMesh:
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
    optimizer: Any,
    level: str,
    scaler: Any = None,
    group: Any = None,
    offload: bool = False,
    sync_buffers: bool = False,
    buffer_max_size: int = 2**23,
    segment_size: int = 2**20,
    sync_comm: bool = False,
    dp_group: Any = None,
    exclude_layer: Any = None,
) -> tuple[Any, Any, Any]:
    """Cut the optimizer's state ("os"), also gradients ("os_g"), also parameters ("p_g_os").

    The mesh is that of `set_mesh` if it has a dimension "sharding" or "dp", else all devices or
    those of `group`. `exclude_layer` names classes or ids of layers whose parameters stay whole.
    When to exchange what is the compiler's choice, so the sizes of buffers and segments and
    `sync_comm` have nothing to steer, and buffers are the same everywhere with or without
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
    mesh = _sharding_mesh(group)
    stage = _LEVELS[level](_dimension(mesh) or mesh.dim_names[0], mesh)
    kept_whole = _excluded(model, exclude_layer)
    for tensor in (*model.parameters(), *model.buffers()):
        if layout_of(tensor) is None:
            lay_out(tensor, *everywhere(mesh))
    if kept_whole:
        stage.keep_whole = kept_whole
    optimizer = shard_optimizer(optimizer, stage)
    wrapped = ShardingParallel(model, SimpleNamespace(mesh=mesh))
    return wrapped, optimizer, None if scaler is None else shard_scaler(scaler)


def _excluded(model: Layer, exclude_layer: Any) -> set[int]:
    if not exclude_layer:
        return set()
    return {
        id(p)
        for layer in model.sublayers(include_self=True)
        if type(layer).__name__ in exclude_layer or id(layer) in exclude_layer
        for p in layer.parameters()
    }


def save_group_sharded_model(model: Any, output: str, optimizer: Any = None) -> None:
    """Save the whole model, and the optimizer's state, into the folder `output`.

    >>> save_group_sharded_model(model, "folder", opt)  # doctest: +SKIP
    """
    import bireme

    if not isinstance(model, ShardingParallel):
        raise InvalidArgument(
            "[save_group_sharded_model] takes what group_sharded_parallel returned. Received: "
            f"{type(model).__name__}"
        )
    if os.path.isfile(output):
        raise InvalidArgument(f"[save_group_sharded_model] {output!r} is a file, not a folder")
    os.makedirs(output, exist_ok=True)
    bireme.save(model.state_dict(), os.path.join(output, "model.pdmodel"))
    if optimizer is not None:
        bireme.save(optimizer.state_dict(), os.path.join(output, "model.pdopt"))
