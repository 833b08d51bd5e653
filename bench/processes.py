"""Starts peer processes under equal conditions and talks to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench import peers

ROOT = Path(__file__).resolve().parent.parent
THREADS = 2


class PeerError(RuntimeError):
    """A peer could not do its part; the message is the reason shown in the table."""


def environment(root: Path = ROOT, **extra: str) -> dict[str, str]:
    """The environment of every peer: equal thread counts and the checkout `root` importable."""
    threads = str(THREADS)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")])),
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "FLAGS_paddle_num_threads": threads,
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "GLOG_minloglevel": "2",
        **extra,
    }


def pin_to_cores() -> None:
    """Keep this process and the peers it starts on as many cores as they have threads.

    XLA sizes its thread pool by the cores it may use; on a larger machine it would have more.
    """
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:THREADS])


class Peer:
    """One worker process; use as a context manager."""

    worker = "bench.worker"
    process_group: int | None = None  # 0: its own

    def __init__(self, name: str, workload: str, root: Path = ROOT, **extra_environment: str):
        if not peers.installed(name):
            raise PeerError(f"{peers.module(name)} is not installed")
        self.root = root
        self.name = name
        self.workload = workload
        self.arguments: tuple[str, ...] = (name, workload)
        self.extra = extra_environment

    def __enter__(self) -> Self:
        # stderr goes to a file: a full pipe that nobody reads would stop the worker.
        logs = self.root / ".bench" / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        self.log = (logs / f"{self.workload}-{self.name}.log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", self.worker, *self.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            cwd=self.root,
            env=self.environment(),
            process_group=self.process_group,
        )
        return self

    def environment(self) -> dict[str, str]:
        return environment(self.root, **self.extra)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the worker and wait for its result."""
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("the worker was started without pipes; this is a bug in bench")
        try:
            self.process.stdin.write(json.dumps([method, *arguments]) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise PeerError(self._death()) from None
        line = self.process.stdout.readline()
        if not line:
            raise PeerError(self._death())
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer["result"]

    def _death(self) -> str:
        return f"process ended with status {self.process.wait()}, see {self.log.name}"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):  # of a command that a dead process did not read
                self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.log.close()
