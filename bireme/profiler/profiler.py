"""Profiler: times the steps of a training loop and what happens in them."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import Any

from bireme.core import checks, stats
from bireme.core.errors import InvalidArgument
from bireme.io import dataloader
from bireme.profiler import events
from bireme.profiler.events import Span, write_chrome_trace
from bireme.profiler.flops import flops_of
from bireme.profiler.memory import memory_figures
from bireme.profiler.protobuf import write_protobuf
from bireme.profiler.tables import compile_report, shown_bytes, table


class ProfilerState(Enum):
    """What a Profiler does in a step."""

    CLOSED = 0
    READY = 1
    RECORD = 2
    RECORD_AND_RETURN = 3


class ProfilerTarget(Enum):
    """Whose memory the summary shows."""

    CPU = 0
    GPU = 1
    XPU = 2
    CUSTOM_DEVICE = 3


class SortedKeys(Enum):
    """Orders of the summary's table of spans."""

    CPUTotal = 0
    CPUAvg = 1
    CPUMax = 2
    CPUMin = 3


class SummaryView(Enum):
    """The tables of a summary. There is none of devices, kernels' copies or communication: XLA
    runs whole programs, and a device's own profiler sees inside them."""

    DeviceView = 0
    OverView = 1  # steps
    ModelView = 2  # steps
    DistributedView = 3
    KernelView = 4  # fast kernels that ran, and compilations
    OperatorView = 5  # ops that ran
    MemoryView = 6  # needs profile_memory=True
    MemoryManipulationView = 7
    UDFView = 8  # spans of RecordEvent


Scheduler = Callable[[int], ProfilerState]
_RECORDING = (ProfilerState.RECORD, ProfilerState.RECORD_AND_RETURN)


def make_scheduler(
    *, closed: int, ready: int, record: int, repeat: int = 0, skip_first: int = 0
) -> Scheduler:
    """Cycles of `closed` idle steps, `ready` warm-up steps and `record` recorded ones.

    `repeat=0` goes on for ever; `skip_first` steps come before the first cycle.
    """
    if min(closed, ready, repeat, skip_first) < 0 or record < 1:
        raise InvalidArgument(
            "[make_scheduler] record must be at least 1 and the others at least 0. Received: "
            f"closed={closed}, ready={ready}, record={record}, repeat={repeat}, "
            f"skip_first={skip_first}"
        )
    length = closed + ready + record

    def state(step: int) -> ProfilerState:
        cycle, at = divmod(step - skip_first, length)
        if cycle < 0 or (repeat and cycle >= repeat) or at < closed:
            return ProfilerState.CLOSED
        if at < closed + ready:
            return ProfilerState.READY
        return ProfilerState.RECORD_AND_RETURN if at == length - 1 else ProfilerState.RECORD

    return state


