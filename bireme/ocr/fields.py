"""Fields of forms and invoices: what stands beside a label, as a small TOML file says.

    [total]
    label = ["Total", "Amount due"]
    pattern = '[\\d.,]+'

    [date]
    pattern = '\\d{4}-\\d\\d-\\d\\d'

A field's value is what follows its label in a line, or stands to the right of it, or below it, and
fits its pattern (a regular expression; without one, any text). Without a label, it is the first
text of the document that fits. Labels are compared without case, spaces and punctuation.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bireme.ocr.errors import OcrError
from bireme.ocr.result import Box, Document, Field, Line, around

MAX_BYTES = 1 << 20
BELOW = 3.0  # times a line's height: how far a value stands under its label
ANY = re.compile(r"\S(.*\S)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A field to look for."""

    name: str
    labels: tuple[str, ...]
    pattern: re.Pattern[str]


def load(path: str | os.PathLike[str]) -> tuple[Wanted, ...]:
    """The fields that a TOML file describes."""
    name = os.fspath(path)
    try:
        if Path(path).stat().st_size > MAX_BYTES:
            raise OcrError(name, f"has more than {MAX_BYTES} bytes")
        described = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as e:
        if isinstance(e, OcrError):
            raise
        raise OcrError(name, f"describes no fields: {e}") from None
    if not described:
        raise OcrError(name, "describes no fields. Write for each a table: [total]")
    return tuple([_wanted(name, field, said) for field, said in described.items()])


def _wanted(file: str, name: str, said: object) -> Wanted:
    if not isinstance(said, Mapping):
        raise OcrError(file, f"{name!r} is no table. Write [{name}], and its keys below")
    unknown = set(said) - {"label", "pattern"}
    if unknown:
        raise OcrError(file, f"[{name}] has the keys label and pattern, not {sorted(unknown)}")
    given = said.get("label", [])
    labels = [given] if isinstance(given, str) else given
    if not isinstance(labels, list) or not all(isinstance(x, str) and _key(x) for x in labels):
        raise OcrError(file, f"[{name}] label is a text or a list of texts, with letters or digits")
    pattern = said.get("pattern")
    if not labels and pattern is None:
        raise OcrError(file, f"[{name}] needs a label, a pattern, or both")
    try:
        compiled = ANY if pattern is None else re.compile(pattern)
    except (re.error, TypeError) as e:
        raise OcrError(file, f"[{name}] pattern is no regular expression: {e}") from None
    return Wanted(name, tuple([_key(x) for x in labels]), compiled)


def find(document: Document, wanted: Sequence[Wanted]) -> tuple[Field, ...]:
    """The fields that are in a document, at most one of each name."""
    labels = frozenset([label for one in wanted for label in one.labels])
    found = (next(_candidates(document, one, labels), None) for one in wanted)
    return tuple([field for field in found if field is not None])


def _candidates(document: Document, wanted: Wanted, labels: frozenset[str]) -> Iterator[Field]:
    """What may be a field's value, the likeliest first; a label of any field is none."""
    for page in document:
        for line in page.lines:
            if not wanted.labels:
                yield from _matches(wanted, line, 0, page.number)
            for label in wanted.labels:
                end = _after(label, line.text)
                if end is None:
                    continue
                yield from _matches(wanted, line, end, page.number)
                for other in _beside(line, page.lines):
                    if _key(other.text) in labels:
                        continue
                    yield from _matches(wanted, other, 0, page.number)


def _key(text: str) -> str:
    return "".join([c for c in text.casefold() if c.isalnum()])


def _after(label: str, text: str) -> int | None:
    """Where a label ends in a text, if whole words of it are the label."""
    made, places, begins = "", [], []
    for i, c in enumerate(text):
        key = _key(c)
        made += key
        places += [i] * len(key)
        begins += [i == 0 or not text[i - 1].isalnum()] * len(key)
    at = made.find(label)
    while at >= 0:
        end = places[at + len(label) - 1] + 1
        if begins[at] and (end == len(text) or not text[end].isalnum()):
            return end
        at = made.find(label, at + 1)
    return None


def _beside(label: Line, lines: Sequence[Line]) -> list[Line]:
    """Lines to the right of a label, the nearest first; then those below it."""
    left, top, right, bottom = label.box
    tall = bottom - top
    row: list[tuple[float, Line]] = []
    under: list[tuple[float, Line]] = []
    for line in lines:
        a, b, c, d = line.box
        if min(bottom, d) - max(top, b) > 0.5 * min(tall, d - b) and a >= right - 0.3 * tall:
            row.append((a - right, line))
        elif -0.3 * tall <= b - bottom <= BELOW * tall and min(right, c) > max(left, a):
            under.append((b - bottom, line))
    return [line for near in (row, under) for _, line in sorted(near, key=lambda pair: pair[0])]


def _matches(wanted: Wanted, line: Line, start: int, page: int) -> Iterator[Field]:
    """What fits in a line from a place on."""
    said = line.text[start:]
    begun = start + len(said) - len(said.lstrip(" \t:.=-\u2013\u2014\uff1a"))
    found = wanted.pattern.search(line.text, begun)
    if found is not None and found[0].strip():
        yield Field(wanted.name, found[0].strip(), line.score, page, _box(line, *found.span()))


def _box(line: Line, start: int, end: int) -> Box:
    """Around the words of a part of a line's text."""
    boxes: list[Box] = []
    at = 0
    for word in line.words:
        begin = line.text.find(word.text, at)
        if begin < 0:
            return line.box
        at = begin + len(word.text)
        if begin < end and at > start:
            boxes.append(word.box)
    return around(boxes) if boxes else line.box
