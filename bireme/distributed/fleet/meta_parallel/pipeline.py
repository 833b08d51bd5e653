"""PipelineParallel: a PipelineLayer over processes, trained on micro-batches.

Each process runs its own order of passes (`schedules.py`). What a pass needs from a neighbour is
waited for, and what it makes for one is sent without waiting; messages carry the number of the
part and the micro-batch, so orders need not match. Activations go through the host's memory.
"""

from __future__ import annotations

import pickle
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.amp import auto_cast
from bireme.autograd import backward, no_grad
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor, constant
from bireme.distributed import wire
from bireme.distributed.communication.averaging import GradientAverage
from bireme.distributed.environment import get_world_size
from bireme.distributed.fleet.meta_parallel.batches import Batches, OnMesh, equal_weights
from bireme.distributed.fleet.meta_parallel.optimizing import optimizer_of
from bireme.distributed.fleet.meta_parallel.pp_layers import PipelineLayer
from bireme.distributed.fleet.meta_parallel.schedules import Pass, forward_only, order_of
from bireme.distributed.fleet.meta_parallel.wrappers import MetaParallelBase, amp_of
from bireme.distributed.mesh import ProcessMesh

if TYPE_CHECKING:
    from bireme.amp.grad_scaler import AmpScaler
    from bireme.api.types import TensorTree
    from bireme.distributed.auto_parallel.sharded_optimizer import ShardOptimizer
    from bireme.distributed.fleet.strategy import DistributedStrategy
    from bireme.distributed.fleet.topology import HybridCommunicateGroup
    from bireme.optimizer.optimizer import Optimizer
    from bireme.optimizer.schedule import LRScheduler


class _Pipe:
    """The processes of one pipeline, by stage."""

    def __init__(self, ranks: list[int], stage: int):
        self.ranks, self.stage = ranks, stage

    def send(self, stage: int, title: str, obj: Any) -> None:
        payload = wire.pickled(obj)
        wire.post("PipelineParallel").send(self.ranks[stage], b"pipe " + title.encode(), payload)

    def receive(self, stage: int, title: str) -> Any:
        name = b"pipe " + title.encode()
        # The sender has shown that it knows the job's secret (door.py).
        return pickle.loads(wire.post("PipelineParallel").receive(self.ranks[stage], name))

    def everyone(self, title: str, value: Any) -> list[Any]:
        """The values of all stages, in their order."""
        others = [s for s in range(len(self.ranks)) if s != self.stage]
        for stage in others:
            self.send(stage, title, value)
        found = {s: self.receive(s, title) for s in others} | {self.stage: value}
        return [found[s] for s in range(len(self.ranks))]


