"""Programs that start with a quick compilation and go on with the best one.

On a GPU XLA spends most of a compilation on a search: it writes each product as many kernels and
times them. A program that is compiled without it runs nearly as fast, seconds after it was first
seen. So the search happens beside the runs, for programs that are still run by then, and its result
takes the place of the quick one between two runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from bireme.host import background, thresholds


class Improvement:
    """The best compilation of a program that was compiled quickly."""

    def __init__(self, compile_best: Callable[[], Any]):
        self._compile = compile_best
        self._runs = 0
        self._since = 0.0
        self._future: Future[Any] | None = None

    def after_run(self) -> Any:
        """The best compilation if it is there by now, else None. Called before each run."""
        if self._future is None:
            self._runs += 1
            if self._runs == 1:
                self._since = time.monotonic()
            if (
                self._runs < thresholds.SEARCHED_RUNS
                or time.monotonic() - self._since < thresholds.SEARCHED_SECONDS
            ):
                return None
            self.start()
        return self.result() if self._future is not None and self._future.done() else None

    def start(self) -> None:
        """Begin the search now."""
        if self._future is None:
            self._future = background.submit_aside(self._compile)

    def result(self) -> Any:
        """Wait for the search; None if it failed, which leaves the quick program as it is."""
        self.start()
        assert self._future is not None  # noqa: S101 (start made it)
        return None if self._future.exception() is not None else self._future.result()

    @property
    def has_failed(self) -> bool:
        return (
            self._future is not None
            and self._future.done()
            and self._future.exception() is not None
        )
