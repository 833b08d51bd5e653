"""Preparing several processes at once, and measuring one at a time.

Building, compiling and tuning take most of the time and little of the GPU; measuring needs the GPU
and the processor for itself. So the workloads are divided into waves that fit the GPU's memory. In
each wave all peers prepare, a few at once, and wait; then they are measured one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Generic, Protocol, TypeVar

# XLA and cuDNN try kernels and keep the fastest. What another process runs on the GPU in that
# moment can make them choose badly, so few prepare at once; most of the time each is on the CPU.
AT_ONCE = 3
PATIENCE = 240.0  # seconds for one preparation
# Before a measurement: the last process is gone, and the chip, which may have been at its power
# limit, is in the same state for everybody.
PAUSE = 2.0
MEASURING = 8.0  # seconds kept for each peer that is ready when the deadline comes near
NOT_REACHED = "not reached before the deadline"


class Work(Protocol):
    """What is to be prepared and measured: `plan.Job` in life."""

    @property
    def workload(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def gib(self) -> float: ...
    @property
    def seconds(self) -> float: ...
    @property
    def alone(self) -> bool: ...  # nothing else prepares meanwhile


J = TypeVar("J", bound=Work)


class Worker(Protocol):
    """A process: the first two wait for it and raise when it fails; `end` makes them raise."""

    def prepare(self) -> dict[str, Any]: ...
    def measure(self) -> dict[str, Any]: ...
    def end(self) -> None: ...


@dataclass
class Outcome:
    """The figures of a peer, or why there are none."""

    figures: dict[str, Any] = field(default_factory=dict)
    problem: str = NOT_REACHED


def waves(jobs: Iterable[J], budget: float) -> list[list[J]]:
    """Jobs that fit into `budget` GiB together: each workload goes to the first wave with room for
    all of its peers, so that these are measured in the same minute. A workload that is too
    large as a whole is divided, and a job that is too large by itself gets a wave by itself."""
    parcels: list[list[J]] = []
    for _, group in groupby(jobs, key=lambda job: job.workload):
        together = list(group)
        fits = sum(job.gib for job in together) <= budget
        parcels += [together] if fits else [[job] for job in together]
    made: list[list[J]] = []
    for parcel in parcels:
        for wave in made:
            if sum(job.gib for job in [*wave, *parcel]) <= budget:
                wave += parcel
                break
        else:
            made.append(list(parcel))
    return made


class Schedule(Generic[J]):
    """`deadline` is in seconds from now; what has not been measured by then has a problem."""

    def __init__(
        self,
        start: Callable[[J], Worker],
        deadline: float,
        at_once: int = AT_ONCE,
        patience: float = PATIENCE,
        pause: float = PAUSE,
        measuring: float = MEASURING,
        tell: Callable[[str], None] = lambda line: print(line, flush=True),
    ):
        self.start, self.at_once, self.patience = start, at_once, patience
        self.pause, self.measuring = pause, measuring
        self.began = time.monotonic()
        self.until = self.began + deadline
        self.tell = tell
        self.outcomes: dict[J, Outcome] = {}
        self.living: dict[J, Worker] = {}

    def run(self, jobs: Iterable[J], budget: float) -> dict[J, Outcome]:
        divided = waves(jobs, budget)
        self.outcomes = {job: Outcome() for wave in divided for job in wave}
        with ThreadPoolExecutor(self.at_once) as pool:
            for wave in divided:
                try:
                    self._prepare(wave, pool)
                    self._measure(wave, pool)
                finally:
                    for job in list(self.living):
                        self._end(job)
        return self.outcomes

    def _prepare(self, wave: list[J], pool: ThreadPoolExecutor) -> None:
        # The longest first: whatever is left over at the end is short. Before them, those that
        # are alone.
        waiting = sorted(wave, key=lambda job: (not job.alone, -job.seconds))
        busy: dict[Future[dict[str, Any]], tuple[J, float]] = {}
        while True:
            # Those that are ready are to be measured before the deadline.
            stop = self.until - self.measuring * (len(self.living) - len(busy))
            for future, (job, limit) in list(busy.items()):
                if time.monotonic() >= min(limit, stop):
                    late = "at the deadline" if stop < limit else f"after {self.patience:.0f} s"
                    del busy[future]
                    self._fail(job, f"still preparing {late}")
            while waiting and time.monotonic() < stop and self._may_begin(waiting[0], busy):
                job = waiting.pop(0)
                try:
                    self.living[job] = worker = self.start(job)
                except Exception as e:
                    self._fail(job, f"{type(e).__name__}: {e}")
                    continue
                busy[pool.submit(worker.prepare)] = job, time.monotonic() + self.patience
            if not busy:
                return
            next_limit = min(stop, *(limit for _, limit in busy.values()))
            left = max(0.0, next_limit - time.monotonic())
            done, _ = wait(busy, timeout=left, return_when=FIRST_COMPLETED)
            for future in done:
                job, _ = busy.pop(future)
                if self._take(job, future):
                    self._tell(job, "ready")

    def _may_begin(self, job: J, busy: dict[Future[dict[str, Any]], tuple[J, float]]) -> bool:
        if job.alone or any(other.alone for other, _ in busy.values()):
            return not busy
        return len(busy) < self.at_once

    def _measure(self, wave: list[J], pool: ThreadPoolExecutor) -> None:
        for job in wave:
            if job not in self.living:
                continue
            time.sleep(max(0.0, min(self.pause, self.until - time.monotonic())))
            if time.monotonic() >= self.until:
                return
            future = pool.submit(self.living[job].measure)
            wait([future], timeout=max(0.0, self.until - time.monotonic()))
            if not future.done():
                self._fail(job, "the deadline came while it was measured")
            elif self._take(job, future):
                self.outcomes[job].problem = ""
                self._tell(job, "measured")
                self._end(job)

    def _take(self, job: J, future: Future[dict[str, Any]]) -> bool:
        """Keep what a call gave; False if it failed, and then its worker is gone."""
        try:
            self.outcomes[job].figures |= future.result()
        except Exception as e:  # whatever it was, the others go on
            self._fail(job, str(e) or type(e).__name__)
            return False
        return True

    def _fail(self, job: J, problem: str) -> None:
        self.outcomes[job].problem = problem
        self._tell(job, f"n/a, {problem}")
        self._end(job)

    def _end(self, job: J) -> None:
        worker = self.living.pop(job, None)
        if worker is not None:
            worker.end()

    def _tell(self, job: J, what: str) -> None:
        self.tell(f"{time.monotonic() - self.began:6.1f} s  {job.name}: {what}")
