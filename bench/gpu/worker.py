"""One peer of one GPU workload in a process of its own: prepares, then measures when told to."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from bench.gpu.state import device_name, peak_gib
from bench.worker import answer


class Worker:
    def __init__(self, peer: str, module: str, arguments: str):
        self.peer, self.module, self.arguments = peer, module, json.loads(arguments)
        self.run: Callable[[], dict[str, Any]] | None = None

    def prepare(self) -> dict[str, Any]:
        started = time.perf_counter()
        self.run = import_module(f"bench.gpu.{self.module}").prepare(self.peer, **self.arguments)
        return {"ready_s": time.perf_counter() - started, "device": device_name(self.peer)}

    def measure(self) -> dict[str, Any]:
        if self.run is None:
            raise RuntimeError("measure was asked for before prepare; this is a bug in bench.gpu")
        return self.run() | {"memory_gib": peak_gib(self.peer)}


if __name__ == "__main__":
    answer(lambda: Worker(*sys.argv[1:]))
