"""`bench eager`: plain training loops, all peers side by side in interleaved rounds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial

from bench import cores, peers, report
from bench.processes import Peer, PeerError
from bench.workloads import DESCRIPTIONS

# OpenMP threads spin for a while after their last region (libiomp5: 200 ms); a peer's turn
# starts when its predecessor's threads are asleep.
PAUSE_SECONDS = 0.3
# For cores that are near each other: before a turn, and how many times the turns are taken.
WAIT_SECONDS, PATIENCE = 10.0, 3
# The first loss depends on the forward pass only; later ones on gradients, updates and on
# rounding, which grows from step to step.
FIRST_LOSS_TOLERANCE = 1e-4
LATER_LOSS_TOLERANCE = 1e-2
HALF_TOLERANCE = 3e-2  # of all losses in bfloat16, which has less than three digits


@dataclass
class Timing:
    """What one peer did on one workload."""

    losses: list[float] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)
    problem: str = ""

    @property
    def minimum(self) -> float | None:
        return min(self.ms) if self.ms and not self.problem else None

    @property
    def median(self) -> float | None:
        return statistics.median(self.ms) if self.ms and not self.problem else None


def measure(
    workload: str, names: list[str], rounds: int, turn_seconds: float, **environment: str
) -> dict[str, Timing]:
    """Time `workload` on each peer; a peer that fails has a `problem` instead of times."""
    timings = {name: Timing() for name in names}
    with ExitStack() as stack:
        ready: dict[str, tuple[Peer, int]] = {}
        for name in names:
            try:
                peer = stack.enter_context(Peer(name, workload, **environment))
                timings[name].losses = peer.ask("check")
                seconds = peer.ask("warm")
                ready[name] = peer, max(2, round(turn_seconds / seconds))
                print(f"  {workload} {name}: ready, about {seconds * 1e3:.2f} ms", flush=True)
            except PeerError as e:
                timings[name].problem = str(e)
                print(f"  {workload} {name}: n/a, {e}", flush=True)
        compare_losses(timings, HALF_TOLERANCE if "BENCH_AUTOCAST" in environment else 0.0)
        turns = {n: partial(peer.ask, "turn", steps) for n, (peer, steps) in ready.items()}
        take_turns(timings, turns, rounds)
    return timings


def take_turns(
    timings: dict[str, Timing], turns: dict[str, Callable[[], float]], rounds: int
) -> None:
    """`rounds` turns of every peer while the cores are near each other (see cores.py); a turn in
    which they were not is taken again, as long as `PATIENCE` lasts, and then left out."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in turns}

    def good(name: str) -> list[float]:
        return [ms for ms, trip in taken[name] if cores.is_near(trip)]

    for _ in range(PATIENCE * rounds):
        for name, turn in turns.items():
            if len(good(name)) >= rounds or timings[name].problem:
                continue
            before = _nearest()
            try:
                ms = turn() * 1e3
                taken[name].append((ms, max(before, cores.round_trip_ns())))
            except PeerError as e:
                timings[name].problem = str(e)
    for name in turns:
        timings[name].ms = good(name) or [ms for ms, _ in taken[name]]
        if not good(name) and taken[name]:
            print(f"  {name}: the cores were never near each other in its turns", flush=True)


def _nearest() -> float:
    """A round trip between the cores when they are near, or after having waited for that."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        time.sleep(PAUSE_SECONDS)
        trip = cores.round_trip_ns()
        if cores.is_near(trip) or time.monotonic() > end:
            return trip


def compare_losses(timings: dict[str, Timing], least: float = 0.0) -> None:
    """Mark peers whose losses are not those of the majority: they do not compute the same."""
    for step in range(max((len(t.losses) for t in timings.values()), default=0)):
        losses = [t.losses[step] for t in timings.values() if step < len(t.losses)]
        expected = statistics.median(losses)
        tolerance = max(least, FIRST_LOSS_TOLERANCE if step == 0 else LATER_LOSS_TOLERANCE)
        for timing in timings.values():
            if step >= len(timing.losses) or timing.problem:
                continue
            if not abs(timing.losses[step] - expected) <= tolerance * abs(expected):
                timing.problem = (
                    f"loss {timing.losses[step]:.6g} instead of {expected:.6g} at step {step + 1}"
                )


def ratios(
    results: dict[str, dict[str, Timing]], names: list[str]
) -> tuple[list[str], list[list[str]]]:
    """Header and rows of Bireme's milliseconds and of ratios of minima (below 1: faster)."""
    others = [n for n in names if n != "bireme"]
    rows = []
    for workload, timings in results.items():
        ours = timings["bireme"].minimum if "bireme" in timings else None
        cells = [
            f"{ours / theirs:.2f}" if ours and (theirs := timings[n].minimum) else "n/a"
            for n in others
        ]
        rows.append([f"`{workload}`", f"{ours:.2f}" if ours else "n/a", *cells])
    return ["step", "Bireme, ms", *[f"/ {peers.label(n)}" for n in others]], rows


def render(results: dict[str, dict[str, Timing]], names: list[str]) -> str:
    """The ratios, then the times of all."""
    time_rows, notes = [], []
    for workload, timings in results.items():
        times = [
            f"{t.minimum:.2f} ({t.median:.2f})" if (t := timings[n]).minimum else "n/a"
            for n in names
        ]
        time_rows.append([f"`{workload}`", *times])
        notes += [
            f"- `{workload}`, {peers.label(n)}: n/a, {t.problem}"
            for n, t in timings.items()
            if t.problem
        ]
    parts = [
        "Bireme's time per step divided by the peer's (below 1: Bireme is faster):",
        report.table(*ratios(results, names)),
        "Milliseconds per training step, minimum (median) over the rounds:",
        report.table(["workload", *[peers.label(n) for n in names]], time_rows),
        "\n".join(f"- `{w}`: {DESCRIPTIONS[w]}" for w in results),
    ]
    if notes:
        parts.append("\n".join(notes))
    return "\n\n".join(parts)


def main(
    workloads: list[str],
    names: list[str],
    rounds: int,
    turn_seconds: float,
    extension: bool,
    autocast: bool,
    update_docs: bool,
) -> None:
    where = report.machine()
    environment = {} if extension else {"BIREME_NATIVE": "0"}
    if autocast:
        environment["BENCH_AUTOCAST"] = "1"
        names = [n for n in names if n != "jax"]  # has no such thing
    results = {w: measure(w, names, rounds, turn_seconds, **environment) for w in workloads}
    as_json = {
        workload: {
            name: asdict(t) | {"minimum": t.minimum, "median": t.median}
            for name, t in timings.items()
        }
        for workload, timings in results.items()
    }
    section = "eager_autocast" if autocast else "eager" if extension else "eager_no_extension"
    text, page = render(results, names), report.compact_table(*ratios(results, names))
    report.publish(section, where, as_json, text, page, update_docs)
