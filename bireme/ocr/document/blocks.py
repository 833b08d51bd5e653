"""Lines in reading order as headings, paragraphs and lists."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from bireme.ocr.document.order import Placed, columns, placed, slant
from bireme.ocr.document.rules import NO_RULES, Rules
from bireme.ocr.document.rules import slant as slant_of_rules
from bireme.ocr.document.tables import tables_of
from bireme.ocr.result import Block, Kind, Line, around
from bireme.ocr.script import RIGHT_TO_LEFT

LARGER = 1.25  # times the usual height: a heading
MAX_HEADING = 3  # lines
NEAR = 0.9  # of a line's height: the most paper between lines of a paragraph
MORE = 0.3  # of a line's height: so much more paper than usual ends a paragraph
INDENT = 1.0  # of a line's height: a first line this far in begins a paragraph
AGREED = 0.03  # radians: rules that lean further from the lines of text belong to a picture
_ITEM = re.compile(r"\s*(?:[•●▪■◦○‣∙·*–—-]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)])\s+\S")


def blocks_of(lines: Sequence[Line], rules: Rules = NO_RULES) -> tuple[Block, ...]:
    """The blocks of a page, in reading order. `rules`: its ruled lines, which make tables."""
    if not lines:
        return ()
    angle, ruled = slant(lines), slant_of_rules(rules)
    if ruled is not None and abs(ruled - angle) < AGREED:
        angle = ruled
    items = placed(lines, angle)
    backward = sum(line.script in RIGHT_TO_LEFT for line in lines) > len(lines) / 2
    usual = _usual_height(items)
    tables, items = tables_of(items, rules, angle)
    block_at = {id(table.place): table.block for table in tables}
    made: list[Block] = []
    for column in columns([*items, *[table.place for table in tables]], backward):
        for group in _groups(column, frozenset(block_at)):
            made.append(block_at.get(id(group[0])) or _block(group, usual))
    return tuple(_levelled(made))


def _usual_height(items: Sequence[Placed]) -> float:
    """The height of most of the text: of the lines that hold the middle character."""
    heights = sorted((p.height, len(p.line.text)) for p in items)
    half, seen = sum(n for _, n in heights) / 2, 0
    for height, count in heights:
        seen += count
        if seen >= half:
            return height
    return heights[-1][0]


def _groups(column: Sequence[Placed], alone: frozenset[int]) -> list[list[Placed]]:
    """Lines that belong together; items whose ids are in `alone` belong to no others."""
    gaps = [b.box[1] - a.box[3] for a, b in pairwise(column) if b.box[1] > a.middle]
    usual = median(gaps) if len(gaps) >= 2 else 0.0
    groups: list[list[Placed]] = []
    for item in column:
        apart = id(item) in alone or (groups and id(groups[-1][0]) in alone)
        if groups and not apart and _continues(groups[-1], item, usual):
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


def _continues(group: list[Placed], item: Placed, usual: float) -> bool:
    """Whether a line belongs to the block of the lines before it. `usual`: the paper between most
    lines of the column."""
    last = group[-1]
    if _ITEM.match(item.line.text):
        return False
    unit = min(last.height, item.height)
    if max(last.height, item.height) > LARGER * 1.15 * unit:
        return False
    beside = min(last.box[3], item.box[3]) - max(last.box[1], item.box[1]) > 0.5 * unit
    gap = item.box[1] - last.box[3]
    if beside:
        return item.box[0] - last.box[2] < 3 * unit
    if gap > min(NEAR * unit, usual + MORE * unit) or gap < -unit:
        return False
    shared = min(last.box[2], item.box[2]) - max(last.box[0], item.box[0])
    if shared <= 0:
        return False
    left = min(p.box[0] for p in group)
    right = max(p.box[2] for p in group)
    indented = item.box[0] - left > INDENT * unit and len(group) > 1
    ended = right - last.box[2] > 4 * unit and last.line.text.rstrip().endswith(
        (".", "!", "?", ":")
    )
    return not (indented and ended)


def _block(group: list[Placed], usual: float) -> Block:
    lines = tuple(p.line for p in group)
    kind: Kind = "paragraph"
    if _ITEM.match(lines[0].text):
        kind = "list"
    elif (
        len(group) <= MAX_HEADING
        and median([p.height for p in group]) >= LARGER * usual
        and any(c.isalpha() for c in lines[0].text)
    ):
        kind = "heading"
    return Block(kind, lines, around([line.box for line in lines]))


def _levelled(blocks: list[Block]) -> list[Block]:
    """Headings with levels: the largest first, up to three sizes."""
    heights = {
        id(b): median([line.box[3] - line.box[1] for line in b.lines])
        for b in blocks
        if b.kind == "heading"
    }
    sizes: list[float] = []
    for height in sorted(heights.values(), reverse=True):
        if not sizes or height < sizes[-1] / 1.15:
            sizes.append(height)
    made = []
    for b in blocks:
        if b.kind == "heading":
            level = next(i for i, s in enumerate(sizes, 1) if heights[id(b)] >= s / 1.15)
            b = Block(b.kind, b.lines, b.box, min(level, 3))
        made.append(b)
    return made
