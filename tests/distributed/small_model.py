"""A small model and a training loop that every check compares with one device."""

from __future__ import annotations

import numpy as np

import bireme as paddle
from bireme import distributed as dist
from bireme import nn
from bireme.nn import functional as F

MESH = dist.ProcessMesh(np.arange(8).reshape(4, 2), dim_names=["dp", "mp"])


class Net(nn.Layer):
    def __init__(self, wide=None, narrow=None) -> None:
        super().__init__()
        self.tokens = nn.Embedding(24, 16)
        self.norm = nn.LayerNorm(16)
        self.wide = wide or nn.Linear(16, 32)
        self.narrow = narrow or nn.Linear(32, 16)
        self.head = nn.Linear(16, 24)

    def forward(self, ids):
        x = self.tokens(ids)
        return self.head(x + self.narrow(F.gelu(self.wide(self.norm(x)))))


def fill(model):
    """The same weights for every model; layouts stay."""
    rng = np.random.default_rng(0)
    for p in model.parameters():
        p.set_value((rng.normal(size=p.shape) * 0.2).astype("float32"))
    return model


def make():
    return fill(Net())


def adamw(model):
    clip = nn.ClipGradByGlobalNorm(1.0)
    return paddle.optimizer.AdamW(0.01, parameters=model.parameters(), grad_clip=clip)


def batches(count=3, size=8):
    rng = np.random.default_rng(1)
    return [(rng.integers(0, 24, (size, 4)), rng.integers(0, 24, (size, 4))) for _ in range(count)]


def loss_of(logits, labels):
    return F.cross_entropy(logits.reshape([-1, 24]), labels.reshape([-1]))


def by_batch(x, mesh=MESH):
    return dist.shard_tensor(x, mesh, [dist.Shard(0)])


def train(model, optimizer, place=by_batch, data=None):
    losses = []
    for x, labels in batches() if data is None else data:
        loss = loss_of(model(place(paddle.to_tensor(x))), place(paddle.to_tensor(labels)))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss.item())
    return losses


_known: list[float] = []


def one_device():
    """The losses of the plain model."""
    if not _known:
        model = make()
        _known.extend(train(model, adamw(model), lambda x: x))
        assert _known[-1] != _known[0]
    return list(_known)


def same(losses, rtol=3e-5) -> None:
    np.testing.assert_allclose(losses, one_device(), rtol=rtol)


def on_first_device(tensors) -> int:
    """Bytes that the first device holds."""
    return sum(t._array().addressable_shards[0].data.nbytes for t in tensors)


def tensor_parallel(name, layer, mesh) -> None:
    if name == "wide":
        layer.weight = dist.shard_tensor(layer.weight, mesh, [dist.Replicate(), dist.Shard(1)])
        layer.bias = dist.shard_tensor(layer.bias, mesh, [dist.Replicate(), dist.Shard(0)])
    elif name == "narrow":
        layer.weight = dist.shard_tensor(layer.weight, mesh, [dist.Replicate(), dist.Shard(0)])
