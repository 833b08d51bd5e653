"""A run that goes on in another process ends as the run that was not interrupted, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bireme
from tests.io.resuming import ENDINGS, SAVED_AT, STEPS

SCRIPT = Path(__file__).with_name("resuming.py")


def run(*arguments: str) -> list[str]:
    # In one tier from the first step on: NumPy and XLA round differently.
    surroundings = {
        **os.environ,
        "BIREME_COMPILE": "always",
        "PYTHONPATH": str(Path(bireme.__file__).parents[1]),
    }
    result = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.parametrize(
    ("workers", "how"),
    [
        ("0", "eager"),
        pytest.param("2", "eager", marks=pytest.mark.slow),
        pytest.param("0", "captured", marks=pytest.mark.slow),
        pytest.param("2", "captured", marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_is_the_same_run(tmp_path: Path, workers: str, how: str) -> None:
    path = str(tmp_path / "checkpoint")
    want = run("whole", path, workers, how)
    assert len(want) == STEPS - SAVED_AT + 1
    for ending in ENDINGS:
        assert run("resume", path + ending, workers, how) == want
