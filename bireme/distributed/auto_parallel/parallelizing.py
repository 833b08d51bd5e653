"""parallelize: a model, its optimizer and its loader for a mesh, from a description."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.distributed.auto_parallel.dataloader import ShardDataloader, shard_dataloader
from bireme.distributed.auto_parallel.layouts import current_mesh, everywhere, lay_out, layout_of
from bireme.distributed.auto_parallel.plans import PlanBase
from bireme.distributed.auto_parallel.sharded_optimizer import (
    ShardingStage1,
    ShardingStage2,
    ShardingStage3,
    shard_optimizer,
)
from bireme.distributed.mesh import ProcessMesh, get_mesh, set_mesh
from bireme.nn.layer.layer import Layer

if TYPE_CHECKING:
    from bireme.distributed.auto_parallel.sharded_optimizer import ShardOptimizer
    from bireme.io.dataloader import DataLoader
    from bireme.optimizer.optimizer import Optimizer


_STAGES = {1: ShardingStage1, 2: ShardingStage2, 3: ShardingStage3}
_KNOWN = {
    "dp_config": {"sharding_level", "sharding_mesh_dim"},
    "mp_config": {"parallelize_plan"},
    "cp_config": {"parallelize_plan"},
}


def parallelize(
    model: Layer,
    optimizer: Optimizer | ShardOptimizer | None = None,
    mesh: ProcessMesh | None = None,
    config: dict[str, Any] | None = None,
) -> tuple[Layer, Any]:
    """Lay out a model and its optimizer over a mesh, as `config` says.

    `dp_config` = {"sharding_level": 0 to 3, "sharding_mesh_dim": "dp"}; `mp_config` and
    `cp_config` = {"parallelize_plan": {name: plan}}, where a name is that of a sublayer or of a
    parameter, or a regular expression that matches all of it.

    >>> model, opt = parallelize(model, opt, mesh, {  # doctest: +SKIP
    ...     "mp_config": {"parallelize_plan": {"mlp.up": ColWiseParallel()}}})
    """
    if config is None:
        warnings.warn("[parallelize] config is None, so nothing is changed", stacklevel=2)
        return model, optimizer
    _check(model, config)
    chosen = _use(mesh)
    plans: dict[str, Any] = {}
    for part in ("mp_config", "cp_config"):
        plans |= (config.get(part) or {}).get("parallelize_plan") or {}
    _apply(model, chosen, plans)
    for tensor in (*model.parameters(), *model.buffers()):
        if layout_of(tensor) is None:
            lay_out(tensor, *everywhere(chosen))
    if optimizer is not None:
        optimizer = _sharded(optimizer, chosen, config.get("dp_config"))
    return model, optimizer


def _use(mesh: ProcessMesh | None) -> ProcessMesh:
    chosen = current_mesh(mesh, "parallelize")
    before = get_mesh()
    if before is not None and before != chosen:
        warnings.warn(
            "[parallelize] the mesh differs from that of set_mesh(), which it replaces",
            stacklevel=3,
        )
    set_mesh(chosen)
    return chosen


def _check(model: Any, config: Any) -> None:
    if not isinstance(model, Layer):
        raise TypeMismatch(f"[parallelize] takes a Layer. Received: {type(model).__name__}")
    if not isinstance(config, dict):
        raise TypeMismatch(f"[parallelize] config is a dict. Received: {type(config).__name__}")
    for part, given in config.items():
        if part not in _KNOWN:
            raise InvalidArgument(
                f"[parallelize] there is no {part!r}; config takes {', '.join(_KNOWN)}"
            )
        unknown = set(given or {}) - _KNOWN[part]
        if unknown:
            raise InvalidArgument(
                f"[parallelize] {part} has no {sorted(unknown)[0]!r}; it takes "
                f"{', '.join(sorted(_KNOWN[part]))}"
            )


def _apply(model: Layer, mesh: ProcessMesh, plans: dict[str, Any]) -> None:
    unused = set(plans)
    for name, layer in model.named_sublayers():
        for key, given in plans.items():
            found = _matches(key, name, layer)
            if found is None:
                continue
            unused.discard(key)
            for plan in given if isinstance(given, list | tuple) else [given]:
                if not isinstance(plan, PlanBase):
                    raise TypeMismatch(
                        f"[parallelize] the plan of {key!r} must be ColWiseParallel and the like. "
                        f"Received: {type(plan).__name__}"
                    )
                plan.apply(layer, mesh, found)
    if unused:
        names = [n for n, _ in model.named_sublayers()]
        raise InvalidArgument(
            f"[parallelize] no sublayer or parameter is called {sorted(unused)[0]!r}. Some names: "
            f"{', '.join(names[:8])}"
        )


def _matches(key: str, name: str, layer: Layer) -> list[str] | None:
    """Which parameters of the layer a key names ([]: its usual ones); None if it names none."""
    if re.fullmatch(key, name):
        return []
    stem, _, last = key.rpartition(".")
    if stem and isinstance(getattr(layer, last, None), Tensor) and re.fullmatch(stem, name):
        return [last]
    return None


def _sharded(
    optimizer: Optimizer | ShardOptimizer, mesh: ProcessMesh, dp_config: dict[str, Any] | None
) -> Any:
    given = dp_config or {}
    level = int(given.get("sharding_level") or 0)
    if level == 0:
        return shard_optimizer(optimizer)
    if level not in _STAGES:
        raise InvalidArgument(f"[parallelize] sharding_level is 0 to 3. Received: {level}")
    return shard_optimizer(optimizer, _STAGES[level](given.get("sharding_mesh_dim", "dp"), mesh))


def parallelize_model(
    model: Layer, mesh: ProcessMesh | None = None, config: dict[str, Any] | None = None
) -> Layer:
    """`parallelize` for a model whose optimizer is made later."""
    return parallelize(model, None, mesh, config)[0]


def parallelize_optimizer(
    optimizer: Optimizer | ShardOptimizer,
    mesh: ProcessMesh | None = None,
    config: dict[str, Any] | None = None,
) -> Optimizer | ShardOptimizer:
    """`parallelize` for the optimizer of a model that was parallelized before."""
    if config is None:
        warnings.warn("[parallelize_optimizer] config is None: nothing is changed", stacklevel=2)
        return optimizer
    if any(layout_of(p) is None for p in optimizer._all_parameters()):
        raise InvalidArgument(
            "[parallelize_optimizer] a parameter lies on no mesh; call parallelize_model first"
        )
    return _sharded(optimizer, _use(mesh), config.get("dp_config"))


@dataclass
class ToDistributedConfig:
    """What `to_distributed` is told: an example of the inputs, and whether to cut sequences."""

    input_spec: Any = None
    sequence_parallel: bool = False


def to_distributed(
    model: Layer,
    optimizer: Optimizer | ShardOptimizer,
    dataloader: DataLoader,
    device_num: int,
    node_num: int = 1,
    config: ToDistributedConfig | None = None,
) -> tuple[Layer, Any, ShardDataloader]:
    """Model, optimizer and loader for `device_num` devices on each of `node_num` machines.

    The layout is the planner's: see `paddle.distributed.plan`. What it needs to know about a
    batch it takes from `config.input_spec`, or from the loader's first batch.

    >>> model, opt, loader = to_distributed(model, opt, loader, 8)  # doctest: +SKIP
    """
    from bireme.distributed.planner import plan

    count = int(device_num) * int(node_num or 1)
    if count < 1:
        raise InvalidArgument(f"[to_distributed] needs devices. Received: {device_num}, {node_num}")
    spec = config.input_spec if config is not None else None
    example = _example(spec) if spec else _inputs_of(next(iter(dataloader)))
    mesh = ProcessMesh(np.arange(count), ["dp"])
    # Gradients are not merged over several batches here: the loop is the user's.
    chosen = plan(model, example, mesh, optimizer=optimizer, degrees={"micro_batches": 1})
    model, optimizer = chosen.apply(model, optimizer)
    set_mesh(chosen.mesh)
    if config is not None and config.sequence_parallel and "mp" in chosen.mesh.dim_names:
        from bireme.distributed.auto_parallel.plans import cut

        for _, layer in model.named_sublayers():
            if type(layer).__name__ in ("LayerNorm", "RMSNorm"):
                layer.register_forward_pre_hook(
                    lambda _, given: tuple(
                        [cut(x, chosen.mesh, mp=1) if x.ndim == 3 else x for x in given]
                    )
                )
    loader = shard_dataloader(dataloader, chosen.mesh, shard_dims=chosen.batch_dim)
    return model, optimizer, loader


def _inputs_of(batch: Any) -> Any:
    """A batch without its label, which is the last of several."""
    if isinstance(batch, dict):
        return [v for k, v in batch.items() if "label" not in k]
    if isinstance(batch, list | tuple):
        return list(batch[:-1]) if len(batch) > 1 else list(batch)
    return [batch]


def _example(spec: Any) -> list[Tensor]:
    from bireme.ops.creation import zeros

    specs = spec if isinstance(spec, list | tuple) else [spec]
    return [zeros([4 if d in (None, -1) else d for d in s.shape], s.dtype) for s in specs]
