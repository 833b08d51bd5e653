"""`python -m bench.gpu`: who prepares and who is measured when, and what the table says of it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # `bench` is run from the checkout, not installed

from bench import report  # noqa: E402
from bench.gpu import plan, table  # noqa: E402
from bench.gpu.peer import GpuPeer, PeerError  # noqa: E402
from bench.gpu.schedule import NOT_REACHED, Outcome, Schedule, waves  # noqa: E402

GPU_GIB = 139.0


@dataclass(frozen=True)
class Task:
    workload: str
    peer: str = "bireme"
    gib: float = 1.0
    seconds: float = 1.0
    fault: str = ""
    alone: bool = False

    @property
    def name(self) -> str:
        return f"{self.workload} {self.peer}"


@dataclass
class Machine:
    """Notes what its workers do, and at which moment somebody else did something."""

    living: dict[str, float] = field(default_factory=dict)
    preparing: set[str] = field(default_factory=set)
    events: list[str] = field(default_factory=list)
    most_preparing: int = 0
    beside: set[str] = field(default_factory=set)  # who prepared while somebody was to be alone
    most_gib: float = 0.0
    disturbed: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    together: threading.Barrier | None = None  # where those that prepare at once meet

    def start(self, task: Task) -> Fake:
        if task.fault == "start":
            raise OSError("no such program")
        with self.lock:
            self.living[task.name] = task.gib
            self.most_gib = max(self.most_gib, sum(self.living.values()))
        return Fake(task, self)

    def run(self, tasks: list[Task], budget: float = 10.0, **options: Any) -> dict[Task, Outcome]:
        settings = {"deadline": 60.0, "pause": 0.0, "measuring": 0.0, "tell": self.events.append}
        return Schedule[Task](self.start, **(settings | options)).run(tasks, budget)


class Fake:
    """A worker that does nothing, for ever or with an error where its task says so."""

    def __init__(self, task: Task, machine: Machine):
        self.task, self.machine = task, machine
        self.ended = threading.Event()

    def prepare(self) -> dict[str, Any]:
        machine = self.machine
        with machine.lock:
            machine.preparing.add(self.task.name)
            machine.most_preparing = max(machine.most_preparing, len(machine.preparing))
            if any(name.startswith("alone") for name in machine.preparing):
                machine.beside |= machine.preparing
        if machine.together is not None and not self.task.alone:
            machine.together.wait(60)
        try:
            return self._do("prepare", {"ready_s": 1.0})
        finally:
            with machine.lock:
                machine.preparing.discard(self.task.name)

    def measure(self) -> dict[str, Any]:
        with self.machine.lock:
            self.machine.disturbed += self.machine.preparing
        return self._do("measure", {"ms": 2.0})

    def end(self) -> None:
        self.ended.set()
        with self.machine.lock:
            del self.machine.living[self.task.name]

    def _do(self, what: str, result: dict[str, Any]) -> dict[str, Any]:
        if self.task.fault == f"{what} hangs":
            self.ended.wait()
            raise PeerError("ended")
        if self.task.fault == f"{what} dies":
            raise PeerError("process ended with status -11; Segmentation fault")
        return result


def names(divided: list[list[Task]]) -> list[list[str]]:
    return [[task.name for task in wave] for wave in divided]


def test_who_is_to_be_alone_prepares_first_and_alone() -> None:
    machine = Machine(together=threading.Barrier(3))
    tasks = [Task(n, seconds=9) for n in "abc"] + [Task("alone", alone=True)]
    outcomes = machine.run(tasks)
    assert all(not o.problem for o in outcomes.values())
    assert machine.beside == {"alone bireme"}
    assert "alone bireme: ready" in machine.events[0]
    assert machine.most_preparing == 3


def test_waves_fit_and_keep_a_workload_together() -> None:
    tasks = [Task("a", "x", 4), Task("a", "y", 3), Task("b", "x", 5), Task("c", "x", 3)]
    assert names(waves(tasks, 10)) == [["a x", "a y", "c x"], ["b x"]]
    assert names(waves(tasks, 15)) == [["a x", "a y", "b x", "c x"]]


def test_waves_divide_what_is_too_large() -> None:
    tasks = [Task("a", "x", 6), Task("a", "y", 7), Task("b", "x", 12), Task("c", "x", 3)]
    assert names(waves(tasks, 10)) == [["a x", "c x"], ["a y"], ["b x"]]


def test_the_plan_needs_two_waves() -> None:
    jobs = plan.jobs(plan.NAMES, list(plan.LABELS), GPU_GIB, tiny=False)
    divided = waves(jobs, GPU_GIB)
    assert len(divided) == 2
    assert all(sum(job.gib for job in wave) <= GPU_GIB for wave in divided)
    assert {(job.workload, job.peer) for job in jobs} >= {
        (limit.workload, peer)
        for limit in plan.LIMITS
        for peer in ("bireme", limit.against)
        if peer
    }
    for job in jobs:
        share = float(job.environment.get("XLA_CLIENT_MEM_FRACTION", 0))
        assert share * GPU_GIB < job.gib
        assert (share > 0) == (job.peer == "bireme")


def test_measuring_is_done_alone_and_memory_kept() -> None:
    machine = Machine()
    tasks = [Task(w, p, gib=2.0) for w in "abcdef" for p in ("bireme", "torch")]
    outcomes = machine.run(tasks, budget=9.0, at_once=3)
    assert list(outcomes) == tasks
    assert all(
        o.figures == {"ready_s": 1.0, "ms": 2.0} and not o.problem for o in outcomes.values()
    )
    assert machine.disturbed == []
    assert 1 <= machine.most_preparing <= 3
    assert machine.most_gib == 8.0
    assert machine.living == {}


def test_the_longest_prepares_first_and_peers_are_measured_in_order() -> None:
    machine = Machine()
    tasks = [Task("a", "x", seconds=1), Task("a", "y", seconds=9), Task("b", "x", seconds=5)]
    machine.run(tasks, at_once=1)
    said = [line.split("s  ")[1] for line in machine.events]
    assert said == ["a y: ready", "b x: ready", "a x: ready"] + [
        f"{name}: measured" for name in ("a x", "a y", "b x")
    ]


@pytest.mark.parametrize("fault", ["start", "prepare dies", "prepare hangs", "measure dies"])
def test_a_worker_that_fails_stops_nobody(fault: str) -> None:
    machine = Machine()
    bad, *good = [Task("a", "x", fault=fault), Task("a", "y"), Task("b", "x", gib=10.0)]
    outcomes = machine.run([bad, *good], patience=0.1 if "hangs" in fault else 60.0, at_once=2)
    reasons = {"start": "no such program", "prepare hangs": "still preparing after 0 s"}
    assert reasons.get(fault, "Segmentation fault") in outcomes[bad].problem
    assert [outcomes[task].problem for task in good] == ["", ""]
    assert machine.living == {}


def test_at_the_deadline_what_is_ready_is_measured() -> None:
    machine = Machine()
    tasks = [Task("a"), Task("b", fault="prepare hangs")]
    # One is ready: from half a second on, the rest is for measuring it.
    outcomes = machine.run(tasks, deadline=10.0, measuring=9.5, patience=60.0)
    assert outcomes[tasks[0]].figures["ms"] == 2.0
    assert outcomes[tasks[1]].problem == "still preparing at the deadline"
    assert machine.living == {}


def test_nothing_starts_after_the_deadline() -> None:
    machine = Machine()
    outcomes = machine.run([Task("a"), Task("b", gib=10.0)], deadline=0.0)
    assert [o.problem for o in outcomes.values()] == [NOT_REACHED] * 2
    assert machine.most_gib == 0.0


def test_the_deadline_ends_a_measurement() -> None:
    machine = Machine()
    tasks = [Task("a", fault="measure hangs"), Task("b")]
    outcomes = machine.run(tasks, deadline=1.5)
    assert outcomes[tasks[0]].problem == "the deadline came while it was measured"
    assert outcomes[tasks[1]].problem == NOT_REACHED
    assert machine.living == {}


ON_CPU = {"JAX_PLATFORMS": "cpu", "BIREME_NATIVE": "0"}


@pytest.fixture
def spectral(request: pytest.FixtureRequest) -> Any:
    """Starts a process with so many points; its log has the test's name."""
    with ExitStack() as stack:

        def start(points: Any) -> GpuPeer:
            arguments = {"points": points, "steps": 1}
            peer = GpuPeer(request.node.name, "bireme", "spectral", arguments, **ON_CPU)
            stack.callback(peer.__enter__().end)
            return peer

        yield start