class Profiler:
    """Times steps, spans (`RecordEvent`) and compilations between `start()` and `stop()`.

    Call `step()` at the end of each training step. A step's time is the time from one call to
    the next: operations run when their results are needed, so single lines are not timed.
    `scheduler` is a range of steps `(first, end)` or a function such as `make_scheduler` makes;
    `on_trace_ready(profiler)` is called after each recording. With `with_flops` the table of ops
    says how many floating-point operations they were. `custom_device_types` chooses among
    CustomDevice targets whose memory is shown.
    """

    def __init__(
        self,
        *,
        targets: Iterable[ProfilerTarget] | None = None,
        scheduler: Scheduler | tuple[int, int] | None = None,
        on_trace_ready: Callable[[Profiler], None] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        timer_only: bool = False,
        emit_nvtx: bool = False,
        custom_device_types: Sequence[str] = (),
        with_flops: bool = False,
    ):
        if emit_nvtx:
            raise InvalidArgument(
                "[Profiler] emit_nvtx: XLA marks its own ranges for NVIDIA's tools; run under nsys"
            )
        self.targets = list(ProfilerTarget) if targets is None else list(targets)
        self.on_trace_ready = on_trace_ready
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.timer_only = timer_only
        self.custom_device_types = list(custom_device_types)
        self.with_flops = with_flops
        self.calls: Counter[Any] = Counter()
        self.step_number = 0
        self.first_step = 0
        self.state = ProfilerState.CLOSED
        self.spans: list[Span] = []
        self.ops: Counter[tuple[str, ...]] = Counter()
        self.kernels: Counter[tuple[str, str]] = Counter()
        self.steps: list[Span] = []
        self.samples: list[int] = []
        self._read: list[float] = []
        self._schedule = _as_schedule(scheduler)
        self._step_start = 0.0
        self._read_start = 0.0
        self._compiled_before = 0
        self._running = False

    def start(self) -> None:
        """Begin; step 0 starts now."""
        self._running = True
        self._compiled_before = stats.statistics.finished
        self._step_start, self._read_start = time.perf_counter(), dataloader.waited[0]
        self._enter(self._schedule(self.step_number))

    def stop(self) -> None:
        """End; the step in progress is not counted."""
        if self._running:
            self._running = False
            self._leave(finished=self.state in _RECORDING)

    def step(self, num_samples: int | None = None) -> None:
        """Mark the end of a step that processed `num_samples` samples."""
        now, read = time.perf_counter(), dataloader.waited[0]
        if self.state in _RECORDING:
            name = f"step {self.step_number}"
            self.steps.append(Span(name, "step", self._step_start, now, threading.get_ident()))
            self.samples.append(num_samples or 0)
            self._read.append(read - self._read_start)
        self.step_number += 1
        self._step_start, self._read_start = now, read
        before, after = self.state, self._schedule(self.step_number)
        if before is ProfilerState.RECORD_AND_RETURN:
            self._leave(finished=True)
            self._enter(after)
        elif (before in _RECORDING) != (after in _RECORDING):
            self._leave(finished=before in _RECORDING)
            self._enter(after)
        else:
            self.state = after

    def _enter(self, state: ProfilerState) -> None:
        self.state = state
        if state in _RECORDING:
            self.first_step = self.step_number
            self.spans, self.steps, self.samples, self._read = [], [], [], []
            self.ops, self.kernels, self.calls = Counter(), Counter(), Counter()
            if not self.timer_only:
                events.recording.append(self)
                checks.counters.append(self._count)

    def _leave(self, finished: bool) -> None:
        if self in events.recording:
            events.recording.remove(self)
            checks.counters.remove(self._count)
        self.state = ProfilerState.CLOSED
        if finished and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def _count(self, calls: list[Any], kernels: Mapping[tuple[str, str], int]) -> None:
        self.kernels.update(kernels)
        for call in calls:
            shapes = (call.describe_inputs(),) if self.record_shapes else ()
            self.ops[call.op.shown, *shapes] += 1
            if self.with_flops:
                self.calls[call] += 1

    def __enter__(self) -> Profiler:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.stop()

    def all_spans(self) -> list[Span]:
        """Recorded steps and spans in order of time."""
        return sorted([*self.steps, *self.spans], key=lambda s: s.start)

    def export(self, path: str, format: str = "json") -> None:
        """Write the recording as a Chrome trace ("json") or in Paddle's format ("pb")."""
        if format not in ("json", "pb"):
            raise InvalidArgument(
                f"[Profiler.export] format is 'json' or 'pb'. Received: {format!r}"
            )
        write = write_chrome_trace if format == "json" else write_protobuf
        write(self.all_spans(), path)

    def step_info(self, unit: str | None = None) -> str:
        """One line on the last ten steps: waiting for data, whole step, samples per second."""
        last = slice(-10, None)
        seconds = [s.seconds for s in self.steps[last]]
        if not seconds:
            return "no step has been recorded"
        reading, whole = sum(self._read[last]) / len(seconds), sum(seconds) / len(seconds)
        count = sum(self.samples[last])
        speed, what = (count, unit or "samples") if count else (len(seconds), "steps")
        return (
            f"reader_cost: {reading:.5f} s batch_cost: {whole:.5f} s "
            f"ips: {speed / sum(seconds):.3f} {what}/s"
        )

    def summary(
        self,
        sorted_by: SortedKeys = SortedKeys.CPUTotal,
        op_detail: bool = True,
        thread_sep: bool = False,
        time_unit: str = "ms",
        views: SummaryView | Sequence[SummaryView] | None = None,
    ) -> None:
        """Print `report()`."""
        text = self.report(sorted_by, time_unit, op_detail, thread_sep, views)
        sys.stdout.write(text + "\n")

    def report(
        self,
        sorted_by: SortedKeys = SortedKeys.CPUTotal,
        time_unit: str = "ms",
        op_detail: bool = True,
        thread_sep: bool = False,
        views: SummaryView | Sequence[SummaryView] | None = None,
    ) -> str:
        """Tables of steps, spans, ops, kernels, compilations, memory; `views` chooses among them.

        Without `op_detail` ops are left out; with `thread_sep` each thread has its own spans.
        """
        scales = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
        if time_unit not in scales:
            raise InvalidArgument(
                f"[summary] time_unit must be one of {', '.join(scales)}. Received: {time_unit!r}"
            )
        scale = scales[time_unit]
        wanted = _views(views)
        parts = []
        if {SummaryView.OverView, SummaryView.ModelView} & wanted:
            parts.append(self._step_table(scale, time_unit))
        if self.spans and SummaryView.UDFView in wanted:
            parts += self._span_tables(scale, time_unit, sorted_by, thread_sep)
        if self.ops and op_detail and SummaryView.OperatorView in wanted:
            parts.append(self._op_table())
        if SummaryView.KernelView in wanted:
            if self.kernels:
                rows = [[*key, count] for key, count in self.kernels.most_common()]
                parts.append(table("Kernels that ran", ("op", "kernel", "calls"), rows))
            parts.append(compile_report(stats.events_since(self._compiled_before)))
        if self.profile_memory and SummaryView.MemoryView in wanted:
            parts.append(self._memory_table())
        return "\n\n".join(parts)

    def _op_table(self) -> str:
        head = ("op", "inputs", "calls") if self.record_shapes else ("op", "calls")
        rows = [[*key, count] for key, count in self.ops.most_common()]
        if not self.with_flops:
            return table("Ops that ran", head, rows)
        flops: Counter[tuple[str, ...]] = Counter()
        for call, count in self.calls.items():
            shapes = (call.describe_inputs(),) if self.record_shapes else ()
            flops[call.op.shown, *shapes] += count * flops_of(call)
        for row in rows:
            row.append(flops[tuple(row[:-1])])
        return table("Ops that ran", (*head, "FLOPs"), rows)

    def _step_table(self, scale: float, unit: str) -> str:
        seconds = [s.seconds for s in self.steps]
        if not seconds:
            return "Steps: none recorded"
        row = [len(seconds), *[v * scale for v in _spread(seconds)], sum(self._read) * scale]
        head = ("steps", *[f"{n} {unit}" for n in ("mean", "median", "min", "max", "data wait")])
        return table(f"Steps {self.first_step} to {self.step_number - 1}", head, [row])

    def _span_tables(
        self, scale: float, unit: str, order: SortedKeys, by_thread: bool
    ) -> list[str]:
        if not by_thread:
            return [_span_table("Spans", self.spans, scale, unit, order)]
        threads = list(dict.fromkeys(span.thread for span in self.spans))
        return [
            _span_table(
                f"Spans of thread {thread}",
                [s for s in self.spans if s.thread == thread],
                scale,
                unit,
                order,
            )
            for thread in threads
        ]

    def _shows(self, device: str | None, wanted: set[str]) -> bool:
        """Whether the memory of this kind of device (None: of the process) was asked for."""
        if device is None or device in wanted:
            return True
        kinds = self.custom_device_types
        return "custom_device" in wanted and (not kinds or device in kinds)

    def _memory_table(self) -> str:
        wanted = {t.name.lower() for t in self.targets}
        rows = [
            [name, shown_bytes(n)]
            for name, n in memory_figures().items()
            if self._shows(name.partition(":")[0] if ":" in name else None, wanted)
        ]
        return table("Memory", ("what", "bytes"), rows)


