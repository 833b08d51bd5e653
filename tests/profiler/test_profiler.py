"""Profiler: steps, spans, compilations, schedules, export."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import numpy as np
import pytest

import bireme
from bireme import profiler
from bireme.core.errors import BiremeError
from bireme.io import DataLoader
from bireme.profiler import Profiler, ProfilerState, ProfilerTarget, RecordEvent, SortedKeys


def test_steps_spans_and_report():
    with Profiler(profile_memory=True, targets=[ProfilerTarget.CPU]) as prof:
        for _ in range(3):
            with RecordEvent("long"):
                time.sleep(0.004)
            event = RecordEvent("short", "io")
            event.begin()
            event.end()
            prof.step(num_samples=8)
    assert [s.name for s in prof.steps] == ["step 0", "step 1", "step 2"]
    assert all(s.seconds >= 0.004 for s in prof.steps)
    report = prof.report()
    rows = [line.split() for line in report.splitlines()]
    assert rows.index(next(r for r in rows if r[:1] == ["long"])) < rows.index(
        next(r for r in rows if r[:1] == ["short"])
    )
    for word in ("Steps 0 to 2", "data wait ms", "Compilations", "process peak", "live arrays"):
        assert word in report
    assert "samples/s" in prof.step_info()
    assert "images/s" in prof.step_info("images")
    by_least = prof.report(sorted_by=SortedKeys.CPUMin, time_unit="us")
    assert "total us" in by_least


def test_summary_prints(capsys):
    with Profiler(timer_only=True) as prof:
        with RecordEvent("not recorded"):
            pass
        prof.step()
    prof.summary()
    out = capsys.readouterr().out
    assert "Steps 0 to 0" in out
    assert "not recorded" not in out
    assert "steps/s" in prof.step_info()


def test_schedules_are_paddles(paddle):
    options = {"closed": 1, "ready": 2, "record": 3, "repeat": 2, "skip_first": 4}
    ours = profiler.make_scheduler(**options)
    real = paddle.profiler.make_scheduler(**options)
    assert [ours(i).name for i in range(30)] == [real(i).name for i in range(30)]
    assert ours(0) is ProfilerState.CLOSED


def test_on_trace_ready_after_each_recording(tmp_path):
    finished = []
    schedule = profiler.make_scheduler(closed=1, ready=0, record=2, repeat=2)
    with Profiler(scheduler=schedule, on_trace_ready=lambda p: finished.append(len(p.steps))) as p:
        for _ in range(9):
            p.step()
    assert finished == [2, 2]
    export = profiler.export_chrome_tracing(str(tmp_path), "worker")
    with Profiler(scheduler=(1, 3), on_trace_ready=export) as p:
        for _ in range(5):
            with RecordEvent("work"):
                pass
            p.step()
    (path,) = tmp_path.iterdir()
    assert path.name == "worker_steps_1_to_3.json"
    events = json.loads(path.read_text())["traceEvents"]
    assert [e["name"] for e in events] == ["step 1", "work", "step 2", "work"]
    assert profiler.load_profiler_result(str(path)) == p.all_spans()


def test_data_wait_is_counted():
    class Slow(bireme.io.Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, i):
            time.sleep(0.01)
            return np.zeros(1)

    with Profiler() as prof:
        for _ in DataLoader(Slow(), use_buffer_reader=False):
            prof.step()
    assert sum(prof._read) >= 0.02


def test_compilations_are_counted_and_explained(monkeypatch):
    monkeypatch.setattr("bireme.host.config.compile_mode", "always")
    with profiler.count_compiles() as count, Profiler() as prof:
        for n in (2, 3):
            (bireme.to_tensor(np.ones(n, "float32")) * 2.0).numpy()
            prof.step()
    assert count == [2]
    report = profiler.compile_report(profiler.compile_events()[-2:])
    assert "Compilations: 2" in report
    assert "float32[3] instead of float32[2]" in report
    assert "test_profiler.py" in report
    assert "float32[3] instead of float32[2]" in prof.report()
    assert profiler.compile_report([]) == "Compilations: none"


def test_bad_arguments(tmp_path):
    with pytest.raises(BiremeError, match="record must be at least 1"):
        profiler.make_scheduler(closed=0, ready=0, record=0)
    with pytest.raises(BiremeError, match="first < end"):
        Profiler(scheduler=(3, 3))
    with pytest.raises(BiremeError, match="time_unit"):
        Profiler().report(time_unit="hours")
    with pytest.raises(BiremeError, match="'json' or 'pb'"):
        Profiler().export(str(tmp_path / "x"), format="txt")
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(BiremeError, match="of another format"):
        profiler.load_profiler_result(str(tmp_path / "no.json"))
    assert Profiler().step_info() == "no step has been recorded"


def test_memory_figures():
    figures = profiler.memory_figures()
    assert figures["process peak"] > 10_000_000


def test_views_of_a_summary(capsys):
    from bireme.profiler import SummaryView

    with Profiler(record_shapes=True, profile_memory=True) as prof:
        with RecordEvent("work"):
            (bireme.ones([2, 3]) * 2.0).numpy()
        prof.step()
    tables = {
        SummaryView.OverView: "Steps 0 to 0",
        SummaryView.UDFView: "Spans",
        SummaryView.OperatorView: "Ops that ran",
        SummaryView.KernelView: "Compilations",
        SummaryView.MemoryView: "Memory",
    }
    for view, title in tables.items():
        prof.summary(views=view)
        shown = capsys.readouterr().out
        assert title in shown
        assert sum(t in shown for t in tables.values()) == 1
    prof.summary(thread_sep=True, op_detail=False)
    shown = capsys.readouterr().out
    assert "Spans of thread" in shown
    assert "Ops that ran" not in shown
    assert any("float32[2, 3]" in line for line in prof.report().splitlines() if "multiply" in line)
    with pytest.raises(ValueError, match="no table for DeviceView"):
        prof.summary(views=[SummaryView.DeviceView])


def test_floating_point_operations():
    layer, x = bireme.nn.Linear(8, 16), bireme.ones([4, 8])
    with Profiler(with_flops=True) as prof:
        for _ in range(2):
            layer(x).numpy()
            prof.step()
    (row,) = [line.split() for line in prof.report().splitlines() if "linear " in line]
    assert row == ["linear", "2", str(2 * (2 * 4 * 8 * 16 + 4 * 16))]
    with Profiler() as plain:
        layer(x).numpy()
        plain.step()
    assert "FLOPs" not in plain.report()


def test_chosen_devices(monkeypatch):
    figures = {"arrays": 1, "gpu:0": 2, "npu:0": 3, "mlu:0": 4}
    monkeypatch.setattr("bireme.profiler.profiler.memory_figures", lambda: figures)

    def shown(**options) -> set[str]:
        with Profiler(profile_memory=True, **options) as prof:
            prof.step()
        return {name for name in figures if f"\n{name} " in prof.report()}

    assert shown() == set(figures)
    assert shown(targets=[ProfilerTarget.GPU]) == {"arrays", "gpu:0"}
    chosen = shown(targets=[ProfilerTarget.CUSTOM_DEVICE], custom_device_types=["npu"])
    assert chosen == {"arrays", "npu:0"}
    with pytest.raises(BiremeError, match="nsys"):
        Profiler(emit_nvtx=True)


def test_a_childs_peak_is_its_own():
    """Linux's `ru_maxrss` outlives fork and exec; the figure reported here does not."""
    code = "from bireme.profiler.memory import peak_process_bytes; print(peak_process_bytes())"
    ballast = np.ones(2**30, "uint8")  # makes this process's own peak at least 1 GiB
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ballast[-1] == 1
    assert 2**20 < int(child.stdout) < 2**29
