"""Documents as hOCR 1.2: HTML whose titles hold the boxes."""

from __future__ import annotations

from html import escape

from bireme.ocr.result import Block, Box, Document, Line, Page

_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN" \
"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en" lang="en">
<head><title>{title}</title>
<meta http-equiv="Content-Type" content="text/html;charset=utf-8"/>
<meta name="ocr-system" content="bireme"/>
<meta name="ocr-capabilities" content="ocr_page ocr_carea ocr_par ocr_line ocrx_word"/></head>
<body>
"""


def to_hocr(document: Document) -> str:
    """Pages, areas, lines and words with their boxes."""
    pages = "".join(_page(page, document.name) for page in document.pages)
    return _HEAD.format(title=escape(printable(document.name))) + pages + "</body></html>\n"


def printable(text: str) -> str:
    """Without the characters that XML cannot hold."""
    return "".join(c for c in text if c >= " " and not "\ud800" <= c <= "\udfff")


def whole(box: Box) -> tuple[int, int, int, int]:
    """A box in whole pixels that holds all of it."""
    left, top, right, bottom = box
    return int(left), int(top), -int(-right // 1), -int(-bottom // 1)


def _box(box: Box) -> str:
    return "bbox " + " ".join(map(str, whole(box)))


def _page(page: Page, name: str) -> str:
    n = page.number
    title = f'image "{name}"; bbox 0 0 {page.width} {page.height}; ppageno {n - 1}'
    blocks = "".join(_block(b, f"{n}_{i}") for i, b in enumerate(page.blocks, 1))
    shown = escape(printable(title))
    return f'<div class="ocr_page" id="page_{n}" title="{shown}">\n{blocks}</div>\n'


def _block(block: Block, mark: str) -> str:
    lines = "".join(_line(line, f"{mark}_{i}") for i, line in enumerate(block.lines, 1))
    box = _box(block.box)
    direction = ' dir="rtl"' if all(line.direction == "rtl" for line in block.lines) else ""
    return (
        f'<div class="ocr_carea" id="block_{mark}" title="{box}">'
        f'<p class="ocr_par" id="par_{mark}"{direction} title="{box}">\n{lines}</p></div>\n'
    )


def _line(line: Line, mark: str) -> str:
    words = " ".join(
        f'<span class="ocrx_word" id="word_{mark}_{i}" '
        f'title="{_box(w.box)}; x_wconf {round(100 * w.score)}">{escape(printable(w.text))}</span>'
        for i, w in enumerate(line.words, 1)
    )
    return f'<span class="ocr_line" id="line_{mark}" title="{_box(line.box)}">{words}</span>\n'
