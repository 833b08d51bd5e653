"""Training over several devices by annotation: say how leaves are laid out over a mesh."""

from bireme.distributed.dtensor import (
    dtensor_from_fn,
    reshard,
    shard_layer,
    shard_tensor,
    unshard_dtensor,
)
from bireme.distributed.mesh import ProcessMesh, get_mesh, set_mesh
from bireme.distributed.placement import Partial, Placement, ReduceType, Replicate, Shard

__all__ = [
    "Partial",
    "Placement",
    "ProcessMesh",
    "ReduceType",
    "Replicate",
    "Shard",
    "dtensor_from_fn",
    "get_mesh",
    "reshard",
    "set_mesh",
    "shard_layer",
    "shard_tensor",
    "unshard_dtensor",
]
