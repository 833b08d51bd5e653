"""Processes that train apart and average their parameters now and then."""

from __future__ import annotations


def test_parameters_are_averaged_now_and_then(launched) -> None:
    done = launched("local_sgd_worker.py", 2)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-2000:]
    assert "rank 0: apart and together" in done.stdout