def test_a_process_prepares_and_measures(spectral: Any) -> None:
    peer = spectral(8)
    figures = peer.prepare() | peer.measure()
    assert figures["device"] == "cpu"
    assert figures["ready_s"] > 0
    assert figures["ms"] > 0
    assert figures["memory_gib"] is None


def test_a_process_says_what_failed(spectral: Any) -> None:
    peer = spectral("eight")
    with pytest.raises(PeerError, match="TypeError"):
        peer.prepare()


def test_a_process_that_was_killed_shows_what_it_wrote(spectral: Any) -> None:
    peer = spectral(8)
    os.kill(peer.process.pid, signal.SIGKILL)
    with pytest.raises(PeerError, match="status -9; it wrote nothing"):
        peer.prepare()
    Path(peer.log.name).write_text("a\n" * 9 + "CUDA error: out of memory\n")
    with pytest.raises(PeerError, match=r"a / CUDA error: out of memory$"):
        peer.measure()


def test_ending_a_process_ends_the_call_that_waits_for_it() -> None:
    outcomes = Schedule[Any](
        lambda job: job.start(**ON_CPU),
        deadline=60.0,
        patience=0.2,
    ).run([plan.Job("test", "bireme", "decode", {"size": "tiny"}, 1, 1, {})], 2)
    assert [o.problem for o in outcomes.values()] == ["still preparing after 0 s"]


