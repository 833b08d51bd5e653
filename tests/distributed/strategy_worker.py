"""One process of a job that trains as a DistributedStrategy says; see test_strategy.py. Alone it
trains on the whole batch, by the same strategy's settings written out."""

from __future__ import annotations

import sys

import numpy as np

import bireme as paddle
from bireme import distributed as dist
from bireme import nn
from bireme.distributed import fleet

case, count, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
alone = dist.get_world_size() == 1
ROWS, STEPS = 4, 6


class Net(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(5, 8), nn.Tanh())
        self.norm = nn.BatchNorm1D(8)
        self.last = nn.Linear(8, 1)

    def forward(self, x):
        return self.last(self.norm(self.first(x)))


class Words(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 4, sparse=True)

    def forward(self, x):
        return self.table(x).sum(-1)


strategy = fleet.DistributedStrategy()
if case in ("merge", "words"):
    strategy.gradient_merge = True
    strategy.gradient_merge_configs = {"k_steps": 2}
if case == "recompute":
    strategy.recompute = True
    strategy.recompute_configs = {"checkpoints": ["first"]}
if case == "amp":
    strategy.amp = True
    strategy.amp_configs = {"use_bf16": True}
if case == "apart":
    strategy.fuse_all_reduce_ops = False
strategy.sync_batch_norm = not alone
fleet.init(is_collective=True, strategy=strategy)

paddle.seed(7)
net = Words() if case == "words" else Net()
model = fleet.distributed_model(net)
optimizer = fleet.distributed_optimizer(
    paddle.optimizer.SGD(0.1, parameters=net.parameters()), strategy
)
rank = dist.get_rank()
for step in range(STEPS):
    rng = np.random.RandomState(step)
    if case == "words":
        every = rng.randint(0, 50, (count * ROWS, 3))
    else:
        every = rng.randn(count * ROWS, 5).astype("float32")
    mine = every if alone else every[rank * ROWS : (rank + 1) * ROWS]
    loss = (model(paddle.to_tensor(mine)).astype("float32") ** 2).mean()
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
total = fleet.all_reduce(rank + 1.0, mode="mean")
assert total == (1.0 if alone else (count + 1) / 2)
assert fleet.get_hybrid_parallel_topology().world_size() == (1 if alone else count)
if rank == 0:
    np.savez(out, *[p.numpy() for p in net.parameters()])
