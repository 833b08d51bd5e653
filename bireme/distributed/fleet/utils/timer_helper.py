"""Named stopwatches for the steps of a training."""

from __future__ import annotations

import time
from collections.abc import Iterable

from bireme.core.errors import InvalidArgument
from bireme.device import synchronize


class _Timer:
    """A stopwatch that waits for the device when it starts and stops."""

    def __init__(self, name: str):
        self.name = name
        self.elapsed_ = 0.0
        self.started_ = False
        self.start_time = time.perf_counter()

    def start(self) -> None:
        if self.started_:
            raise InvalidArgument(f"[Timers] {self.name!r} has started already")
        synchronize()
        self.start_time = time.perf_counter()
        self.started_ = True

    def stop(self) -> None:
        if not self.started_:
            raise InvalidArgument(f"[Timers] {self.name!r} was not started")
        synchronize()
        self.elapsed_ += time.perf_counter() - self.start_time
        self.started_ = False

    def reset(self) -> None:
        self.elapsed_ = 0.0
        self.started_ = False

    def elapsed(self, reset: bool = True) -> float:
        """Seconds between starts and stops so far; a running stopwatch goes on running."""
        running = self.started_
        if running:
            self.stop()
        seconds = self.elapsed_
        if reset:
            self.reset()
        if running:
            self.start()
        return seconds


_GPUEventTimer = _Timer


class Timers:
    """Stopwatches by name: `timers("forward").start()`."""

    def __init__(self) -> None:
        self.timers: dict[str, _Timer] = {}

    def __call__(self, name: str, use_event: bool = False) -> _Timer:
        """The stopwatch of this name; each waits for the device, with `use_event` or without."""
        return self.timers.setdefault(name, _Timer(name))

    def log(self, names: Iterable[str], normalizer: float = 1.0, reset: bool = True) -> None:
        """Print milliseconds, divided by `normalizer`."""
        shown = [
            f"{name}: {self.timers[name].elapsed(reset) * 1000 / normalizer:.2f}" for name in names
        ]
        print(" | ".join(["time (ms)", *shown]), flush=True)  # noqa: T201


_timers: Timers | None = None


def is_timer_initialized() -> bool:
    """Whether `set_timers` was called."""
    return _timers is not None


def set_timers() -> None:
    """Make the stopwatches of the process, once."""
    global _timers
    if _timers is not None:
        raise InvalidArgument("[set_timers] there are timers already; get_timers() gives them")
    _timers = Timers()


def get_timers() -> Timers:
    """The stopwatches of the process."""
    if _timers is None:
        raise InvalidArgument("[get_timers] there are no timers yet; call set_timers() first")
    return _timers


__all__ = ["Timers", "get_timers", "is_timer_initialized", "set_timers"]
