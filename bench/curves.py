"""`bench curves`: the losses of a training against torch's, from the same weights and batches.

In float64 Bireme's losses must be torch's: rounding is too small there to hide another formula.
Two correct float32 programs differ in the order of their additions, and training makes such
differences grow. So in float32 the measure is torch itself: how far its losses are from its
float64 ones. Bireme agrees if its distance from the float64 curve is of that size, too.

One run of torch does not say what that size is. A ReLU whose input rounding puts on the other side
of zero changes a gradient by thousands of roundings, and whether a step has one is luck. So torch
runs several times, from weights that differ in their last bit, and the furthest run counts.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from bench import peers, report
from bench.processes import ROOT, Peer, PeerError
from bench.workloads import DESCRIPTIONS, WORKLOADS

STEPS = 200
NAMES = ("bireme", "torch", "torch_nudged", "bireme_double", "torch_double")
ROUNDED = set(NAMES) - {"bireme_double"}  # what the rule for float32 needs
NUDGED = 8  # runs of torch from weights moved by at most one unit in the last place
PLOT = ROOT / "docs" / "curves.png"
# One of torch's runs judged by the eight others needs between 1 and 6.4. The floor is a few
# roundings of float32 in a mean.
FACTOR = 5.0
FLOOR = 1e-5
# Of the float64 curves from each other, relative, in all steps.
EXACT = 1e-5
# In float64 there are no native kernels, and XLA's own convolution with one kernel per channel
# takes a hundred times as long as the lowering that stands in for it without them.
ENVIRONMENT = {"bireme_double": {"BIREME_NATIVE": "0"}}


def distance(losses: list[float], exact: list[float]) -> np.ndarray:
    """The largest difference so far at every step, relative to the exact loss."""
    ours, theirs = np.asarray(losses), np.asarray(exact)
    gaps = np.abs(ours - theirs) / np.abs(theirs)
    return np.maximum.accumulate(np.where(np.isnan(gaps), np.inf, gaps))


def distance_of_torch(curves: dict[str, Any]) -> np.ndarray:
    """The largest distance of torch's float32 runs at every step."""
    runs = [curves["torch"], *curves["torch_nudged"]]
    return np.max([distance(run, curves["torch_double"]) for run in runs], 0)


def allowed(curves: dict[str, Any]) -> np.ndarray:
    """How far from the float64 curve one may be at every step, by torch's own distance."""
    return np.maximum(FACTOR * distance_of_torch(curves), FLOOR)


def measure(workload: str, steps: int, names: list[str]) -> dict[str, Any]:
    """The curves of these peers, without those that failed."""
    curves: dict[str, Any] = {}

    def curve(name: str, **environment: str) -> list[float]:
        with Peer(name, workload, **ENVIRONMENT.get(name, {}), **environment) as peer:
            losses = peer.ask("curve", steps)
        print(f"  {workload} {name}: {losses[0]:.4f} .. {losses[-1]:.4f}", flush=True)
        return losses

    for name in names:
        try:
            if name == "torch_nudged":
                curves[name] = [curve(name, BENCH_NUDGE=str(i + 1)) for i in range(NUDGED)]
            else:
                curves[name] = curve(name)
        except PeerError as e:
            print(f"  {workload} {name}: n/a, {e}", flush=True)
    return curves


def missing(curves: dict[str, Any]) -> list[str]:
    return [peers.label(name) for name in NAMES if name not in curves]


def agrees_exactly(curves: dict[str, Any]) -> bool:
    return bool(distance(curves["bireme_double"], curves["torch_double"])[-1] <= EXACT)


def agrees_rounded(curves: dict[str, Any]) -> bool:
    return excess(curves) <= 1


def agrees(curves: dict[str, Any]) -> bool | None:
    """By both rules; None if nothing is wrong yet but a curve is missing."""
    rules = (
        ({"bireme_double", "torch_double"}, agrees_exactly),
        (ROUNDED, agrees_rounded),
    )
    found = [rule(curves) if needed <= set(curves) else None for needed, rule in rules]
    return False if False in found else None if None in found else True


def excess(curves: dict[str, Any]) -> float:
    """The largest part of what is allowed in float32 that Bireme takes at any step."""
    return float((distance(curves["bireme"], curves["torch_double"]) / allowed(curves)).max())


def _gap(curves: dict[str, Any], name: str, other: str, at: int = -1) -> str:
    if name not in curves or other not in curves:
        return "n/a"
    gaps = distance(curves[name], curves[other])
    return f"{gaps[min(at, len(gaps) - 1)]:.1e}"


