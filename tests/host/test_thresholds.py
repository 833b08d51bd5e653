"""Thresholds stand in one table, with what set them, and nowhere else."""

from __future__ import annotations

import ast
import datetime
import pathlib
from collections.abc import Iterator

import pytest

import bireme
from bireme.host import thresholds

PACKAGE = pathlib.Path(bireme.__file__).parent
FILES = sorted([*PACKAGE.glob("kernels/*.py"), *PACKAGE.glob("backends/*.py")])
# Limits of what a kernel can do at all, or sizes of its tiles, by file: no thresholds.
NOT_THRESHOLDS = {
    "fused.py": {"_MOST_STEPS"},  # the room of a native program
    "gpu_attention.py": {"_WIDEST"},  # cuDNN refuses wider heads
    "gpu_decode.py": {"16"},  # a head's columns make whole tiles
    "gpu_decoder.py": {"8192", "_SHARED"},  # as in decoder.cu
    "pallas_decode.py": {"16", "8192"},  # tiles
    "pallas_norm.py": {"16", "1024", "8192"},  # what registers hold, and blocks
}
_SMALL = 8  # ranks, axes and bytes of a number


def _number(node: ast.AST, constants: set[str]) -> str | None:
    if isinstance(node, ast.Name) and node.id in constants:
        return node.id
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    large = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) > _SMALL
    return str(value) if large else None


def _compared(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Numbers, and names of numbers of the file, that sizes are compared with."""
    constants = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and _is_a_number(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            ordered = any(isinstance(o, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for o in node.ops)
            for side in (node.left, *node.comparators) if ordered else ():
                found = _number(side, constants)
                if found is not None:
                    yield found, node.lineno


def _is_a_number(node: ast.AST) -> bool:
    return all(
        isinstance(n, ast.Constant | ast.BinOp | ast.operator | ast.UnaryOp | ast.unaryop)
        for n in ast.walk(node)
    ) and not any(isinstance(n, ast.Constant) and isinstance(n.value, str) for n in ast.walk(node))


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_no_threshold_stands_beside_the_code(path: pathlib.Path) -> None:
    known = NOT_THRESHOLDS.get(path.name, set())
    compared = list(_compared(ast.parse(path.read_text())))
    wrong = [f"{path.name}:{line} {what}" for what, line in compared if what not in known]
    assert not wrong, "put these into host/thresholds.py: " + ", ".join(wrong)
    assert known <= {what for what, _ in compared}


def test_every_row_says_what_set_it() -> None:
    rows = thresholds.rows()
    assert len(rows) > 25
    for name, row in rows.items():
        assert row.unit, name
        assert row.measured, name
        assert datetime.date.fromisoformat(row.day) >= datetime.date(2026, 11, 1)
        assert getattr(thresholds, name) == row.value
    assert "GPU_NORM = 1.04858e+06 elements" in thresholds.table()


def test_every_row_is_used() -> None:
    text = "".join(p.read_text() for p in PACKAGE.rglob("*.py"))
    assert [n for n in thresholds.rows() if f"thresholds.{n}" not in text] == []
