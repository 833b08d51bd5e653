"""The same program on two processes with Bireme and with the real wheel (Gloo)."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bireme.distributed.launch import meeting

SCRIPT = Path(__file__).with_name("oracle_worker.py")


def _seen(text: str) -> Any:
    line = next(line for line in text.splitlines() if line.startswith("SEEN"))
    return json.loads(line.removeprefix("SEEN"))


def _with_the_wheel() -> list[Any]:
    ports = meeting.Ports()
    told = meeting.environments([meeting.node("127.0.0.1", 2, ports)], 0, [], "unused" * 4)
    ports.release()  # the wheel does not take a port that is kept
    jobs = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT)],
            env=os.environ | env | {"ORACLE": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for env in told
    ]
    return [_seen(job.communicate(timeout=1800)[0]) for job in jobs]


@pytest.mark.slow
def test_same_results_as_the_wheel(launched, tmp_path: Path) -> None:
    if importlib.util.find_spec("paddle") is None:
        pytest.skip("needs the 'parity' extra")
    done = launched(str(SCRIPT), 2)
    assert done.returncode == 0, done.stderr[-3000:]
    ours = [_seen((tmp_path / "log" / f"workerlog.{r}").read_text()) for r in range(2)]
    for mine, theirs in zip(ours, _with_the_wheel(), strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine:
            if name in ("losses", "weights", "gradients"):
                _close(mine[name], theirs[name])
            else:
                assert mine[name] == theirs[name], name


def _close(mine: Any, theirs: Any) -> None:
    if mine and isinstance(mine[0], list):
        for a, b in zip(mine, theirs, strict=True):
            assert a[:2] == b[:2]
            np.testing.assert_allclose(a[2], b[2], rtol=1e-4, atol=1e-5)
    else:
        np.testing.assert_allclose(mine, theirs, rtol=1e-4)
