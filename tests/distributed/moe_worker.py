"""Experts of two processes against all experts in one; see test_moe_processes.py."""

from __future__ import annotations

import numpy as np

import bireme as paddle
from bireme import distributed as dist
from bireme import nn
from bireme.incubate.distributed.models import moe

WIDTH, EACH = 4, 2
dist.init_parallel_env()
me, world = dist.get_rank(), dist.get_world_size()
group = dist.new_group(list(range(world)))
rng = np.random.default_rng(0)
weights = [rng.normal(size=(WIDTH, WIDTH)).astype("float32") for _ in range(EACH * world)]
gate_weight = rng.normal(size=(WIDTH, EACH * world)).astype("float32")
x = rng.normal(size=(world, 3, 4, WIDTH)).astype("float32")


def expert(number: int) -> nn.Layer:
    layer = nn.Linear(WIDTH, WIDTH)
    layer.weight.set_value(weights[number])
    layer.bias.set_value(np.zeros(WIDTH, "float32"))
    return layer


def build(numbers, gate, group=None) -> moe.MoELayer:
    gate.gate.weight.set_value(gate_weight)
    gate.gate.bias.set_value(np.zeros(EACH * world, "float32"))
    return moe.MoELayer(WIDTH, nn.LayerList([expert(i) for i in numbers]), gate, group)


def limits(**capacity):
    """(this process's gate, the gate of one process): an expert takes as many tokens in both."""
    own = moe.GShardGate(WIDTH, EACH, world, random_routing=False, group=group, **capacity)
    share = {k: tuple(c / world for c in v) for k, v in capacity.items()}
    return own, moe.GShardGate(WIDTH, EACH * world, 1, random_routing=False, **share)


for own, whole in (
    (moe.NaiveGate(WIDTH, EACH, world), moe.NaiveGate(WIDTH, EACH * world, 1)),
    limits(capacity=(0.5, 0.5)),
):
    mine = build(range(me * EACH, (me + 1) * EACH), own, group)
    one = build(range(EACH * world), whole)
    part = paddle.to_tensor(x[me], stop_gradient=False)
    everything = paddle.to_tensor(x.reshape(-1, 4, WIDTH), stop_gradient=False)
    got, want = mine(part), one(everything)
    here = slice(me * 3, (me + 1) * 3)
    np.testing.assert_allclose(got.numpy(), want.numpy()[here], rtol=1e-5, atol=1e-6)
    (got**2).sum().backward()
    (want**2).sum().backward()
    np.testing.assert_allclose(
        part.grad.numpy(), everything.grad.numpy()[here], rtol=1e-4, atol=1e-5
    )
    for i, e in enumerate(mine.experts):  # an expert has the gradient of all processes' tokens
        other = one.experts[me * EACH + i].weight.grad
        np.testing.assert_allclose(e.weight.grad.numpy(), other.numpy(), rtol=1e-4, atol=1e-4)

    params = list(mine.parameters())
    clip = moe.ClipGradForMOEByGlobalNorm(
        1.0, lambda p, own=mine: any(p is q for q in own.experts.parameters()), group
    )
    dist.all_reduce(own.gate.weight.grad)
    dist.all_reduce(own.gate.bias.grad)
    pairs = clip([(p, p.grad) for p in params])
    squares = sum(float((p.grad.numpy() ** 2).sum()) for p in one.parameters())
    for p, g in pairs:
        np.testing.assert_allclose(
            g.numpy(), p.grad.numpy() / max(1.0, squares**0.5), rtol=1e-3, atol=1e-6
        )
halves = moe.MoELayer(
    WIDTH, nn.LayerList([expert(i) for i in range(4)]), moe.NaiveGate(WIDTH, 4, 1), mp_group=group
)
halves.gate.gate.weight.set_value(gate_weight[:, :4])
alone = moe.MoELayer(WIDTH, halves.experts, halves.gate)
both = paddle.to_tensor(x[0])
np.testing.assert_allclose(halves(both).numpy(), alone(both).numpy(), rtol=1e-5, atol=1e-6)
print(f"rank {me}: experts agree")
