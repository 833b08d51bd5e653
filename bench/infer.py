"""`bench infer`: saved models in Bireme's predictor and in other inference engines."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench import report
from bench.eager import Timing, take_turns
from bench.infer_models import MODELS
from bench.infer_worker import OURS, PEERS
from bench.processes import Peer, PeerError

BATCHES = (1, 8)
# Of the largest result: engines order sums differently, and nets have many layers.
TOLERANCE = 2e-3


class InferPeer(Peer):
    worker = "bench.infer_worker"

    def __init__(self, name: str, model: str):
        self.name, self.workload, self.extra = name, f"infer-{model}", {}
        self.arguments = (name, model)


def measure(
    model: str, batches: list[int], names: list[str], rounds: int, turn_seconds: float
) -> dict[int, dict[str, Timing]]:
    """Time one model on each peer, whose process serves all batches (starting one takes as long
    as measuring it); a peer that fails or disagrees has a `problem` instead."""
    with ExitStack() as stack:
        peers = {name: stack.enter_context(InferPeer(name, model)) for name in names}
        return {b: _measure(model, b, peers, rounds, turn_seconds) for b in batches}


def _measure(
    model: str, batch: int, peers: dict[str, Peer], rounds: int, turn_seconds: float
) -> dict[str, Timing]:
    timings = {name: Timing() for name in peers}
    results: dict[str, list[np.ndarray]] = {}
    counts: dict[str, int] = {}
    for name, peer in peers.items():
        try:
            with np.load(Path(peer.ask("check", batch))) as file:
                results[name] = [file[k] for k in file.files]
            seconds = peer.ask("warm", batch)
            counts[name] = max(2, round(turn_seconds / seconds))
            print(f"  {model} x{batch} {name}: ready, about {seconds * 1e3:.2f} ms", flush=True)
        except PeerError as e:
            timings[name].problem = str(e)
            print(f"  {model} x{batch} {name}: n/a, {e}", flush=True)
    for name, problem in disagreements(results).items():
        timings[name].problem = problem
        counts.pop(name, None)
        print(f"  {model} x{batch} {name}: {problem}", flush=True)
    turns = {n: partial(peers[n].ask, "turn", batch, count) for n, count in counts.items()}
    take_turns(timings, turns, rounds)
    return timings


def disagreements(results: dict[str, list[np.ndarray]]) -> dict[str, str]:
    """Peers whose first result is not the element-wise median of all peers' first results."""
    shapes = [r[0].shape for r in results.values()]
    if len(set(shapes)) > 1:
        usual = max(shapes, key=shapes.count)
        return {
            n: f"a result of shape {r[0].shape} instead of {usual}"
            for n, r in results.items()
            if r[0].shape != usual
        }
    if len(results) < 2:
        return {}
    middle = np.median(np.stack([r[0] for r in results.values()]), axis=0)
    scale = max(float(np.abs(middle).max()), 1e-6)
    off = {n: float(np.abs(r[0] - middle).max()) / scale for n, r in results.items()}
    return {
        n: f"results are off by {d:.2g} of the largest"
        for n, d in off.items()
        if not d <= TOLERANCE
    }


def page(results: dict[str, dict[str, Timing]], names: list[str]) -> str:
    """The first engine's milliseconds, and its ratios to `xla` and to the other frameworks."""
    lead, *others = [n for n in names if n not in ("bireme_ort", "bireme_ov")] or names
    rows = []
    for row, timings in results.items():
        mine = timings[lead].minimum
        ratios = [
            f"{mine / theirs:.2f}" if mine and (theirs := timings[n].minimum) else "n/a"
            for n in others
        ]
        rows.append([row, f"{mine:.2f}" if mine else "n/a", *ratios])
    header = ["model, batch", f"{PEERS[lead][1]}, ms", *[f"/ {PEERS[n][1]}" for n in others]]
    return report.compact_table(header, rows)


def render(results: dict[str, dict[str, Timing]], names: list[str]) -> str:
    """Ratios of the minima (ours / theirs, below 1 is faster), then the times themselves."""
    ours, others = [n for n in names if n in OURS], [n for n in names if n not in OURS]
    lead = ours[0] if ours else None
    ratio_rows, time_rows, notes = [], [], []
    for row, timings in results.items():
        mine = timings[lead].minimum if lead else None
        ratios = [
            f"{mine / theirs:.2f}" if mine and (theirs := timings[n].minimum) else "n/a"
            for n in [*ours[1:], *others]
        ]
        ratio_rows.append([row, *ratios])
        time_rows.append(
            [
                row,
                *[
                    f"{t.minimum:.2f} ({t.median:.2f})" if (t := timings[n]).minimum else "n/a"
                    for n in names
                ],
            ]
        )
        notes += [
            f"- {row}, {PEERS[n][1]}: n/a, {t.problem}" for n, t in timings.items() if t.problem
        ]
    labels = [PEERS[n][1] for n in names]
    parts = []
    if lead:
        parts += [
            f"{PEERS[lead][1]}'s time per run divided by the other's (below 1: it is faster):",
            report.table(
                ["model, batch", *[f"/ {PEERS[n][1]}" for n in [*ours[1:], *others]]], ratio_rows
            ),
        ]
    parts += [
        "Milliseconds per run, minimum (median) over the rounds:",
        report.table(["model, batch", *labels], time_rows),
        "\n".join(
            f"- `{m}`: {MODELS[m].description}"
            for m in dict.fromkeys(r.split("`")[1] for r in results)
        ),
    ]
    if notes:
        parts.append("\n".join(notes))
    return "\n\n".join(parts)


def rows_of(document: dict[str, Any]) -> dict[str, dict[str, Timing]]:
    """What an earlier run has written."""
    return {
        row: {n: Timing(ms=t["ms"], problem=t["problem"]) for n, t in timings.items()}
        for row, timings in document.get("results", {}).items()
    }


def joined(
    before: dict[str, dict[str, Timing]], now: dict[str, dict[str, Timing]], names: list[str]
) -> dict[str, dict[str, Timing]]:
    """The rows of both, in the order of the models; a row of `before` needs all peers of now."""
    kept = {row: t for row, t in before.items() if row not in now and set(names) <= set(t)}
    order = list(MODELS)
    rows = {**kept, **now}
    return {
        row: rows[row]
        for row in sorted(
            rows, key=lambda r: (order.index(r.split("`")[1]), int(r.rsplit(" ", 1)[1]))
        )
    }


def main(
    models: list[str], names: list[str], batches: list[int], rounds: int, turn_seconds: float,
    update_docs: bool, keep: bool,
) -> None:  # fmt: skip
    where = report.machine()
    results = {
        f"`{m}`, {batch}": timings
        for m in models
        for batch, timings in measure(m, batches, names, rounds, turn_seconds).items()
    }
    if keep:
        results = joined(rows_of(report.earlier("infer", where)), results, names)
    as_json = {
        row: {
            name: asdict(t) | {"minimum": t.minimum, "median": t.median}
            for name, t in timings.items()
        }
        for row, timings in results.items()
    }
    text, short = render(results, names), page(results, names)
    report.publish("infer", where, as_json, text, short, update_docs)
