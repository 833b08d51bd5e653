"""`bench record`: what Python costs in a steady step of Bireme, without execution."""

from __future__ import annotations

from bench import report
from bench.processes import Peer, PeerError


def main(workloads: list[str], steps: int, update_docs: bool) -> None:
    where = report.machine()
    results, rows = {}, []
    for workload in workloads:
        try:
            with Peer("bireme", workload) as peer:
                figures = peer.ask("record", steps)
        except PeerError as e:
            results[workload] = {"problem": str(e)}
            rows.append([f"`{workload}`", *["n/a"] * 6])
            print(f"  {workload}: n/a, {e}", flush=True)
            continue
        results[workload] = figures
        rows.append(
            [
                f"`{workload}`",
                str(figures["results"]),
                f"{figures['record_us_per_result']:.2f}",
                str(figures["entries"]),
                f"{figures['record_us_per_entry']:.2f}",
                f"{figures['record_us']:.0f}",
                f"{figures['lookup_us']:.0f}",
            ]
        )
    header = [
        "workload",
        "results",
        "µs per result",
        "entries",
        "µs per entry",
        "recording, µs",
        "look-up, µs",
    ]
    text = (
        "Python's share of a step: recording forward, backward and update, and finding the "
        "compiled program for the trace; the layers' own code is included, nothing is executed. "
        "An op in the plain sense makes one result: that is the first figure. What is recorded "
        "as one entry may be many of them (a gradient has one result per input, an optimizer's "
        "update up to three per parameter, an LSTM layer five), so an entry's cost says how "
        "coarse a model's entries are.\n\n" + report.table(header, rows)
    )
    report.publish("record", where, results, text, report.compact_table(header, rows), update_docs)