def _shared_cells(curves: dict[str, Any]) -> dict[str, str]:
    """The cells of a row that the page has, too."""
    exact = curves.get("torch_double")
    of_torch = ROUNDED - {"bireme"} <= set(curves)
    return {
        "loss": f"{exact[0]:.4g} → {exact[-1]:.4g}" if exact else "n/a",
        "both in float64": _gap(curves, "bireme_double", "torch_double"),
        "Bireme to float64": _gap(curves, "bireme", "torch_double"),
        "the furthest of nine": f"{distance_of_torch(curves)[-1]:.1e}" if of_torch else "n/a",
        "of what is allowed": f"{excess(curves):.2g}" if set(curves) >= ROUNDED else "n/a",
        "agrees": {True: "yes", False: "**no**", None: "n/a"}[agrees(curves)],
    }


def page(results: dict[str, dict[str, Any]]) -> str:
    """Distances that the two rules are about."""
    rows = [_shared_cells(curves) for curves in results.values()]
    header = ["200 steps of", *(rows[0] if rows else ())]
    named = zip(results, rows, strict=True)
    return report.compact_table(header, [[f"`{w}`", *row.values()] for w, row in named])


def render(results: dict[str, dict[str, Any]]) -> str:
    rows, notes = [], []
    for workload, curves in results.items():
        lacks = missing(curves)
        if lacks:
            notes.append(f"- `{workload}` was not run to its end by: {', '.join(lacks)}")
        cells = _shared_cells(curves)
        rows.append(
            [
                f"`{workload}`",
                cells["loss"],
                cells["both in float64"],
                _gap(curves, "bireme", "torch"),
                cells["Bireme to float64"],
                _gap(curves, "torch", "torch_double"),
                cells["the furthest of nine"],
                _gap(curves, "bireme", "torch_double", 19),
                cells["of what is allowed"],
                cells["agrees"],
            ]
        )
    header = [
        "workload",
        "loss",
        "both in float64",
        "Bireme to torch",
        "Bireme to float64",
        "torch to float64",
        "the furthest of nine",
        "Bireme to float64, 20 steps",
        "of what is allowed",
        "agrees",
    ]
    steps = max(len(c) for r in results.values() for n, c in r.items() if n != "torch_nudged")
    parts = [
        f"Largest relative difference of losses in {steps} steps without dropout:",
        report.table(header, rows),
        "\n".join(f"- `{w}`: {DESCRIPTIONS[w]}" for w in results),
    ]
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])])


def draw(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Losses above, distances from the float64 curve below, one column per workload."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    shown = {w: c for w, c in results.items() if set(c) >= ROUNDED}
    figure, axes = pyplot.subplots(2, len(shown), figsize=(2.6 * len(shown), 4.6), squeeze=False)
    for (workload, curves), top, bottom in zip(shown.items(), *axes, strict=True):
        exact = curves["torch_double"]
        top.plot(exact, color="black", linewidth=2.5, alpha=0.3, label="torch float64")
        top.plot(curves["torch"], color="tab:orange", linewidth=1, label="torch")
        top.plot(curves["bireme"], color="tab:blue", linewidth=1, linestyle="--", label="Bireme")
        top.set_title(workload)
        for name, colour, style in (
            ("torch", "tab:orange", "-"),
            ("bireme", "tab:blue", "-"),
            ("bireme_double", "tab:green", "--"),
        ):
            if name not in curves:
                continue
            gaps = np.maximum(distance(curves[name], exact), 1e-16)
            bottom.semilogy(gaps, color=colour, linestyle=style, label=peers.label(name))
        for run in curves["torch_nudged"]:
            gaps = np.maximum(distance(run, exact), 1e-16)
            bottom.semilogy(gaps, color="tab:orange", linewidth=0.5, alpha=0.5)
        bottom.semilogy(
            allowed(curves), color="gray", linewidth=0.8, linestyle=":", label="allowed"
        )
        bottom.set_xlabel("step")
    axes[0][0].set_ylabel("loss")
    axes[0][0].legend(fontsize=7)
    axes[1][0].set_ylabel("largest relative distance")
    axes[1][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def main(
    workloads: list[str], names: list[str], steps: int, redraw: bool, update_docs: bool
) -> None:
    where, results = report.machine(), {}
    found = {} if redraw else {w: measure(w, steps, names) for w in workloads}
    if redraw:
        kept = json.loads((report.RESULTS / "curves.json").read_text())
        where, results = kept["machine"], kept["results"]
    else:  # a run may be a part: today's other curves of these sources stay
        results = report.earlier("curves", where).get("results", {})
    for workload, curves in found.items():
        results[workload] = results.get(workload, {}) | curves
    results = {w: results[w] for w in WORKLOADS if w in results}
    report.publish("curves", where, results, render(results), page(results), update_docs)
    if update_docs:
        with suppress(ImportError):  # the figures stand without a plot
            draw(results, PLOT)
            print(f"Drawn {PLOT.relative_to(ROOT)}")
    wrong = [w for w, c in results.items() if agrees(c) is False]
    if wrong:
        raise SystemExit(f"curves that do not agree with torch's: {', '.join(wrong)}")