class PipelineParallel(MetaParallelBase):
    """Trains a PipelineLayer: `model.train_batch((inputs, labels), optimizer)`.

    `strategy.pipeline_configs` has the number of micro-batches (`accumulate_steps`) and their rows
    (`micro_batch_size`). The loss is their mean. Every process of a pipeline gives the same data,
    or None where it has none: the first stage takes the inputs and the last the labels.
    """

    def __init__(
        self, layers: PipelineLayer, hcg: HybridCommunicateGroup, strategy: DistributedStrategy
    ) -> None:
        if not isinstance(layers, PipelineLayer):
            raise TypeMismatch(
                f"[PipelineParallel] takes a PipelineLayer. Received: {type(layers).__name__}"
            )
        super().__init__(layers, hcg, strategy)
        if hcg.get_sep_parallel_world_size() > 1:
            raise InvalidArgument("[PipelineParallel] sep_degree above 1 does not go with stages")
        stage = int(strategy.sharding_configs["stage"])
        if get_world_size() > 1 and stage > 1 and hcg.get_sharding_parallel_world_size() > 1:
            raise InvalidArgument(
                "[PipelineParallel] stages go together with sharding_configs['stage'] = 1. "
                f"Received: {stage}"
            )
        config = strategy.pipeline_configs
        self.accumulate_steps = int(config["accumulate_steps"])
        self.micro_batch_size = int(config["micro_batch_size"])
        self.num_stages = layers._num_stages
        self.stage_id = layers._stage_id
        self._parts = layers._num_virtual
        pipe = next(p for p in hcg.topology().get_comm_list("pipe") if hcg.global_rank in p)
        self._pipe = _Pipe(pipe, self.stage_id)
        self._average: GradientAverage | None = None
        if get_world_size() > 1 and hcg.get_copies_group().nranks > 1:
            self._average = GradientAverage(layers.parameters(), hcg.get_copies_group())
        self.total_loss: Tensor | None = None

    def _own_batches(self) -> Batches:
        # Micro-batches are cut, and gradients averaged, in `train_batch`.
        if get_world_size() > 1:
            equal_weights(
                self._layers, self._hcg.get_copies_group(), self._hcg.get_model_parallel_group()
            )
        return OnMesh(self._layers, ProcessMesh([0], ["dp"]), {})

    def is_pipeline_first_stage(self) -> bool:
        return self.stage_id == 0

    def is_pipeline_last_stage(self) -> bool:
        return self.stage_id == self.num_stages - 1

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        raise InvalidArgument("[PipelineParallel] call train_batch or eval_batch, not the model")

    # --- training -------------------------------------------------------------------------

    def train_batch(
        self,
        data: TensorTree,
        optimizer: Optimizer | ShardOptimizer,
        lr_scheduler: LRScheduler | None = None,
        scaler: AmpScaler | None = None,
        loss_fn_idx: int = 0,
        return_micro_batch_loss: bool = False,
    ) -> Tensor:
        """One step on `data`; returns the loss in all stages: its mean, or one per micro-batch."""
        self._layers.train()
        if get_world_size() > 1:
            optimizer_of(optimizer, self._hcg)
        loss = self.forward_backward_pipeline(
            data, scaler, loss_fn_idx=loss_fn_idx, return_micro_batch_loss=return_micro_batch_loss
        )
        with auto_cast(enable=False):
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
                scaler.update()
            optimizer.clear_grad()
        if lr_scheduler is not None:
            lr_scheduler.step()
        return loss

    def forward_backward_pipeline(
        self,
        data: TensorTree,
        scaler: AmpScaler | None = None,
        loss_fn_idx: int = 0,
        return_micro_batch_loss: bool = False,
    ) -> Tensor:
        """The passes of all micro-batches; gradients are left in the parameters."""
        order = order_of(self.stage_id, self.num_stages, self.accumulate_steps, self._parts)
        run = _Run(self, data, loss_fn_idx)
        for each in order:
            if each.forward:
                run.forward(each, scaler)
            else:
                run.backward(each)
        layers: Any = self._layers
        layers.allreduce_shared_weight_gradients()
        if self._average is not None:
            self._average.average()
        return self._agreed(run, return_micro_batch_loss)

    def eval_batch(
        self,
        data: TensorTree,
        compute_loss: bool = False,
        loss_fn_idx: int = 0,
        return_host_tensor: bool = False,
    ) -> Any:
        """Without training: the loss (in all stages), or the results of the last stage, one per
        micro-batch; the other stages get None. Results come on the host if asked for."""
        self._layers.eval()
        run = _Run(self, data, loss_fn_idx)
        with no_grad():
            for each in forward_only(self.accumulate_steps, self._parts):
                run.forward(each, None, compute_loss)
        if compute_loss:
            return self._agreed(run, False)
        if not self.is_pipeline_last_stage():
            return None
        outs = [run.outputs[self._parts - 1, i] for i in range(self.accumulate_steps)]
        return [_each(o, lambda t: t.cpu()) for o in outs] if return_host_tensor else outs

    def _agreed(self, run: _Run, one_each: bool) -> Tensor:
        """The losses that the last stage has, in all stages."""
        losses = None
        if self.is_pipeline_last_stage():
            losses = np.stack([loss.astype("float32").numpy() for loss in run.losses])
        found = self._pipe.everyone("loss", losses)[-1]
        self.total_loss = constant(found if one_each else np.asarray(found.mean(0), np.float32))
        return self.total_loss

    def micro_batches(self, data: TensorTree) -> list[Any]:
        """(inputs, labels) of each micro-batch. `data` is such a pair for all of them, or an
        iterator that gives them one by one."""
        if not isinstance(data, tuple | list):
            found = list(islice(data, self.accumulate_steps))
            if len(found) < self.accumulate_steps:
                raise InvalidArgument(
                    f"[PipelineParallel] {self.accumulate_steps} micro-batches make a step. "
                    f"Received: {len(found)}"
                )
            return found
        rows = self.micro_batch_size
        total = rows * self.accumulate_steps

        def part(t: Any, i: int) -> Any:
            if t.shape[0] != total:
                raise InvalidArgument(
                    f"[PipelineParallel] {self.accumulate_steps} micro-batches of {rows} rows "
                    f"make {total}. Received: {t.shape[0]} rows; see strategy.pipeline_configs"
                )
            return t[i * rows : (i + 1) * rows]

        return [
            tuple([_each(x, lambda t, i=i: part(t, i)) for x in data])
            for i in range(self.accumulate_steps)
        ]


