"""Documents as JSON; docs/ocr.md has the schema."""

from __future__ import annotations

import json
from typing import Any

from bireme.ocr.result import Block, Document, Line, Page, Polygon, Table

VERSION = 1


def to_json(document: Document) -> str:
    """Everything that is known about a document."""
    made: dict[str, Any] = {
        "format": "bireme.ocr",
        "version": VERSION,
        "name": document.name,
        "pages": [_page(page) for page in document.pages],
    }
    if document.fields:
        made["fields"] = [
            {
                "name": f.name,
                "text": f.text,
                "score": round(f.score, 4),
                "page": f.page,
                "box": _numbers(f.box),
            }
            for f in document.fields
        ]
    return json.dumps(made, ensure_ascii=False, indent=1) + "\n"


def _page(page: Page) -> dict[str, Any]:
    return {
        "number": page.number,
        "width": page.width,
        "height": page.height,
        "angle": page.angle,
        "source": page.source,
        "blocks": [_block(block) for block in page.blocks],
    }


def _block(block: Block) -> dict[str, Any]:
    made: dict[str, Any] = {
        "kind": block.kind,
        "level": block.level,
        "box": _numbers(block.box),
        "lines": [_line(line) for line in block.lines],
    }
    if block.table is not None:
        made["table"] = _table(block.table)
    return made


def _line(line: Line) -> dict[str, Any]:
    return {
        "text": line.text,
        "score": round(line.score, 4),
        "polygon": _points(line.polygon),
        "direction": line.direction,
        "script": line.script,
        "words": [
            {"text": w.text, "score": round(w.score, 4), "polygon": _points(w.polygon)}
            for w in line.words
        ],
    }


def _table(table: Table) -> dict[str, Any]:
    cells = [
        {"row": c.row, "column": c.column, "rows": c.rows, "columns": c.columns, "text": c.text}
        for c in table.cells
    ]
    return {"rows": table.rows, "columns": table.columns, "cells": cells}


def _numbers(values: tuple[float, ...]) -> list[float]:
    return [round(v, 1) for v in values]


def _points(polygon: Polygon) -> list[list[float]]:
    return [_numbers(point) for point in polygon]
