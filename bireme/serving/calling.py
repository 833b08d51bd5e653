"""Waiting for a version's answer: in a thread, and in an event loop."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from bireme.serving.errors import ClientGone, Expired
from bireme.serving.models import Arrays
from bireme.serving.version import Given, Version


def call(version: Version, inputs: Mapping[str, Any], timeout: float | None = None) -> Arrays:
    """The outputs for these inputs; waits in this thread."""
    ready, found = threading.Event(), []

    def done(outcome: Arrays | Exception) -> None:
        found.append(outcome)
        ready.set()

    deadline = math.inf if timeout is None else time.monotonic() + timeout
    given = Given({n: np.asarray(a) for n, a in inputs.items()}, deadline)
    item = version.submit(given, done)
    if not ready.wait(timeout):
        version.abandon(item)
        raise Expired(f"{version.name!r} gave no answer within {timeout} s")
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


class Answer:
    """The answer to one request in an event loop. Once nobody awaits it, it is abandoned."""

    def __init__(self, version: Version, given: Given):
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[Arrays] = self._loop.create_future()
        self._version = version
        self._item = version.submit(given, self._done)

    def _done(self, outcome: Arrays | Exception) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._settle, outcome)

    def _settle(self, outcome: Arrays | Exception) -> None:
        if self._future.done():
            return
        if isinstance(outcome, Exception):
            self._future.set_exception(outcome)
        else:
            self._future.set_result(outcome)

    def abandon(self) -> None:
        """The client has gone."""
        self._version.abandon(self._item)
        if not self._future.done():
            self._future.set_exception(ClientGone("the client has closed its connection"))

    async def wait(self) -> Arrays:
        """The outputs."""
        try:
            return await self._future
        except asyncio.CancelledError:
            self._version.abandon(self._item)
            raise
