"""`python -m bench short`: whole processes in turns; ratios of wall and CPU time."""

from __future__ import annotations

import compileall
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from bench.processes import ROOT, environment

PEERS = ["bireme", "paddle"]
NATIVE = os.path.expanduser("~/.cache/bireme/native")  # comes with the package


class Spent(NamedTuple):
    wall: float
    cpu: float


def timed(name: str, peer: str, cache: str) -> Spent:
    """One process, from its start to its end."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "bench.short.worker", name, peer],
        env=environment(BIREME_CACHE_DIR=cache),
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Spent(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _fresh_cache(folder: str) -> str:
    """An empty cache but for the native kernels, if this machine has built them."""
    os.mkdir(folder, mode=0o700)
    if os.path.isdir(NATIVE):
        shutil.copytree(NATIVE, os.path.join(folder, "native"))
    return folder


def _ratio(ours: list[Spent], theirs: list[Spent], what: str) -> float:
    return statistics.median(getattr(s, what) for s in ours) / statistics.median(
        getattr(s, what) for s in theirs
    )


def main(names: list[str], programs: list[str], rounds: int, warm: bool) -> dict[str, list[float]]:
    """Prints a row for each program, and returns the ratios to the second peer."""
    ratios: dict[str, list[float]] = {"wall": [], "cpu": []}
    compileall.compile_dir(ROOT / "bireme", quiet=1)  # an installed package has its bytecode
    print(f"{'program':18}" + "".join(f"{n + ' wall, cpu (s)':>24}" for n in names) + "   ratios")
    for name in programs:
        spent: dict[str, list[Spent]] = {n: [] for n in names}
        with tempfile.TemporaryDirectory() as folder:
            kept = _fresh_cache(f"{folder}/kept")
            if warm:
                timed(name, names[0], kept)
            for turn in range(rounds):
                for peer in names:
                    cache = kept if warm else _fresh_cache(f"{folder}/{turn}-{peer}")
                    spent[peer].append(timed(name, peer, cache))
        row = f"{name:18}"
        for peer in names:
            middle = [statistics.median(getattr(s, w) for s in spent[peer]) for w in Spent._fields]
            row += f"{middle[0]:14.2f}{middle[1]:10.2f}"
        if len(names) > 1:
            for what, listed in ratios.items():
                listed.append(_ratio(spent[names[0]], spent[names[1]], what))
                row += f"{listed[-1]:8.2f}"
        print(row, flush=True)
    if ratios["wall"]:
        means = [statistics.geometric_mean(r) for r in ratios.values()]
        print(f"geometric mean: wall {means[0]:.2f}, cpu {means[1]:.2f}")
    return ratios
