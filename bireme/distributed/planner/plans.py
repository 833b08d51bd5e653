"""Plan: a division of the devices and a layout for each parameter, as found by `plan`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.distributed.auto_parallel.layouts import lay_out
from bireme.distributed.auto_parallel.plans import cut
from bireme.distributed.auto_parallel.sharded_optimizer import (
    ShardingStage1,
    ShardingStage2,
    ShardingStage3,
    shard_optimizer,
)
from bireme.distributed.mesh import ProcessMesh
from bireme.distributed.placement import Placement, Replicate, Shard
from bireme.distributed.planner import explaining, picture
from bireme.distributed.planner.cluster import Cluster
from bireme.distributed.planner.reading import Reading
from bireme.distributed.planner.schedule import Degrees, Outcome
from bireme.distributed.planner.splits import COLUMNS, WHOLE

if TYPE_CHECKING:
    from bireme.distributed.auto_parallel.sharded_optimizer import ShardOptimizer
    from bireme.nn.layer.layer import Layer
    from bireme.optimizer.optimizer import Optimizer

_STAGES = {1: ShardingStage1, 2: ShardingStage2, 3: ShardingStage3}


class Plan:
    """The fastest of all candidates, and the others (`rivals`, the best first).

    `apply(model, optimizer)` lays a model out on the mesh that the plan was made for; batches are
    cut along its dimension `batch_dim` (None: they are copied).
    """

    def __init__(
        self,
        reading: Reading,
        cluster: Cluster,
        outcomes: list[Outcome],
        batch: int,
        mesh: ProcessMesh | None,
    ) -> None:
        self.cluster, self.batch, self.rivals = cluster, batch, outcomes
        self.reading = reading
        best = outcomes[0]
        self.degrees: Degrees = best.degrees
        self.seconds, self.memory, self.mfu = best.seconds, best.memory, best.mfu
        self.kinds = {reading.weights[r].name: k for r, k in best.solution.kinds.items()}
        self._placed: ProcessMesh | None = None
        if mesh is not None:
            d = self.degrees
            sizes = [(n, s) for n, s in (("dp", d.dp), ("mp", d.mp)) if s > 1] or [("dp", 1)]
            grid = np.asarray(mesh.process_ids).reshape([s for _, s in sizes])
            self._placed = ProcessMesh(grid, [n for n, _ in sizes])
        self.batch_dim = "dp" if self.degrees.dp > 1 else None

    @property
    def dp(self) -> int:
        return self.degrees.dp

    @property
    def mp(self) -> int:
        return self.degrees.mp

    @property
    def best(self) -> Outcome:
        return self.rivals[0]

    # --- applying it ----------------------------------------------------------------------

    def placements(self, name: str) -> list[Placement]:
        """The layout of a parameter on the plan's mesh, by its name in the model."""
        mesh = self.mesh
        found: list[Placement] = [Replicate()] * mesh.ndim
        types = {w.name: w for w in self.reading.weights.values()}
        if name not in types:
            return found
        weight = types[name]
        ndim = len(weight.type.shape)
        if weight.is_expert and self.degrees.ep > 1:
            found[mesh.dim_names.index("dp")] = Shard(0)
        if self.degrees.mp == 1:
            return found
        axis = mesh.dim_names.index("mp")
        kind = self.kinds.get(name, WHOLE)
        if kind != WHOLE and ndim == 4:
            found[axis] = Shard(0 if kind == COLUMNS else 1)
        elif kind != WHOLE:
            found[axis] = Shard(ndim - 1 if kind == COLUMNS else ndim - 2)
        elif name.endswith("bias"):
            # A bias is cut with the columns that it is added to.
            partner = name[: -len("bias")] + "weight"
            if self.kinds.get(partner) == COLUMNS and ndim == 1:
                found[axis] = Shard(0)
        return found

    @property
    def mesh(self) -> ProcessMesh:
        """The devices in the grid of the plan's degrees."""
        if self._placed is None:
            raise InvalidArgument(
                "[Plan] this plan is for simulated devices; plan for a ProcessMesh to apply it, or "
                "use fleet_strategy() in a job of several processes"
            )
        return self._placed

    def apply(self, model: Layer, optimizer: Optimizer | ShardOptimizer | None = None) -> Any:
        """Lay out the model, and cut the optimizer's state as ZeRO's stage says. Returns the model,
        or both."""
        mesh = self.mesh
        if mesh.size > 1:
            for name, param in model.named_parameters():
                lay_out(param, mesh, self.placements(name))
            for buffer in model.buffers():
                lay_out(buffer, mesh, [Replicate()] * mesh.ndim)
            self._sequences(model)
        for name in self.recomputed():
            _run_again(model, name)
        if optimizer is None:
            return model
        if mesh.size == 1:
            return model, optimizer
        stage = _STAGES.get(self.degrees.zero)
        return model, shard_optimizer(optimizer, stage("dp", mesh) if stage else None)

    def _sequences(self, model: Layer) -> None:
        """Have the results of these products lie in parts of their sequences."""
        layers = dict(model.named_sublayers(include_self=True))
        mesh = self.mesh
        for ref in self.best.solution.sequences:
            name = self.reading.weights[ref].name.rpartition(".")[0]
            if name in layers:
                layers[name].register_forward_post_hook(
                    lambda _, __, out: (
                        cut(out, mesh, mp=1) if isinstance(out, Tensor) and out.ndim == 3 else out
                    )
                )

    def recomputed(self) -> list[str]:
        """The names of the sublayers that run again in the backward pass."""
        found: list[str] = []
        for stage in self.best.stages:
            for unit, count in stage.recomputed.items():
                found += self.blocks(unit)[:count]
        return found

    def blocks(self, unit: int) -> list[str]:
        """The names of the sublayers that a run of equal blocks consists of."""
        steps = self.best.solution.units[unit].steps
        names = [
            self.reading.weights[a].name
            for s in steps
            for a in s.work.args
            if a in self.reading.weights
        ]
        first = _common(names)
        if not re.search(r"\d+$", first):
            return []
        stem, number = re.fullmatch(r"(.*?)(\d+)", first).groups()  # type: ignore[union-attr]
        count = self.best.solution.units[unit].count
        return [f"{stem}{int(number) + i}" for i in range(count)]

    def fleet_strategy(self) -> dict[str, Any]:
        """The plan as settings of `fleet.DistributedStrategy`, by field."""
        d = self.degrees
        cut_over = "sharding_degree" if d.zero else "dp_degree"
        hybrid = {"dp_degree": 1, "sharding_degree": 1, "mp_degree": d.mp, "pp_degree": d.pp}
        hybrid[cut_over] = d.dp
        found: dict[str, Any] = {"hybrid_configs": hybrid}
        if d.zero:
            found["sharding_configs"] = {"stage": d.zero}
        if d.pp > 1:
            found["pipeline_configs"] = {
                "accumulate_steps": d.micro_batches,
                "micro_batch_size": d.micro_batch,
            }
        elif d.micro_batches > 1:
            found["gradient_merge"] = True
            found["gradient_merge_configs"] = {"k_steps": d.micro_batches, "avg": True}
        if self.recomputed():
            found["recompute"] = True
            found["recompute_configs"] = {"checkpoints": self.recomputed()}
        return found

    # --- showing it -----------------------------------------------------------------------

    def explain(self) -> str:
        """The plan in words: degrees, seconds by cause, memory, the layout of each layer, and the
        rivals that it beats."""
        return explaining.explain(self)

    def svg(self) -> str:
        """The communication graph as a picture: who sends what to whom in a step."""
        return picture.draw(self)

    def __str__(self) -> str:
        return explaining.summary(self)

    __repr__ = __str__


def _common(names: list[str]) -> str:
    """The longest name of a sublayer that all these parameters lie in."""
    if not names:
        return ""
    parts = [n.split(".")[:-1] for n in names]
    shared = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    while shared and not shared[-1].isdigit():
        shared.pop()
    return ".".join(shared)


def _run_again(model: Layer, name: str) -> None:
    from bireme.distributed.fleet.utils import recompute

    layer = dict(model.named_sublayers())[name]
    if "recomputed" in layer.__dict__:
        return
    forward = layer.forward
    layer.forward = lambda *a, **k: recompute(forward, *a, use_reentrant=False, **k)
    layer.__dict__["recomputed"] = True
