"""Training on two processes equals one process on the joined batch."""

from __future__ import annotations

import pytest

import bireme as paddle
from bireme import nn
from bireme.core.errors import InvalidArgument, TypeMismatch


def test_two_processes_train_as_one(launched) -> None:
    done = launched("data_parallel_worker.py", 2)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rank 0: 6 steps agree" in done.stdout
    assert "rank 0: norms agree" in done.stdout


def test_one_process_needs_no_group() -> None:
    net = nn.Linear(2, 3)
    model = paddle.DataParallel(net)
    with model.no_sync():
        model(paddle.ones([1, 2])).sum().backward()
    assert net.weight.grad is not None
    assert list(model.state_dict()) == ["weight", "bias"]
    model.set_state_dict(net.state_dict())
    model.apply_collective_grads()
    loss = paddle.ones([1])
    assert model.scale_loss(loss) is loss


def test_bad_arguments() -> None:
    with pytest.raises(TypeMismatch, match="Layer"):
        paddle.DataParallel([nn.Linear(1, 1)])
    with pytest.raises(InvalidArgument, match="positive"):
        paddle.DataParallel(nn.Linear(1, 1), comm_buffer_size=0)
