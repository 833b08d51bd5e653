"""Reading pages, from the file to its words, against RapidOCR on ONNX Runtime.

    python -m bench.ocr --peer-python /path/to/python --pages 40

The peer's Python has `rapidocr==3.10.0` and `onnxruntime`; it runs with the same nets (PP-OCRv6
small: `bireme ocr pull small`) and two threads. Pages are drawn here with DejaVu Sans or Pillow's
own font: clean, slanted, blurred, noisy ones in turns. Both read each page in turns, once to warm
up and then `--rounds` times. Shown: word-F1, character errors, the median seconds of a page, and
the ratio of the two. Run it on a quiet machine; a figure from a busy one says little.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

FONTS = ("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",)
_PEER = """
import json, sys, time
from rapidocr import RapidOCR
reader = RapidOCR(params={"Global.log_level": "error",
                          "EngineConfig.onnxruntime.intra_op_num_threads": int(sys.argv[1])})
for path in sys.stdin:
    start = time.perf_counter()
    found = reader(path.strip())
    seconds = time.perf_counter() - start
    print(json.dumps([seconds, list(found.txts or [])]), flush=True)
"""


def draw(folder: Path, count: int) -> list[tuple[Path, list[str]]]:
    """Pages with known lines."""
    import numpy as np
    from PIL import Image, ImageDraw, ImageFilter, ImageFont

    rng, noise = random.Random(7), np.random.default_rng(7)
    text = " ".join(p.read_text() for p in sorted(Path("docs").glob("*.md")))
    words = [w for w in text.split() if w.isascii() and w.strip(".,;:").isalnum()]
    made = []
    for number in range(count):
        size, px = rng.choice([(1240, 1754), (1000, 1400), (900, 600)]), rng.choice([20, 26, 34])
        path = next((f for f in FONTS if os.path.exists(f)), None)
        font: Any = ImageFont.truetype(path, px) if path else ImageFont.load_default(px)
        image = Image.new("RGB", size, "white")
        pen, lines, y = ImageDraw.Draw(image), [], 60
        while y < size[1] - 80:
            line = ""
            for word in rng.choices(words, k=rng.randint(2, 12)):
                longer = f"{line} {word}".strip()
                if pen.textlength(longer, font) > size[0] - 120:
                    break
                line = longer
            pen.text((60, y), line, "#111", font)
            lines.append(line)
            y += int(px * rng.choice([1.4, 1.7, 2.2]))
        if number % 4 == 1:
            image = image.rotate(rng.uniform(-2, 2), Image.Resampling.BICUBIC, fillcolor="white")
        elif number % 4 == 2:
            image = image.filter(ImageFilter.GaussianBlur(0.8))
        elif number % 4 == 3:
            shaken = np.asarray(image) + noise.normal(0, 12, (*image.size[::-1], 3))
            image = Image.fromarray(shaken.clip(0, 255).astype(np.uint8))
        target = folder / f"{number:03}.png"
        image.save(target)
        made.append((target, lines))
    return made


def word_f1(pairs: list[tuple[list[str], list[str]]]) -> float:
    """Of all words of all pages, wherever they stand on their page."""
    right = wanted = found = 0
    for truth, read in pairs:
        a = Counter(w for line in truth for w in line.split())
        b = Counter(w for line in read for w in line.split())
        right += (a & b).total()
        wanted, found = wanted + a.total(), found + b.total()
    return 2 * right / max(1, wanted + found)


def exact(pairs: list[tuple[list[str], list[str]]]) -> float:
    """The share of lines that were read without a mistake."""
    right = sum((Counter(truth) & Counter(read)).total() for truth, read in pairs)
    return right / max(1, sum(len(truth) for truth, _ in pairs))


class Peer:
    """RapidOCR in a process of its own Python."""

    def __init__(self, python: str, threads: int):
        self.process = subprocess.Popen(
            [python, "-c", _PEER, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __call__(self, path: Path) -> tuple[float, list[str]]:
        process = self.process
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the peer has no pipes")
        process.stdin.write(f"{path}\n")
        process.stdin.flush()
        seconds, lines = json.loads(process.stdout.readline())
        return seconds, lines

    def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()


class Ours:
    """A reader of ours."""

    def __init__(self, tier: str, engine: str):
        from bireme.ocr import Reader

        self.reader = Reader(tier=tier, engine=engine)

    def __call__(self, path: Path) -> tuple[float, list[str]]:
        start = time.perf_counter()
        document = self.reader.read(path)
        seconds = time.perf_counter() - start
        return seconds, [line.text for page in document for line in page.lines]

    def close(self) -> None:
        """Nothing to end."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer-python", help="a Python with rapidocr; without it, ours alone")
    parser.add_argument("--pages", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tiers", nargs="+", default=["small", "tiny"])
    parser.add_argument("--engine", default="xla")
    given = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[: given.threads]
    os.sched_setaffinity(0, cores)
    readers: dict[str, Ours | Peer] = {t: Ours(t, given.engine) for t in given.tiers}
    if given.peer_python:
        readers["rapidocr"] = Peer(given.peer_python, given.threads)
    with tempfile.TemporaryDirectory() as folder:
        pages = draw(Path(folder), given.pages)
        pairs: dict[str, list[tuple[list[str], list[str]]]] = {n: [] for n in readers}
        times: dict[str, list[float]] = {n: [] for n in readers}
        for path, truth in pages:
            turns: dict[str, list[float]] = {n: [] for n in readers}
            for turn in range(given.rounds + 1):
                for name, read in readers.items():
                    seconds, lines = read(path)
                    if turn == 0:
                        pairs[name].append((truth, lines))
                    else:
                        turns[name].append(seconds)
            for name, measured in turns.items():
                times[name].append(median(measured))
    for read in readers.values():
        read.close()
    base = times.get("rapidocr") or times[given.tiers[0]]
    print(f"{'reader':<10}{'word-F1':>9}{'lines':>8}{'s/page':>9}{'ratio':>8}  (medians)")
    for name in readers:
        ratio = median(a / b for a, b in zip(times[name], base, strict=True))
        row = f"{word_f1(pairs[name]):>9.4f}{exact(pairs[name]):>8.3f}{median(times[name]):>9.3f}"
        print(f"{name:<10}{row}{ratio:>8.2f}")


if __name__ == "__main__":
    sys.exit(main())
