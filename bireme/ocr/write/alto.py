"""Documents as ALTO 4."""

from __future__ import annotations

from html import escape

from bireme.ocr.result import Block, Box, Document, Line, Page
from bireme.ocr.write.hocr import printable, whole

_SPACE = "http://www.loc.gov/standards/alto/ns-v4#"


def to_alto(document: Document) -> str:
    """Pages, blocks, lines and words with their boxes, in pixels."""
    pages = "".join(_page(page) for page in document.pages)
    name = escape(printable(document.name))
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<alto xmlns="{_SPACE}">\n'
        "<Description><MeasurementUnit>pixel</MeasurementUnit>"
        f"<sourceImageInformation><fileName>{name}</fileName></sourceImageInformation>"
        f"</Description>\n<Layout>\n{pages}</Layout>\n</alto>\n"
    )


def _place(box: Box) -> str:
    left, top, right, bottom = whole(box)
    return f'HPOS="{left}" VPOS="{top}" WIDTH="{right - left}" HEIGHT="{bottom - top}"'


def _page(page: Page) -> str:
    n = page.number
    blocks = "".join(_block(b, f"{n}_{i}") for i, b in enumerate(page.blocks, 1))
    size = f'WIDTH="{page.width}" HEIGHT="{page.height}"'
    space = f'<PrintSpace HPOS="0" VPOS="0" {size}>\n{blocks}</PrintSpace>'
    return f'<Page ID="page_{n}" PHYSICAL_IMG_NR="{n}" {size}>{space}</Page>\n'


def _block(block: Block, mark: str) -> str:
    lines = "".join(_line(line, f"{mark}_{i}") for i, line in enumerate(block.lines, 1))
    return f'<TextBlock ID="block_{mark}" {_place(block.box)}>\n{lines}</TextBlock>\n'


def _line(line: Line, mark: str) -> str:
    parts = []
    for i, word in enumerate(line.words, 1):
        text = escape(printable(word.text))
        parts.append(
            f'<String ID="word_{mark}_{i}" {_place(word.box)} WC="{word.score:.2f}" '
            f'CONTENT="{text}"/>'
        )
    return f'<TextLine ID="line_{mark}" {_place(line.box)}>{"<SP/>".join(parts)}</TextLine>\n'
