"""Tables: cells by their rules, or by the paper between columns, with the lines that they hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bireme.ocr.document.grid import Grid, Slot, grids, ruling
from bireme.ocr.document.open_tables import open_grids
from bireme.ocr.document.order import Placed, levelled, rows
from bireme.ocr.document.rules import Rules
from bireme.ocr.result import Block, Box, Cell, Line, Table, around, polygon_of
from bireme.ocr.write.markdown import flowing


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table: its block, and its place on the levelled page."""

    block: Block
    place: Placed


def tables_of(
    items: Sequence[Placed], rules: Rules, angle: float
) -> tuple[list[FoundTable], list[Placed]]:
    """The tables of a page that is slanted by an angle, and the lines that stand in none."""
    drawn = ruling(rules, angle)
    left = list(items)
    made: list[FoundTable] = []
    for grid in grids(drawn):
        left = _taken(grid, left, angle, made)
    for grid in open_grids(left, drawn):
        left = _taken(grid, left, angle, made)
    return made, left


def _taken(grid: Grid, items: list[Placed], angle: float, made: list[FoundTable]) -> list[Placed]:
    """The lines that are left after a table is made of those in a grid."""
    cells = _filled(grid, items)
    wide = len({s.left for s in cells}) >= 2
    if not _is_table(grid) or not (wide or len({s.top for s in cells}) >= 2):
        return items
    inside = {id(p) for held in cells.values() for p in held}
    made.append(_found(grid, cells, angle))
    return [p for p in items if id(p) not in inside]


def _is_table(grid: Grid) -> bool:
    """Not the frame of a picture, and not one of a text with its title."""
    tall, wide = len(grid.ys) - 1, len(grid.xs) - 1
    return len(grid.slots) >= 2 and wide >= 2 and (tall >= 2 or wide >= 3)


def _filled(grid: Grid, items: Sequence[Placed]) -> dict[Slot, list[Placed]]:
    """The lines whose middles lie in each cell."""
    cells: dict[Slot, list[Placed]] = defaultdict(list)
    left, top, right, bottom = grid.box
    for item in items:
        x, y = (item.box[0] + item.box[2]) / 2, item.middle
        if not (left <= x <= right and top <= y <= bottom):
            continue
        for slot in grid.slots:
            box = grid.box_of(slot)
            if box[0] <= x <= box[2] and box[1] <= y <= box[3]:
                cells[slot].append(item)
                break
    return cells


def _found(grid: Grid, cells: dict[Slot, list[Placed]], angle: float) -> FoundTable:
    made: list[Cell] = []
    held: list[Line] = []
    for slot in grid.slots:
        lines = tuple([p.line for p in rows(cells.get(slot, []))])
        held += lines
        box = _in_image(grid.box_of(slot), angle)
        spans = slot.bottom - slot.top, slot.right - slot.left
        made.append(Cell(slot.top, slot.left, flowing(lines), *spans, box))
    table = Table(len(grid.ys) - 1, len(grid.xs) - 1, tuple(made))
    block = Block("table", tuple(held), _in_image(grid.box, angle), table=table)
    return FoundTable(block, Placed(Line("", 1.0, polygon_of(block.box)), grid.box))


def _in_image(box: Box, angle: float) -> Box:
    """The upright rectangle in the image around one on the levelled page."""
    turned = [levelled(point, -angle) for point in polygon_of(box)]
    return around([(x, y, x, y) for x, y in turned])
