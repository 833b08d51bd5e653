"""paddle.distributed.rpc: call a function in another process.

Calls are pickled, so whoever may send one may run anything: a process serves only those that
share its secret (`BIREME_JOB_SECRET`, made by the launcher), and proves it to them. What is sent
is not encrypted; use it within a network that you trust.
"""

from bireme.distributed.rpc.agent import (
    WorkerInfo,
    get_all_worker_infos,
    get_current_worker_info,
    get_worker_info,
    init_rpc,
    rpc_async,
    rpc_sync,
    shutdown,
)

__all__ = [
    "WorkerInfo",
    "get_all_worker_infos",
    "get_current_worker_info",
    "get_worker_info",
    "init_rpc",
    "rpc_async",
    "rpc_sync",
    "shutdown",
]
