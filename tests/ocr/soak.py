"""One reader for a long time: many threads, many different images.

python -m tests.ocr.soak threads 1000    # 16 threads on one reader, against one thread
python -m tests.ocr.soak memory 2000     # different images: memory after the first tenth
"""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
from pathlib import Path

from PIL import Image

from bireme.ocr import Page, Reader
from tests.ocr.pages import draw

WORDS = ("two", "banks", "of", "oars", "moved", "the", "bireme", "over", "wide", "quiet", "seas")


def image(seed: int) -> Image.Image:
    """An image of a size, with lines, that only this seed has."""
    rng = random.Random(seed)
    size = rng.randint(120, 900), rng.randint(60, 500)
    lines = [
        (rng.randint(2, 40), y, " ".join(rng.choices(WORDS, k=rng.randint(1, 8))))
        for y in range(10, size[1] - 30, rng.randint(30, 60))
    ]
    return draw(lines, size, rng.choice([14, 18, 24]))


def threads(calls: int, count: int = 16) -> int:
    """How many of `calls` readings by many threads differ from one thread's."""
    reader = Reader(tier="tiny")
    seeds = range(min(40, calls))
    alone: list[Page] = [reader.read(image(seed))[0] for seed in seeds]
    wrong: list[int] = []
    turns = iter([seed % len(seeds) for seed in range(calls)])
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                seed = next(turns, None)
            if seed is None:
                return
            if reader.read(image(seed))[0] != alone[seed]:
                wrong.append(seed)

    workers = [threading.Thread(target=work) for _ in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return len(wrong)


def resident() -> float:
    """MiB of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def memory(images: int) -> tuple[float, float]:
    """Memory after the first tenth of the images and after the last."""
    reader = Reader(tier="tiny")
    early = 0.0
    for seed in range(images):
        reader.read(image(seed))
        if seed == images // 10:
            gc.collect()
            early = resident()
    gc.collect()
    return early, resident()


if __name__ == "__main__":
    which, number = sys.argv[1], int(sys.argv[2])
    if which == "threads":
        print(f"{threads(number)} of {number} readings differ")
    else:
        before, after = memory(number)
        print(f"{before:.0f} MiB, then {after:.0f} MiB: {100 * (after / before - 1):+.1f} %")
