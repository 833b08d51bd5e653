"""Fields are found beside their labels."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bireme.ocr import OcrError, fields
from bireme.ocr.result import Block, Document, Line, Page, Word, polygon_of
from bireme.ocr.write import FORMATS


def line(text: str, x: float, y: float) -> Line:
    words, left = [], x
    for piece in text.split(" "):
        words.append(Word(piece, 0.9, polygon_of((left, y, left + 10 * len(piece), y + 20))))
        left += 10 * len(piece) + 10
    return Line(text, 0.9, polygon_of((x, y, left - 10, y + 20)), tuple(words))


LINES = (
    line("INVOICE No. 4711", 20, 20),
    line("Subtotal: 100.00", 20, 60),
    line("Amount  Due", 20, 100),
    line("EUR 119,00", 300, 102),
    line("Customer", 20, 150),
    line("Date", 300, 150),
    line("Ada Lovelace", 20, 180),
    line("2026-11-19", 300, 180),
)
DOCUMENT = Document("x", (Page(1, 500, 300, (Block("paragraph", LINES, (0, 0, 500, 300)),)),))


def found(tmp_path: Path, described: str) -> dict[str, fields.Field]:
    path = tmp_path / "fields.toml"
    path.write_text(described, encoding="utf-8")
    return {f.name: f for f in fields.find(DOCUMENT, fields.load(path))}


def test_values_beside_below_and_anywhere(tmp_path: Path) -> None:
    got = found(
        tmp_path,
        """
        [number]
        label = "Invoice No"
        [total]
        label = ["Total", "amount-due"]
        pattern = '[\\d.,]+'
        [customer]
        label = "Customer"
        [day]
        label = "Date"
        [first]
        pattern = '\\d{4}-\\d\\d-\\d\\d'
        [missing]
        label = "VAT"
        """,
    )
    assert {name: f.text for name, f in got.items()} == {
        "number": "4711",
        "total": "119,00",
        "customer": "Ada Lovelace",
        "day": "2026-11-19",
        "first": "2026-11-19",
    }
    assert got["total"].box == (340, 102, 400, 122)
    assert got["number"].page == 1


def test_a_pattern_goes_past_what_does_not_fit(tmp_path: Path) -> None:
    got = found(tmp_path, "[customer]\nlabel = 'customer'\npattern = '[A-Z]\\w+ [A-Z]\\w+'")
    assert got["customer"].text == "Ada Lovelace"


def test_fields_are_in_the_json(tmp_path: Path) -> None:
    got = found(tmp_path, "[subtotal]\nlabel = 'Subtotal'")
    made = json.loads(FORMATS["json"].write(replace(DOCUMENT, fields=tuple(got.values())), b""))
    assert made["fields"] == [
        {"name": "subtotal", "text": "100.00", "score": 0.9, "page": 1, "box": [120, 60, 180, 80]}
    ]


@pytest.mark.parametrize(
    ("described", "reason"),
    [
        ("", "describes no fields"),
        ("a = [", "describes no fields"),
        ("a = 1", "is no table"),
        ("[a]", "needs a label, a pattern, or both"),
        ("[a]\nlabel = 3", "label is a text"),
        ("[a]\nlabel = '...'", "with letters or digits"),
        ("[a]\npattern = '('", "no regular expression"),
        ("[a]\npattern = 3", "no regular expression"),
        ("[a]\nlabels = 'x'", "has the keys label and pattern, not \\['labels'\\]"),
    ],
)
def test_a_file_that_describes_no_fields(tmp_path: Path, described: str, reason: str) -> None:
    with pytest.raises(OcrError, match=reason):
        found(tmp_path, described)
    with pytest.raises(OcrError, match="describes no fields"):
        fields.load(tmp_path / "missing.toml")
