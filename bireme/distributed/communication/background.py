"""Exchanges in the background: one thread makes them in the order in which they were asked for.

All processes of a group have to call their exchanges in one order, so those that are waited for go
through the same line while it is not empty. A result that is still to come is a Value like any
other: whoever reads its tensor, or computes with it, waits for it.
"""

from __future__ import annotations

import atexit
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from bireme.core import checks
from bireme.core.aval import Aval
from bireme.core.value import Value, promise
from bireme.host import config

Job = Callable[[], Sequence[Any]]


class Coming:
    """Values that an exchange makes; to them it is what a trace is to others."""

    def __init__(self, types: Sequence[Aval]):
        self.promised = [promise(t, self, i) for i, t in enumerate(types)]
        self.done: Future[None] = Future()

    def arrived(self, arrays: Sequence[Any]) -> None:
        for value, array in zip(self.promised, arrays, strict=True):
            value.buf = array
            value.trace = None
        self.promised = []
        self.done.set_result(None)

    def materialize_elsewhere(self, value: Value) -> None:
        """Wait for a value; raises what the exchange raised."""
        self.done.result()

    def named(self, tensor: object) -> None:
        """A tensor of these values has got a name."""


class _Line:
    """The jobs that wait, and the thread that does them."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Job, Coming]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # held by the exchange under way
        self._waiting: list[Coming] = []
        self._thread: threading.Thread | None = None

    def later(self, job: Job, types: Sequence[Aval]) -> tuple[Coming, list[Value]]:
        """Do a job after those before; it returns arrays of these types, the values' contents."""
        coming = Coming(types)
        values = coming.promised
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
                checks.starting.append(self._before)
                atexit.register(self._at_exit)
            self._waiting.append(coming)
            self._jobs.put((job, coming))
        return coming, values

    def now(self, job: Job) -> Any:
        """Do a job after those before, and return its results."""
        if threading.current_thread() is not self._thread:
            for before in list(self._waiting):
                before.done.exception()
            with self._turn:
                return job()
        return job()

    def _work(self) -> None:
        while True:
            job, coming = self._jobs.get()
            try:
                with self._turn:
                    arrays = job()
                coming.arrived(arrays)
            except BaseException as e:
                coming.done.set_exception(e)
            finally:
                with self._lock:
                    self._waiting.remove(coming)
            del job, coming

    def _before(self, executable: Any) -> None:
        """Programs over devices of several processes exchange as well, in an order of their own."""
        if config.sharded:
            for each in list(self._waiting):
                each.done.exception()

    def _at_exit(self) -> None:
        """The others may count on what was begun, unless this process has failed."""
        if getattr(sys, "last_value", None) is None:
            for each in list(self._waiting):
                each.done.exception()


line = _Line()
