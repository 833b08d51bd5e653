"""Tables whose columns are parted by paper: with rules across the page, or with none."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from bireme.ocr.document.grid import Grid, Ruling, Slot, Stroke, compact
from bireme.ocr.document.order import Placed, has_gutter
from bireme.ocr.result import around

MIN_ROWS = 3
MIN_COLUMNS = 3  # without a rule; two are a list of terms
GUTTER = 0.5  # of a line's height: the least paper between columns
CROSSED = 0.2  # of the rows may have text in a gutter: cells that span columns
FULL = 0.6  # of the rows have text in two columns or more
APART = 2.5  # times a line's height: more paper between two rows ends a table
MANY = 4  # rows of text between two rules are rows of the table

Row = list[Placed]


def open_grids(items: Sequence[Placed], drawn: Ruling) -> list[Grid]:
    """Grids of tables that no plumb rules part into cells."""
    made: list[Grid] = []
    left = list(items)
    for frame in _frames(drawn):
        first, last = frame[0], frame[-1]
        inside = [
            p for p in left if first.at < p.middle < last.at and _beside(p, first, drawn.near)
        ]
        grid = _grid(text_rows(inside), 2, [s.at for s in frame])
        if grid is not None:
            made.append(grid)
            left = [p for p in left if all(p is not q for q in inside)]
    for run in _runs(text_rows(left)):
        if has_gutter([p for row in run for p in row]):
            continue
        grid = _grid(run, MIN_COLUMNS, [])
        if grid is not None:
            made.append(grid)
    return made


def _beside(item: Placed, rule: Stroke, near: float) -> bool:
    return rule.start - near <= (item.box[0] + item.box[2]) / 2 <= rule.end + near


def _frames(drawn: Ruling) -> list[list[Stroke]]:
    """Rules of one width, one under the other: two at least."""
    groups: list[list[Stroke]] = []
    for rule in sorted(drawn.level, key=lambda s: s.at):
        for group in groups:
            if abs(group[0].start - rule.start) + abs(group[0].end - rule.end) <= 4 * drawn.near:
                if rule.at - group[-1].at > drawn.near:
                    group.append(rule)
                break
        else:
            groups.append([rule])
    return [g for g in groups if len(g) >= 2]


def text_rows(items: Sequence[Placed]) -> list[Row]:
    """Lines beside each other, from the top, each row from the left."""
    made: list[Row] = []
    for item in sorted(items, key=lambda p: p.middle):
        if made:
            row = made[-1]
            middle = sum([p.middle for p in row]) / len(row)
            if item.middle - middle < 0.5 * min(item.height, min([p.height for p in row])):
                row.append(item)
                continue
        made.append([item])
    return [sorted(row, key=lambda p: p.box[0]) for row in made]


def _runs(found: Sequence[Row]) -> list[list[Row]]:
    """Rows of several cells that follow each other."""
    made: list[list[Row]] = []
    last: Row | None = None
    for row in found:
        if len(row) < 2:
            last = None
            continue
        unit = median([p.height for p in row])
        if last is not None and row[0].box[1] - last[0].box[3] < APART * unit:
            made[-1].append(row)
        else:
            made.append([row])
        last = row
    return [run for run in made if len(run) >= MIN_ROWS]


def _grid(found: Sequence[Row], least: int, rules: Sequence[float]) -> Grid | None:
    """The grid of rows of text, if they stand in so many columns."""
    if len(found) < 2:
        return None
    gutters = _gutters(found)
    if len(gutters) + 1 < least:
        return None
    left, top, right, bottom = around([p.box for row in found for p in row])
    xs = [left, *gutters, right]
    spans = [[_span(p, xs) for p in row] for row in found]
    full = sum(len({c for low, high in row for c in range(low, high)}) >= 2 for row in spans)
    if full < FULL * len(found):
        return None
    ys = _row_edges(found, rules) or [
        top,
        *[(_low(a) + _high(b)) / 2 for a, b in pairwise(found)],
        bottom,
    ]
    slots: list[Slot] = []
    for r, (high, low) in enumerate(pairwise(ys)):
        inside = [
            s
            for row, places in zip(found, spans, strict=True)
            for p, s in zip(row, places, strict=True)
            if high <= p.middle < low
        ]
        slots += [Slot(r, a, r + 1, b) for a, b in _cells(inside, len(xs) - 1)]
    return compact(Grid(tuple(xs), tuple(ys), tuple(slots)))


def _low(row: Row) -> float:
    return max([p.box[3] for p in row])


def _high(row: Row) -> float:
    return min([p.box[1] for p in row])


def _row_edges(found: Sequence[Row], rules: Sequence[float]) -> list[float] | None:
    """Where rules part the rows; where many rows stand between two rules, each is a row."""
    if len(rules) < 3:
        return None
    made = [rules[0]]
    for low, high in pairwise(rules):
        held = [row for row in found if low < sum([p.middle for p in row]) / len(row) < high]
        if len(held) > MANY or len(rules) <= MANY:
            made += [(_low(a) + _high(b)) / 2 for a, b in pairwise(held)]
        made.append(high)
    return made


def _gutters(found: Sequence[Row]) -> list[float]:
    """Strips of paper that hardly a row has text in, each by its middle."""
    unit = median([p.height for row in found for p in row])
    events = sorted(
        [(p.box[0], 1) for row in found for p in row]
        + [(p.box[2], -1) for row in found for p in row]
    )
    right = max([p.box[2] for row in found for p in row])
    allowed = max(1, int(CROSSED * len(found))) if len(found) > 2 else 0
    made: list[float] = []
    depth, begun = 0, None
    for x, change in events:
        depth += change
        if depth <= allowed and change < 0 and begun is None:
            begun = x
        elif depth > allowed and begun is not None:
            if x - begun >= GUTTER * unit:
                made.append((begun + x) / 2)
            begun = None
    return [x for x in made if x < right]


def _span(item: Placed, xs: Sequence[float]) -> tuple[int, int]:
    """The columns that a line stands in."""
    reach = min(0.3 * item.height, (item.box[2] - item.box[0]) / 2)
    inside = [
        c
        for c, (low, high) in enumerate(pairwise(xs))
        if min(item.box[2], high) - max(item.box[0], low) > reach
    ]
    return (inside[0], inside[-1] + 1) if inside else (0, 1)


def _cells(spans: Sequence[tuple[int, int]], columns: int) -> list[tuple[int, int]]:
    """A row's cells: columns that a line spans are one, the others stand alone."""
    joined = [False] * columns  # to the column before
    for low, high in spans:
        for c in range(low + 1, high):
            joined[c] = True
    starts = [c for c in range(columns) if not joined[c]]
    return list(pairwise([*starts, columns]))
