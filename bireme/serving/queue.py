"""The queue of one model: who is admitted, and which requests run together.

No threads, no I/O and no clock: callers give the time. A batch is what came while the last one
ran; with a longest delay, a batch that is not full waits so long for others.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from bireme.serving.errors import Expired, Overloaded, TooLarge

_USUAL = 0.2  # the weight of the last batch in the mean of what batches take


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may wait for one model."""

    requests: int = 1024
    bytes: int = 256 << 20
    wait: float = 10.0  # predicted seconds until a request starts


@dataclass(slots=True, eq=False)
class Item:
    """A request that waits. Requests of one key may run together."""

    payload: Any
    rows: int
    key: Hashable
    done: Callable[[Any], None]
    size: int = 0  # bytes
    deadline: float = math.inf
    priority: int = 0  # the smaller, the earlier
    came: float = 0.0
    abandoned: bool = False
    waiting: bool = field(default=False, init=False)
    number: int = field(default=0, init=False)


class Queue:
    """Requests in the order of priority and arrival, for batches of at most `most` rows."""

    def __init__(self, limits: Limits, most: int = 1, delay: float = 0.0, workers: int = 1):
        self.limits, self.most, self.delay, self.workers = limits, most, delay, workers
        self.count = self.bytes = self.rows = self.running = 0
        self.service = 0.0  # what a batch takes, about
        self._lines: dict[tuple[int, Hashable], deque[Item]] = {}
        self._number = 0
        self._dead = 0  # abandoned requests that still stand in a line

    def predicted(self) -> float:
        """How long a request that came now would wait, about."""
        batches = -(-self.rows // self.most) + self.running
        return self.service * max(batches - self.workers + 1, 0) / self.workers

    def put(self, item: Item, now: float) -> None:
        """Admit a request, or raise why not."""
        limits = self.limits
        if item.size > limits.bytes:
            raise TooLarge(f"a request has {item.size} bytes, and {limits.bytes} may wait")
        if item.deadline <= now:
            raise Expired("the request's time was over when it came")
        wait = self.predicted()
        if self.count >= limits.requests or self.bytes + item.size > limits.bytes:
            raise Overloaded(f"{self.count} requests of {self.bytes} bytes wait already", wait)
        if wait > limits.wait or now + wait > item.deadline:
            raise Overloaded(f"the request would wait {wait:.3g} s", wait)
        item.came, item.number = now, self._number
        self._number += 1
        self._lines.setdefault((item.priority, item.key), deque()).append(item)
        self._count(item, 1)

    def take(self, now: float) -> tuple[list[Item], float]:
        """(the next batch, when to call again if it is empty: infinity if nothing waits)."""
        while True:
            line = self._first()
            if line is None:
                return [], math.inf
            self._clean(line, now)
            if line:
                break
            self._drop_empty()
        start = line[0].came + self.delay
        if now < start and not self._is_full(line):
            return [], min(start, min(i.deadline for i in line))
        batch = self._cut(line, now)
        self._drop_empty()
        self.running += 1
        return batch, now

    def finished(self, seconds: float) -> None:
        """A batch that `take` gave has run for so long."""
        self.running -= 1
        self.service += (seconds - self.service) * (_USUAL if self.service else 1.0)

    def abandon(self, item: Item) -> None:
        """The client has gone: a request that waits will not run, and its room is free at once."""
        item.abandoned = True
        if not item.waiting:
            return
        self._count(item, -1)
        item.payload = None
        self._dead += 1
        if self._dead > max(self.count, 64):
            for line in self._lines.values():
                alive = [i for i in line if not i.abandoned]
                line.clear()
                line.extend(alive)
            self._dead = 0
            self._drop_empty()

    def clear(self) -> list[Item]:
        """Everything that waits, taken out."""
        waiting = [i for line in self._lines.values() for i in line if not i.abandoned]
        for item in waiting:
            self._count(item, -1)
        self._lines.clear()
        self._dead = 0
        return waiting

    def _count(self, item: Item, sign: int) -> None:
        item.waiting = sign > 0
        self.count += sign
        self.bytes += sign * item.size
        self.rows += sign * item.rows

    def _first(self) -> deque[Item] | None:
        if not self._lines:
            return None
        best = min(self._lines, key=lambda k: (k[0], self._lines[k][0].number))
        return self._lines[best]

    def _drop_empty(self) -> None:
        for key in [k for k, line in self._lines.items() if not line]:
            del self._lines[key]

    def _clean(self, line: deque[Item], now: float) -> None:
        """Take out, at the front, what has expired or was abandoned."""
        while line and (line[0].abandoned or line[0].deadline <= now):
            self._end(line.popleft())

    def _end(self, item: Item) -> None:
        if item.abandoned:
            self._dead = max(self._dead - 1, 0)
            return
        self._count(item, -1)
        item.done(Expired("the request's time was over before it ran"))

    def _is_full(self, line: deque[Item]) -> bool:
        rows = 0
        for item in line:
            rows += item.rows
            if rows >= self.most:
                return True
        return False

    def _cut(self, line: deque[Item], now: float) -> list[Item]:
        batch: list[Item] = []
        room = self.most
        while line:
            self._clean(line, now)
            if not line or (batch and line[0].rows > room):
                break
            item = line.popleft()
            self._count(item, -1)
            room -= item.rows
            batch.append(item)
        return batch