def measured(**figures: float) -> dict[str, Any]:
    return {"figures": figures, "problem": ""}


def test_the_table_says_what_was_met() -> None:
    results = {
        "gpt2": {
            "bireme": measured(ms=96.9, memory_gib=9.0, ready_s=75.0, of_ceiling=0.5),
            "compile": measured(ms=100.0, memory_gib=8.9, ready_s=41.0, of_ceiling=0.49),
            "torch": {"figures": {"ready_s": 9.0}, "problem": "out of memory"},
        },
        "decode": {"bireme": measured(ms=1.0, of_ceiling=0.61), "torch": measured(ms=1.2)},
        "spectral": {"bireme": measured(ms=7.0), "torch": measured(ms=9.0)},
    }
    verdicts = [
        (limit.workload, limit.figure, table.verdict(limit, results)[1])
        for limit in plan.LIMITS
        if limit.workload in results
    ]
    assert verdicts == [
        ("gpt2", "ms", "met"),
        ("gpt2", "ms", "not measured"),
        ("gpt2", "memory_gib", "**missed**"),
        ("decode", "ms", "met"),
        ("decode", "of_ceiling", "met"),
        ("spectral", "ms", "-"),
    ]
    text = table.render(results, "Ceilings.")
    assert "| 0.969 | ≤ 0.97 |" in text
    assert "9.00 GiB |   8.90 GiB | 1.011 | ≤ 1.00 |" in text
    assert "75, 41" in text
    assert "- n/a: `gpt2`, torch eager: out of memory" in text
    assert "llama1b" not in text
    assert table.incomplete(results)
    del results["gpt2"]["torch"]
    assert not table.incomplete(results)


def test_the_documentation_has_a_place_for_it() -> None:
    where = report.machine() | {"gpu": "a chip"}
    assert f", a chip with {where['cpu']}" in report.caption(where)
    assert "new text" in report.with_section(report.DOCS.read_text(), "gpu", "new text")
