"""The order in which a page is read: columns one after the other, what spans them in between.

A gutter is a strip of paper that lines of text end at on one side and begin at on the other. The
lines that cross it (titles, wide pictures' captions) part the page into bands; in each band what
is before the gutter is read first. Where there is no gutter, rows are read from the top.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bireme.ocr.geometry import sides
from bireme.ocr.result import Box, Line, Point, around

MIN_LINES = 3  # on each side of a gutter
MIN_GAP = 0.6  # of a line's height: the width of a gutter
MIN_WIDTH = 5.0  # of a line's height: the median line of a column; cells of tables are shorter
MIN_FILL = 0.5  # of a column's width, by its median line
MAX_CROSSING = 0.34  # of the lines
MAX_DEPTH = 12


@dataclass(frozen=True, slots=True)
class Placed:
    """A line and its rectangle on the page once that is level."""

    line: Line
    box: Box

    @property
    def height(self) -> float:
        return self.box[3] - self.box[1]

    @property
    def middle(self) -> float:
        return (self.box[1] + self.box[3]) / 2


def slant(lines: Sequence[Line]) -> float:
    """The angle of the text, in radians: the median of the long lines'."""
    angles = []
    for line in lines:
        (ax, ay), (bx, by), _, _ = line.polygon
        long, short = sides(line.polygon)
        if long > 4 * short and abs(bx - ax) > abs(by - ay):
            angle = math.atan2(by - ay, bx - ax)
            angles.append(
                angle if abs(angle) < math.pi / 2 else angle - math.copysign(math.pi, angle)
            )
    return median(angles) if angles else 0.0


def placed(lines: Sequence[Line], angle: float) -> list[Placed]:
    """Lines with their rectangles on the page once that is turned back by an angle."""
    made = []
    for line in lines:
        xs, ys = zip(*[levelled(point, angle) for point in line.polygon], strict=True)
        made.append(Placed(line, (min(xs), min(ys), max(xs), max(ys))))
    return made


def levelled(point: Point, angle: float) -> Point:
    """Where a point lies once the page is turned back by an angle."""
    cos, sin = math.cos(angle), math.sin(angle)
    return point[0] * cos + point[1] * sin, point[1] * cos - point[0] * sin


def has_gutter(items: Sequence[Placed]) -> bool:
    """Whether lines look like columns of text."""
    return _gutter(items) is not None


def columns(items: Sequence[Placed], backward: bool = False, depth: int = 0) -> list[list[Placed]]:
    """Groups of lines in reading order; each group is one column, its rows from the top.

    `backward`: columns are read from right to left.
    """
    if not items:
        return []
    gutter = _gutter(items) if depth < MAX_DEPTH else None
    if gutter is None:
        return [rows(items, backward)]
    crossing = [p for p in items if p.box[0] < gutter < p.box[2]]
    left = [p for p in items if p.box[2] <= gutter]
    right = [p for p in items if p.box[0] >= gutter]
    sides = (right, left) if backward else (left, right)
    made: list[list[Placed]] = []
    for low, high, separator in _bands(crossing):
        for side in sides:
            part = [p for p in side if low <= p.middle < high]
            made += columns(part, backward, depth + 1)
        if separator:
            made += columns(separator, backward, depth + 1)
    return made


def _bands(
    crossing: list[Placed],
) -> list[tuple[float, float, list[Placed]]]:
    """Strips between crossing lines, each with the lines that end it."""
    made: list[tuple[float, float, list[Placed]]] = []
    low = -math.inf
    for p in sorted(crossing, key=lambda p: p.middle):
        if made and p.box[1] < made[-1][2][-1].box[3] + 1.5 * p.height:
            # Lines that follow each other: one separator, unless columns lie between.
            made[-1][2].append(p)
            low = p.middle
            continue
        made.append((low, p.middle, [p]))
        low = p.middle
    return [*made, (low, math.inf, [])]


def _gutter(items: Sequence[Placed]) -> float | None:
    """Where the best gutter is: the one that fewest lines cross, then the widest."""
    if len(items) < 2 * MIN_LINES:
        return None
    unit = median([p.height for p in items])
    best: tuple[float, float] | None = None
    where = None
    for x in _candidates(items, unit):
        left = [p for p in items if p.box[2] <= x]
        right = [p for p in items if p.box[0] >= x]
        crossing = len(items) - len(left) - len(right)
        if crossing > MAX_CROSSING * len(items) or not (
            _is_column(left, unit) and _is_column(right, unit)
        ):
            continue
        gap = _gap(left, right)
        if gap < MIN_GAP * unit:
            continue
        key = (crossing, -gap)
        if best is None or key < best:
            best, where = key, x
    return where


def _candidates(items: Sequence[Placed], unit: float) -> list[float]:
    """Places just before the left edges that several lines share."""
    edges = sorted(p.box[0] for p in items)
    made: list[float] = []
    for i, x in enumerate(edges):
        if i + MIN_LINES - 1 < len(edges) and edges[i + MIN_LINES - 1] - x <= unit:
            place = x - 0.05 * unit
            if not made or place - made[-1] > 0.25 * unit:
                made.append(place)
    return made


def _is_column(items: Sequence[Placed], unit: float) -> bool:
    """Whether lines look like a column of text: several, one under the other, mostly as wide."""
    if len(items) < MIN_LINES:
        return False
    left, _, right, _ = around([p.box for p in items])
    usual = median([p.box[2] - p.box[0] for p in items])
    # Columns that will be parted again are as wide as their parts.
    overlapping = sum(
        any(q is not p and abs(q.middle - p.middle) < 0.5 * unit for q in items) for p in items
    )
    if overlapping > len(items) / 2:
        return usual >= MIN_WIDTH * unit
    return usual >= MIN_WIDTH * unit and usual >= MIN_FILL * (right - left)


def _gap(left: Sequence[Placed], right: Sequence[Placed]) -> float:
    """The paper between two columns."""
    return min(p.box[0] for p in right) - max(p.box[2] for p in left)


def rows(items: Sequence[Placed], backward: bool = False) -> list[Placed]:
    """Lines from the top; those beside each other from the left."""
    left = sorted(items, key=lambda p: p.box[1])
    made: list[Placed] = []
    while left:
        first = left[0]
        row = [p for p in left if _same_row(first, p)]
        left = [p for p in left if not any(p is q for q in row)]
        made += sorted(row, key=lambda p: p.box[0], reverse=backward)
    return made


def _same_row(a: Placed, b: Placed) -> bool:
    shared = min(a.box[3], b.box[3]) - max(a.box[1], b.box[1])
    return a is b or (
        shared > 0.5 * min(a.height, b.height)
        and (b.box[0] >= a.box[2] - 0.3 * a.height or b.box[2] <= a.box[0] + 0.3 * a.height)
    )
