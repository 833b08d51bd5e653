"""Documents as plain text."""

from __future__ import annotations

from bireme.ocr.result import Document


def to_text(document: Document) -> str:
    """Lines in reading order; blocks are apart, and a form feed is between pages."""
    return document.text + "\n"
