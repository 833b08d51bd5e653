"""PDF files: their own text where it is sound, else their pictures."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from bireme.ocr import OcrError, Reader
from bireme.ocr.pdf import _is_sound, pages
from tests.ocr.pages import TEXT, page


def scanned(*images: Image.Image) -> bytes:
    file = io.BytesIO()
    images[0].save(file, "PDF", save_all=True, append_images=images[1:], resolution=100)
    return file.getvalue()


def test_pictures_are_read(reader: Reader) -> None:
    found = reader.read(scanned(page(TEXT), page(TEXT[:1])))
    assert [p.text for p in found] == ["\n".join(TEXT), TEXT[0]]
    assert [(p.number, p.source, p.width) for p in found] == [
        (1, "image", 1280),
        (2, "image", 1280),
    ]


def test_pages_come_one_by_one() -> None:
    found = pages(scanned(page(TEXT), page(TEXT)), "x.pdf")
    assert next(found).number == 1
    found.close()  # type: ignore[attr-defined]


def test_text_that_says_nothing_is_not_sound() -> None:
    assert _is_sound("A line of a text layer")
    assert not _is_sound("\ue000" * 40)
    assert not _is_sound("\ufffd" * 20 + "a" * 20)
    assert not _is_sound("17")


DAMAGED = [b"%PDF-1.4\n", b"%PDF-1.7\ngarbage\n%%EOF", scanned(page(TEXT))[:900]]


@pytest.mark.parametrize("data", DAMAGED)
def test_damaged_files_are_one_error(reader: Reader, data: bytes) -> None:
    with pytest.raises(OcrError, match=r"is damaged|cannot be read"):
        reader.read(data)
