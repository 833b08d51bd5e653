"""Runs with either library (`ORACLE=1`: the real wheel) and prints what every rank saw, as JSON.
See test_oracle.py."""

from __future__ import annotations

import json
import os

import numpy as np

if os.environ.get("ORACLE"):
    import paddle
    from paddle import distributed as dist
else:
    import bireme as paddle
    from bireme import distributed as dist

dist.init_parallel_env()
me = dist.get_rank()
seen: dict = {}


def note(name: str, *tensors) -> None:
    seen[name] = [[str(t.dtype).rpartition(".")[2], t.shape, t.numpy().tolist()] for t in tensors]


def data(*shape: int, dtype: str = "float32"):
    return paddle.to_tensor(np.random.RandomState(me).randint(1, 9, shape).astype(dtype))


for dtype in ("float32", "float64", "int32", "int64"):
    for op in ("SUM", "MAX", "MIN", "PROD"):
        x = data(2, 3, dtype=dtype)
        dist.all_reduce(x, getattr(dist.ReduceOp, op))
        note(f"all_reduce {dtype} {op}", x)
x = data(4)
dist.broadcast(x, src=1)
note("broadcast", x)
x = data(4)
dist.reduce(x, dst=1)
if me == 1:
    note("reduce", x)
got: list = []
dist.all_gather(got, data(2, 2))
note("all_gather", *got)
got = []
dist.all_gather(got, data())
note("all_gather 0-d", *got)
x = paddle.zeros([3])
dist.scatter(x, [data(3), data(3) * 2] if me == 0 else None, src=0)
note("scatter", x)
got = []
dist.gather(data(2), got if me == 0 else None, dst=0)
note("gather", *got)
if me == 0:
    dist.send(data(3), dst=1)
else:
    x = paddle.zeros([3])
    dist.recv(x, src=0)
    note("recv", x)
things: list = []
dist.all_gather_object(things, {"rank": me})
seen["objects"] = things
things = [me, "of", me]
dist.broadcast_object_list(things, src=1)
seen["broadcast objects"] = things
group = dist.new_group([1, 0])
seen["group"] = [group.rank, group.nranks, group.ranks, group.id, group.name, group.is_member()]
seen["env"] = [dist.get_world_size(), dist.get_backend(), dist.is_initialized(), repr(group)]

w = paddle.to_tensor([1.0, 2.0], stop_gradient=False)
y = w * 2
dist.all_reduce(y)
y.sum().backward()
note("through a gradient", y, w.grad)

layers = [paddle.nn.Linear(4, 6), paddle.nn.Linear(6, 2)]
rng = np.random.RandomState(11)
for p in [p for layer in layers for p in layer.parameters()]:
    p.set_value((rng.randn(*p.shape) * (1 + me)).astype("float32"))  # the first rank's will hold
model = paddle.DataParallel(paddle.nn.Sequential(layers[0], paddle.nn.Tanh(), layers[1]))
optimizer = paddle.optimizer.Momentum(0.05, parameters=model.parameters())
losses = []
for step in range(4):
    rng = np.random.RandomState(10 * step + me)
    x, target = (paddle.to_tensor(rng.randn(5, k).astype("float32")) for k in (4, 2))
    if step == 1:
        with model.no_sync():
            ((model(x) - target) ** 2).mean().backward()
    loss = ((model(x) - target) ** 2).mean()
    loss.backward()
    if step == 1:
        note("gradients", *[p.grad for p in model.parameters()])
    optimizer.step()
    optimizer.clear_grad()
    losses.append(float(loss))
seen["losses"] = losses
note("weights", *model.parameters())
print("SEEN", json.dumps(seen))
