"""One process of a job that tries every collective; see test_collectives.py."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest

import bireme as paddle
from bireme import distributed as dist
from bireme.core.errors import InvalidArgument, ShapeMismatch

before = paddle.to_tensor(np.arange(6.0)) * 2  # JAX and tensors may be in use already
paddle.matmul(paddle.ones([40, 40]), paddle.ones([40, 40])).numpy()

world = dist.init_parallel_env()
me, n = dist.get_rank(), dist.get_world_size()
np.testing.assert_array_equal(before.numpy(), np.arange(6.0) * 2)


def data(rank: int, dtype: str = "float32", shape: tuple[int, ...] = (2, 3)) -> np.ndarray:
    """What a rank holds: small whole numbers, exact in every dtype."""
    values = np.random.RandomState(rank).randint(0, 4, shape)
    if dtype.startswith("complex"):
        return (values + 1j * (values - 1)).astype(dtype)
    return values.astype(dtype)


def held(dtype: str = "float32", shape: tuple[int, ...] = (2, 3), rank: int = me):
    if dtype == "bfloat16":
        return paddle.to_tensor(data(rank, "float32", shape)).astype(dtype)
    return paddle.to_tensor(data(rank, dtype, shape))


def everyone(dtype: str = "float32", shape: tuple[int, ...] = (2, 3), ranks=None) -> np.ndarray:
    if dtype == "bfloat16":
        dtype = "float32"
    return np.stack([data(r, dtype, shape) for r in (range(n) if ranks is None else ranks)])


def same(tensor, array) -> None:
    np.testing.assert_array_equal(tensor.astype("float32") if "bfloat" in str(tensor.dtype)
                                  else tensor.numpy(), array)  # fmt: skip


def reductions() -> None:
    ops = {"SUM": np.sum, "MAX": np.max, "MIN": np.min, "PROD": np.prod}
    for dtype in ("float32", "float64", "float16", "bfloat16", "int32", "int64", "int8", "uint8"):
        for name, reference in ops.items():
            if dtype not in ("float32", "int64") and name != "SUM":
                continue
            x = held(dtype)
            task = dist.all_reduce(x, getattr(dist.ReduceOp, name))
            same(x, reference(everyone(dtype), 0))
            assert task is not None
            assert task.wait()
            assert task.is_completed()
    x = held("complex64")
    dist.all_reduce(x)
    same(x, everyone("complex64").sum(0))
    x = held()
    dist.all_reduce(x, dist.ReduceOp.AVG)
    np.testing.assert_allclose(x.numpy(), everyone().mean(0), rtol=1e-6)
    for op, reference in ((dist.ReduceOp.MAX, np.any), (dist.ReduceOp.MIN, np.all)):
        x = held("bool")
        dist.all_reduce(x, op)
        same(x, reference(everyone("bool"), 0))
    x = paddle.to_tensor(float(me))  # 0-d
    dist.all_reduce(x)
    assert x.shape == []
    assert x.item() == n * (n - 1) / 2
    x = held()
    dist.reduce(x, dst=n - 1)
    same(x, everyone().sum(0) if me == n - 1 else data(me))


def moves() -> None:
    for dtype in ("float32", "bool", "complex64", "int64", "bfloat16"):
        x = held(dtype)
        dist.broadcast(x, src=1)
        same(x, everyone(dtype)[1])
    x = paddle.to_tensor([-0.0, float("nan"), me])
    dist.broadcast(x, src=0)
    assert np.signbit(x.numpy()[0])
    assert np.isnan(x.numpy()[1])
    assert x.numpy()[2] == 0
    got: list = []
    dist.all_gather(got, held())
    same(paddle.stack(got), everyone())
    ready = [paddle.zeros([2, 3]) for _ in range(n)]
    dist.all_gather(ready, held())
    same(paddle.stack(ready), everyone())
    whole = paddle.zeros([2 * n, 3])
    dist.stream.all_gather(whole, held())
    same(whole, everyone().reshape(-1, 3))
    got = []
    dist.all_gather(got, paddle.to_tensor(me))
    assert [int(g) for g in got] == list(range(n))
    assert got[0].shape == []
    got = []
    dist.gather(held(), got if me == 1 else None, dst=1)
    if me == 1:
        same(paddle.stack(got), everyone())
    else:
        assert got == []
    x = paddle.zeros([2, 3])
    dist.scatter(x, [held(rank=r) for r in range(n)] if me == 1 else None, src=1)
    same(x, data(me))
    x = paddle.zeros([2])
    dist.stream.scatter(x, paddle.arange(2 * n, dtype="float32") if me == 0 else None)
    same(x, np.arange(2 * n, dtype="float32")[2 * me : 2 * me + 2])


def scatters() -> None:
    all_parts = np.stack([data(r, shape=(n, 3)) for r in range(n)])  # [from, to]
    parts = [paddle.to_tensor(p) for p in data(me, shape=(n, 3))]
    x = paddle.zeros([3])
    dist.reduce_scatter(x, parts)
    same(x, all_parts[:, me].sum(0))
    dist.reduce_scatter(x, parts, op=dist.ReduceOp.MAX)
    same(x, all_parts[:, me].max(0))
    dist.stream.reduce_scatter(x, paddle.concat(parts), op=dist.ReduceOp.AVG)
    np.testing.assert_allclose(x.numpy(), all_parts[:, me].mean(0), rtol=1e-6)
    got: list = []
    dist.alltoall(got, parts)
    same(paddle.stack(got), all_parts[:, me])
    x = paddle.zeros([n, 3])
    dist.alltoall_single(x, paddle.stack(parts))
    same(x, all_parts[:, me])
    # Rank r sends r + i rows to rank i.
    rows = [np.full((me + i, 2), 10 * me + i, "float32") for i in range(n)]
    out = paddle.zeros([sum(r + me for r in range(n)), 2])
    dist.alltoall_single(
        out,
        paddle.to_tensor(np.concatenate(rows)),
        [me + i for i in range(n)],
        [r + me for r in range(n)],
    )
    same(out, np.concatenate([np.full((r + me, 2), 10 * r + me) for r in range(n)]))


def groups() -> None:
    evens, odds = dist.new_group([2, 0]), dist.new_group([1, 3])
    mine = (evens, odds)[me % 2]
    assert dist.get_group(evens.id) is evens
    assert mine.ranks == [me % 2, me % 2 + 2]
    assert mine.rank == me // 2
    assert mine.world_size == 2
    assert mine.get_group_rank(me) == me // 2
    assert (odds, evens)[me % 2].rank == -1
    assert dist.get_world_size(mine) == 2
    assert dist.get_rank(mine) == me // 2
    x = held()
    dist.all_reduce(x, group=mine)
    same(x, everyone(ranks=mine.ranks).sum(0))
    dist.broadcast(x, src=mine.ranks[1], group=mine)
    dist.barrier(mine)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert dist.all_reduce(x, group=(odds, evens)[me % 2]) is None
    assert "not in group" in str(caught[0].message)
    objects: list = []
    dist.all_gather_object(objects, me, group=mine)
    assert objects == mine.ranks


def messages() -> None:
    after, prior = (me + 1) % n, (me - 1) % n
    if me == 0:
        dist.send(held("int64"), dst=1)
        dist.send(held(shape=(5,)), dst=1)
    elif me == 1:
        x, y = paddle.zeros([2, 3], "int64"), paddle.zeros([5])
        dist.recv(x, src=0)
        dist.recv(y, src=0)
        same(x, data(0, "int64"))
        same(y, data(0, shape=(5,)))
    incoming = paddle.zeros([2, 3])
    tasks = [dist.isend(held(), after), dist.irecv(incoming, prior)]
    for task in tasks:
        task.wait()
    same(incoming, data(prior))
    large = paddle.full([300, 1000], float(me))  # all send first; nobody waits for a receiver
    incoming = paddle.zeros([300, 1000])
    ops = [dist.P2POp(dist.isend, large, after), dist.P2POp(dist.irecv, incoming, prior)]
    for task in dist.batch_isend_irecv(ops):
        task.wait()
    same(incoming, np.full((300, 1000), prior))


def objects() -> None:
    got: list = []
    dist.all_gather_object(got, {"rank": me})
    assert got == [{"rank": r} for r in range(n)]
    things = [{"a": me}, [me]]
    dist.broadcast_object_list(things, src=2)
    assert things == [{"a": 2}, [2]]
    dist.scatter_object_list(things, [f"for {r}" for r in range(n)] if me == 1 else None, src=1)
    assert things == [f"for {me}"]
    if me == 0:
        dist.send_object_list(["x", 1], dst=3)
    elif me == 3:
        got = [None, None]
        dist.recv_object_list(got, src=0)
        assert got == ["x", 1]


def mistakes() -> None:
    for wrong, error in (
        (lambda: dist.all_reduce(paddle.ones([2]), op=9), InvalidArgument),
        (lambda: dist.broadcast(paddle.ones([2]), src=n), InvalidArgument),
        (lambda: dist.all_reduce([1.0]), TypeError),
        (lambda: dist.new_group([0, 0]), InvalidArgument),
        (lambda: dist.new_group(backend="mpi"), InvalidArgument),
        (lambda: dist.reduce_scatter(paddle.ones([2]), [paddle.ones([2])]), ShapeMismatch),
        (lambda: dist.P2POp(dist.send, paddle.ones([2]), 0), RuntimeError),
        (lambda: dist.stream.all_reduce(paddle.ones([2]), sync_op=False, use_calc_stream=True),
         RuntimeError),
    ):  # fmt: skip
        with pytest.raises(error):
            wrong()


def checked() -> None:
    """With BIREME_CHECK_COLLECTIVES ranks that disagree are told so, instead of aborting."""
    os.environ["BIREME_CHECK_COLLECTIVES"] = "1"
    call = (
        (lambda: dist.broadcast(paddle.ones([3]), src=0))
        if me == 2
        else (lambda: dist.all_reduce(paddle.ones([2])))
    )
    with pytest.raises(RuntimeError, match="all_reduce") as caught:
        call()
    assert "process 1: all_reduce(float32[2], 0)" in str(caught.value)
    assert "process 2: broadcast(float32[3], 0)" in str(caught.value)
    x = held()
    dist.all_reduce(x)
    same(x, everyone().sum(0))
    del os.environ["BIREME_CHECK_COLLECTIVES"]


def recorded() -> None:
    """Collectives in the midst of recorded operations."""
    w = paddle.to_tensor([1.0, 2.0], stop_gradient=False)
    for step in range(4):
        y = (w * (me + 1 + step)).sum()
        y.backward()
        dist.all_reduce(w.grad)
        total = sum(r + 1 + step for r in range(n))
        same(w.grad, [total, total])
        view = w.grad.reshape([2, 1])
        dist.broadcast(view, src=0)
        w.clear_grad()


assert dist.is_initialized()
assert dist.get_backend() == "GLOO"
assert world.ranks == list(range(n))
for part in (reductions, moves, scatters, groups, messages, objects, mistakes, checked, recorded):
    part()
dist.barrier()
dist.wait(paddle.ones([2]))
dist.destroy_process_group()
assert not dist.is_initialized()
print(f"rank {me} of {n}: collectives agree")
