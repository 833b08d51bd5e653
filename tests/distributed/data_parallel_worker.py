"""One process of a data-parallel job; all losses and weights must be those of a single process
that sees the joined batch. See test_data_parallel.py."""

from __future__ import annotations

import numpy as np

import bireme as paddle
from bireme import distributed as dist
from bireme import nn

STEPS, ROWS = 6, 4


class Net(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
        self.first_only = nn.Linear(5, 3)  # used by process 0 alone
        self.nobody = nn.Linear(2, 2)

    def forward(self, x, extra: bool):
        out = self.body(x)
        return out + self.first_only(x) if extra else out


def batches(count: int):
    rng = np.random.RandomState(7)
    for _ in range(STEPS):
        x = rng.randn(count * ROWS, 5).astype("float32")
        yield x, rng.randn(count * ROWS, 3).astype("float32")


def loss_of(model, x, y, extra: bool):
    return ((model(paddle.to_tensor(x), extra) - paddle.to_tensor(y)) ** 2).mean()


def norms(me: int) -> None:
    """Synchronised batch norm equals batch norm over the joined batch."""
    rng = np.random.RandomState(3)
    x = (rng.randn(6, 3, 4) * 2 + 5).astype("float32")
    pull = rng.randn(6, 3, 4).astype("float32")
    rows = slice(0, 2) if me == 0 else slice(2, 6)  # parts of different size

    synced = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1D(3))
    alone = nn.BatchNorm1D(3)
    for _ in range(2):
        mine = paddle.to_tensor(x[rows], stop_gradient=False)
        whole = paddle.to_tensor(x, stop_gradient=False)
        out, reference = synced(mine), alone(whole)
        np.testing.assert_allclose(out.numpy(), reference.numpy()[rows], rtol=1e-5, atol=1e-5)
        (out**2 * paddle.to_tensor(pull[rows])).sum().backward()
        (reference**2 * paddle.to_tensor(pull)).sum().backward()
        np.testing.assert_allclose(
            mine.grad.numpy(), whole.grad.numpy()[rows], rtol=1e-4, atol=1e-5
        )
        dist.all_reduce(synced.weight.grad)
        np.testing.assert_allclose(synced.weight.grad.numpy(), alone.weight.grad.numpy(), rtol=1e-4)
        synced.clear_gradients()
        alone.clear_gradients()
    np.testing.assert_allclose(synced._mean.numpy(), alone._mean.numpy(), rtol=1e-5)
    np.testing.assert_allclose(synced._variance.numpy(), alone._variance.numpy(), rtol=1e-5)
    synced.eval()
    assert synced(paddle.to_tensor(x[rows])).shape == [len(x[rows]), 3, 4]


def meshes(n: int) -> None:
    """The same by annotation: a batch laid out over the processes."""
    mesh = dist.ProcessMesh(list(range(n)), dim_names=["data"])
    paddle.seed(5)
    nets = [nn.Linear(4, 3), nn.Linear(4, 3)]
    nets[1].set_state_dict(
        {k: paddle.to_tensor(v.numpy()) for k, v in nets[0].state_dict().items()}
    )
    x = np.random.RandomState(0).randn(4 * n, 4).astype("float32")
    batch = dist.shard_tensor(paddle.to_tensor(x), mesh, [dist.Shard(0)])
    np.testing.assert_array_equal(batch.numpy(), x)
    dist.shard_layer(nets[0], mesh)
    for net, data in zip(nets, (batch, paddle.to_tensor(x)), strict=True):
        optimizer = paddle.optimizer.SGD(0.1, parameters=net.parameters())
        for _ in range(3):
            (net(data) ** 2).mean().backward()
            optimizer.step()
            optimizer.clear_grad()
    out = nets[0](batch)
    np.testing.assert_allclose(nets[0].weight.numpy(), nets[1].weight.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        out.numpy(), nets[1](paddle.to_tensor(x)).numpy(), rtol=1e-5, atol=1e-6
    )


