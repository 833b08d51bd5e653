"""Waiting for a compiler, with a line on the terminal that says so."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")

# Seconds of silence before the line, and between two of its states.
_SILENT, _PAUSE = 3.0, 0.5


def result(future: Future[T], what: Callable[[], str]) -> T:
    """The future's result. Whoever waits for more than three seconds at a terminal reads there what
    for; the line goes when the waiting ends."""
    began = time.monotonic()
    if not wait((future,), _SILENT).done and _is_terminal():
        width = 0
        try:
            while not wait((future,), _PAUSE).done:
                line = f"{what()}: {time.monotonic() - began:.0f} s"
                width = max(width, len(line))
                print(f"\r{line}", end="", file=sys.stderr, flush=True)  # noqa: T201
        finally:
            print("\r" + " " * width + "\r", end="", file=sys.stderr, flush=True)  # noqa: T201
    return future.result()


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
