"""strategy.localsgd on two processes, and how long their collectives take; see
test_local_sgd.py."""

from __future__ import annotations

import logging

import numpy as np

import bireme as paddle
from bireme import distributed as dist
from bireme import nn
from bireme.distributed import fleet

STEPS, EVERY, BEGIN = 6, 2, 1


def train(model, optimizer, rank: int, step: int) -> None:
    x = np.random.default_rng(10 * step + rank).normal(size=(4, 3)).astype("float32")
    ((model(paddle.to_tensor(x)) - x.sum(1, keepdims=True)) ** 2).mean().backward()
    optimizer.step()
    optimizer.clear_grad()


def sgd(model):
    return paddle.optimizer.SGD(0.1, parameters=model.parameters())


strategy = fleet.DistributedStrategy()
strategy.localsgd = True
strategy.localsgd_configs = {"k_steps": EVERY, "begin_step": BEGIN}
fleet.init(is_collective=True, strategy=strategy)
me, world = dist.get_rank(), dist.get_world_size()
paddle.seed(me)
own = fleet.distributed_model(nn.Linear(3, 1))
optimizer = fleet.distributed_optimizer(sgd(own))
alone = [nn.Linear(3, 1) for _ in range(world)]  # the same in one process
for model in alone:
    model.set_state_dict({k: v.numpy() for k, v in own.state_dict().items()})
optimizers = [sgd(m) for m in alone]
starts: list = []
dist.all_gather_object(starts, own.weight.numpy())
np.testing.assert_array_equal(starts[0], starts[1])
apart = 0
for step in range(1, STEPS + 1):
    train(own, optimizer, me, step)
    for rank, (model, opt) in enumerate(zip(alone, optimizers, strict=True)):
        train(model, opt, rank, step)
    if step <= BEGIN or (step - BEGIN) % EVERY == 0:
        means = {
            k: np.mean([m.state_dict()[k].numpy() for m in alone], axis=0)
            for k in alone[0].state_dict()
        }
        for model in alone:
            model.set_state_dict(means)
    np.testing.assert_allclose(own.weight.numpy(), alone[me].weight.numpy(), rtol=1e-5, atol=1e-6)
    apart += not np.allclose(alone[0].weight.numpy(), alone[1].weight.numpy())
assert apart == 3, apart

lines: list[str] = []
handler = logging.Handler()
handler.emit = lambda record: lines.append(record.getMessage())
logging.getLogger("FLEET").addHandler(handler)
logging.getLogger("FLEET").setLevel("INFO")
for kind in ("allreduce", "broadcast", "reduce"):
    fleet.collective_perf(kind, round=2, size_and_time={4096: 0.0})
group = fleet.get_hybrid_communicate_group().get_data_parallel_group()
x = paddle.ones([1024])
fleet.fleet.allgather_perf(2, x, group, 4096, -1)
fleet.fleet.reduce_scatter_perf(2, x, group, 4096, 0.0)
assert sum("4096 bytes" in line for line in lines) == 5, lines
assert any("slower than" in line for line in lines)
print(f"rank {me}: apart and together")
