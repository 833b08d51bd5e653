"""Processes that train on parts of the batch of their own, as programs for Paddle do, train as one
process on the whole batch: no row is left out, whatever the degrees are."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("count", "how", "degrees"),
    [
        (2, "1", "1 1 1 2"),
        (2, "group_p_g_os", "2 1 1 1"),
        (4, "1", "2 2 1 1"),
        *[
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (2, "1", "2 1 1 1"),
                (2, "1", "1 2 1 1"),
                (2, "2", "1 1 1 2"),
                (2, "3", "1 1 1 2"),
                (2, "1", "1 1 2 1"),
                (2, "group_os", "2 1 1 1"),
                (2, "group_os_g", "2 1 1 1"),
                (4, "1", "1 2 2 1"),
                (4, "1", "1 2 1 2"),
                (4, "2", "1 2 1 2"),
                (4, "3", "1 2 1 2"),
                (4, "3", "2 1 1 2"),
                (4, "1", "1 1 2 2"),
                (8, "1", "2 2 2 1"),
            )
        ],
    ],
)
def test_own_parts_train_as_the_whole_batch(
    launched, tmp_path: Path, count: int, how: str, degrees: str
) -> None:
    done = launched("own_parts_worker.py", count, arguments=(how, *degrees.split()))
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in range(count):
        log = (tmp_path / "log" / f"workerlog.{rank}").read_text()
        assert f"rank {rank}: 8 steps of {how}" in log


def test_different_batches_of_one_model_raise(launched) -> None:
    done = launched("different_batches_worker.py", 2)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rank 0: different batches raise" in done.stdout
