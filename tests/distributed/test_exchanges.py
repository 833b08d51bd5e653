"""Exchanges through shared memory and in the background, between real processes
(exchange_worker.py), and what they are made of."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.aval import aval
from bireme.core.dtype import float32
from bireme.core.tensor import Tensor
from bireme.distributed.communication import shared
from bireme.distributed.communication.background import line
from bireme.distributed.communication.reduce_op import ReduceOp


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory without a name is Linux's")
@pytest.mark.parametrize("count", [2, 3])
def test_between_processes(launched: Any, tmp_path: Path, count: int) -> None:
    done = launched("exchange_worker.py", count)
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in range(count):
        log = (tmp_path / "log" / f"workerlog.{rank}").read_text()
        assert f"rank {rank} of {count}: exchanges agree" in log


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 40), st.integers(0, 40))
def test_pieces_of_vectors_seen_as_one(sizes: list[int], start: int, size: int) -> None:
    every = np.arange(sum(sizes))
    vectors = np.split(every, np.cumsum(sizes)[:-1])
    desk = np.full(size, -1)
    shared._lay(vectors, start, size, desk)
    want = every[start : start + size]
    np.testing.assert_array_equal(desk[: len(want)], want)
    assert (desk[len(want) :] == -1).all()
    copies = [np.full_like(v, -1) for v in vectors]
    shared._take(copies, start, desk[: len(want)])
    np.testing.assert_array_equal(np.concatenate(copies)[start : start + size], want)


@pytest.mark.parametrize("kind", ["float16", "float32", "int8", "int64", "bool", "complex64"])
@pytest.mark.parametrize("op", [ReduceOp.SUM, ReduceOp.PROD, ReduceOp.AVG])
def test_reductions_keep_their_type(kind: str, op: int) -> None:
    parts = [np.array([1, 0, 3]).astype(kind) for _ in range(3)]
    before = [p.copy() for p in parts]
    found = shared.reduced(parts, op)
    assert found.shape == (3,)
    assert found.astype(kind).dtype == kind
    for part, old in zip(parts, before, strict=True):
        np.testing.assert_array_equal(part, old)


def test_half_precision_is_rounded_once() -> None:
    parts = [np.array([v], np.float16) for v in (2048, 1, 1)]
    assert shared.reduced(parts, ReduceOp.SUM).astype(np.float16) == 2050


def test_jobs_keep_their_order_and_their_errors() -> None:
    order = []

    def job(number: int) -> list[np.ndarray]:
        order.append(number)
        if number == 1:
            raise ValueError("lost")
        return [np.full(2, number, np.float32)]

    jobs = [line.later(lambda i=i: job(i), [aval((2,), float32)]) for i in range(4)]
    assert line.now(lambda: order.append(9)) is None
    assert order == [0, 1, 2, 3, 9]
    np.testing.assert_array_equal(Tensor(jobs[3][1][0], None).numpy(), [3, 3])
    with pytest.raises(ValueError, match="lost"):
        Tensor(jobs[1][1][0], None).numpy()
