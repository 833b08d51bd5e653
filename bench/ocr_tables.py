"""Tables with spans, from the picture to HTML: TEDS.

    python -m bench.ocr_tables --tables 100 --tier tiny

Tables are drawn here, 3 to 9 rows by 2 to 6 columns, with cells that span rows and columns, short
and long texts, in turns: fully ruled, without a frame, shaded and slightly turned, noisy, with
rules between rows only, without rules. The last two kinds have no cells that span rows. Shown: the
mean TEDS of each kind and of all.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import defaultdict
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from bench.teds import teds

KINDS = ("ruled", "no frame", "shaded, turned", "noisy", "rows only", "no rules")
_FONTS = ("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",)
_WORDS = [
    "Total", "Region", "Price", "Amount", "North", "South", "East", "West", "Model", "Speed",
    "Memory", "Year", "Units", "Share", "Growth", "Income", "Cost", "Tax", "Net", "Gross",
    "Average", "Median", "Lines", "Pages", "Batch", "Width", "Depth", "Error", "Loss", "Name",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Drawn:
    """A table's picture and its HTML."""

    kind: str
    image: Image.Image
    html: str


def draw(number: int, kind: str) -> Drawn:
    """A table of this kind."""
    rng = random.Random(number)
    rows, columns = rng.randint(3, 9), rng.randint(2, 6)
    if kind == "no rules":
        columns = max(columns, 3)
    open_kind = kind in ("rows only", "no rules")
    px = rng.choice([18, 22, 28])
    path = next((f for f in _FONTS if Path(f).exists()), None)
    font: Any = ImageFont.truetype(path, px) if path else ImageFont.load_default(px)
    pad = int(px * rng.uniform(0.5, 0.9))
    slots = _slots(rng, rows, columns, open_kind)
    texts = {s: _text(rng, s, open_kind) for s in slots}
    line = int(1.3 * px)
    gap = 3 * pad if open_kind else 2 * pad
    widths, heights = [4 * px] * columns, [line + 2 * pad] * rows
    for (r, c, tall, wide), text in texts.items():
        parts = text.split("\n")
        need = max(font.getlength(part) for part in parts) + gap
        for i in range(c, c + wide):
            widths[i] = max(widths[i], int(need / wide) + 1)
        for i in range(r, r + tall):
            heights[i] = max(heights[i], int((len(parts) * line + 2 * pad) / tall) + 1)
    left, top = 50, 60
    xs, ys = [left], [top]
    for w in widths:
        xs.append(xs[-1] + w)
    for h in heights:
        ys.append(ys[-1] + h)
    image = Image.new("RGB", (xs[-1] + 50, ys[-1] + 60), "white")
    pen = ImageDraw.Draw(image)
    ink = rng.choice(["black", "#444", "#777"])
    thick = rng.choice([1, 2, 3])
    for (r, c, tall, wide), text in texts.items():
        box = xs[c], ys[r], xs[c + wide], ys[r + tall]
        if kind == "shaded, turned" and r == 0:
            pen.rectangle(box, "#d8e4f0")
        if not open_kind:
            _frame(pen, box, ink, thick, kind == "no frame", (xs[0], xs[-1]))
        parts = text.split("\n")
        y = (box[1] + box[3] - len(parts) * line) / 2
        for i, part in enumerate(parts):
            pen.text((box[0] + pad, y + i * line), part, "black", font)
    if kind == "rows only":
        for y in ys if rng.random() < 0.5 else (ys[0], ys[1], ys[-1]):
            pen.line((xs[0], y, xs[-1], y), ink, thick)
    if kind == "shaded, turned":
        image = image.rotate(
            rng.uniform(-1.5, 1.5), Image.Resampling.BICUBIC, expand=True, fillcolor="white"
        )
    if kind == "noisy":
        noise = np.random.default_rng(number).normal(0, 10, (*image.size[::-1], 3))
        image = Image.fromarray((np.asarray(image) + noise).clip(0, 255).astype(np.uint8))
    return Drawn(kind, image, _html(rows, texts))


