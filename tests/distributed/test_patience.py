"""Processes that come late, and processes that are asked to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LONG = 600.0  # seconds after which a test gives up


@pytest.mark.slow  # pytest -m slow tests/distributed/test_patience.py
def test_a_late_process_is_no_error(launched) -> None:
    done = launched("late_worker.py", 2, arguments=("45",))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rank 0: met" in done.stdout


def _until(test) -> None:
    end = time.monotonic() + LONG
    while not test():
        assert time.monotonic() < end
        time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_their_launcher(tmp_path: Path, number: int) -> None:
    told = tmp_path / "told"
    told.mkdir()
    command = [
        sys.executable, "-m", "bireme.distributed.launch", "--nproc_per_node", "2",
        "--devices", "", "--log_dir", str(tmp_path / "log"),
        str(HERE / "waiting_worker.py"), str(told),
    ]  # fmt: skip
    env = os.environ | {"PYTHONPATH": str(HERE.parents[1]), "BIREME_NATIVE": "0"}
    launcher = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    try:
        _until(lambda: launcher.poll() is not None or len(list(told.glob("[01]"))) == 2)
        assert launcher.poll() is None
        _until(lambda: all((told / r).read_text() for r in "01"))
        pids = [int((told / r).read_text()) for r in "01"]
        assert all(map(_is_alive, pids))
        launcher.send_signal(number)
        launcher.wait(LONG)
        _until(lambda: not any(map(_is_alive, pids)))
    finally:
        launcher.kill()
        launcher.wait()
