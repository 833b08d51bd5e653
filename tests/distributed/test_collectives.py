"""Collectives between real processes, against NumPy (in collective_worker.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bireme as paddle
from bireme import distributed as dist
from bireme.core.errors import InvalidArgument
from bireme.distributed.communication import group as groups
from bireme.distributed.communication.stream import Task
from bireme.distributed.job import DistributedError


def test_every_collective_on_four_processes(launched, tmp_path: Path) -> None:
    done = launched("collective_worker.py", 4)
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in range(4):
        assert (
            f"rank {rank} of 4: collectives agree"
            in (tmp_path / "log" / f"workerlog.{rank}").read_text()
        )


@pytest.fixture
def alone():
    """A job of this process only."""
    yield dist.init_parallel_env()
    if dist.is_initialized():
        dist.destroy_process_group()


def test_a_job_of_one(alone) -> None:
    assert alone.ranks == [0]
    assert dist.get_world_size() == 1
    x = paddle.to_tensor([1.0, 2.0])
    dist.all_reduce(x)
    dist.broadcast(x, src=0)
    out: list = []
    dist.all_gather(out, x)
    dist.barrier()
    np.testing.assert_array_equal(out[0].numpy(), [1.0, 2.0])


def test_a_group_that_is_shut_down(alone) -> None:
    group = dist.new_group([0])
    x = paddle.to_tensor([1.0])
    dist.shutdown_process_group()
    with pytest.raises(DistributedError, match="shut down"):
        dist.all_reduce(x, group=group)
    dist.all_reduce(x)  # the group of all is never shut down unless it is named
    dist.restart_process_group(group)
    dist.all_reduce(x, group=group)
    assert x.item() == 1.0


def test_before_init_there_is_no_group() -> None:
    assert not dist.is_initialized()
    with pytest.raises(DistributedError, match="init_parallel_env"):
        dist.all_reduce(paddle.ones([2]))
    with pytest.warns(UserWarning, match="Group 0"):
        assert dist.get_group() is None


def test_bad_arguments(alone, monkeypatch) -> None:
    with pytest.raises(InvalidArgument, match="op must be"):
        dist.all_reduce(paddle.ones([2]), op=7)
    with pytest.raises(InvalidArgument, match="not in the group"):
        dist.reduce(paddle.ones([2]), dst=3)
    with pytest.raises(InvalidArgument, match="NCCL"):
        dist.init_parallel_env(nccl_config=object())
    monkeypatch.delenv("BIREME_JOB_SECRET", raising=False)
    with pytest.raises(DistributedError, match="secret"):
        dist.all_gather_object([], 1)
    monkeypatch.setenv("PADDLE_TRAINER_ID", "5")
    with pytest.raises(InvalidArgument, match="below"):
        dist.init_parallel_env()


def test_a_group_of_others_says_so() -> None:
    outside = groups.Group(-1, 99, [1, 2], name="others")
    assert outside.world_size == -1
    assert outside.get_global_rank(0) == -1
    assert "ranks: 1, 2; name: others" in repr(outside)
    with pytest.raises(DistributedError):
        dist.get_backend(outside)


class Slow:
    """An array that is ready when it was asked for often enough."""

    def __init__(self, looks: float):
        self.looks = looks

    def is_ready(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def block_until_ready(self) -> None:
        self.looks = 0


def test_waiting_ends_at_its_limit() -> None:
    assert Task([Slow(3)]).wait(timeout=600)
    assert Task([Slow(float("inf"))]).wait()
    with pytest.raises(DistributedError, match=r"not over after 0.01 s"):
        Task([Slow(float("inf"))]).wait(timeout=0.01)