def fitted(n: int) -> None:
    """`Model.fit` gives each process its part of the dataset and averages gradients."""
    rng = np.random.RandomState(2)
    rows = [(rng.randn(4).astype("float32"), rng.randn(1).astype("float32")) for _ in range(8)]
    paddle.seed(dist.get_rank())
    net = nn.Linear(4, 1)
    model = paddle.Model(net)
    model.prepare(paddle.optimizer.SGD(0.1, parameters=net.parameters()), nn.MSELoss())
    start = net.weight.numpy()
    model.fit(rows_of(rows), batch_size=len(rows) // n, epochs=1, shuffle=False, verbose=0)
    seen: list = []
    dist.all_gather_object(seen, (start, net.weight.numpy()))
    np.testing.assert_array_equal(seen[0][0], seen[1][0])
    np.testing.assert_array_equal(seen[0][1], seen[1][1])
    x, y = (np.stack([r[i] for r in rows]) for i in range(2))
    slope = 2 * x.T @ (x @ start - y) / len(rows)
    np.testing.assert_allclose(net.weight.numpy(), start - 0.1 * slope, rtol=1e-4, atol=1e-5)


def rows_of(rows: list):
    class Rows(paddle.io.Dataset):
        def __getitem__(self, i):
            return rows[i]

        def __len__(self):
            return len(rows)

    return Rows()


def main() -> None:
    dist.init_parallel_env()
    me, n = dist.get_rank(), dist.get_world_size()
    paddle.seed(me)  # different weights at first: DataParallel makes them equal
    net = Net()
    model = paddle.DataParallel(net, comm_buffer_size=1, last_comm_buffer_size=0.0001)
    assert len(model._average._buckets) > 1
    start = {k: v.numpy() for k, v in net.state_dict().items()}
    assert list(model.state_dict()) == list(start)

    alone = Net()  # trained here on everything
    alone.set_state_dict({k: paddle.to_tensor(v) for k, v in start.items()})
    optimizers = [paddle.optimizer.Adam(0.05, parameters=m.parameters()) for m in (model, alone)]
    for step, (x, y) in enumerate(batches(n)):
        mine = slice(me * ROWS, (me + 1) * ROWS)
        if step == 2:  # two backward passes, averaged once
            half = ROWS // 2
            first = slice(me * ROWS, me * ROWS + half)
            rest = slice(me * ROWS + half, (me + 1) * ROWS)
            with model.no_sync():
                (loss_of(model, x[first], y[first], me == 0) / 2).backward()
            local = net.body[0].weight.grad.numpy().copy()
            seen: list = []
            dist.all_gather(seen, paddle.to_tensor(local))
            assert not np.array_equal(seen[0].numpy(), seen[1].numpy())
            (loss_of(model, x[rest], y[rest], me == 0) / 2).backward()
        else:
            loss_of(model, x[mine], y[mine], me == 0).backward()
        parts = [
            loss_of(alone, x[r * ROWS : (r + 1) * ROWS], y[r * ROWS : (r + 1) * ROWS], r == 0)
            for r in range(n)
        ]
        (sum(parts[1:], parts[0]) / n).backward()
        assert net.nobody.weight.grad is None
        assert net.first_only.weight.grad is not None
        for a, b in zip(net.parameters(), alone.parameters(), strict=True):
            if a.grad is not None:
                np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=2e-5, atol=1e-6)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.clear_grad()
        for a, b in zip(net.parameters(), alone.parameters(), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)
    gathered: list = []
    dist.all_gather_object(gathered, [p.numpy() for p in net.parameters()])
    for others in gathered:
        for a, b in zip(others, gathered[0], strict=True):
            np.testing.assert_array_equal(a, b)
    print(f"rank {me}: {STEPS} steps agree")

    norms(me)
    meshes(n)
    fitted(n)
    print(f"rank {me}: norms agree")


main()
