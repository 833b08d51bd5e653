"""What reading gives: Document > Page > Block > Line > Word. All of it is immutable.

Polygons are four corners in pixels of the page's image, in the order in which the text runs:
where it begins at the top, where it ends at the top, where it ends below, where it begins below.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, overload

Point: TypeAlias = tuple[float, float]
Polygon: TypeAlias = tuple[Point, Point, Point, Point]
Box: TypeAlias = tuple[float, float, float, float]  # left, top, right, bottom
Direction: TypeAlias = Literal["ltr", "rtl", "ttb"]
Kind: TypeAlias = Literal["heading", "paragraph", "list", "table"]


def box_of(polygon: Polygon) -> Box:
    """The upright rectangle around a polygon."""
    xs, ys = [x for x, _ in polygon], [y for _, y in polygon]
    return min(xs), min(ys), max(xs), max(ys)


def polygon_of(box: Box) -> Polygon:
    """The corners of an upright rectangle."""
    left, top, right, bottom = box
    return (left, top), (right, top), (right, bottom), (left, bottom)


def around(boxes: list[Box]) -> Box:
    """The rectangle around rectangles."""
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


@dataclass(frozen=True, slots=True)
class Word:
    """A run of characters without a space, or of Chinese or Japanese ones."""

    text: str
    score: float
    polygon: Polygon

    @property
    def box(self) -> Box:
        return box_of(self.polygon)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text. The score is how sure the net was of its characters, on average."""

    text: str
    score: float
    polygon: Polygon
    words: tuple[Word, ...] = ()
    direction: Direction = "ltr"
    script: str = "Zyyy"  # of most letters, as ISO 15924 has it; Zyyy where there are none
    detected: float = 1.0  # how sure the detector was that text is here

    @property
    def box(self) -> Box:
        return box_of(self.polygon)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table: where it is, how many rows and columns it covers, what it says."""

    row: int
    column: int
    text: str
    rows: int = 1
    columns: int = 1
    box: Box | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """The cells of a table, row by row."""

    rows: int
    columns: int
    cells: tuple[Cell, ...]

    @property
    def text(self) -> str:
        """A line for each row, tabs between its cells."""
        rows: list[list[str]] = [[] for _ in range(self.rows)]
        for cell in self.cells:
            rows[cell.row].append(cell.text)
        return "\n".join("\t".join(row) for row in rows)


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that belong together, in reading order."""

    kind: Kind
    lines: tuple[Line, ...]
    box: Box
    level: int = 0  # of a heading: 1 is the largest
    table: Table | None = None

    @property
    def text(self) -> str:
        if self.table is not None:
            return self.table.text
        return "\n".join(line.text for line in self.lines)


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its size in pixels and its blocks in reading order."""

    number: int  # from 1
    width: int
    height: int
    blocks: tuple[Block, ...]
    angle: int = 0  # degrees, counter-clockwise, by which the image was turned to read it
    source: Literal["image", "pdf"] = "image"  # "pdf": the file's own text layer was taken

    @property
    def lines(self) -> tuple[Line, ...]:
        return tuple(line for block in self.blocks for line in block.lines)

    @property
    def words(self) -> tuple[Word, ...]:
        return tuple(word for line in self.lines for word in line.words)

    @property
    def text(self) -> str:
        """Lines in reading order, blocks apart by an empty line."""
        return "\n\n".join(block.text for block in self.blocks)

    @property
    def markdown(self) -> str:
        from bireme.ocr.write.markdown import page_to_markdown

        return page_to_markdown(self)

    @property
    def html(self) -> str:
        from bireme.ocr.write.html import page_to_html

        return page_to_html(self)


@dataclass(frozen=True, slots=True)
class Field:
    """A value that was looked for by name: see `bireme.ocr.fields`."""

    name: str
    text: str
    score: float
    page: int  # from 1
    box: Box


@dataclass(frozen=True, slots=True)
class Document:
    """The pages of a file. It is a sequence of them."""

    name: str
    pages: tuple[Page, ...]
    fields: tuple[Field, ...] = ()

    @property
    def text(self) -> str:
        """The text of the pages, a form feed between them."""
        return "\n\f\n".join(page.text for page in self.pages)

    @property
    def markdown(self) -> str:
        return "\n\n---\n\n".join(page.markdown for page in self.pages)

    def __len__(self) -> int:
        return len(self.pages)

    def __iter__(self) -> Iterator[Page]:
        return iter(self.pages)

    @overload
    def __getitem__(self, index: int) -> Page: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Page, ...]: ...
    def __getitem__(self, index: int | slice) -> Page | tuple[Page, ...]:
        return self.pages[index]
