"""Named spans of time, and their export for trace viewers."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from bireme.io.atomic import replacing
from bireme.io.foreign import read_json, read_whole, reading

if TYPE_CHECKING:
    from bireme.profiler.profiler import Profiler


@dataclass(frozen=True)
class Span:
    """Something that took time; seconds on the monotonic clock."""

    name: str
    kind: str
    start: float
    end: float
    thread: int

    @property
    def seconds(self) -> float:
        return self.end - self.start


# Profilers that are recording now; spans go to each of them.
recording: list[Profiler] = []


class RecordEvent:
    """A named span: `with RecordEvent("augment"): ...`, or `begin()` and `end()`.

    It shows in the summary of a Profiler that records meanwhile, and costs nothing otherwise.
    """

    def __init__(self, name: str, event_type: str = "user"):
        self.name = name
        self.event_type = str(event_type)
        self._start: float | None = None

    def begin(self) -> None:
        self._start = time.perf_counter()

    def end(self) -> None:
        start, self._start = self._start, None
        if start is None or not recording:
            return
        now = time.perf_counter()
        span = Span(self.name, self.event_type, start, now, threading.get_ident())
        for profiler in recording:
            profiler.spans.append(span)

    def __enter__(self) -> RecordEvent:
        self.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.end()


def export_chrome_tracing(
    dir_name: str, worker_name: str | None = None
) -> Callable[[Profiler], None]:
    """For `on_trace_ready`: writes one file per recording that chrome://tracing opens."""

    def export(profiler: Profiler) -> None:
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}_steps_{profiler.first_step}_to_{profiler.step_number}.json"
        write_chrome_trace(profiler.all_spans(), os.path.join(dir_name, name))

    return export


def write_chrome_trace(spans: list[Span], path: str) -> None:
    """Spans as a Chrome trace; our own reader finds them under `spans`."""
    events = [
        {
            "name": s.name, "cat": s.kind, "ph": "X", "pid": os.getpid(), "tid": s.thread,
            "ts": s.start * 1e6, "dur": s.seconds * 1e6,
        }
        for s in spans
    ]  # fmt: skip
    with replacing(path) as file:
        file.write(
            json.dumps({"traceEvents": events, "spans": [asdict(s) for s in spans]}).encode()
        )


def load_profiler_result(filename: str) -> list[Span]:
    """The spans of a file that `export_chrome_tracing`, `export_protobuf` or `Profiler.export`
    wrote, or that Paddle's `export_protobuf` did."""
    from bireme.profiler import protobuf

    if os.fspath(filename).endswith(protobuf.ENDING):
        data = read_whole(filename, "load_profiler_result")
        return protobuf.read_protobuf(data, os.fspath(filename))
    with reading("load_profiler_result", os.fspath(filename)):
        content: Any = read_json(filename, "load_profiler_result")
        spans = [Span(**s) for s in content["spans"]]
        for span in spans:
            if not isinstance(span.name, str) or not isinstance(span.start + span.end, int | float):
                raise ValueError(f"a span is described as {span!r:.200}")
        return spans
