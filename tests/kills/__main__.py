"""`python -m tests.kills [COUNT] [SAVER ...]`: SIGKILL while files are replaced, over every saver.

After each of COUNT kills the real loader must find the old version or the new one, whole; so must
readers that run all the time; and temporary files of the dead must not pile up.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time

os.environ["BIREME_COMPILE"] = "never"  # threads of a compiler would not survive a fork

from tests.kills.campaign import run
from tests.kills.savers import savers


def main(count: int, chosen: list[str]) -> int:
    known = savers()
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        raise SystemExit(f"no savers {unknown}. There are: {', '.join(known)}")
    if "jax" in sys.modules:
        raise SystemExit("JAX is loaded, whose threads do not survive a fork")
    names = chosen or list(known)
    kills = reads = broken = 0
    for i, name in enumerate(names):
        share = count // len(names) + (i < count % len(names))
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            tally = run(known[name], folder, share, seed=i)
        print(
            f"{name}: {tally.kills} kills ({tally.old} old, {tally.new} new), {tally.saves} whole "
            f"saves, {tally.reads} loads beside them; {tally.left} kills left files, at most "
            f"{tally.most}; {len(tally.broken)} wrong, {time.perf_counter() - start:.0f} s",
            flush=True,
        )
        for what in tally.broken[:5]:
            print(f"  {what}")
        kills, reads, broken = kills + tally.kills, reads + tally.reads, broken + len(tally.broken)
    print(f"{kills} kills, {reads} loads beside them, {broken} wrong")
    return 1 if broken or kills < count else 0


if __name__ == "__main__":
    words = sys.argv[1:]
    number = int(words.pop(0)) if words and words[0].isdigit() else 1000
    sys.exit(main(number, words))
