"""One peer in its own process: takes commands as JSON lines on stdin, answers on stdout."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

from bench import peers
from bench.memory_figures import peak_mib, reset_peak, resident_mib
from bench.workloads import WORKLOADS, has_dropout, without_dropout

# Steps that are compared between the peers. Bireme's first ones run in its cold tier and the
# last ones compiled, because `settle` is called in between.
CHECKED_STEPS = 6


class Worker:
    def __init__(self, peer: str, workload: str):
        self.size = WORKLOADS[workload]
        module = import_module(peers.module(peer))
        self.after_import = resident_mib()
        if module.__name__ == "bireme":  # as `bireme run` does
            module.device.tune_process(tracebacks=False)
        self.make = peers.factory(peer)
        self.trainer: Any = None
        self.steps = 0

    def check(self) -> list[float]:
        """The losses of the first steps, without dropout."""
        self.trainer = self.make(without_dropout(self.size), None)
        losses = []
        for i in range(CHECKED_STEPS):
            losses.append(self.trainer.read(self.trainer.step(i)))
            self.trainer.settle()
        if has_dropout(self.size):
            self.trainer = None
        return losses

    def curve(self, count: int) -> list[float]:
        """The losses of `count` steps, without dropout."""
        trainer = self.make(without_dropout(self.size), None)
        return [trainer.read(trainer.step(i)) for i in range(count)]

    def warm(self) -> float:
        """Run until nothing is compiled any more; returns the seconds of a step."""
        if self.trainer is None:
            self.trainer = self.make(self.size, None)
        # Twice without a compilation: the step after one may be another program again.
        quiet = 0
        while quiet < 2:
            seconds = self.run(4)
            quiet = 0 if self.trainer.settle() else quiet + 1
        return seconds

    def run(self, count: int) -> float:
        """Seconds per step over `count` steps, until the last loss has been read."""
        trainer = self.trainer
        start = time.perf_counter()
        for i in range(self.steps, self.steps + count):
            loss = trainer.step(i)
        trainer.read(loss)
        self.steps += count
        return (time.perf_counter() - start) / count

    def turn(self, count: int) -> float:
        """One turn of a round: wake threads and caches up, then measure."""
        self.run(2)
        return self.run(count)

    def lengths(self, lengths: list[int]) -> list[float]:
        """Seconds of each step in a loop whose sequences have these lengths."""
        self.trainer = self.make(self.size, None)
        seconds = []
        for length in lengths:
            start = time.perf_counter()
            self.trainer.read(self.trainer.step_of_length(length))
            seconds.append(time.perf_counter() - start)
        return seconds

    def memory(self, count: int) -> dict[str, float]:
        """Peaks in MiB: of everything so far, and of `count` steps after the warm-up."""
        self.trainer = self.make(self.size, None)
        self.warm()
        whole = peak_mib()
        reset_peak()
        self.run(count)
        return {"after_import": self.after_import, "whole": whole, "steps": peak_mib()}

    def record(self, count: int) -> dict[str, float]:
        """What Python costs in a step (Bireme only)."""
        from bench.recording import measure

        self.warm()
        return measure(self.trainer, count)


def answer(make: Callable[[], Any]) -> None:
    """Make a worker when the first command comes, and call its methods as they are asked for."""
    # Frameworks print to stdout when they please: give them stderr, keep the channel.
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker: Any = None
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            if worker is None:
                worker = make()
            method: Callable[..., Any] = getattr(worker, name)
            reply = {"result": method(*arguments)}
        except Exception as e:
            traceback.print_exc()  # to the log
            first_line = (str(e).strip() or "no message").splitlines()[0]
            reply = {"error": f"{type(e).__name__}: {first_line[:300]}"}
        channel.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    answer(lambda: Worker(*sys.argv[1:]))
