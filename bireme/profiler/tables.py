"""Plain-text tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bireme.core import stats


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns as wide as needed; numbers to the right, text to the left."""
    cells = [list(head), *[[_shown(c) for c in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    numeric = [all(isinstance(row[i], int | float) for row in rows) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        pieces = zip(row, widths, numeric, strict=True)
        return "  ".join(c.rjust(w) if n else c.ljust(w) for c, w, n in pieces).rstrip()

    rule = "  ".join("-" * w for w in widths)
    return "\n".join([title, line(cells[0]), rule, *[line(row) for row in cells[1:]]])


def _shown(cell: Any) -> str:
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)


def compile_report(events: Sequence[stats.CompileEvent] | None = None) -> str:
    """Every compilation with its line, size, time and reason, as a table."""
    found = stats.compile_events() if events is None else events
    if not found:
        return "Compilations: none"
    rows = [
        (i + 1, e.ops, e.kernels.total(), e.seconds, _short(e.line), e.reason)
        for i, e in enumerate(found)
    ]
    total = sum(e.seconds for e in found)
    title = f"Compilations: {len(found)} in {total:.2f} s"
    return table(title, ("#", "ops", "kernels", "seconds", "triggered at", "because"), rows)


def _short(line: str) -> str:
    """The last two parts of a path are enough to find a line."""
    return "/".join(line.replace("\\", "/").split("/")[-2:])


def shown_bytes(n: int) -> str:
    """Bytes for people: 12.3 MiB."""
    size = float(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return str(n)
