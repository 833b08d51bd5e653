"""Grids of ruled lines: where a table's cells are and what they span."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bireme.ocr.document.rules import Rule, Rules
from bireme.ocr.result import Box

DRAWN = 0.6  # of a cell's side has to be ruled, else the cell goes on
MAX_EDGES = 400  # of a table on each side


@dataclass(frozen=True, slots=True)
class Stroke:
    """A rule on the levelled page: its place across its direction, and from where to where."""

    at: float
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Ruling:
    """The strokes of a page. Those that end nearer than `near` to another meet it; edges that are
    as near to each other are one."""

    level: tuple[Stroke, ...]
    plumb: tuple[Stroke, ...]
    near: float


@dataclass(frozen=True, slots=True)
class Slot:
    """A cell: its first row and column, and those after its last."""

    top: int
    left: int
    bottom: int
    right: int


@dataclass(frozen=True, slots=True)
class Grid:
    """The edges of rows and columns, and the cells between them."""

    xs: tuple[float, ...]
    ys: tuple[float, ...]
    slots: tuple[Slot, ...]

    @property
    def box(self) -> Box:
        return self.xs[0], self.ys[0], self.xs[-1], self.ys[-1]

    def box_of(self, slot: Slot) -> Box:
        return self.xs[slot.left], self.ys[slot.top], self.xs[slot.right], self.ys[slot.bottom]


def ruling(rules: Rules, angle: float) -> Ruling:
    """The rules that are level, and plumb, once the page is turned back by an angle."""
    cos, sin = math.cos(angle), math.sin(angle)

    def placed(rule: Rule) -> tuple[float, float, float, float]:
        (ax, ay), (bx, by) = rule.start, rule.end
        return ax * cos + ay * sin, ay * cos - ax * sin, bx * cos + by * sin, by * cos - bx * sin

    level = [
        Stroke((ay + by) / 2, ax, bx)
        for ax, ay, bx, by in map(placed, rules.across)
        if abs(by - ay) <= rules.near + 0.02 * abs(bx - ax)
    ]
    plumb = [
        Stroke((ax + bx) / 2, ay, by)
        for ax, ay, bx, by in map(placed, rules.down)
        if abs(bx - ax) <= rules.near + 0.02 * abs(by - ay)
    ]
    return Ruling(tuple(level), tuple(plumb), rules.near)


def grids(drawn: Ruling) -> list[Grid]:
    """Grids of rules that meet each other, the largest first."""
    made = []
    for group in _meeting(drawn):
        grid = _grid(group)
        if grid is not None:
            made.append(grid)
    return sorted(made, key=lambda g: (g.box[0] - g.box[2]) * (g.box[3] - g.box[1]))


def _meeting(drawn: Ruling) -> list[Ruling]:
    """Groups of rules that meet, directly or through others."""
    level, plumb, near = drawn.level, drawn.plumb, drawn.near
    touching = [
        [
            j
            for j, p in enumerate(plumb)
            if row.start - near <= p.at <= row.end + near
            and p.start - near <= row.at <= p.end + near
        ]
        for row in level
    ]
    owner = list(range(len(plumb)))  # a group's plumb rules lead to its first

    def root(j: int) -> int:
        while owner[j] != j:
            owner[j] = owner[owner[j]]
            j = owner[j]
        return j

    for met in touching:
        for a, b in pairwise(met):
            owner[root(b)] = root(a)
    groups: dict[int, tuple[list[Stroke], list[Stroke]]] = {}
    for j, p in enumerate(plumb):
        groups.setdefault(root(j), ([], []))[1].append(p)
    for row, met in zip(level, touching, strict=True):
        if met:
            groups[root(met[0])][0].append(row)
    return [Ruling(tuple(a), tuple(b), near) for a, b in groups.values() if len(a) >= 2]


def _grid(drawn: Ruling) -> Grid | None:
    xs = _edges(drawn.plumb, drawn.level, drawn.near)
    ys = _edges(drawn.level, drawn.plumb, drawn.near)
    if not (2 <= len(xs) <= MAX_EDGES and 2 <= len(ys) <= MAX_EDGES):
        return None
    return compact(Grid(tuple(xs), tuple(ys), tuple(_slots(xs, ys, drawn))))


def _edges(drawn: Sequence[Stroke], crossing: Sequence[Stroke], near: float) -> list[float]:
    """The places of strokes; and where several that cross them end beyond the outermost."""
    made = _clusters([s.at for s in drawn], near)
    first, last = made[0] - 2 * near, made[-1] + 2 * near
    before = _clusters([s.start for s in crossing if s.start < first], near)[:1]
    after = _clusters([s.end for s in crossing if s.end > last], near)[-1:]
    before = [e for e in before if _reached(e, [(s.start, s.at) for s in crossing], near)]
    after = [e for e in after if _reached(e, [(s.end, s.at) for s in crossing], near)]
    return [*before, *made, *after]


def _reached(edge: float, ends: Sequence[tuple[float, float]], near: float) -> bool:
    """Whether two strokes or more, not one over the other, end at an edge."""
    return len(_clusters([at for end, at in ends if abs(end - edge) <= near], near)) >= 2


def _clusters(values: Sequence[float], near: float) -> list[float]:
    """Means of values that are near each other."""
    groups: list[list[float]] = []
    for value in sorted(values):
        if groups and value - groups[-1][-1] <= near:
            groups[-1].append(value)
        else:
            groups.append([value])
    return [sum(g) / len(g) for g in groups]


def _slots(xs: Sequence[float], ys: Sequence[float], drawn: Ruling) -> list[Slot]:
    """Squares of the grid, joined where no rule parts them, until all are rectangles."""
    rows, columns = len(ys) - 1, len(xs) - 1
    owner = [[r * columns + c for c in range(columns)] for r in range(rows)]
    boxes = {r * columns + c: Slot(r, c, r + 1, c + 1) for r in range(rows) for c in range(columns)}

    def join(a: int, b: int) -> None:
        todo = {a, b}
        while len(todo) > 1:
            parts = [boxes.pop(i) for i in todo]
            whole = Slot(
                min(p.top for p in parts),
                min(p.left for p in parts),
                max(p.bottom for p in parts),
                max(p.right for p in parts),
            )
            name = min(todo)
            todo = {name}
            boxes[name] = whole
            for r in range(whole.top, whole.bottom):
                for c in range(whole.left, whole.right):
                    if owner[r][c] in boxes:
                        todo.add(owner[r][c])
                    owner[r][c] = name

    for r in range(rows):
        for c in range(1, columns):
            if owner[r][c] != owner[r][c - 1] and not _ruled(
                drawn.plumb, drawn.near, xs[c], ys[r], ys[r + 1]
            ):
                join(owner[r][c], owner[r][c - 1])
    for c in range(columns):
        for r in range(1, rows):
            if owner[r][c] != owner[r - 1][c] and not _ruled(
                drawn.level, drawn.near, ys[r], xs[c], xs[c + 1]
            ):
                join(owner[r][c], owner[r - 1][c])
    return list(boxes.values())


def _ruled(lines: Sequence[Stroke], near: float, at: float, start: float, end: float) -> bool:
    """Whether most of an edge is drawn."""
    parts = sorted(
        (max(s.start, start), min(s.end, end))
        for s in lines
        if abs(s.at - at) <= near and s.end > start and s.start < end
    )
    covered, reached = 0.0, start
    for low, high in parts:
        covered += max(0.0, high - max(low, reached))
        reached = max(reached, high)
    return covered >= DRAWN * (end - start)


def compact(grid: Grid) -> Grid:
    """Without edges at which no cell begins."""
    tops = sorted({s.top for s in grid.slots})
    lefts = sorted({s.left for s in grid.slots})
    row = {top: i for i, top in enumerate(tops)} | {len(grid.ys) - 1: len(tops)}
    column = {left: i for i, left in enumerate(lefts)} | {len(grid.xs) - 1: len(lefts)}
    slots = [Slot(row[s.top], column[s.left], row[s.bottom], column[s.right]) for s in grid.slots]
    return Grid(
        tuple([grid.xs[i] for i in [*lefts, len(grid.xs) - 1]]),
        tuple([grid.ys[i] for i in [*tops, len(grid.ys) - 1]]),
        tuple(sorted(slots, key=lambda s: (s.top, s.left))),
    )
