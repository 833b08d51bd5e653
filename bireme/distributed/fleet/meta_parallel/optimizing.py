"""The optimizer of a model of fleet, in a job of several processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bireme.distributed.fleet.meta_parallel.hybrid_optimizer import (
    HybridParallelOptimizer,
    over_processes,
)
from bireme.optimizer.optimizer import Optimizer

if TYPE_CHECKING:
    from bireme.distributed.auto_parallel.sharded_optimizer import ShardOptimizer
    from bireme.distributed.fleet.topology import HybridCommunicateGroup


def optimizer_of(
    optimizer: Optimizer | ShardOptimizer | HybridParallelOptimizer,
    hcg: HybridCommunicateGroup,
    stage: int = 1,
) -> HybridParallelOptimizer:
    """The optimizer, whose norms and overflows are those of all processes that hold the model.
    Over "sharding", each process updates some parameters (stages 1 and 2), or its parts of all of
    them (stage 3)."""
    first = hcg.get_model_parallel_rank() == 0

    def counts(param: Any) -> bool:
        cut = getattr(param, "is_distributed", False)
        return (cut or first) and getattr(param, "is_firstly_shared", True)

    sharding = hcg.get_sharding_parallel_group()
    shared = sharding.nranks > 1
    return over_processes(
        optimizer,
        hcg.get_model_group(sharding=shared),
        counts,
        sharers=sharding if shared and stage < 3 else None,
        drops=stage == 2,
    )
