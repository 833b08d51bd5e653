"""Pages that lie on a side or on their heads."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from bireme.ocr.geometry import sides
from bireme.ocr.result import Block, Box, Line, Point, Polygon, Table, around, polygon_of

LONG = 2.0  # times as long as high: lines that tell a direction
MOST = 0.6  # of the text's length has to run another way


def quarters(lines: Sequence[Line]) -> int:
    """How many quarters an image has to be turned, counter-clockwise, until most text is level."""
    lengths: Counter[int] = Counter()
    for line in lines:
        (ax, ay), (bx, by), _, _ = line.polygon
        long, short = sides(line.polygon)
        if long >= LONG * short:
            lengths[round(math.atan2(by - ay, bx - ax) / (math.pi / 2)) % 4] += round(long)
    if not lengths:
        return 0
    best, length = lengths.most_common(1)[0]
    return best if length >= MOST * lengths.total() else 0


def back(turns: int, width: int, height: int) -> Callable[[Point], Point]:
    """From a point of the turned image to the same in the image of this size."""
    ways: dict[int, Callable[[Point], Point]] = {
        0: lambda p: p,
        1: lambda p: (width - p[1], p[0]),
        2: lambda p: (width - p[0], height - p[1]),
        3: lambda p: (p[1], height - p[0]),
    }
    return ways[turns]


def turned_back(blocks: Sequence[Block], turns: int, width: int, height: int) -> tuple[Block, ...]:
    """Blocks of the turned image with the places that they have in the image itself."""
    place = back(turns, width, height)

    def moved(item: Any) -> Any:
        a, b, c, d = item.polygon
        polygon: Polygon = place(a), place(b), place(c), place(d)
        return replace(item, polygon=polygon)

    made = []
    for block in blocks:
        lines = tuple(
            replace(moved(line), words=tuple(map(moved, line.words))) for line in block.lines
        )
        table = block.table and _moved_table(block.table, place)
        box = _moved_box(block.box, place)
        made.append(replace(block, lines=lines, box=box, table=table))
    return tuple(made)


def _moved_table(table: Table, place: Callable[[Point], Point]) -> Table:
    cells = [c if c.box is None else replace(c, box=_moved_box(c.box, place)) for c in table.cells]
    return replace(table, cells=tuple(cells))


def _moved_box(box: Box, place: Callable[[Point], Point]) -> Box:
    corners = [place(point) for point in polygon_of(box)]
    return around([(x, y, x, y) for x, y in corners])
