"""Tables: rules make cells, cells hold lines, spans are kept."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from PIL import Image, ImageDraw

from bench.teds import teds
from bireme.ocr import Reader
from bireme.ocr.detect import Found
from bireme.ocr.document.blocks import blocks_of
from bireme.ocr.document.grid import Grid, grids, ruling
from bireme.ocr.document.rules import Rule, Rules, find_rules, parted, slant
from bireme.ocr.result import Block, Line, polygon_of
from bireme.ocr.write.html import table_to_html
from tests.ocr.pages import font

# row, column, rows, columns, text
CELLS = (
    (0, 0, 2, 1, "Ship"), (0, 1, 1, 2, "Crew"), (0, 3, 2, 1, "Speed"),
    (1, 1, 1, 1, "oars"), (1, 2, 1, 1, "sails"),
    (2, 0, 1, 1, "Bireme"), (2, 1, 1, 1, "120"), (2, 2, 1, 1, "20"), (2, 3, 1, 1, "7.5"),
    (3, 0, 1, 1, "Trireme"), (3, 1, 1, 2, "unknown"), (3, 3, 1, 1, "8"),
)  # fmt: skip
HTML = (
    '<table><tr><td rowspan="2">Ship</td><td colspan="2">Crew</td><td rowspan="2">Speed</td></tr>'
    "<tr><td>oars</td><td>sails</td></tr>"
    "<tr><td>Bireme</td><td>120</td><td>20</td><td>7.5</td></tr>"
    '<tr><td>Trireme</td><td colspan="2">unknown</td><td>8</td></tr></table>'
)


def ruled(wide: int = 140, tall: int = 48, thick: int = 2, frame: bool = True) -> Image.Image:
    image = Image.new("RGB", (4 * wide + 80, 4 * tall + 80), "white")
    pen = ImageDraw.Draw(image)
    for row, column, rows, columns, text in CELLS:
        box = (40 + column * wide, 40 + row * tall)
        end = (box[0] + columns * wide, box[1] + rows * tall)
        pen.line((*box, end[0], box[1]), "#555", thick)
        pen.line((box[0], end[1], *end), "#555", thick)
        if frame or column:
            pen.line((*box, box[0], end[1]), "#555", thick)
        if frame or column + columns < 4:
            pen.line((end[0], box[1], *end), "#555", thick)
        pen.text((box[0] + 14, (box[1] + end[1]) / 2 - 15), text, "black", font(24))
    return image


def grid_of(image: Image.Image) -> Grid:
    return grids(ruling(find_rules(np.asarray(image)), 0.0))[0]


@pytest.mark.parametrize(("thick", "frame", "scale"), [(1, True, 1), (3, False, 1), (5, True, 3)])
def test_rules_make_cells(thick: int, frame: bool, scale: int) -> None:
    image = ruled(thick=thick, frame=frame)
    image = image.resize((image.width * scale, image.height * scale))
    grid = grid_of(image)
    found = {(s.top, s.left, s.bottom - s.top, s.right - s.left) for s in grid.slots}
    assert found == {cell[:4] for cell in CELLS}
    assert grid.box == pytest.approx([side * scale for side in (40, 40, 600, 232)], abs=6 * scale)


def test_a_table_is_read_with_its_spans(reader: Reader) -> None:
    (page,) = reader.read(ruled())
    (block,) = page.blocks
    assert block.kind == "table"
    assert block.table is not None
    assert teds(HTML, table_to_html(block.table)) == 1.0
    assert block.text.splitlines()[0] == "Ship\tCrew\tSpeed"
    assert all(c.box is not None for c in block.table.cells)
    assert table_to_html(block.table) in page.markdown


def test_a_table_on_its_side_keeps_its_places(reader: Reader) -> None:
    image = ruled().transpose(Image.Transpose.ROTATE_90)
    (page,) = reader.read(image)
    (block,) = page.blocks
    assert page.angle == 270
    assert block.table is not None
    assert teds(HTML, table_to_html(block.table)) == 1.0
    left, top, right, bottom = block.box
    assert 0 <= left < right <= image.width
    assert 0 <= top < bottom <= image.height


def test_a_line_is_parted_by_a_rule() -> None:
    line = Found(polygon_of((10, 100, 210, 130)), 0.9, 30)
    rule, letter = Rule((110, 90), (112, 140)), Rule((60, 104), (60, 128))
    pieces = parted([line], Rules(down=(rule, letter)))
    assert [p.polygon[0][0] for p in pieces] == pytest.approx([10, 111])
    assert [p.polygon[1][0] for p in pieces] == pytest.approx([111, 210])


def test_photographs_and_frames_are_no_tables() -> None:
    noise = np.random.default_rng(0).integers(0, 255, (300, 400, 3), np.uint8)
    said = [text("a", 20 + 90 * c, 20 + 40 * r, 50) for r in range(7) for c in range(2)]
    assert "table" not in {b.kind for b in blocks_of(said, find_rules(noise))}
    image = Image.new("RGB", (400, 300), "white")
    ImageDraw.Draw(image).rectangle((40, 40, 360, 260), outline="black", width=2)
    lines = [text("a text", 60, 60, 200), text("in a frame", 60, 100, 200)]
    blocks = blocks_of(lines, find_rules(np.asarray(image)))
    assert {b.kind for b in blocks} == {"paragraph"}


def text(said: str, x: float, y: float, width: float) -> Line:
    return Line(said, 1.0, polygon_of((x, y, x + width, y + 20)), script="Latn")


def table_in(blocks: tuple[Block, ...]) -> str:
    (table,) = [b.table for b in blocks if b.table is not None]
    return table_to_html(table)


def test_columns_of_paper_make_a_table() -> None:
    said = [["name", "size", "price"], ["one", "1", "10"], ["two", "22", "9"], ["three", "3", "8"]]
    lines = [
        text(said[r][c], 40 + 160 * c, 100 + 40 * r, 12 * len(said[r][c]))
        for r, c in product(range(4), range(3))
    ]
    above = text("A line of text over the whole width of the table", 40, 20, 460)
    blocks = blocks_of([above, *lines])
    assert [b.kind for b in blocks] == ["paragraph", "table"]
    rows = "".join("<tr>" + "".join(f"<td>{t}</td>" for t in row) + "</tr>" for row in said)
    assert teds(f"<table>{rows}</table>", table_in(blocks)) == 1.0


def test_rules_over_and_under_two_columns_make_a_table() -> None:
    lines = [text(t, 40 + 200 * c, 100 + 40 * r, 60) for r in range(3) for c, t in enumerate("ab")]
    across = tuple([Rule((30, y), (400, y)) for y in (90, 130, 215)])
    assert "table" not in {b.kind for b in blocks_of(lines)}
    assert table_in(blocks_of(lines, Rules(across=across))).count("<tr>") == 3


def test_three_columns_of_text_are_no_table() -> None:
    lines = [
        text(f"{name}{i}", 40 + 240 * c, 50 + 28 * i, 180 + 7 * (i % 4))
        for c, name in enumerate("abc")
        for i in range(9)
    ]
    blocks = blocks_of(lines)
    assert {b.kind for b in blocks} == {"paragraph"}
    assert [line.text for b in blocks for line in b.lines] == [line.text for line in lines]


def test_teds_counts_structure_and_text() -> None:
    assert teds(HTML, HTML) == 1.0
    assert teds(HTML, "") == pytest.approx(1 / 17)
    assert teds("<tr><td>abcd</td></tr>", "<tr><td>abcx</td></tr>") == pytest.approx(1 - 0.25 / 3)
    spanned = '<tr><td colspan="2">a</td></tr>'
    assert teds("<tr><td>a</td></tr>", spanned) == pytest.approx(2 / 3)


def test_long_rules_tell_the_angle_of_a_page() -> None:
    lean = 0.008
    drawn = [Rule((40, y), (1040, y + 1000 * lean)) for y in (100.0, 160.0, 220.0)]
    drawn.append(Rule((40, 300), (90, 290)))
    assert slant(Rules(across=tuple(drawn))) == pytest.approx(lean, abs=1e-4)
    assert slant(Rules(across=(drawn[0], drawn[3]))) is None


def test_a_title_over_two_columns_of_paper() -> None:
    said = [text("over both", 180, 60, 160)]
    said += [text(f"{r}{c}", 40 + 160 * c, 100 + 40 * r, 60) for r in range(4) for c in range(3)]
    said.append(text("ab", 40, 60, 60))
    (table,) = [b.table for b in blocks_of(said) if b.table is not None]
    assert [cell.columns for cell in table.cells[:2]] == [1, 2]
