"""Run by test_dtensor.py in a process of its own, with eight virtual CPU devices."""

from __future__ import annotations

import numpy as np

import bireme as paddle
from bireme import distributed as dist
from bireme import jit, nn
from bireme.core import stats
from bireme.nn import functional as F

STEPS = 5
MESH = dist.ProcessMesh(np.arange(8).reshape(4, 2), dim_names=["dp", "mp"])


class Block(nn.Layer):
    """A small pre-norm transformer block with a head."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(40, 16)
        self.norm = nn.LayerNorm(16)
        self.attention = nn.MultiHeadAttention(16, 4)
        self.wide = nn.Linear(16, 64)
        self.narrow = nn.Linear(64, 16)
        self.head = nn.Linear(16, 40)

    def forward(self, ids):
        x = self.tokens(ids)
        h = self.norm(x)
        x = x + self.attention(h, h, h)
        return self.head(x + self.narrow(F.gelu(self.wide(x))))


class Images(nn.Layer):
    """Convolution, batch norm over the whole batch, pooling, a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2D(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2D(8)
        self.head = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.head(paddle.flatten(x, 1))


def make(kind: type[nn.Layer] = Block):
    rng = np.random.default_rng(0)
    model = kind()
    for p in model.parameters():
        p.set_value((rng.normal(size=p.shape) * 0.2).astype("float32"))
    return model


def tokens(rng):
    return rng.integers(0, 40, (16, 6)), rng.integers(0, 40, (16, 6))


def images(rng):
    return rng.normal(size=(16, 3, 8, 8)).astype("float32"), rng.integers(0, 10, (16,))


def train(model, place=lambda x: x, data=tokens) -> list[float]:
    rng = np.random.default_rng(1)
    optimizer = paddle.optimizer.AdamW(0.01, parameters=model.parameters())
    losses = []
    for _ in range(STEPS):
        x, labels = (place(paddle.to_tensor(a)) for a in data(rng))
        logits = model(x)
        loss = F.cross_entropy(logits.reshape([-1, logits.shape[-1]]), labels.reshape([-1]))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss.item())
    return losses


def by_batch(x):
    return dist.shard_tensor(x, MESH, [dist.Shard(0)])


def tensor_parallel(name, layer, mesh) -> None:
    """Columns of the wide product and rows of the narrow one over 'mp'."""
    if name == "wide":
        layer.weight = dist.shard_tensor(layer.weight, mesh, [dist.Replicate(), dist.Shard(1)])
        layer.bias = dist.shard_tensor(layer.bias, mesh, [dist.Replicate(), dist.Shard(0)])
    elif name == "narrow":
        layer.weight = dist.shard_tensor(layer.weight, mesh, [dist.Replicate(), dist.Shard(0)])


def main() -> None:
    single = train(make())
    assert single[-1] < single[0]

    model = dist.shard_layer(make(), MESH)
    np.testing.assert_allclose(train(model, by_batch), single, rtol=2e-5)
    assert model.wide.weight.placements == [dist.Replicate(), dist.Replicate()]

    with stats.count_compiles() as compiled:
        model = dist.shard_layer(make(), MESH, tensor_parallel)
        np.testing.assert_allclose(train(model, by_batch), single, rtol=2e-5)
    assert compiled[0] <= 4, compiled
    assert model.wide.weight.placements == [dist.Replicate(), dist.Shard(1)]
    assert model.wide.weight.process_mesh == MESH

    single_images = train(make(Images), data=images)
    model = dist.shard_layer(make(Images), MESH)
    np.testing.assert_allclose(train(model, by_batch, images), single_images, rtol=2e-5)

    captured = jit.to_static(dist.shard_layer(make(), MESH, tensor_parallel), full_graph=True)
    np.testing.assert_allclose(train(captured, by_batch), single, rtol=2e-5)

    layouts()
    print("sharded training agrees")


def layouts() -> None:
    x = dist.shard_tensor(np.arange(16.0).reshape(8, 2), MESH, [dist.Shard(0), dist.Partial()])
    assert x.is_dist()
    assert x.placements == [dist.Shard(0), dist.Partial()]
    assert x._array().sharding.shard_shape((8, 2)) == (2, 2)
    y = dist.reshard(x, MESH, [dist.Replicate(), dist.Shard(1)])
    assert (y * 2).placements == [dist.Replicate(), dist.Shard(1)]
    np.testing.assert_array_equal(dist.unshard_dtensor(y).numpy(), np.arange(16.0).reshape(8, 2))

    w = paddle.to_tensor(np.ones((8, 4), "float32"), stop_gradient=False)
    z = dist.reshard(w * 3, MESH, [dist.Shard(0)])
    (z * z).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), np.full((8, 4), 18.0))


if __name__ == "__main__":
    main()
