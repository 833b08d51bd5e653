"""Every output says what the document says."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ET
import zlib

import numpy as np
import pypdfium2
import pytest
from PIL import Image

from bireme.ocr import OcrError, Reader
from bireme.ocr.result import Block, Cell, Document, Line, Page, Table, Word, polygon_of
from bireme.ocr.write import FORMATS, find
from tests.ocr.pages import TEXT, page


def line(text: str, y: float, script: str = "Latn") -> Line:
    width = 10.0 * len(text)
    words, x = [], 20.0
    for piece in text.split(" "):
        words.append(Word(piece, 0.9, polygon_of((x, y, x + 10 * len(piece), y + 20))))
        x += 10 * len(piece) + 10
    return Line(text, 0.9, polygon_of((20, y, 20 + width, y + 20)), tuple(words), "ltr", script)


def block(kind: str, *texts: str, y: float, level: int = 0, table: Table | None = None) -> Block:
    lines = tuple(line(t, y + 24 * i) for i, t in enumerate(texts))
    return Block(kind, lines, (20, y, 300, y + 24 * len(texts)), level, table)  # type: ignore[arg-type]


TABLE = Table(2, 2, (Cell(0, 0, "a < b", 1, 2), Cell(1, 0, "c"), Cell(1, 1, "d")))
PAGE = Page(
    1, 400, 300,
    (
        block("heading", "Title & more", y=10, level=1),
        block("paragraph", "A line that ends in a hy-", "phen; * and [x] stay.", y=40),
        block("list", "• one", y=100), block("list", "2) two", y=130),
        block("paragraph", "# no heading", y=160),
        block("table", "a < b", y=200, table=TABLE),
    ),
)  # fmt: skip
DOCUMENT = Document("scan <1>.png", (PAGE,))
BLANK = np.full((300, 400, 3), 255, np.uint8)


def written(name: str, source: object = BLANK) -> bytes:
    return FORMATS[name].write(DOCUMENT, source)  # type: ignore[arg-type]


def test_text() -> None:
    assert written("text").decode().splitlines()[:3] == [
        "Title & more", "", "A line that ends in a hy-",
    ]  # fmt: skip


def test_markdown() -> None:
    assert PAGE.markdown.split("\n\n") == [
        "# Title & more",
        r"A line that ends in a hyphen; \* and \[x\] stay.",
        "- one\n2. two",
        r"\# no heading",
        '<table>\n<tr><td colspan="2">a &lt; b</td></tr>\n<tr><td>c</td><td>d</td></tr>\n</table>',
    ]


def test_html() -> None:
    text = written("html").decode()
    assert "<h1>Title &amp; more</h1>" in text
    assert "<title>scan &lt;1&gt;.png</title>" in text
    assert '<td colspan="2">a &lt; b</td>' in text
    assert text.count("<li>") == 2


def test_json() -> None:
    found = json.loads(written("json"))
    assert (found["format"], found["version"], found["name"]) == ("bireme.ocr", 1, "scan <1>.png")
    first = found["pages"][0]["blocks"][0]
    assert (first["kind"], first["level"]) == ("heading", 1)
    assert [w["text"] for w in first["lines"][0]["words"]] == ["Title", "&", "more"]
    assert found["pages"][0]["blocks"][-1]["table"]["cells"][0]["columns"] == 2


def test_hocr_and_alto_are_xml_with_all_words() -> None:
    words = [w.text for w in PAGE.words]
    hocr = ET.fromstring(re.sub(r"<!DOCTYPE[^>]*>", "", written("hocr").decode()))
    spans = [e for e in hocr.iter() if e.get("class") == "ocrx_word"]
    assert [e.text for e in spans] == words
    assert spans[0].get("title") == "bbox 20 10 70 30; x_wconf 90"
    alto = ET.fromstring(written("alto").decode())
    strings = [e for e in alto.iter() if e.tag.endswith("}String")]
    assert [e.get("CONTENT") for e in strings] == words
    assert (strings[0].get("HPOS"), strings[0].get("WIDTH")) == ("20", "50")


def text_of(pdf: bytes) -> str:
    document = pypdfium2.PdfDocument(pdf)
    page = document[0]
    layer = page.get_textpage()
    text = layer.get_text_range()
    layer.close()
    page.close()
    document.close()
    return text.replace("\ufffe", "- ")  # PDFium's mark for a word that goes on


def test_a_pdf_has_the_text_and_the_bytes_of_a_jpeg() -> None:
    file = io.BytesIO()
    Image.fromarray(BLANK).save(file, "JPEG", dpi=(200, 200))
    made = written("pdf", file.getvalue())
    assert file.getvalue() in made
    assert b"/MediaBox [0 0 144.000 108.000]" in made
    assert text_of(made).split() == " ".join([line.text for line in PAGE.lines]).split()


def test_a_pdf_of_pixels() -> None:
    made = written("pdf")
    assert zlib.compress(BLANK[:, :, 0].tobytes()) in made
    assert text_of(made).split() == " ".join([line.text for line in PAGE.lines]).split()


def test_a_pdf_with_many_characters() -> None:
    text = "".join(chr(c) for c in range(0x4E00, 0x4E00 + 300))
    document = Document("x", (Page(1, 400, 300, (block("paragraph", text, y=10),)),))
    made = FORMATS["pdf"].write(document, BLANK)
    assert "".join(text_of(made).split()) == text


def test_a_pdf_is_not_laid_over_a_pdf() -> None:
    with pytest.raises(OcrError, match="is a PDF already"):
        written("pdf", written("pdf"))


def test_the_picture_has_frames() -> None:
    with Image.open(io.BytesIO(written("picture"))) as image:
        assert image.size == (400, 300)
        assert image.getpixel((20, 20)) != (255, 255, 255)
        assert image.getpixel((390, 290)) == (255, 255, 255)


def test_unknown_formats() -> None:
    assert find("md") is FORMATS["markdown"]
    with pytest.raises(OcrError, match="Take one of text, markdown"):
        find("docx")


def test_what_was_read_can_be_searched(reader: Reader) -> None:
    file = io.BytesIO()
    page(TEXT).save(file, "JPEG", quality=95)
    made = FORMATS["pdf"].write(reader.read(file.getvalue()), file.getvalue())
    assert text_of(made).split() == " ".join(TEXT).split()
    again = reader.read(made)
    assert again[0].source == "pdf"
    assert again.text.split() == " ".join(TEXT).split()


def test_a_pdf_has_a_line_that_is_read_from_the_right() -> None:
    said, x, words = "\u05d0\u05d1\u05d2 125 \u05d3\u05d4", 380.0, []
    for piece in said.split(" "):
        words.append(Word(piece, 0.9, polygon_of((x - 20 * len(piece), 40, x, 70))))
        x -= 20 * len(piece) + 15
    one = Line(said, 0.9, polygon_of((x, 40, 380, 70)), tuple(words), "rtl", "Hebr")
    found = Document("x", (Page(1, 400, 300, (Block("paragraph", (one,), one.box),)),))
    assert text_of(FORMATS["pdf"].write(found, BLANK)).strip() == said
