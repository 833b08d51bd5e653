"""`bench memory`: peak resident memory of training, each framework in its own process."""

from __future__ import annotations

import tempfile
from typing import Any

from bench import peers, report
from bench.processes import Peer, PeerError

STEPS = 20


def page(results: dict[str, dict[str, Any]], names: list[str]) -> str:
    """The peak of steps, one column per framework."""
    rows = [
        [
            f"`{w}`",
            *[f"{figures[n]['steps']:.0f}" if "steps" in figures[n] else "n/a" for n in names],
        ]
        for w, figures in results.items()
    ]
    return report.compact_table(["peak of steps, MiB", *[peers.label(n) for n in names]], rows)


def main(workloads: list[str], names: list[str], update_docs: bool) -> None:
    where = report.machine()
    results: dict[str, dict[str, Any]] = {}
    rows, notes = [], []
    for workload in workloads:
        results[workload] = {}
        for name in names:
            try:
                # An empty disk cache, so that compiling is part of the first peak.
                with (
                    tempfile.TemporaryDirectory() as cache,
                    Peer(name, workload, BIREME_CACHE_DIR=cache) as peer,
                ):
                    figures = peer.ask("memory", STEPS)
            except PeerError as e:
                results[workload][name] = {"problem": str(e)}
                rows.append([f"`{workload}`", peers.label(name), *["n/a"] * 4])
                notes.append(f"- `{workload}`, {peers.label(name)}: n/a, {e}")
                continue
            results[workload][name] = figures
            base, whole, steps = (figures[k] for k in ("after_import", "whole", "steps"))
            cells = [f"{mib:.0f}" for mib in (base, whole, steps, steps - base)]
            rows.append([f"`{workload}`", peers.label(name), *cells])
    header = [
        "workload",
        "framework",
        "after import",
        "peak with warm-up",
        "peak of steps",
        "peak of steps - import",
    ]
    text = (
        f"Resident memory in MiB. The warm-up includes compilation; the peak of steps is that of "
        f"{STEPS} steps after it.\n\n" + report.table(header, rows)
    )
    if notes:
        text += "\n\n" + "\n".join(notes)
    report.publish("memory", where, results, text, page(results, names), update_docs)
