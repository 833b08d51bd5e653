"""paddle.distributed.communication: exchanges between the processes of a job."""

from bireme.distributed.communication import stream
from bireme.distributed.communication.collectives import (
    P2POp,
    all_gather,
    all_reduce,
    alltoall,
    alltoall_single,
    barrier,
    batch_isend_irecv,
    broadcast,
    gather,
    irecv,
    isend,
    recv,
    reduce,
    reduce_scatter,
    scatter,
    send,
    wait,
)
from bireme.distributed.communication.group import (
    destroy_process_group,
    get_backend,
    get_group,
    is_initialized,
)
from bireme.distributed.communication.objects import (
    all_gather_object,
    broadcast_object_list,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from bireme.distributed.communication.programs import ReduceOp

__all__ = [
    "P2POp",
    "ReduceOp",
    "all_gather",
    "all_gather_object",
    "all_reduce",
    "alltoall",
    "alltoall_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "gather",
    "get_backend",
    "get_group",
    "irecv",
    "is_initialized",
    "isend",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
    "stream",
    "wait",
]
