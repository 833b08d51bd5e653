"""Pages as HTML."""

from __future__ import annotations

from collections import defaultdict
from html import escape

from bireme.ocr.result import Block, Cell, Document, Page, Table


def page_to_html(page: Page) -> str:
    """The blocks of a page as elements."""
    made: list[str] = []
    items: list[str] = []
    for block in page.blocks:
        if block.kind == "list":
            items.append(f"<li>{_lines(block)}</li>")
            continue
        if items:
            made.append("<ul>" + "".join(items) + "</ul>")
            items = []
        made.append(_block(block))
    if items:
        made.append("<ul>" + "".join(items) + "</ul>")
    return "\n".join(made)


def document_to_html(document: Document) -> str:
    """A whole document that a browser shows."""
    pages = "\n<hr>\n".join(page_to_html(page) for page in document.pages)
    return (
        '<!DOCTYPE html>\n<html><head><meta charset="utf-8">'
        f"<title>{escape(document.name)}</title></head>\n<body>\n{pages}\n</body></html>\n"
    )


def _block(block: Block) -> str:
    if block.table is not None:
        return table_to_html(block.table)
    if block.kind == "heading":
        level = max(1, min(block.level, 6))
        return f"<h{level}>{_lines(block)}</h{level}>"
    return f"<p>{_lines(block)}</p>"


def _lines(block: Block) -> str:
    directions = {line.direction for line in block.lines}
    text = "<br>\n".join(escape(line.text, quote=False) for line in block.lines)
    return f'<span dir="rtl">{text}</span>' if directions == {"rtl"} else text


def table_to_html(table: Table) -> str:
    """A table with its spans."""
    rows: dict[int, list[Cell]] = defaultdict(list)
    for cell in table.cells:
        rows[cell.row].append(cell)
    made = []
    for row in range(table.rows):
        cells = ""
        for cell in sorted(rows[row], key=lambda c: c.column):
            spans = f' rowspan="{cell.rows}"' * (cell.rows > 1)
            spans += f' colspan="{cell.columns}"' * (cell.columns > 1)
            cells += f"<td{spans}>{escape(cell.text, quote=False)}</td>"
        made.append(f"<tr>{cells}</tr>")
    return "<table>\n" + "\n".join(made) + "\n</table>"