def _slots(
    rng: random.Random, rows: int, columns: int, flat: bool
) -> list[tuple[int, int, int, int]]:
    """Cells: row, column, rows, columns. Each row and each column begins a cell of its own."""
    taken: set[tuple[int, int]] = set()
    made: list[tuple[int, int, int, int]] = []
    for r in range(rows):
        for c in range(columns):
            if (r, c) in taken:
                continue
            tall = 1 if flat or c == 0 or rng.random() > 0.12 else min(2, rows - r)
            wide = 1 if r + tall == rows or rng.random() > 0.12 else min(2, columns - c)
            if flat and r:
                wide = 1
            cells = {(i, j) for i in range(r, r + tall) for j in range(c, c + wide)}
            if cells & taken:
                tall = wide = 1
                cells = {(r, c)}
            taken |= cells
            made.append((r, c, tall, wide))
    return made


def _text(rng: random.Random, slot: tuple[int, int, int, int], flat: bool) -> str:
    row, column, tall, wide = slot
    if not flat and row and column and rng.random() < 0.05:
        return ""
    if row and column and rng.random() < 0.6:
        return rng.choice([f"{rng.randint(1, 99999):,}", f"{rng.uniform(0, 99):.2f}", "12 %"])
    words = rng.sample(_WORDS, rng.randint(wide, wide + 1))
    text = " ".join(words)
    if not flat and tall == 1 and rng.random() < 0.15:
        text += "\n" + " ".join(rng.sample(_WORDS, 2))
    return text


def _frame(
    pen: ImageDraw.ImageDraw, box: tuple[int, int, int, int], ink: str, thick: int, open_: bool,
    sides: tuple[int, int],
) -> None:  # fmt: skip
    left, top, right, bottom = box
    pen.line((left, top, right, top), ink, thick)
    pen.line((left, bottom, right, bottom), ink, thick)
    if not (open_ and left == sides[0]):
        pen.line((left, top, left, bottom), ink, thick)
    if not (open_ and right == sides[1]):
        pen.line((right, top, right, bottom), ink, thick)


def _html(rows: int, texts: dict[tuple[int, int, int, int], str]) -> str:
    made = ""
    for row in range(rows):
        cells = ""
        for (r, _, tall, wide), text in sorted(texts.items()):
            if r == row:
                spans = f' rowspan="{tall}"' * (tall > 1) + f' colspan="{wide}"' * (wide > 1)
                cells += f"<td{spans}>{escape(text.replace(chr(10), ' '), quote=False)}</td>"
        made += f"<tr>{cells}</tr>"
    return f"<table>{made}</table>"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--tier", default=None)
    parser.add_argument("--keep", type=Path, help="a folder for tables read worse than 0.9")
    given = parser.parse_args()
    from bireme.ocr import Reader
    from bireme.ocr.write.html import table_to_html

    reader = Reader(tier=given.tier)
    scores: dict[str, list[float]] = defaultdict(list)
    for number in range(given.tables):
        drawn = draw(number, KINDS[number % len(KINDS)])
        page = reader.read(drawn.image)[0]
        tables = [b.table for b in page.blocks if b.table is not None]
        html = table_to_html(tables[0]) if len(tables) == 1 else ""
        score = teds(drawn.html, html)
        scores[drawn.kind].append(score)
        if given.keep is not None and score < 0.9:
            given.keep.mkdir(parents=True, exist_ok=True)
            drawn.image.save(given.keep / f"{number:03}.png")
            (given.keep / f"{number:03}.html").write_text(f"{score}\n{drawn.html}\n{html}\n")
    for kind, found in scores.items():
        print(f"{kind:<16}{len(found):>5}{fmean(found):>9.4f}{min(found):>9.4f}")
    every = [s for found in scores.values() for s in found]
    print(f"{'all':<16}{len(every):>5}{fmean(every):>9.4f}{min(every):>9.4f}")


if __name__ == "__main__":
    sys.exit(main())
