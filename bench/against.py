"""`bench against REVISION`: this checkout and an earlier commit of it, turn by turn."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench import cold, memory, report
from bench.eager import Timing, take_turns
from bench.processes import ROOT, Peer, PeerError

SIDES = ("now", "before")
RECORDED_STEPS = 100


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """A working tree of this repository at another commit."""
    with tempfile.TemporaryDirectory(prefix="bireme-bench-") as folder:
        path = Path(folder) / "before"
        subprocess.run(
            ["git", "worktree", "add", "--quiet", "--detach", str(path), revision],
            cwd=ROOT,
            check=True,
        )
        try:
            yield path
        finally:
            subprocess.run(
                ["git", "worktree", "remove", "--force", str(path)], cwd=ROOT, check=True
            )


def steps(
    peer: str, workload: str, roots: dict[str, Path], rounds: int, turn_seconds: float
) -> dict[str, Timing]:
    """Times of training steps of both sides, in turns while the cores are near each other."""
    timings = {side: Timing() for side in roots}
    with ExitStack() as stack:
        turns = {}
        for side, root in roots.items():
            try:
                worker = stack.enter_context(Peer(peer, workload, root))
                worker.ask("check")
                count = max(2, round(turn_seconds / worker.ask("warm")))
                turns[side] = partial(worker.ask, "turn", count)
            except PeerError as e:
                timings[side].problem = str(e)
        take_turns(timings, turns, rounds)
    return timings


def recording(workload: str, roots: dict[str, Path]) -> dict[str, float]:
    """Microseconds of Python in a step, the least of three processes of each side."""
    found: dict[str, list[float]] = {side: [] for side in roots}
    for _ in range(3):
        for side, root in roots.items():
            with Peer("bireme", workload, root) as worker:
                figures = worker.ask("record", RECORDED_STEPS)
                found[side].append(figures["record_us"] + figures["lookup_us"])
    return {side: min(values) for side, values in found.items()}


def first_results(roots: dict[str, Path], runs: int) -> dict[str, float]:
    """Seconds from process start to `x + 1`."""
    found: dict[str, list[float]] = {side: [] for side in roots}
    for _ in range(runs + 1):
        for side, root in roots.items():
            found[side].append(cold.first_result_seconds(cold.FIRST_RESULT["bireme"], root))
    return {side: min(seconds[1:]) for side, seconds in found.items()}


def changing_lengths(roots: dict[str, Path], runs: int) -> dict[str, float]:
    """Seconds of a loop of ever new sequence lengths, with an empty disk cache."""
    return _with_empty_cache(
        "encoder", roots, runs, lambda w: sum(w.ask("lengths", cold.different_lengths()))
    )


def peaks(workload: str, roots: dict[str, Path], runs: int) -> dict[str, float]:
    """Peak resident MiB of training steps."""
    return _with_empty_cache(
        workload, roots, runs, lambda w: w.ask("memory", memory.STEPS)["steps"]
    )


def _with_empty_cache(
    workload: str, roots: dict[str, Path], runs: int, ask: Any
) -> dict[str, float]:
    found: dict[str, list[float]] = {side: [] for side in roots}
    for _ in range(runs):
        for side, root in roots.items():
            with (
                tempfile.TemporaryDirectory() as cache,
                Peer("bireme", workload, root, BIREME_CACHE_DIR=cache) as worker,
            ):
                found[side].append(ask(worker))
    return {side: statistics.median(values) for side, values in found.items()}


def main(
    revision: str,
    kinds: list[str],
    workloads: list[str],
    rounds: int,
    turn_seconds: float,
    update_docs: bool,
) -> None:
    where = report.machine()
    rows: list[list[str]] = []
    results: dict[str, Any] = {}

    def add(what: str, figures: dict[str, float | None], unit: str) -> None:
        now, before = (figures.get(side) for side in SIDES)
        results[what] = figures
        ratio = f"{now / before:.3f}" if now and before else "n/a"
        cells = ["n/a" if v is None else f"{v:.3f} {unit}" for v in (now, before)]
        rows.append([what, ratio, *cells])
        print("  " + "  ".join(rows[-1]), flush=True)

    with checkout(revision) as path:
        roots = {"now": ROOT, "before": path}
        for kind, peer in (("eager", "bireme"), ("to_static", "captured")):
            for workload in workloads if kind in kinds else ():
                found = steps(peer, workload, roots, rounds, turn_seconds)
                for side, timing in found.items():
                    if timing.problem:
                        print(f"  {kind} {workload}, {side}: {timing.problem}", flush=True)
                minima: dict[str, float | None] = {s: t.minimum for s, t in found.items()}
                add(f"{kind} {workload}", minima, "ms")
        if "record" in kinds:
            for workload in workloads:
                add(f"record {workload}", {**recording(workload, roots)}, "us")
        if "cold" in kinds:
            add("cold first result", {**first_results(roots, rounds * 3)}, "s")
            add("cold lengths", {**changing_lengths(roots, 3)}, "s")
        if "memory" in kinds:
            for workload in workloads:
                add(f"memory {workload}", {**peaks(workload, roots, 3)}, "MiB")
    text = (
        f"This checkout beside {revision}, taking turns (a ratio below 1: it is faster, or needs "
        "less).\n\n" + report.table(["", "now / before", "now", "before"], rows)
    )
    report.publish("against", where, results, text, text, update_docs)
