"""paddle.distributed.fleet: a job as one object. The functions are methods of one `Fleet`."""

from bireme.distributed import auto_parallel as auto
from bireme.distributed.fleet import meta_parallel, utils
from bireme.distributed.fleet.data_generator import (
    MultiSlotDataGenerator,
    MultiSlotStringDataGenerator,
)
from bireme.distributed.fleet.dataset import InMemoryDataset, QueueDataset
from bireme.distributed.fleet.fleet import Fleet
from bireme.distributed.fleet.role_maker import PaddleCloudRoleMaker, Role, UserDefinedRoleMaker
from bireme.distributed.fleet.strategy import DistributedStrategy
from bireme.distributed.fleet.topology import CommunicateTopology, HybridCommunicateGroup
from bireme.distributed.fleet.util import UtilBase
from bireme.distributed.fleet.utils.log_util import (
    get_log_level_code,
    get_log_level_name,
    set_log_level,
)

fleet = Fleet()
init = fleet.init
is_first_worker = fleet.is_first_worker
worker_index = fleet.worker_index
worker_num = fleet.worker_num
rank = fleet.rank
nranks = fleet.nranks
world_size = fleet.world_size
node_num = fleet.node_num
local_rank = fleet.local_rank
is_worker = fleet.is_worker
is_server = fleet.is_server
server_num = fleet.server_num
server_index = fleet.server_index
worker_endpoints = fleet.worker_endpoints
server_endpoints = fleet.server_endpoints
barrier_worker = fleet.barrier_worker
distributed_model = fleet.distributed_model
distributed_optimizer = fleet.distributed_optimizer
distributed_scaler = fleet.distributed_scaler
get_hybrid_communicate_group = fleet.get_hybrid_communicate_group
get_hybrid_parallel_topology = fleet.get_hybrid_parallel_topology
all_reduce = fleet.all_reduce
minimize = fleet.minimize
local_device_ids = fleet.local_device_ids
collective_perf = fleet.collective_perf
init_server = fleet.init_server
init_worker = fleet.init_worker
is_coordinator = fleet.is_coordinator
load_inference_model = fleet.load_inference_model
load_model = fleet.load_model
run_server = fleet.run_server
save_inference_model = fleet.save_inference_model
save_persistables = fleet.save_persistables
stop_worker = fleet.stop_worker
world_device_ids = fleet.world_device_ids
util = fleet.util

__all__ = [
    "CommunicateTopology",
    "DistributedStrategy",
    "Fleet",
    "HybridCommunicateGroup",
    "InMemoryDataset",
    "MultiSlotDataGenerator",
    "MultiSlotStringDataGenerator",
    "PaddleCloudRoleMaker",
    "QueueDataset",
    "Role",
    "UserDefinedRoleMaker",
    "UtilBase",
    "all_reduce",
    "auto",
    "barrier_worker",
    "collective_perf",
    "distributed_model",
    "distributed_optimizer",
    "distributed_scaler",
    "fleet",
    "get_hybrid_communicate_group",
    "get_hybrid_parallel_topology",
    "get_log_level_code",
    "get_log_level_name",
    "init",
    "init_server",
    "init_worker",
    "is_coordinator",
    "is_first_worker",
    "is_server",
    "is_worker",
    "load_inference_model",
    "load_model",
    "local_device_ids",
    "local_rank",
    "meta_parallel",
    "minimize",
    "node_num",
    "nranks",
    "rank",
    "run_server",
    "save_inference_model",
    "save_persistables",
    "server_endpoints",
    "server_index",
    "server_num",
    "set_log_level",
    "stop_worker",
    "util",
    "utils",
    "worker_endpoints",
    "worker_index",
    "worker_num",
    "world_device_ids",
    "world_size",
]
