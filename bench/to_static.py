"""`bench to_static`: a captured training step against the hand-jitted JAX step."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bench import peers, report
from bench.eager import Timing, measure
from bench.paddle_models import BiremeTrainer
from bench.workloads import DESCRIPTIONS, Arrays, Size

NAMES = ("captured", "bireme", "jax")


class CapturedTrainer(BiremeTrainer):
    """The same step as one function under `to_static`: forward, backward and update."""

    def __init__(self, paddle: Any, size: Size, weights: Arrays | None = None):
        super().__init__(paddle, size, weights)
        self._train = paddle.jit.to_static(self._plain)

    def _plain(self, x: Any, y: Any) -> Any:
        loss = self.loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.clear_grad()
        return loss


def captured_trainer(size: Size, weights: Arrays | None = None) -> CapturedTrainer:
    import bireme

    return CapturedTrainer(bireme, size, weights)


def _ratio(timings: dict[str, Timing], other: str) -> str:
    ours, theirs = timings["captured"].minimum, timings[other].minimum
    return f"{ours / theirs:.2f}" if ours and theirs else "n/a"


def page(results: dict[str, dict[str, Timing]]) -> str:
    """The captured step's time, and its ratios to the others'."""
    rows = []
    for w, t in results.items():
        ours = t["captured"].minimum
        time = f"{ours:.2f}" if ours else "n/a"
        rows.append([f"`{w}`", time, _ratio(t, "jax"), _ratio(t, "bireme")])
    header = ["step", "captured, ms", "/ jitted JAX", "/ Bireme eager"]
    return report.compact_table(header, rows)


def render(results: dict[str, dict[str, Timing]]) -> str:
    """The captured step's time over the others', then the times."""
    rows = [
        [
            f"`{w}`",
            _ratio(t, "jax"),
            _ratio(t, "bireme"),
            *[f"{t[n].minimum:.2f} ({t[n].median:.2f})" if t[n].minimum else "n/a" for n in NAMES],
        ]
        for w, t in results.items()
    ]
    header = [
        "workload",
        "/ jitted JAX",
        "/ Bireme eager",
        *[f"{peers.label(n)}, ms" for n in NAMES],
    ]
    notes = [
        f"- `{w}`, {peers.label(n)}: n/a, {t.problem}"
        for w, timings in results.items()
        for n, t in timings.items()
        if t.problem
    ]
    parts = [
        "The captured step's time divided by the other's (below 1: it is faster), then "
        "milliseconds per step, minimum (median) over the rounds:",
        report.table(header, rows),
        "\n".join(f"- `{w}`: {DESCRIPTIONS[w]}" for w in results),
    ]
    return "\n\n".join([*parts, "\n".join(notes)] if notes else parts)


def main(workloads: list[str], rounds: int, turn_seconds: float, update_docs: bool) -> None:
    where = report.machine()
    results = {w: measure(w, list(NAMES), rounds, turn_seconds) for w in workloads}
    as_json = {
        w: {n: asdict(t) | {"minimum": t.minimum, "median": t.median} for n, t in timings.items()}
        for w, timings in results.items()
    }
    report.publish("to_static", where, as_json, render(results), page(results), update_docs)
