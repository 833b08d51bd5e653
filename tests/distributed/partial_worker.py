"""Parts that processes hold of a sum, a product and the like; see test_partial.py."""

from __future__ import annotations

import numpy as np

import bireme as paddle
from bireme import distributed as dist
from bireme.distributed.placement import ReduceType

dist.init_parallel_env()
me, n = dist.get_rank(), dist.get_world_size()
mesh = dist.ProcessMesh(np.arange(n), ["x"])
parts = np.stack([np.array([1.0, 2.0, 0.0], "float32") + r for r in range(n)])
truths = np.stack([np.array([True, False, r == 0]) for r in range(n)])
CASES = [
    (ReduceType.kRedSum, parts, parts.sum(0)),
    (ReduceType.kRedMax, parts, parts.max(0)),
    (ReduceType.kRedMin, parts, parts.min(0)),
    (ReduceType.kRedProd, parts, parts.prod(0)),
    (ReduceType.kRedAvg, parts, parts.mean(0)),
    (ReduceType.kRedAny, truths, truths.any(0)),
    (ReduceType.kRedAll, truths, truths.all(0)),
]
for kind, held, want in CASES:
    partial = dist.Partial(kind)
    x = dist.dtensor_from_local(paddle.to_tensor(held[me]), mesh, [partial])
    assert x.placements == [partial]
    whole = dist.reshard(x, mesh, [dist.Replicate()])
    np.testing.assert_allclose(whole.numpy(), want, err_msg=str(kind))
    own = dist.dtensor_to_local(x, mesh, [partial])  # parts, whose reduction is the whole
    again = dist.dtensor_from_local(own, mesh, [partial])
    np.testing.assert_allclose(again.numpy(), want, err_msg=str(kind))
x = dist.dtensor_from_local(paddle.to_tensor([1.0 + me] * 4), mesh, [dist.Partial()])
cut = dist.reshard(x, mesh, [dist.Shard(0)])
assert dist.dtensor_to_local(cut, mesh, [dist.Shard(0)]).numpy().tolist() == [n * (n + 1) / 2] * (
    4 // n
)
print(f"rank {me}: seven reductions agree")
