"""One line on a terminal: how far a training is, its loss, tokens per second, and memory."""

from __future__ import annotations

import sys
import time

from bireme import device
from bireme.core import place
from bireme.profiler.memory import peak_process_bytes


class Line:
    """Redrawn at each step on a terminal; elsewhere nothing is written, unless `on` says so."""

    def __init__(self, steps: int, first: int, on: bool | None):
        stream = sys.stderr
        self._on = (stream is not None and stream.isatty()) if on is None else on
        self._steps, self._first = steps, first
        self._tokens, self._began = 0, time.perf_counter()
        self._drawn = False

    def at(self, step: int, loss: float, tokens: int) -> None:
        """`step` steps are done, the last one with this mean loss, on that many tokens."""
        now = time.perf_counter()
        if step == self._first + 1:  # the first one compiled
            self._tokens, self._began, rate = 0, now, 0.0
        else:
            self._tokens += tokens
            rate = self._tokens / max(now - self._began, 1e-9)
        if self._on:
            filled = "#" * (24 * step // max(self._steps, 1))
            sys.stderr.write(
                f"\rstep {step}/{self._steps} [{filled:24}] loss {loss:.4f}  {rate:,.0f} tokens/s  "
                f"{_memory() / 2**30:.2f} GiB at most "
            )
            sys.stderr.flush()
            self._drawn = True

    def close(self) -> None:
        """The line stays as it is."""
        if self._drawn:
            sys.stderr.write("\n")
            sys.stderr.flush()


def _memory() -> int:
    """The most memory so far: of the GPU, or of this process."""
    if place.default_place().is_gpu_place():
        return device.max_memory_allocated()
    return peak_process_bytes()
