"""Pages as Markdown."""

from __future__ import annotations

import re

from bireme.ocr.result import Block, Document, Line, Page
from bireme.ocr.script import WITHOUT_SPACES, script_of
from bireme.ocr.write.html import table_to_html

_SPECIAL = re.compile(r"([\\`*_\[\]<>|])")
_STARTS = re.compile(r"^(#{1,6}\s|>|[-+]\s|\d{1,3}[.)]\s|={3,}|-{3,})")
_BULLET = re.compile(r"^\s*[•●▪■◦○‣∙·*–—-]\s+")
_NUMBER = re.compile(r"^\s*\(?(\d{1,3})[.)]\s+")


def page_to_markdown(page: Page) -> str:
    """Headings, paragraphs, lists and tables (as HTML, which Markdown allows)."""
    made: list[str] = []
    last = ""
    for block in page.blocks:
        text = _block(block)
        tight = block.kind == last == "list"
        made.append(("\n" if tight else "\n\n") + text if made else text)
        last = block.kind
    return "".join(made)


def _block(block: Block) -> str:
    if block.table is not None:
        return table_to_html(block.table)
    text = flowing(block.lines)
    if block.kind == "heading":
        return f"{'#' * max(1, block.level)} {_escaped(text)}"
    if block.kind == "list":
        number = _NUMBER.match(text)
        if number:
            return f"{number[1]}. {_escaped(text[number.end() :])}"
        return f"- {_escaped(_BULLET.sub('', text))}"
    escaped = _escaped(text)
    return "\\" + escaped if _STARTS.match(escaped) else escaped


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def flowing(lines: tuple[Line, ...]) -> str:
    """The lines of a paragraph as one. A word that a hyphen parts at a line's end is joined."""
    text = ""
    for line in lines:
        piece = line.text.strip()
        if not text or not piece:
            text += piece
        elif (
            len(text) > 1
            and text[-1] in "-\u00ad\u2010"
            and text[-2].isalpha()
            and piece[0].islower()
        ):
            text = text[:-1] + piece
        elif script_of(text[-1]) in WITHOUT_SPACES and script_of(piece[0]) in WITHOUT_SPACES:
            text += piece
        else:
            text += " " + piece
    return text


def to_markdown(document: Document) -> str:
    """A document's pages with a rule between them."""
    return document.markdown + "\n"
