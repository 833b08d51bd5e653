"""Training over several devices by annotation: say how leaves are laid out over a mesh."""

from bireme.distributed import fleet
from bireme.distributed.dtensor import (
    dtensor_from_fn,
    reshard,
    shard_layer,
    shard_tensor,
    unshard_dtensor,
)
from bireme.distributed.environment import (
    ParallelEnv,
    get_rank,
    get_world_size,
    init_parallel_env,
    is_available,
    is_initialized,
)
from bireme.distributed.mesh import ProcessMesh, get_mesh, set_mesh
from bireme.distributed.parallel import DataParallel
from bireme.distributed.placement import Partial, Placement, ReduceType, Replicate, Shard

__all__ = [
    "DataParallel",
    "ParallelEnv",
    "Partial",
    "Placement",
    "ProcessMesh",
    "ReduceType",
    "Replicate",
    "Shard",
    "dtensor_from_fn",
    "fleet",
    "get_mesh",
    "get_rank",
    "get_world_size",
    "init_parallel_env",
    "is_available",
    "is_initialized",
    "reshard",
    "set_mesh",
    "shard_layer",
    "shard_tensor",
    "unshard_dtensor",
]
