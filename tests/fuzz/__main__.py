"""`python -m tests.fuzz [COUNT] [FORMAT ...]`: damaged files of every format, by the thousand.

Reading one must succeed or raise one of our errors, in little time and memory, and run nothing.
A file that breaks a rule is kept under `.fuzz/`.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.formats import formats
from tests.fuzz.rules import Verdicts, limited_memory, watch_for_effects

KEEP = Path(".fuzz")


def main(count: int, chosen: list[str]) -> int:
    broken = 0
    watch_for_effects()
    with tempfile.TemporaryDirectory() as folder:
        known = formats(Path(folder))
        unknown = sorted(set(chosen) - set(known))
        if unknown:
            raise SystemExit(f"no formats {unknown}. There are: {', '.join(known)}")
        for name in chosen or known:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            start = time.perf_counter()
            with limited_memory():
                verdicts = Verdicts(known[name]).try_mutants(count, seed=1)
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
            seconds = time.perf_counter() - start
            print(
                f"{name}: {count} files, {verdicts.taken} readable, {verdicts.refused} refused, "
                f"{len(verdicts.broken)} broke a rule; slowest {verdicts.slowest * 1e3:.0f} ms, "
                f"{grown} MiB more, {seconds:.0f} s",
                flush=True,
            )
            for i, (data, why) in enumerate(verdicts.broken[:20]):
                KEEP.mkdir(exist_ok=True)
                path = KEEP / f"{name.replace(' ', '')}-{i}"
                path.write_bytes(data)
                print(f"  {path}: {why}")
            broken += len(verdicts.broken)
    return 1 if broken else 0


if __name__ == "__main__":
    words = sys.argv[1:]
    number = int(words.pop(0)) if words and words[0].isdigit() else 10_000
    sys.exit(main(number, words))
