"""`python -m tests.parity.on_device [words]` runs the table on the default device, a GPU where
there is one, against the NumPy tier in float64: every row with values and gradients, then its
variants (bfloat16, odd sizes, strided views, no elements, 0-d). With words, only rows whose id has
one.

Several processes share the device; one that takes over a minute for an item is ended. What differs
on purpose is listed in `on_device_known.txt`, with the reason. No row may take over two seconds to
compile; those that do beside many others are tried again beside three.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO

ROOT = Path(__file__).parents[2]
LONGEST_ITEM = 60.0
LONGEST_COMPILATION = 2.0
_SLOWEST = 10
_FEW = 4  # processes where compilations are timed
NOT_REACHED = "not reached"
Item = tuple[int, str]


def serve(source: Any, answers: BinaryIO) -> None:
    """A worker: one item per line in, one result per line out."""
    from tests.parity import device_rows

    device_rows.load()
    for line in source:
        number, change = json.loads(line)
        answers.write(json.dumps(device_rows.check(number, change)).encode() + b"\n")
        answers.flush()


class Worker:
    """A process that checks items; it is started when there is one, and again after it failed."""

    def __init__(self, environment: dict[str, str]):
        self.environment = environment
        self.process: subprocess.Popen[bytes] | None = None

    def check(self, item: Item) -> dict[str, Any]:
        started = self.process is None
        process = self.process = self.process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(item).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._lost(item, "its process ended before")
        patience = LONGEST_ITEM * (2 if started else 1)
        if not select.select([process.stdout], [], [], patience)[0]:
            return self._lost(item, f"no result after {patience:.0f} s")
        line = process.stdout.readline()
        if not line:
            return self._lost(item, "its process ended")
        return json.loads(line)

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.parity.on_device", "--worker"], cwd=ROOT,
            env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def _lost(self, item: Item, why: str) -> dict[str, Any]:
        status = self.end()
        return described(item) | {"state": "failed", "why": f"{why} (status {status})"}

    def end(self) -> int | None:
        process, self.process = self.process, None
        if process is None:
            return None
        early = process.poll()
        process.kill()
        process.communicate()
        return early


def described(item: Item) -> dict[str, Any]:
    from tests.parity import device_rows
    from tests.parity.table import CASES

    case = CASES[item[0]]
    return {"row": case.id, "name": device_rows.named(case), "change": item[1]}


def run(items: list[Item], jobs: int, seconds: float) -> list[dict[str, Any]]:
    """What became of each item, in order; what is not begun in time is not reached."""
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    for at in range(len(items)):
        todo.put(at)
    results = [described(item) | {"state": NOT_REACHED, "why": ""} for item in items]
    deadline = time.monotonic() + seconds

    def work(worker: Worker) -> None:
        with contextlib.closing(_Ending(worker)), contextlib.suppress(queue.Empty):
            while time.monotonic() < deadline:
                at = todo.get_nowait()
                results[at] = worker.check(items[at]) | {"item": items[at]}

    with tempfile.TemporaryDirectory(prefix="bireme-parity-") as folder:
        environment = environment_of_a_worker(folder)
        threads = [
            threading.Thread(target=work, args=(Worker(environment),))
            for _ in range(min(jobs, len(items)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return results


class _Ending:
    def __init__(self, worker: Worker):
        self.close = worker.end


def environment_of_a_worker(folder: str) -> dict[str, str]:
    """Caches of their own, so that every row is compiled; a part of the device's memory."""
    return {
        **os.environ,
        "BIREME_CACHE_DIR": folder,
        "BIREME_NATIVE": "0",  # the oracle is NumPy; nobody waits for a build
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "OPENBLAS_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }


def again_alone(results: list[dict[str, Any]], seconds: float) -> None:
    """Rows that took long to compile, again with few others at the same time."""
    slow = [r for r in results if r.get("compile", 0.0) > LONGEST_COMPILATION]
    slow.sort(key=lambda r: -r["compile"])
    for result, alone in zip(slow, run([r["item"] for r in slow], _FEW, seconds), strict=True):
        if "compile" in alone:
            result["compile beside others"] = result["compile"]
            result |= {k: alone[k] for k in ("compile", "ops")}


def report(results: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """The lines to print, and whether all is well."""
    from tests.parity import device_rows

    listed = device_rows.known()
    table: dict[str, Counter[str]] = {}
    failures, agreeing = [], {k for k in listed if k in {(r["name"], r["change"]) for r in results}}
    slow = []
    for r in results:
        state, where = r["state"], (r["name"], r["change"])
        if r.get("compile", 0.0) > LONGEST_COMPILATION:
            kind = "listed" if (r["name"], device_rows.COMPILE) in listed else "SLOW"
            slow.append(f"{kind} {r['compile']:.2f} s, {r['ops']} ops: {where[1]}: {r['row']}")
        if state in ("failed", NOT_REACHED):
            agreeing.discard(where)
        if state == "failed" and where in listed:
            state = "listed"
        if state == "failed":
            failures.append(f"FAIL {r['change']}: {r['row']}: {r['why']}")
        table.setdefault(r["change"], Counter())[state] += 1
    states = sorted({s for counts in table.values() for s in counts})
    lines = [f"{'':12}" + "".join(f"{s:>13}" for s in states)]
    for change, counts in table.items():
        lines.append(f"{change:12}" + "".join(f"{counts[s]:>13}" for s in states))
    timed = sorted((r for r in results if "compile" in r), key=lambda r: -r["compile"])
    lines += [
        f"{r['compile']:8.2f} s to compile {r['ops']} ops, {r['change']}: {r['row']}"
        for r in timed[:_SLOWEST]
    ]
    used = Counter(k for r in results for k in r.get("kernels", ()))
    lines.append(
        f"{max((r.get('search', 0.0) for r in results), default=0.0):8.2f} s: the longest search"
    )
    lines.append("kernels: " + ", ".join(f"{k} {n}" for k, n in sorted(used.items())))
    lines += slow + failures
    lines += [f"{change}: {name} agrees by now: take it off the list" for name, change in agreeing]
    lines.append(f"{len(failures)} failed, {len(slow)} over {LONGEST_COMPILATION:.0f} s to compile")
    return lines, not failures and not any(line.startswith("SLOW") for line in slow)


def main() -> int:
    parser = argparse.ArgumentParser(description="The table on the default device.")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) - 2))
    parser.add_argument("--seconds", type=float, default=400.0, help="no item begins later")
    parser.add_argument("--changes", default="", help="only these, with commas between")
    parser.add_argument("--every", type=int, default=1, help="only each so-manieth item")
    parser.add_argument("--out", type=Path, help="write every result here")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        answers = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)  # rows that print
        serve(sys.stdin, answers)
        return 0
    began = time.monotonic()
    from tests.parity import device_rows
    from tests.parity.table import CASES

    device_rows.load()
    chosen = tuple(filter(None, options.changes.split(","))) or device_rows.CHANGES
    items = [
        (number, change)
        for number, change in device_rows.items()
        if change in chosen
        and (not options.words or any(w in CASES[number].id for w in options.words))
    ]
    items = items[:: options.every]
    results = run(items, options.jobs, options.seconds)
    again_alone(results, 60.0)
    lines, good = report(results)
    print("\n".join(lines))
    print(f"{time.monotonic() - began:.0f} s, {options.jobs} processes")
    if options.out:
        options.out.write_text(json.dumps(results, indent=0))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
