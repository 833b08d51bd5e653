"""Reading order and blocks from the places of lines alone."""

from __future__ import annotations

import math
import random

from bireme.ocr.document.blocks import blocks_of
from bireme.ocr.document.order import slant
from bireme.ocr.result import Line, polygon_of


def line(text: str, x: float, y: float, width: float = 300, height: float = 20) -> Line:
    return Line(text, 1.0, polygon_of((x, y, x + width, y + height)), script="Latn")


def order(lines: list[Line]) -> list[str]:
    mixed = list(lines)
    random.Random(0).shuffle(mixed)
    return [found.text for block in blocks_of(mixed) for found in block.lines]


def column(name: str, x: float, y: float, count: int, width: float = 300) -> list[Line]:
    return [line(f"{name}{i}", x, y + 28 * i, width - 40 * (i == count - 1)) for i in range(count)]


def test_one_column_from_the_top() -> None:
    lines = column("a", 50, 50, 12)
    assert order(lines) == [t.text for t in lines]


def test_two_columns_under_a_title_and_over_a_footer() -> None:
    lines = [
        line("title", 50, 10, 640, 30),
        *column("a", 50, 80, 10),
        *column("b", 390, 80, 10),
        line("footer", 50, 420, 640),
    ]
    assert order(lines) == [t.text for t in lines]


def test_three_columns() -> None:
    lines = [
        *column("a", 20, 50, 9, 200),
        *column("b", 250, 50, 8, 200),
        *column("c", 480, 50, 9, 200),
    ]
    assert order(lines) == [t.text for t in lines]


def test_a_title_between_columns_parts_them() -> None:
    lines = [
        *column("a", 50, 50, 5), *column("b", 390, 50, 5),
        line("middle", 50, 230, 640, 26),
        *column("c", 50, 300, 5), *column("d", 390, 300, 5),
    ]  # fmt: skip
    assert order(lines) == [t.text for t in lines]


def test_short_cells_are_read_row_by_row() -> None:
    rows = [[line(f"{r}{c}", 50 + 150 * c, 50 + 40 * r, 60) for c in range(4)] for r in range(6)]
    lines = [cell for row in rows for cell in row]
    assert order(lines) == [t.text for t in lines]


def test_a_slanted_page() -> None:
    angle = math.radians(3)
    cos, sin = math.cos(angle), math.sin(angle)
    lines = [*column("a", 50, 80, 10), *column("b", 390, 80, 10)]
    turned = [
        Line(t.text, 1.0, tuple((x * cos - y * sin, x * sin + y * cos) for x, y in t.polygon))  # type: ignore[arg-type]
        for t in lines
    ]
    assert abs(slant(turned) - angle) < 1e-6
    assert order(turned) == [t.text for t in lines]


def test_blocks() -> None:
    lines = [
        line("A large heading", 50, 20, 400, 40),
        line("A smaller heading", 50, 90, 300, 28),
        *column("text ", 50, 140, 4),
        line("- one", 50, 280, 100),
        line("- two", 50, 308, 100),
        *column("more ", 50, 360, 4),
    ]
    blocks = blocks_of(lines)
    assert [(b.kind, b.level, len(b.lines)) for b in blocks] == [
        ("heading", 1, 1), ("heading", 2, 1), ("paragraph", 0, 4), ("list", 0, 1), ("list", 0, 1),
        ("paragraph", 0, 4),
    ]  # fmt: skip
    assert blocks_of([]) == ()


def test_more_paper_than_usual_ends_a_paragraph() -> None:
    lines = [line(f"line {i}", 50, 50 + 24 * i + 12 * (i // 4)) for i in range(12)]
    assert [len(b.lines) for b in blocks_of(lines)] == [4, 4, 4]
