"""Processes that hold parts of one model, and were given different batches: an error, not a
result. See test_own_parts.py."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme import distributed as dist
from bireme.distributed import fleet
from bireme.distributed.fleet.meta_parallel import ColumnParallelLinear
from bireme.distributed.job import DistributedError

strategy = fleet.DistributedStrategy()
strategy.hybrid_configs = {"dp_degree": 1, "mp_degree": 2}
strategy.amp = True
strategy.amp_configs = {"use_bf16": True}
fleet.init(is_collective=True, strategy=strategy)
model = fleet.distributed_model(ColumnParallelLinear(4, 6, has_bias=True))
assert model._layers.weight.shape == [4, 3]  # each has its part, an ordinary tensor
first, second = [], []
dist.all_gather(first, model._layers.weight.detach())
assert not np.allclose(first[0].numpy(), first[1].numpy())  # drawn from different states
x = paddle.ones([2, 4])
out = model(x)
assert out.shape == [2, 6]
assert out.dtype == paddle.bfloat16  # strategy.amp counts over processes too
with pytest.raises(DistributedError, match="given different ones"):
    model(x * (1 + dist.get_rank()))
with pytest.raises(DistributedError, match="given different ones"):
    model(paddle.ones([2 + dist.get_rank(), 4]))
print(f"rank {dist.get_rank()}: different batches raise")
