"""`bench curves`: the losses of a training against torch's, from the same weights and batches.

Two correct float32 programs differ in the order of their additions, and training makes such
differences grow. So the measure is torch itself: how far its float32 losses are from its float64
ones. Bireme agrees if its distance from the float64 curve is of that size.
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
NAMES = ("bireme", "torch", "torch_double")
PLOT = ROOT / "docs" / "curves.png"
# Growth of rounding is a matter of luck: another order of additions moves torch's own distance by
# such a factor. The floor is a few roundings of float32 in a mean.
FACTOR = 5.0
FLOOR = 1e-5


def distance(losses: list[float], exact: list[float]) -> np.ndarray:
    """The largest difference so far at every step, relative to the exact loss."""
    ours, theirs = np.asarray(losses), np.asarray(exact)
    gaps = np.abs(ours - theirs) / np.abs(theirs)
    return np.maximum.accumulate(np.where(np.isnan(gaps), np.inf, gaps))


def allowed(torch: np.ndarray) -> np.ndarray:
    """How far from the float64 curve one may be at every step, by torch's own distance."""
    return np.maximum(FACTOR * torch, FLOOR)


def measure(workload: str, steps: int) -> dict[str, Any]:
    """The curves of all three, or the reason why there is one less."""
    curves: dict[str, Any] = {}
    for name in NAMES:
        try:
            with Peer(name, workload) as peer:
                curves[name] = peer.ask("curve", steps)
                print(f"  {workload} {name}: {curves[name][0]:.4f} .. {curves[name][-1]:.4f}")
        except PeerError as e:
            curves["problem"] = f"{peers.label(name)}: {e}"
            print(f"  {workload} {name}: n/a, {e}", flush=True)
    return curves


def agrees(curves: dict[str, Any]) -> bool:
    ours = distance(curves["bireme"], curves["torch_double"])
    return bool((ours <= allowed(distance(curves["torch"], curves["torch_double"]))).all())


def render(results: dict[str, dict[str, Any]]) -> str:
    rows = []
    for workload, curves in results.items():
        if "problem" in curves:
            rows.append([f"`{workload}`", *["n/a"] * 6])
            continue
        exact = curves["torch_double"]
        ours, theirs = (distance(curves[n], exact) for n in ("bireme", "torch"))
        rows.append(
            [
                f"`{workload}`",
                f"{exact[0]:.4g} → {exact[-1]:.4g}",
                f"{distance(curves['bireme'], curves['torch'])[-1]:.1e}",
                f"{ours[-1]:.1e}",
                f"{theirs[-1]:.1e}",
                f"{ours[min(19, len(ours) - 1)]:.1e}",
                "yes" if agrees(curves) else "**no**",
            ]
        )
    header = [
        "workload",
        "loss",
        "Bireme to torch",
        "Bireme to float64",
        "torch to float64",
        "Bireme to float64, 20 steps",
        "agrees",
    ]
    steps = max(len(c.get("bireme", ())) for c in results.values())
    parts = [
        f"Largest relative difference of losses in {steps} steps without dropout:",
        report.table(header, rows),
        "\n".join(f"- `{w}`: {DESCRIPTIONS[w]}" for w in results),
    ]
    notes = [f"- `{w}`: n/a, {c['problem']}" for w, c in results.items() if "problem" in c]
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])])


def draw(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Losses above, distances from the float64 curve below, one column per workload."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    shown = {w: c for w, c in results.items() if "problem" not in c}
    figure, axes = pyplot.subplots(2, len(shown), figsize=(2.6 * len(shown), 4.6), squeeze=False)
    for (workload, curves), top, bottom in zip(shown.items(), *axes, strict=True):
        exact = curves["torch_double"]
        top.plot(exact, color="black", linewidth=2.5, alpha=0.3, label="torch float64")
        top.plot(curves["torch"], color="tab:orange", linewidth=1, label="torch")
        top.plot(curves["bireme"], color="tab:blue", linewidth=1, linestyle="--", label="Bireme")
        top.set_title(workload)
        for name, colour in (("torch", "tab:orange"), ("bireme", "tab:blue")):
            bottom.semilogy(np.maximum(distance(curves[name], exact), 1e-9), color=colour)
        limit = allowed(distance(curves["torch"], exact))
        bottom.semilogy(limit, color="gray", linewidth=0.8, linestyle=":", label="allowed")
        bottom.set_xlabel("step")
    axes[0][0].set_ylabel("loss")
    axes[0][0].legend(fontsize=7)
    axes[1][0].set_ylabel("largest relative distance")
    axes[1][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def main(workloads: list[str], steps: int, redraw: bool, update_docs: bool) -> None:
    where, results = report.machine(), {}
    with suppress(FileNotFoundError):  # other workloads' curves stay: a run may be a part
        kept = json.loads((report.RESULTS / "curves.json").read_text())
        results = kept["results"]
        where = kept["machine"] if redraw else where
    if not redraw:
        results |= {w: measure(w, steps) for w in workloads}
        results = {w: results[w] for w in WORKLOADS if w in results}
    report.publish("curves", where, results, render(results), update_docs)
    if update_docs:
        with suppress(ImportError):  # the figures stand without a plot
            draw(results, PLOT)
            print(f"Drawn {PLOT.relative_to(ROOT)}")
    wrong = [w for w, c in results.items() if "problem" not in c and not agrees(c)]
    if wrong:
        raise SystemExit(f"curves that do not agree with torch's: {', '.join(wrong)}")