class _Run:
    """The passes of one batch through this process."""

    def __init__(self, owner: PipelineParallel, data: TensorTree, loss_fn_idx: int):
        self.owner, self.pipe = owner, owner._pipe
        self.layers: Any = owner._layers
        if loss_fn_idx not in range(len(self.layers._loss_fn)):
            raise InvalidArgument(f"[PipelineParallel] there is no loss function {loss_fn_idx}")
        self.loss_fn = self.layers._loss_fn[loss_fn_idx]
        self.data = data
        self.given: list[Any] | None = None  # micro-batches, cut on first use
        self.inputs: dict[tuple[int, int], Any] = {}
        self.outputs: dict[tuple[int, int], Any] = {}
        self.losses: list[Tensor] = []

    def _part(self, chunk: int) -> int:
        return chunk * self.owner.num_stages + self.owner.stage_id

    def _is_last(self, chunk: int) -> bool:
        return self._part(chunk) == self.owner.num_stages * self.owner._parts - 1

    def _batch(self, which: int, i: int) -> Any:
        if self.given is None:
            if self.data is None:
                raise InvalidArgument("[PipelineParallel] the first and the last stage need data")
            self.given = self.owner.micro_batches(self.data)
        return self.given[i][which]

    def forward(self, each: Pass, scaler: AmpScaler | None, with_loss: bool = True) -> None:
        key = each.chunk, each.batch
        part, stages = self._part(each.chunk), self.owner.num_stages
        if part == 0:
            x = self._batch(0, each.batch)
        else:
            x = _opened(self.pipe.receive((part - 1) % stages, f"F{part} {each.batch}"))
        with amp_of(self.owner._strategy):
            out = self._result(each, x, with_loss, scaler)
        self.inputs[key], self.outputs[key] = x, out

    def _result(self, each: Pass, x: Any, with_loss: bool, scaler: AmpScaler | None) -> Any:
        """What this part makes of `x`: sent on, or turned into this micro-batch's loss."""
        part, stages = self._part(each.chunk), self.owner.num_stages
        out = self.layers.forward(x, each.chunk)
        if not self._is_last(each.chunk):
            self.pipe.send((part + 1) % stages, f"F{part + 1} {each.batch}", _closed(out))
        elif with_loss:
            if self.loss_fn is None:
                raise InvalidArgument("[PipelineParallel] PipelineLayer(loss_fn=...) is not given")
            loss = self.loss_fn(out, self._batch(1, each.batch))
            self.losses.append(loss.detach())
            share = loss / self.owner.accumulate_steps
            out = share if scaler is None else scaler.scale(share)
        return out

    def backward(self, each: Pass) -> None:
        key = each.chunk, each.batch
        part, stages = self._part(each.chunk), self.owner.num_stages
        x, out = self.inputs.pop(key), self.outputs.pop(key)
        if self._is_last(each.chunk):
            out.backward()
        else:
            grads = self.pipe.receive((part + 1) % stages, f"B{part} {each.batch}")
            outs = [t for t in _flat(out) if not t.stop_gradient]
            pairs = [(t, constant(g)) for t, g in zip(outs, grads, strict=True) if g is not None]
            if pairs:
                backward([t for t, _ in pairs], [g for _, g in pairs])
        if part:
            wanted = [t for t in _flat(x) if not t.stop_gradient]
            found = [None if t.grad is None else np.asarray(t.grad.numpy()) for t in wanted]
            self.pipe.send((part - 1) % stages, f"B{part - 1} {each.batch}", found)


def _flat(x: Any) -> list[Tensor]:
    items = x if isinstance(x, tuple | list) else [x]
    return [t for t in items if isinstance(t, Tensor)]


def _each(x: Any, function: Any) -> Any:
    if isinstance(x, tuple | list):
        return type(x)([_each(t, function) for t in x])
    return function(x) if isinstance(x, Tensor) else x


def _closed(x: Any) -> Any:
    """Tensors as (array, whether a gradient comes back) for the next stage."""
    items = x if isinstance(x, tuple | list) else [x]
    if not all(isinstance(t, Tensor) for t in items):
        raise TypeMismatch(
            "[PipelineParallel] stages hand on a tensor or a tuple of tensors. Received: "
            f"{[type(t).__name__ for t in items]}"
        )
    packed = [(np.asarray(t.numpy()), not t.stop_gradient) for t in items]
    return packed if isinstance(x, tuple | list) else packed[0]


def _opened(x: Any) -> Any:
    if isinstance(x, list):
        return tuple([_opened(t) for t in x])
    made = constant(x[0])
    made.stop_gradient = not x[1]
    return made
