"""Layouts over a mesh: from one tensor to whole training programs."""

from bireme.distributed.auto_parallel.dataloader import ShardDataloader, shard_dataloader
from bireme.distributed.auto_parallel.dist_model import DistModel, to_static
from bireme.distributed.auto_parallel.engine import Engine
from bireme.distributed.auto_parallel.local import (
    DistAttr,
    LocalLayer,
    dtensor_from_local,
    dtensor_to_local,
    local_map,
)
from bireme.distributed.auto_parallel.parallelizing import (
    ToDistributedConfig,
    parallelize,
    parallelize_model,
    parallelize_optimizer,
    to_distributed,
)
from bireme.distributed.auto_parallel.plans import (
    ColWiseParallel,
    ContextParallel,
    ConvParallel,
    PlanBase,
    PrepareContextParallel,
    PrepareLayerInput,
    PrepareLayerOutput,
    RowWiseParallel,
    SequenceParallelBegin,
    SequenceParallelDisable,
    SequenceParallelEnable,
    SequenceParallelEnd,
)
from bireme.distributed.auto_parallel.sharded_optimizer import (
    ShardingStage1,
    ShardingStage2,
    ShardingStage3,
    shard_optimizer,
    shard_scaler,
)
from bireme.distributed.auto_parallel.strategy import Strategy
from bireme.distributed.mesh import ProcessMesh, get_mesh, set_mesh

__all__ = [
    "ColWiseParallel",
    "ContextParallel",
    "ConvParallel",
    "DistAttr",
    "DistModel",
    "Engine",
    "LocalLayer",
    "PlanBase",
    "PrepareContextParallel",
    "PrepareLayerInput",
    "PrepareLayerOutput",
    "ProcessMesh",
    "RowWiseParallel",
    "SequenceParallelBegin",
    "SequenceParallelDisable",
    "SequenceParallelEnable",
    "SequenceParallelEnd",
    "ShardDataloader",
    "ShardingStage1",
    "ShardingStage2",
    "ShardingStage3",
    "Strategy",
    "ToDistributedConfig",
    "dtensor_from_local",
    "dtensor_to_local",
    "get_mesh",
    "local_map",
    "parallelize",
    "parallelize_model",
    "parallelize_optimizer",
    "set_mesh",
    "shard_dataloader",
    "shard_optimizer",
    "shard_scaler",
    "to_distributed",
    "to_static",
]
