"""PDF files in: their own text where it is sound, else pictures of their pages.

PDFium is used by one thread at a time: it is not made for more.
"""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bireme.ocr.errors import OcrError
from bireme.ocr.image import package
from bireme.ocr.result import Box, Line, Word, around, polygon_of
from bireme.ocr.script import RIGHT_TO_LEFT, script_of_text

DPI = 200
MAX_PAGES = 5_000
MAX_PAGE_PIXELS = 40_000_000
MAX_CHARACTERS = 200_000  # of a page's text layer
MIN_CHARACTERS = 16  # fewer are a page number or a stamp, and the page may be a picture
HYPHENS, LINE_ENDS = "\ufffe\x02", "\ufffe\x02\r\n"
SOUND = 0.95  # the share of characters that say something
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class PdfPage:
    """A page: its lines, or its pixels to be read."""

    number: int
    width: int
    height: int
    lines: tuple[Line, ...] = ()
    pixels: np.ndarray | None = None


def is_pdf(data: bytes) -> bool:
    return b"%PDF-" in data[:1024]


def pages(data: bytes, name: str, layers: bool = True) -> Iterator[PdfPage]:
    """The pages of a PDF file. Without `layers` all are pictures."""
    pdfium = package("pypdfium2")
    with _lock:
        document = _opened(pdfium, data, name)
        count = len(document)
    try:
        if count > MAX_PAGES:
            raise OcrError(name, f"has {count} pages; at most {MAX_PAGES} are read")
        for i in range(count):
            with _lock:
                try:
                    page = _page(document, i, layers)
                except OcrError:
                    raise
                except Exception as e:  # PDFium's binding raises several kinds
                    raise OcrError(name, f"page {i + 1} cannot be read: {e}") from None
            yield page
    finally:
        with _lock:
            document.close()


def _opened(pdfium: Any, data: bytes, name: str) -> Any:
    try:
        return pdfium.PdfDocument(data)
    except Exception as e:
        reason = "is protected by a password" if "assword" in str(e) else f"is damaged: {e}"
        raise OcrError(name, reason) from None


def _page(document: Any, index: int, layers: bool) -> PdfPage:
    page = document[index]
    try:
        wide, tall = page.get_size()
        scale = DPI / 72
        scale *= min(1.0, (MAX_PAGE_PIXELS / max(1.0, wide * tall * scale * scale)) ** 0.5)
        width, height = max(1, round(wide * scale)), max(1, round(tall * scale))
        if layers:
            lines = _layer(page, scale, tall)
            if lines:
                return PdfPage(index + 1, width, height, lines)
        bitmap = page.render(scale=scale, rev_byteorder=True, prefer_bgrx=False)
        pixels = np.array(bitmap.to_numpy())
        bitmap.close()
        if pixels.ndim == 2:
            pixels = np.repeat(pixels[:, :, None], 3, axis=2)
        pixels = np.ascontiguousarray(pixels[:, :, :3])
        if pixels.shape[2] == 1:
            pixels = np.repeat(pixels, 3, axis=2)
        return PdfPage(index + 1, pixels.shape[1], pixels.shape[0], (), pixels)
    finally:
        page.close()


def _layer(page: Any, scale: float, tall: float) -> tuple[Line, ...]:
    """The lines of a page's text layer; none where it is not sound."""
    if page.get_rotation():
        return ()
    text = page.get_textpage()
    try:
        count = text.count_chars()
        if not MIN_CHARACTERS <= count <= MAX_CHARACTERS:
            return ()
        characters = text.get_text_range(0, count)
        if len(characters) != count or not _is_sound(characters):
            return ()
        made: list[Line] = []
        words: list[Word] = []
        run: list[tuple[str, Box]] = []
        for i, c in enumerate(characters):
            if c in HYPHENS:  # PDFium's marks for a word that goes on in the next line
                run.append(("-", _box(text, i, scale, tall)))
            if c in LINE_ENDS:
                _end_word(run, words)
                _end_line(words, made)
            elif c.isspace():
                _end_word(run, words)
            else:
                run.append((c, _box(text, i, scale, tall)))
        _end_word(run, words)
        _end_line(words, made)
        return tuple(made)
    finally:
        text.close()


def _box(text: Any, i: int, scale: float, tall: float) -> Box:
    """Where a character is, in pixels from above."""
    left, bottom, right, top = text.get_charbox(i)
    return left * scale, (tall - top) * scale, right * scale, (tall - bottom) * scale


def _is_sound(characters: str) -> bool:
    """Whether a text layer says something: letters, not boxes and private codes."""
    shown = [c for c in characters if not c.isspace()]
    if len(shown) < MIN_CHARACTERS:
        return False
    good = sum(_says_something(c) for c in shown)
    return good >= SOUND * len(shown)


def _says_something(c: str) -> bool:
    return c in HYPHENS or (
        c != "\ufffd" and unicodedata.category(c) not in ("Cn", "Co", "Cc", "Cs")
    )


def _end_word(run: list[tuple[str, Box]], words: list[Word]) -> None:
    if run:
        text = "".join([c for c, _ in run])
        words.append(Word(text, 1.0, polygon_of(around([box for _, box in run]))))
        run.clear()


def _end_line(words: list[Word], made: list[Line]) -> None:
    if words:
        text = " ".join([w.text for w in words])
        box = around([w.box for w in words])
        script = script_of_text(text)
        direction = "rtl" if script in RIGHT_TO_LEFT else "ltr"
        made.append(Line(text, 1.0, polygon_of(box), tuple(words), direction, script))
        words.clear()
