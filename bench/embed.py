"""Sentences per second of an embedding model, ours and sentence-transformers' taking turns.

    python -m bench.embed FOLDER [--peer PYTHON] [--count 2000] [--rounds 3]

`PYTHON` is an interpreter with torch and sentence-transformers. Both use two threads.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

_PEER = """
import json, sys, time
import numpy as np, torch
torch.set_num_threads(2)
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], device="cpu")
texts = json.load(open(sys.argv[2]))
model.encode(texts[:64])
for _ in sys.stdin:
    start = time.perf_counter()
    found = model.encode(texts, show_progress_bar=False)
    print(time.perf_counter() - start, flush=True)
np.save(sys.argv[3], found)
"""


def texts(count: int) -> list[str]:
    """Sentences of 3 to 250 words, from this project's pages."""
    import random

    pages = sorted((pathlib.Path(__file__).parent.parent / "docs").glob("*.md"))
    words = " ".join(p.read_text() for p in pages).split()
    draw = random.Random(0)
    found = []
    for _ in range(count):
        size = draw.choice([3, 6, 9, 12, 15, 20, 25, 30, 40, 60, 90, 150, 250])
        start = draw.randrange(len(words) - size)
        found.append(" ".join(words[start : start + size]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--peer")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    import numpy as np

    from bireme import zoo
    from bireme.profiler import count_compiles

    given = texts(options.count)
    embed = zoo.task("embedding", options.model)
    with count_compiles() as compiled:
        vectors = embed(given)
    print(f"programs: {compiled[0]}")
    with tempfile.TemporaryDirectory() as folder:
        listed, out = os.path.join(folder, "texts.json"), os.path.join(folder, "out.npy")
        pathlib.Path(listed).write_text(json.dumps(given))
        peer = None
        if options.peer:
            command = [options.peer, "-c", _PEER, options.model, listed, out]
            peer = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
            )
        ours, theirs = [], []
        for _ in range(options.rounds):
            start = time.perf_counter()
            vectors = embed(given)
            ours.append(time.perf_counter() - start)
            if peer is not None and peer.stdin is not None and peer.stdout is not None:
                peer.stdin.write("go\n")
                theirs.append(float(peer.stdout.readline()))
        print(f"bireme: {options.count / min(ours):.0f} sentences/s (best of {options.rounds})")
        if peer is not None and peer.stdin is not None:
            peer.stdin.close()
            peer.wait()
            rate = options.count / min(theirs)
            print(f"sentence-transformers: {rate:.0f} sentences/s")
            print(f"ratio: {min(theirs) / min(ours):.2f}")
            print(f"largest difference: {np.abs(vectors - np.load(out)).max():.2g}")


if __name__ == "__main__":
    sys.exit(main())
