"""What a model has done so far: the counts that the protocol's statistics and the metrics show."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Duration:
    """How often something was done, and how long it took."""

    count: int = 0
    ns: int = 0

    def add(self, seconds: float, count: int = 1) -> None:
        self.count += count
        self.ns += int(seconds * 1e9) * count


@dataclass(slots=True)
class Stages:
    """The stages of a batch: gathering inputs, running the model, cutting the results."""

    input: float
    infer: float
    output: float


@dataclass(slots=True, eq=False)
class Statistics:
    """Counts of one version of a model."""

    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)
    batches: dict[int, tuple[Duration, Duration, Duration]] = field(default_factory=dict)
    rows: int = 0
    executions: int = 0
    last_ms: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ran(self, waits: Sequence[float], rows: int, stages: Stages) -> None:
        """A batch of `rows` rows has run; `waits` are its requests' seconds in the queue."""
        count = len(waits)
        with self.lock:
            self.rows += rows
            self.executions += 1
            self.last_ms = int(time.time() * 1000)
            each = self.batches.setdefault(rows, (Duration(), Duration(), Duration()))
            times = (stages.input, stages.infer, stages.output)
            totals = (self.compute_input, self.compute_infer, self.compute_output)
            for total, of_size, seconds in zip(totals, each, times, strict=True):
                total.add(seconds, count)
                of_size.add(seconds)
            for wait in waits:
                self.queue.add(wait)
                self.success.add(wait + sum(times))

    def failed(self, seconds: float) -> None:
        """A request has failed."""
        with self.lock:
            self.fail.add(seconds)
