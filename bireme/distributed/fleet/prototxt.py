"""Strategies as text: the fields that differ from their defaults, in protobuf's text format."""

from __future__ import annotations

import re
from typing import Any

from bireme.core.errors import FileFormatError

_TOKEN = re.compile(r'\s*(?:#[^\n]*\n\s*)*("(?:[^"\\\n]|\\.)*"|[A-Za-z_]\w*|[-+.\w]+|[{}:])')
_LARGEST = 1 << 20


def write(fields: dict[str, Any], defaults: dict[str, Any]) -> str:
    """The text of fields and of dicts of fields."""
    lines: list[str] = []
    for name, value in fields.items():
        if not isinstance(value, dict):
            lines += _scalars("", name, value) if value != defaults[name] else []
            continue
        inner = [
            line
            for key, entry in value.items()
            if entry != defaults[name].get(key)
            for line in _scalars("  ", key, entry)
        ]
        if inner:
            lines += [f"{name} {{", *inner, "}"]
    return "".join(f"{line}\n" for line in lines)


def _scalars(indent: str, name: str, value: Any) -> list[str]:
    entries = value if isinstance(value, list | tuple) else [value]
    return [f"{indent}{name}: {_shown(e)}" for e in entries]


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return repr(value)


def read(text: str) -> dict[str, Any]:
    """Values by name: a scalar, a list of repeated ones, or a dict of them."""
    if len(text) > _LARGEST:
        raise FileFormatError(f"[load_from_prototxt] the text has {len(text)} characters: too many")
    tokens, at = [], 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        if found is None:
            raise FileFormatError(f"[load_from_prototxt] cannot read {text[at : at + 20]!r}")
        tokens.append(found.group(1))
        at = found.end()
    fields, end = _fields(tokens, 0, 0)
    if end != len(tokens):
        raise FileFormatError("[load_from_prototxt] there is a '}' too many")
    return fields


def _fields(tokens: list[str], at: int, depth: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    if depth > 4:
        raise FileFormatError("[load_from_prototxt] blocks are nested too deep")
    while at < len(tokens) and tokens[at] != "}":
        name, at = tokens[at], at + 1
        if at < len(tokens) and tokens[at] == ":":
            at += 1
        if at >= len(tokens) or tokens[at] in (":", "}"):
            raise FileFormatError(f"[load_from_prototxt] {name} has no value")
        if tokens[at] == "{":
            value, at = _fields(tokens, at + 1, depth + 1)
            if at >= len(tokens):
                raise FileFormatError(f"[load_from_prototxt] the block {name} does not end")
        else:
            value = _value(tokens[at])
        at += 1
        if name in found:
            before = found[name]
            found[name] = [*before, value] if isinstance(before, list) else [before, value]
        else:
            found[name] = value
    return found, at


def _value(token: str) -> Any:
    if token[0] == '"':
        return re.sub(r"\\(.)", lambda m: "\n" if m.group(1) == "n" else m.group(1), token[1:-1])
    if token in ("true", "false"):
        return token == "true"
    for kind in (int, float):
        try:
            return kind(token)
        except ValueError:
            continue
    return token
