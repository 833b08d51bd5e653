"""`bench cold`: how long a first result takes, and a loop in which no shape comes back."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import peers, report
from bench.processes import ROOT, Peer, PeerError, environment

FIRST_RESULT = {
    "python": "import numpy as np; x = np.array([1.0, 2.0, 3.0]); print(x + 1)",
    "bireme": "import bireme as paddle; x = paddle.to_tensor([1.0, 2.0, 3.0]); print(x + 1)",
    "paddle": "import paddle; x = paddle.to_tensor([1.0, 2.0, 3.0]); print(x + 1)",
    "torch": "import torch; x = torch.tensor([1.0, 2.0, 3.0]); print(x + 1)",
}
_LABELS = {"python": "NumPy alone (floor)"}
LENGTH_PEERS = ("bireme", "torch", "paddle")
LENGTHS = 50


def first_result_seconds(code: str, root: Path = ROOT) -> float:
    """From the start of the process until the first line of the result arrives."""
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=root,
        env=environment(root),
    ) as process:
        output = process.stdout
        if output is None:
            raise RuntimeError("the process was started without a pipe; this is a bug in bench")
        first = output.readline()
        seconds = time.perf_counter() - start
        _, errors = process.communicate()
    if not first:
        raise PeerError(errors.decode().strip().splitlines()[-1][:300])
    return seconds


def different_lengths() -> list[int]:
    """50 sequence lengths, each once, in an order without a trend."""
    lengths = list(range(30, 130, 2))
    random.Random(3).shuffle(lengths)
    return lengths[:LENGTHS]


def first_results(runs: int) -> dict[str, dict[str, object]]:
    results: dict[str, dict[str, object]] = {}
    times: dict[str, list[float]] = {name: [] for name in FIRST_RESULT}
    # One run ahead of the measured ones writes the bytecode caches.
    for _ in range(runs + 1):
        for name, code in FIRST_RESULT.items():
            if name in results:
                continue
            try:
                times[name].append(first_result_seconds(code))
            except PeerError as e:
                results[name] = {"problem": str(e)}
    for name, seconds in times.items():
        if name not in results:
            results[name] = {"seconds": seconds[1:], "best": min(seconds[1:])}
    return {name: results[name] for name in FIRST_RESULT}


def changing_lengths(runs: int) -> dict[str, dict[str, object]]:
    results: dict[str, dict[str, object]] = {}
    for name in LENGTH_PEERS:
        totals = []
        try:
            for _ in range(runs):
                # An empty disk cache: this is about programs that nobody has compiled yet.
                with (
                    tempfile.TemporaryDirectory() as cache,
                    Peer(name, "encoder", BIREME_CACHE_DIR=cache) as peer,
                ):
                    totals.append(sum(peer.ask("lengths", different_lengths())))
            results[name] = {"totals": totals, "best": min(totals)}
        except PeerError as e:
            results[name] = {"problem": str(e)}
    return results


def _section(title: str, results: dict[str, dict[str, object]]) -> str:
    ours = results["bireme"].get("best")
    rows, notes = [], []
    for name, result in results.items():
        shown = _LABELS.get(name) or peers.label(name)
        best = result.get("best")
        if not isinstance(best, float):
            rows.append([shown, "n/a", "n/a"])
            notes.append(f"- {shown}: n/a, {result['problem']}")
            continue
        ratio = f"{ours / best:.2f}" if isinstance(ours, float) else "n/a"
        rows.append([shown, f"{best:.3f}", ratio])
    table = report.table(["", "seconds", "Bireme / this"], rows)
    return "\n\n".join([title, table, *(["\n".join(notes)] if notes else [])])


def page(first: dict[str, dict[str, object]], lengths: dict[str, dict[str, object]]) -> str:
    """Both measurements in seconds, one column per framework."""

    def cells(results: dict[str, dict[str, object]]) -> list[str]:
        found = [results.get(name, {}).get("best") for name in FIRST_RESULT]
        return [f"{best:.3f}" if isinstance(best, float) else "-" for best in found]

    header = ["seconds", *[_LABELS.get(name) or peers.label(name) for name in FIRST_RESULT]]
    rows = [
        ["first printed result of `x + 1`", *cells(first)],
        [f"{LENGTHS} steps of `encoder`, each of another length", *cells(lengths)],
    ]
    return report.compact_table(header, rows)


def main(runs: int, update_docs: bool) -> None:
    where = report.machine()
    first = first_results(runs)
    lengths = changing_lengths(max(1, runs // 3))
    text = "\n\n".join(
        [
            _section(
                "From process start to the first printed result of `x + 1` (import included):",
                first,
            ),
            _section(
                f"{LENGTHS} training steps of `encoder`, each with another sequence length, "
                "nothing cached from earlier runs, loss read in every step:",
                lengths,
            ),
        ]
    )
    results = {"first_result": first, "lengths": lengths}
    report.publish("cold", where, results, text, page(first, lengths), update_docs)
