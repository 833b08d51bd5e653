"""Lines that are read from the right."""

from __future__ import annotations

import pytest

from bireme.ocr.bidi import reading_order, runs_backward
from bireme.ocr.recognise import Character, Reading, words_of
from bireme.ocr.result import polygon_of

# As they stand from left to right, and as they are read; ABC stands for Hebrew letters.
LINES = {
    "abc def": "abc def",
    "CBA": "ABC",
    "FED CBA": "ABC DEF",
    "FED 12.5 CBA": "ABC 12.5 DEF",
    "FED 34 12 CBA": "ABC 12 34 DEF",
    "FED ox go CBA": "ABC ox go DEF",
    "50% CBA": "ABC 50%",
    ".CBA": "ABC.",
}  # fmt: skip


def shown(text: str) -> str:
    return "".join([chr(0x5D0 + ord(c) - ord("A")) if c.isupper() else c for c in text])


@pytest.mark.parametrize(("stands", "said"), LINES.items())
def test_reading_order(stands: str, said: str) -> None:
    texts = shown(stands)
    assert "".join([texts[i] for i in reading_order(texts)]) == shown(said)
    assert runs_backward(texts) == any(c.isupper() for c in stands)


def test_words_come_in_reading_order() -> None:
    texts = shown("FED 12 CBA")
    n = len(texts)
    reading = Reading(tuple([Character(t, 1.0, i / n, (i + 1) / n) for i, t in enumerate(texts)]))
    words = words_of(reading, polygon_of((0, 0, 100, 20)))
    assert [w.text for w in words] == [shown(t) for t in ("ABC", "12", "DEF")]
    assert [w.box[0] for w in words] == sorted([w.box[0] for w in words], reverse=True)
    assert reading.text == shown("ABC 12 DEF")
