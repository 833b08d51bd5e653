"""A process for one peer of a GPU workload, seen from the outside (`worker.py` is its inside)."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.processes import ROOT, Peer, PeerError

__all__ = ["GpuPeer", "PeerError"]

_TAIL_LINES, _TAIL_CHARACTERS = 4, 500


class GpuPeer(Peer):
    """`module` of bench.gpu has a function `prepare(peer, **arguments)` that returns another one,
    which measures."""

    worker = "bench.gpu.worker"
    process_group = 0  # ends with the processes that compile for it

    def __init__(
        self,
        workload: str,
        peer: str,
        module: str,
        arguments: Mapping[str, Any],
        **extra_environment: str,
    ):
        self.root = ROOT
        self.name, self.workload, self.extra = peer, f"gpu-{workload}", extra_environment
        self.arguments = (peer, module, json.dumps(dict(arguments)))
        self.asking = threading.Lock()

    def environment(self) -> dict[str, str]:
        """The caller's, unlike on the CPU: no limit to threads, which only prepare here."""
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        return {**os.environ, "PYTHONPATH": path, **self.extra}

    def ask(self, method: str, *arguments: Any) -> Any:
        with self.asking:
            return super().ask(method, *arguments)

    def prepare(self) -> dict[str, Any]:
        """Wait until it has built, compiled and warmed up; what that took."""
        return self.ask("prepare")

    def measure(self) -> dict[str, Any]:
        return self.ask("measure")

    def end(self) -> None:
        """At once, whatever it does: a call that waits for it raises PeerError. When this returns,
        its memory on the GPU is free again."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        with self.asking:
            self.__exit__(None, None, None)

    def _death(self) -> str:
        status = self.process.wait()
        lines = Path(self.log.name).read_text(errors="replace").strip().splitlines()
        tail = " / ".join(line.strip() for line in lines[-_TAIL_LINES:])[-_TAIL_CHARACTERS:]
        return f"process ended with status {status}; {tail or 'it wrote nothing'}"
