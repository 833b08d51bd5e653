"""One process of a job whose exchanges go in many pieces, and in the background; see
test_exchanges.py."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

import bireme as paddle
from bireme import distributed as dist
from bireme.core.errors import ShapeMismatch
from bireme.distributed import wire
from bireme.distributed.communication import shared
from bireme.distributed.communication.programs import exchange
from bireme.distributed.job import DistributedError

shared._DESK = 56  # bytes: not a multiple of every type's size times the number of processes

world = dist.init_parallel_env()
me, n = dist.get_rank(), dist.get_world_size()
post = wire.post("test")


def data(rank: int, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.RandomState(rank).randint(0, 4, shape).astype(dtype)


def everyone(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.stack([data(r, dtype, shape) for r in range(n)])


def pieces() -> None:
    for dtype in ("float32", "float64", "int8", "float16", "bool", "complex64"):
        for shape in ((), (1,), (5, 7), (3 * n, 2), (0,), (n, 0)):
            mine = data(me, dtype, shape)
            every = everyone(dtype, shape)
            for op, reduce in ((0, np.sum), (1, np.max), (4, np.mean)):
                if dtype == "complex64" and op == 1:
                    continue
                want = (every.any(0) if dtype == "bool" else reduce(every, 0)).astype(dtype)
                if dtype == "int8" and op == 4:
                    want = (every.sum(0) // n).astype(dtype)
                (got,) = exchange("all_reduce", world, [mine], op)
                assert got.dtype == mine.dtype
                tolerance = 2e-3 if dtype == "float16" else 1e-6
                np.testing.assert_allclose(np.reshape(got, shape), want, rtol=tolerance)
            (got,) = exchange("broadcast", world, [mine], n - 1)
            np.testing.assert_array_equal(np.reshape(got, shape), every[n - 1])
            if shape:
                (got,) = exchange("all_gather", world, [mine])
                np.testing.assert_array_equal(got, np.concatenate(list(every)))
            if shape and shape[0] % n == 0:
                blocks = np.stack([np.split(e, n) for e in every])
                (got,) = exchange("alltoall", world, [mine])
                np.testing.assert_array_equal(got, np.concatenate(list(blocks[:, me])))
                (got,) = exchange("scatter", world, [mine], 0)
                np.testing.assert_array_equal(got, blocks[0, me])
                (got,) = exchange("reduce_scatter", world, [mine], 1 if dtype != "complex64" else 0)
                reduce = np.sum if dtype == "complex64" else np.max
                want = blocks[:, me].any(0) if dtype == "bool" else reduce(blocks[:, me], 0)
                np.testing.assert_array_equal(got, want)


def many_at_once() -> None:
    shapes = [(3,), (2, 5), (), (4,), (9,)]
    dtypes = ["float32", "int64", "float32", "float64", "float32"]
    mine = [data(me, d, s) for d, s in zip(dtypes, shapes, strict=True)]
    got = exchange("all_reduce", world, mine, 0)
    for g, d, s in zip(got, dtypes, shapes, strict=True):
        np.testing.assert_array_equal(np.reshape(g, s), everyone(d, s).sum(0))
    assert shared.room(world) is not None  # or all of this was Gloo's


def background() -> None:
    """Rank 0 goes on while the others are not even there: they start when it tells them to."""
    x = paddle.to_tensor(data(me, "float32", (40,)))
    y = paddle.to_tensor(data(me, "float32", (40,)))
    parts: list = []
    if me:
        assert post.receive(0, b"go") == b"on"
    first = dist.all_reduce(x, sync_op=False)
    second = dist.all_gather(parts, y, sync_op=False)
    if me == 0:
        assert not first.is_completed()
        assert not second.is_completed()
        with pytest.raises(DistributedError, match="not over"):
            first.wait(timeout=0.01)
        for rank in range(1, n):
            post.send(rank, b"go", b"on")
    np.testing.assert_array_equal((x + 1).numpy(), everyone("float32", (40,)).sum(0) + 1)
    second.wait()
    assert second.is_completed()
    for rank, part in enumerate(parts):
        np.testing.assert_array_equal(part.numpy(), data(rank, "float32", (40,)))
    # In the order of the calls, whether they are waited for or not, and into the tensors' new
    # contents.
    task = dist.all_reduce(x, sync_op=False)
    dist.all_reduce(x)
    task.wait()
    np.testing.assert_array_equal(x.numpy(), everyone("float32", (40,)).sum(0) * n * n)
    chosen = paddle.static.nn.cond(
        _pending() > 0, lambda: paddle.to_tensor(1.0), lambda: paddle.to_tensor(2.0)
    )
    assert float(chosen) == 1.0
    wrong = paddle.zeros([3])
    dist.alltoall_single(wrong, paddle.ones([2 * n]), sync_op=False)
    with pytest.raises(ShapeMismatch, match="arrived"):
        wrong.numpy()


def _pending() -> paddle.Tensor:
    x = paddle.to_tensor([1.0])
    dist.all_reduce(x, sync_op=False)
    return x.sum()


def averages() -> None:
    model = paddle.DataParallel(paddle.nn.Linear(3, 1))
    model(paddle.to_tensor(data(me, "float32", (4, 3)))).sum().backward()
    want = everyone("float32", (4, 3)).sum(1).mean(0)
    np.testing.assert_allclose(model.parameters()[0].grad.numpy()[:, 0], want, rtol=1e-6)


def nothing_is_left() -> None:
    """The desks have no name, and strangers cannot open them by the numbers of their files."""
    assert not any("bireme" in f for f in os.listdir("/dev/shm"))


def different_calls() -> None:
    given = np.ones(3 + me, np.float32)
    with pytest.raises(DistributedError, match="same collectives"):
        exchange("all_reduce", world, [given], 0)
    with pytest.raises(DistributedError, match="failed before"):
        exchange("all_reduce", world, [given], 0)


pieces()
many_at_once()
background()
averages()
nothing_is_left()
pickle.dumps(exchange("all_reduce", world, [np.ones(3)], 0)[0])  # an ordinary array
different_calls()
print(f"rank {me} of {n}: exchanges agree", flush=True)
