"""Jobs of several real processes on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bireme.distributed.launch import meeting

HERE = Path(__file__).parent


@pytest.fixture
def ports() -> Iterator[Callable[[int], list[int]]]:
    """`ports(count)`: ports of this machine that nobody else is given during the test."""
    held = meeting.Ports()
    yield lambda count: held.take(count, "127.0.0.1")
    held.release()


@pytest.fixture
def launched(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`launched(script, processes, *options)`: run a script of this folder as a job."""

    def run(script: str, count: int, *options: str, arguments: tuple[str, ...] = ()) -> (
        subprocess.CompletedProcess[str]
    ):  # fmt: skip
        path = HERE / script if not os.path.isabs(script) else Path(script)
        command = [
            sys.executable, "-m", "bireme.distributed.launch", "--nproc_per_node", str(count),
            "--devices", "", "--log_dir", str(tmp_path / "log"), *options, str(path), *arguments,
        ]  # fmt: skip
        env = os.environ | {"PYTHONPATH": str(HERE.parents[1]), "BIREME_NATIVE": "0"}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=1800)

    return run
