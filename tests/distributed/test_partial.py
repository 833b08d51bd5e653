"""Partial: what processes hold of a result that is yet to be put together."""

from __future__ import annotations


def test_seven_reductions_over_processes(launched) -> None:
    done = launched("partial_worker.py", 2)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rank 0: seven reductions agree" in done.stdout
