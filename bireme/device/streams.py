"""Streams and events.

XLA runs the programs of a device in the order in which they were submitted, so a stream here is a
name for that order: work on two streams of one device never runs the wrong way round, nor at the
same time. Events are real: they know which results were still being computed when they were
recorded, and can be asked, waited for and timed.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any

from bireme.api.types import DeviceLike
from bireme.core import place, trace
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.place import Place
from bireme.device.memory import as_accelerator


class Event:
    """A point in a stream.

    With `enable_timing`, recording waits for the work before it, so that `elapsed_time` between
    two events measures the device and not the recording. Waiting always blocks the thread, so
    `blocking` makes no difference; events cannot be passed to other processes.
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        if interprocess:
            raise InvalidArgument("[Event] events of other processes are not supported")
        self.device = place.default_place()
        self.enable_timing = enable_timing
        self._pending: list[Any] = []
        self._time: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Mark what the stream was given so far."""
        self.device = place.default_place() if stream is None else stream.device
        self._pending = _unfinished(self.device)
        if self.enable_timing:
            self.synchronize()
            self._time = time.perf_counter()

    def query(self) -> bool:
        """Whether all work before the event is done."""
        self._pending = [a for a in self._pending if not _is_ready(a)]
        return not self._pending

    def synchronize(self) -> None:
        """Wait until all work before the event is done."""
        for array in self._pending:
            if not array.is_deleted():
                array.block_until_ready()
        self._pending = []

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to `end_event`; both must have `enable_timing`."""
        if self._time is None or end_event._time is None:
            raise InvalidArgument(
                "[elapsed_time] both events must have been made with enable_timing=True and "
                "recorded"
            )
        return 1000.0 * (end_event._time - self._time)

    def __repr__(self) -> str:
        return f"Event(device={self.device}, enable_timing={self.enable_timing})"


def _unfinished(where: Place) -> list[Any]:
    """Submit what was recorded; the results that are still being computed."""
    trace.flush()
    return [a for a in where.backend().unfinished(where) if not _is_ready(a)]


def _is_ready(array: Any) -> bool:
    return array.is_deleted() or array.is_ready()


class Stream:
    """An order of work on a device. XLA decides about priorities: only the usual one is taken."""

    def __init__(
        self, device: DeviceLike | None = None, priority: int = 2, stream_base: object = None
    ) -> None:
        if stream_base is not None:
            raise TypeMismatch("[Stream] streams of other libraries cannot be used")
        if priority not in (0, 2):
            raise InvalidArgument(
                f"[Stream] priority must be 2, the usual one; XLA decides. Received: {priority!r}"
            )
        self.device = place.default_place() if device is None else as_accelerator(device)

    def record_event(self, event: Event | None = None) -> Event:
        """An event (a new one if none is given) after the work so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Later work on this stream starts after the event."""
        if event.device != self.device:  # on one device it does so anyway
            event.synchronize()

    def wait_stream(self, stream: Stream) -> None:
        """Later work on this stream starts after what `stream` was given so far."""
        self.wait_event(stream.record_event())

    def query(self) -> bool:
        """Whether all work is done."""
        return not _unfinished(self.device)

    def synchronize(self) -> None:
        """Wait until all work is done."""
        self.record_event().synchronize()

    def __repr__(self) -> str:
        return f"<bireme.device.Stream device={self.device}>"


class _Current(threading.local):
    """This thread's current stream of each device."""

    def __init__(self) -> None:
        self.streams: dict[Place, Stream] = {}


_current = _Current()


def is_current_stream_capturing() -> bool:
    """Whether a CUDA graph is being captured by hand: never, XLA makes its own."""
    return False


def current_stream(device: DeviceLike | None = None) -> Stream:
    """The stream that work on a device goes to now."""
    where = place.default_place() if device is None else as_accelerator(device)
    return _current.streams.setdefault(where, Stream(where))


def set_stream(stream: Stream) -> Stream:
    """Give work on the stream's device to it from now on; returns the one of before."""
    if not isinstance(stream, Stream):
        raise TypeMismatch(f"[set_stream] takes a Stream. Received: {type(stream).__name__}")
    before = current_stream(stream.device)
    _current.streams[stream.device] = stream
    return before


class stream_guard:  # noqa: N801 (Paddle's name)
    """Use another stream, and its device, inside a `with` block; None changes nothing."""

    def __init__(self, stream: Stream | None = None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is None:
            return
        from bireme.device import set_device

        self._device = place.default_place()
        self._before = set_stream(self.stream)
        if self.stream.device != self._device:
            set_device(self.stream.device)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self.stream is None:
            return
        from bireme.device import set_device

        set_stream(self._before)
        if self.stream.device != self._device:
            set_device(self._device)


StreamContext = stream_guard

__all__ = ["Event", "Stream", "StreamContext", "current_stream", "set_stream", "stream_guard"]
