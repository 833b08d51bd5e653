"""A slice of `python -m tests.kills` in every run."""

from __future__ import annotations

import subprocess
import sys


def test_killed_savers_leave_the_old_or_the_new() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.kills", "22"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "22 kills" in done.stdout
