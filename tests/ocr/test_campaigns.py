"""A little of the campaigns, so that they go on working."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

from tests.ocr import soak

ROOT = pathlib.Path(__file__).parents[2]


def test_a_few_mutants() -> None:
    """In a process of its own: its memory is measured."""
    command = [sys.executable, "-m", "tests.ocr.mutants", "40"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    read, refused = map(int, re.findall(r"'(?:read|refused)': (\d+)", done.stdout))
    assert read + refused == 40
    assert refused > 0


def test_a_few_threads() -> None:
    assert soak.threads(12, 4) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_measured() -> None:
    early, late = soak.memory(10)
    assert 0 < early < 3 * late
