"""Fleet: one object that knows the job, and prepares models and optimizers for it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.distributed.auto_parallel.sharded_optimizer import (
    ShardingStage1,
    ShardingStage2,
    ShardingStage3,
    shard_optimizer,
    shard_scaler,
)
from bireme.distributed.communication.averaging import first_ranks_contents
from bireme.distributed.environment import ParallelEnv, get_world_size
from bireme.distributed.fleet.local_sgd import LocalSGD
from bireme.distributed.fleet.merging import MergingOptimizer, merging
from bireme.distributed.fleet.meta_parallel.optimizing import optimizer_of
from bireme.distributed.fleet.meta_parallel.pipeline import PipelineParallel
from bireme.distributed.fleet.meta_parallel.pp_layers import PipelineLayer
from bireme.distributed.fleet.meta_parallel.random import model_parallel_random_seed
from bireme.distributed.fleet.meta_parallel.wrappers import (
    MetaParallelBase,
    SegmentParallel,
    ShardingParallel,
    TensorParallel,
)
from bireme.distributed.fleet.programs import JobPrograms
from bireme.distributed.fleet.role_maker import PaddleCloudRoleMaker
from bireme.distributed.fleet.strategy import DistributedStrategy
from bireme.distributed.fleet.topology import CommunicateTopology, HybridCommunicateGroup
from bireme.distributed.fleet.util import UtilBase
from bireme.distributed.fleet.utils.recomputing import recompute
from bireme.distributed.mesh import set_mesh
from bireme.host import jax_door
from bireme.incubate.asp import decorate as asp
from bireme.nn import SyncBatchNorm
from bireme.optimizer import Adam, Lamb

if TYPE_CHECKING:
    from bireme.amp.grad_scaler import AmpScaler
    from bireme.api.types import TensorLike
    from bireme.core.tensor import Tensor
    from bireme.distributed.auto_parallel.sharded_optimizer import ShardOptimizer
    from bireme.distributed.fleet.meta_parallel.hybrid_optimizer import HybridParallelOptimizer
    from bireme.nn.layer.layer import Layer
    from bireme.optimizer.optimizer import Optimizer


logger = logging.getLogger("bireme.fleet")
_AXES = {"dp": "data", "pp": "pipe", "sharding": "sharding", "sep": "sep", "mp": "model"}
_STAGES = {1: ShardingStage1, 2: ShardingStage2, 3: ShardingStage3}


class Fleet(JobPrograms):
    """What `paddle.distributed.fleet`'s functions are methods of."""

    _hcg: HybridCommunicateGroup  # there after init: programs ask with hasattr

    def __init__(self) -> None:
        self._role_maker: Any = None
        self._strategy = DistributedStrategy()
        self._util = UtilBase()
        self._optimizer: Any = None  # the last that was made for the job

    def init(
        self,
        role_maker: PaddleCloudRoleMaker | None = None,
        is_collective: bool = False,
        strategy: DistributedStrategy | None = None,
        log_level: int | str = "INFO",
    ) -> Fleet:
        """Join the job and lay its devices out in the grid that `strategy.hybrid_configs` asks
        for. A data-parallel degree of -1 takes what the others leave."""
        logger.setLevel(log_level)
        if strategy is not None and not isinstance(strategy, DistributedStrategy):
            raise TypeMismatch(
                f"[fleet.init] strategy is a DistributedStrategy. Received: "
                f"{type(strategy).__name__}"
            )
        self._strategy = strategy or DistributedStrategy()
        self._role_maker = role_maker or PaddleCloudRoleMaker(is_collective)
        self._util._set_role_maker(self._role_maker)
        if get_world_size() > 1:
            from bireme.distributed.environment import init_parallel_env

            init_parallel_env()
        self._hcg = HybridCommunicateGroup(self._topology())
        set_mesh(self._hcg.mesh)
        if get_world_size() > 1 and self._hcg.get_model_parallel_world_size() > 1:
            seed = int(self._strategy.tensor_parallel_configs["tensor_init_seed"])
            model_parallel_random_seed(None if seed == -1 else seed)
        return self

    def _topology(self) -> CommunicateTopology:
        config = self._strategy.hybrid_configs
        order = list(config["order"])
        if sorted(order) != sorted(_AXES):
            raise InvalidArgument(
                f"[fleet.init] hybrid_configs['order'] is an order of {', '.join(_AXES)}. "
                f"Received: {order}"
            )
        degrees = {n: int(config[f"{n}_degree"]) for n in order}
        if self._strategy.tensor_parallel and degrees["mp"] == 1:
            degrees["mp"] = int(self._strategy.tensor_parallel_configs["tensor_parallel_degree"])
        if self._strategy.sharding and degrees["sharding"] == 1:
            degrees["sharding"] = int(self._strategy.sharding_configs["sharding_degree"])
        others = 1
        for name, degree in degrees.items():
            if name != "dp":
                if degree < 1:
                    raise InvalidArgument(f"[fleet.init] {name}_degree is 1 or more. Got: {degree}")
                others *= degree
        world = get_world_size()
        have = world if world > 1 else jax_door.jax().device_count()
        if degrees["dp"] < 1:
            degrees["dp"] = max(1, have // others)
        total = others * degrees["dp"]
        if total > have or (world > 1 and total != have):
            raise InvalidArgument(
                f"[fleet.init] the degrees {degrees} multiply to {total}, and there are {have} "
                "devices. To try a grid on one machine, start Python with "
                "XLA_FLAGS=--xla_force_host_platform_device_count=8"
            )
        return CommunicateTopology([_AXES[n] for n in order], [degrees[n] for n in order])

    def get_hybrid_parallel_topology(self) -> CommunicateTopology:
        return self.get_hybrid_communicate_group().topology()

    # --- who am I -------------------------------------------------------------------------

    def is_first_worker(self) -> bool:
        return self._maker()._is_first_worker()

    def worker_index(self) -> int:
        return self._maker()._worker_index()

    rank = worker_index

    def worker_num(self) -> int:
        return self._maker()._worker_num()

    nranks = world_size = worker_num

    def node_num(self) -> int:
        return self._maker()._node_num()

    def local_rank(self) -> int:
        return self.worker_index() % max(1, self.worker_num() // self.node_num())

    def is_worker(self) -> bool:
        return self._maker()._is_worker()

    def is_server(self) -> bool:
        return self._maker()._is_server()

    def server_num(self) -> int:
        return self._maker()._server_num()

    def server_index(self) -> int:
        return self._maker()._server_index()

    def worker_endpoints(self, to_string: bool = False) -> list[str] | str:
        found = self._maker()._get_trainer_endpoints()
        return ",".join(found) if to_string else found

    def server_endpoints(self, to_string: bool = False) -> list[str] | str:
        found = self._maker()._get_pserver_endpoints()
        return ",".join(found) if to_string else found

    def all_reduce(self, input: TensorLike, mode: str = "sum") -> np.ndarray:
        """The sum, mean or max of all workers' numbers or arrays.

        >>> fleet.all_reduce(5)  # doctest: +SKIP
        """
        if mode == "mean":
            return self._util.all_reduce(input) / self.worker_num()
        if mode not in ("sum", "max"):
            raise InvalidArgument(f"[all_reduce] mode is sum, mean or max. Received: {mode!r}")
        return self._util.all_reduce(input, mode)

    @property
    def util(self) -> UtilBase:
        """Small collective helpers."""
        return self._util

    def barrier_worker(self) -> None:
        """Wait for the other workers."""
        self._util.barrier()

    # --- models and optimizers ------------------------------------------------------------

    def distributed_model(self, model: Layer) -> Layer:
        """The model on the job's devices. In one process that drives all of them, a batch is cut
        over "dp" and "sharding"; in one process of several it is that process's own."""
        hcg = self.get_hybrid_communicate_group()
        mesh = hcg.mesh
        model = self._changed(model)
        staged = hcg.get_pipe_parallel_world_size() > 1
        if isinstance(model, PipelineLayer) and (staged or mesh.size == 1):
            return PipelineParallel(model, hcg, self._strategy)
        if staged:
            raise InvalidArgument(
                "[distributed_model] with pp_degree > 1 the model is a PipelineLayer of "
                f"fleet.meta_parallel. Received: {type(model).__name__}"
            )
        if self._strategy.localsgd:
            return self._apart(model)
        if get_world_size() > 1 and mesh.dim_names == ["dp"] and not self._strategy.amp:
            from bireme.distributed.parallel import DataParallel

            first, others = self._strategy._message_sizes()
            return DataParallel(
                model,
                comm_buffer_size=others,
                last_comm_buffer_size=first,
                find_unused_parameters=self._strategy.find_unused_parameters,
            )
        kind = MetaParallelBase
        if hcg.get_model_parallel_world_size() > 1:
            kind = TensorParallel
        elif hcg.get_sep_parallel_world_size() > 1:
            kind = SegmentParallel
        elif hcg.get_sharding_parallel_world_size() > 1:
            kind = ShardingParallel
        return kind(model, hcg, strategy=self._strategy)

    def _apart(self, model: Layer) -> Layer:
        """The model with the first process's contents; nobody exchanges gradients."""
        mesh = self.get_hybrid_communicate_group().mesh
        alone = get_world_size() == 1
        if mesh.size > 1 and (alone or mesh.dim_names != ["dp"]):
            raise InvalidArgument(
                "[distributed_model] localsgd is for data parallelism over several processes. "
                f"Received degrees {dict(zip(mesh.dim_names, mesh.shape, strict=True))} on "
                f"{get_world_size()} process(es)"
            )
        if not alone:
            held = [*model.parameters(), *model.buffers()]
            first_ranks_contents(held, self._hcg.get_data_parallel_group())
        return model

    def _changed(self, model: Layer) -> Layer:
        """The model with the layers that the strategy asks for."""
        strategy = self._strategy
        if strategy.sync_batch_norm:
            model = SyncBatchNorm.convert_sync_batchnorm(model)
        if strategy.recompute:
            _recompute(model, strategy.recompute_configs["checkpoints"])
        return model

    def distributed_optimizer(
        self, optimizer: Optimizer, strategy: DistributedStrategy | None = None
    ) -> Optimizer | ShardOptimizer | HybridParallelOptimizer | MergingOptimizer | LocalSGD:
        """The optimizer of such a model; with a sharding degree its state is cut."""
        chosen = strategy or self._strategy
        if chosen.lamb or chosen.asp:
            plain = copy(chosen)
            plain.lamb = plain.asp = False
            changed: Any = _as_lamb(optimizer, chosen.lamb_configs) if chosen.lamb else optimizer
            if chosen.asp:
                changed = asp(changed)
            return self.distributed_optimizer(changed, plain)
        if chosen.gradient_merge:
            whole = copy(chosen)
            whole.gradient_merge = False
            inner: Any = self.distributed_optimizer(optimizer, whole)
            self._optimizer = merging(inner, chosen.gradient_merge_configs)
            return self._optimizer
        self._optimizer = self._optimizer_of(optimizer, chosen)
        return self._optimizer

    def _optimizer_of(
        self, optimizer: Optimizer, chosen: DistributedStrategy
    ) -> Optimizer | ShardOptimizer | HybridParallelOptimizer | LocalSGD:
        hcg = self.get_hybrid_communicate_group()
        if chosen.localsgd:
            config = chosen.localsgd_configs
            if get_world_size() == 1:
                return optimizer
            group = hcg.get_data_parallel_group()
            return LocalSGD(optimizer, group, config["k_steps"], config["begin_step"])
        stage = int(chosen.sharding_configs["stage"])
        if hcg.get_sharding_parallel_world_size() > 1 and stage not in _STAGES:
            raise InvalidArgument(
                f"[distributed_optimizer] sharding_configs['stage'] is 1, 2 or 3. Got: {stage}"
            )
        if get_world_size() > 1:
            return optimizer_of(optimizer, hcg, stage)
        if hcg.get_sharding_parallel_world_size() > 1:
            return shard_optimizer(optimizer, _STAGES[stage]("sharding", hcg.mesh))
        return shard_optimizer(optimizer) if hcg.mesh.size > 1 else optimizer

    def minimize(
        self,
        loss: Tensor,
        startup_program: object = None,
        parameter_list: Iterable[Tensor | str] | None = None,
        no_grad_set: set[Tensor | str] | None = None,
    ) -> tuple[list[Any], list[tuple[Any, Tensor]]]:
        """`minimize` of the last `distributed_optimizer`."""
        if self._optimizer is None:
            raise InvalidArgument("[fleet.minimize] call fleet.distributed_optimizer() first")
        return self._optimizer.minimize(loss, startup_program, parameter_list, no_grad_set)

    def distributed_scaler(self, scaler: AmpScaler) -> AmpScaler:
        """The scaler of such an optimizer."""
        return shard_scaler(scaler)

    def local_device_ids(self) -> list[int]:
        return [ParallelEnv().device_id]

    def world_device_ids(self) -> list[list[int]]:
        """The devices of every worker, in order of rank."""
        own = self.local_device_ids()
        if self.worker_num() == 1:
            return [own]
        return [list(ids) for ids in self._util.all_gather(own)]


def _as_lamb(optimizer: Any, config: dict[str, Any]) -> Lamb:
    """The Lamb that `strategy.lamb` makes of an Adam."""
    if type(optimizer) is not Adam:
        raise InvalidArgument(
            "[distributed_optimizer] strategy.lamb is for Adam. Received: "
            f"{type(optimizer).__name__}; use paddle.optimizer.Lamb itself"
        )
    names = tuple(config["exclude_from_weight_decay"])
    given = optimizer._defaults
    return Lamb(
        optimizer._learning_rate,
        config["lamb_weight_decay"],
        given["beta1"],
        given["beta2"],
        given["epsilon"],
        parameters=optimizer._all_parameters(),
        grad_clip=optimizer._grad_clip,
        exclude_from_weight_decay_fn=lambda p: p.name.endswith(names) if names else False,
        multi_precision=optimizer._multi_precision,
    )


def _recompute(model: Layer, names: Sequence[str]) -> None:
    """Have these sublayers run again in the backward pass instead of keeping their insides."""
    layers = dict(model.named_sublayers())
    missing = [n for n in names if n not in layers]
    if missing or not names:
        raise InvalidArgument(
            "[distributed_model] recompute_configs['checkpoints'] names sublayers of the model, as "
            f"named_sublayers() does. Received: {list(names)}; it has {list(layers)[:10]}"
        )
    for name in names:
        if "recomputed" not in layers[name].__dict__:
            layers[name].forward = partial(recompute, layers[name].forward, use_reentrant=False)
            layers[name].__dict__["recomputed"] = True
