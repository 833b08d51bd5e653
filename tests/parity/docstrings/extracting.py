"""Examples of the wheel's docstrings as small programs."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.parity.test_signatures import find, public_names

BLOCK = re.compile(r"^\s*\.\. code-block::.*$", re.MULTILINE)
DIRECTIVE = re.compile(r"#\s*x?doctest:\s*([+-])\s*(SKIP|REQUIRES)")


@dataclass(frozen=True)
class Example:
    """One code block: the first public name that shows it, and its lines."""

    name: str
    source: str


def examples(paddle: Any) -> list[Example]:
    """Every distinct example of a public name that the wheel's own checks would run here."""
    found: dict[str, Example] = {}
    for name, doc in _docstrings(paddle):
        blocks = BLOCK.split(doc)
        parts = blocks[1:] if len(blocks) > 1 else blocks
        for i, block in enumerate(parts):
            source = _source(block)
            if "paddle" in source and _is_python(source):
                label = name if len(parts) == 1 else f"{name}#{i + 1}"
                found.setdefault(source, Example(label, source))
    return list(found.values())


def _docstrings(paddle: Any) -> Iterator[tuple[str, str]]:
    for name in public_names():
        path = name.removeprefix("paddle.")
        thing = paddle if path == "paddle" else find(paddle, path)
        yield from _of(name, thing)
        if inspect.isclass(thing):
            for attribute, member in vars(thing).items():
                if not attribute.startswith("_"):
                    yield from _of(f"{name}.{attribute}", member)


def _of(name: str, thing: Any) -> Iterator[tuple[str, str]]:
    doc = getattr(thing, "__doc__", None)
    if isinstance(doc, str) and ">>>" in doc:
        yield name, doc


def _source(block: str) -> str:
    """The lines behind >>> and ..., without those that a directive leaves out."""
    lines: list[str] = []
    skipping = False
    for line in block.splitlines():
        text = line.strip()
        if not text.startswith((">>>", "...")):
            continue
        code = text[4:].rstrip()
        directive = DIRECTIVE.search(code)
        if directive is not None:
            if code.startswith("#"):
                skipping = directive[1] == "+"
            if directive[1] == "+":
                continue
        if not skipping:
            lines.append(code)
    return "\n".join(lines).strip() + "\n"


def _is_python(source: str) -> bool:
    try:
        return bool(ast.parse(source).body)
    except SyntaxError:
        return False
