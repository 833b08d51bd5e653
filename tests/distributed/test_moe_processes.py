"""Mixtures of experts over processes: tokens travel to their experts and back."""

from __future__ import annotations


def test_experts_of_two_processes_are_those_of_one(launched) -> None:
    done = launched("moe_worker.py", 2)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    assert "rank 0: experts agree" in done.stdout