def _span_table(title: str, spans: list[Span], scale: float, unit: str, order: SortedKeys) -> str:
    groups: dict[str, list[float]] = {}
    for span in spans:
        groups.setdefault(span.name, []).append(span.seconds)
    rows = []
    for name, times in groups.items():
        mean, _, low, high = _spread(times)
        figures = [v * scale for v in (sum(times), mean, high, low)]
        rows.append([name, len(times), *figures])
    column = 2 + list(SortedKeys).index(order)
    rows.sort(key=lambda r: -r[column])
    figures = [f"{n} {unit}" for n in ("total", "mean", "max", "min")]
    return table(title, ("name", "calls", *figures), rows)


def _views(views: SummaryView | Sequence[SummaryView] | None) -> set[SummaryView]:
    lacking = {
        SummaryView.DeviceView,
        SummaryView.DistributedView,
        SummaryView.MemoryManipulationView,
    }
    if views is None:
        return set(SummaryView) - lacking
    wanted = {views} if isinstance(views, SummaryView) else set(views)
    if wanted & lacking:
        names = ", ".join(sorted(v.name for v in wanted & lacking))
        raise InvalidArgument(f"[summary] there is no table for {names}")
    return wanted


def _spread(seconds: Sequence[float]) -> tuple[float, float, float, float]:
    ordered = sorted(seconds)
    return sum(ordered) / len(ordered), ordered[len(ordered) // 2], ordered[0], ordered[-1]


def _as_schedule(scheduler: Scheduler | tuple[int, int] | None) -> Scheduler:
    if scheduler is None:
        return lambda step: ProfilerState.RECORD
    if callable(scheduler):
        return scheduler
    first, end = scheduler
    if not 0 <= first < end:
        raise InvalidArgument(
            f"[Profiler] scheduler=(first, end) needs 0 <= first < end. Received: {scheduler!r}"
        )
    return make_scheduler(closed=0, ready=0, record=end - first, repeat=1, skip_first=first)
