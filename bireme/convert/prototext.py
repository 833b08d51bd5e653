"""The text form of protobuf (`.prototxt`, `.pbtxt`), read as a schema of `convert.wire` says."""

from __future__ import annotations

import re
from typing import Any

from bireme.convert.errors import ModelFileError
from bireme.convert.wire import IGNORED, Schema

MAX_BYTES = 64 << 20
_MAX_DEPTH = 64

_TOKEN = re.compile(
    r"""\s+ | \#[^\n]*
    | (?P<string> "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' )
    | (?P<word> [-+]?[\w.]+(?:(?<=[eE])[-+]\d+)? )
    | (?P<mark> [{}<>\[\]:;,] )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_CLOSING = {"{": "}", "<": ">"}
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|inf|nan)[fF]?")


def parse(schema: Schema, text: str, what: str = "the net") -> dict[str, Any]:
    """The fields of a message by name; repeated ones are lists, absent ones are missing."""
    if len(text) > MAX_BYTES:
        raise ModelFileError(f"{what} is a text of more than {MAX_BYTES} characters")
    reader = _Reader(text)
    return reader.message(schema, "", what, 0)


class _Reader:
    def __init__(self, text: str):
        self._text, self._at = text, 0
        self._kind = self._token = ""
        self._next()

    def _next(self) -> None:
        while self._at < len(self._text):
            found = _TOKEN.match(self._text, self._at)
            if found is None:
                raise self._wrong(f"unexpected {self._text[self._at : self._at + 20]!r}")
            self._at = found.end()
            if found.lastgroup is not None:
                self._kind, self._token = found.lastgroup, found[found.lastgroup]
                return
        self._kind = self._token = ""

    def _wrong(self, message: str) -> ModelFileError:
        line = self._text.count("\n", 0, self._at) + 1
        return ModelFileError(f"the text of the net, line {line}: {message}")

    def _take(self, token: str) -> bool:
        if self._token == token and self._kind == "mark":
            self._next()
            return True
        return False

    def message(self, schema: Schema, end: str, what: str, depth: int) -> dict[str, Any]:
        if depth > _MAX_DEPTH:
            raise self._wrong(f"messages are nested more than {_MAX_DEPTH} deep")
        fields = {name: (kind, repeated) for name, kind, repeated in schema.values()}
        found: dict[str, Any] = {}
        while not (self._token == end and self._kind in ("mark", "")):
            name = self._word(f"a field of {what}")
            kind, repeated = fields.get(name, (None, False))
            if kind is None and not name.endswith("_param"):
                raise self._wrong(f"{what} has no field {name!r:.60}")
            several = self._take(":") and self._take("[")
            while not (several and self._take("]")):
                value = self._value(kind or IGNORED, f"{what}.{name}", depth)
                if kind is None:  # the settings of a layer that may have no rule
                    found[name] = None
                elif kind == IGNORED:
                    pass
                elif repeated:
                    found.setdefault(name, []).append(value)
                elif kind in ("floats", "doubles"):
                    raise self._wrong(f"weights ({name}) are read from binary files only")
                else:
                    found[name] = value
                self._take(",")
                if not several:
                    break
            self._take(";")
        if end:
            self._next()
        return found

    def _value(self, kind: Any, what: str, depth: int) -> Any:
        if self._kind == "mark" and self._token in _CLOSING:
            end = _CLOSING[self._token]
            self._next()
            if kind == IGNORED:
                return self._skip(end)
            if not isinstance(kind, dict):
                raise self._wrong(f"{what} is a message where a value is expected")
            return self.message(kind, end, what, depth + 1)
        if isinstance(kind, dict):
            raise self._wrong(f"{what} is no message")
        if self._kind == "string":
            parts = []
            while self._kind == "string":
                parts.append(self._token[1:-1])
                self._next()
            if kind == "bytes":
                raw = "".join(parts).encode().decode("latin-1")
                return memoryview(_ESCAPE.sub(_unescaped, raw).encode("latin-1"))
            if kind not in ("string", IGNORED):
                raise self._wrong(f"{what} is text, not a value of the kind {kind:.20}")
            return "".join([_ESCAPE.sub(_unescaped, part) for part in parts])
        word = self._word(what)
        try:
            return _converted(kind, word)
        except ValueError:
            raise self._wrong(f"{what} cannot be {word!r:.60}") from None

    def _word(self, what: str) -> str:
        if self._kind != "word":
            raise self._wrong(f"{what} is expected, not {self._token or 'the end'!r:.60}")
        word = self._token
        self._next()
        return word

    def _skip(self, end: str) -> None:
        """Over a message that is not read."""
        ends = [end]
        while ends:
            if not self._kind:
                raise self._wrong("the text ends inside a message")
            if self._kind == "mark":
                if self._token in _CLOSING:
                    ends.append(_CLOSING[self._token])
                elif self._token in (">", "}") and self._token != ends.pop():
                    raise self._wrong(f"unexpected {self._token!r}")
            self._next()


def _unescaped(found: re.Match[str]) -> str:
    inner = found[1]
    if inner[0] == "x" and len(inner) > 1:
        return chr(int(inner[1:], 16))
    if inner[0] in "01234567":
        return chr(int(inner, 8) & 0xFF)
    return _PLAIN.get(inner, inner)


def _converted(kind: str, word: str) -> Any:
    if kind == IGNORED:
        return word
    if kind == "bool":
        if word in ("true", "True", "t", "1"):
            return True
        if word in ("false", "False", "f", "0"):
            return False
        raise ValueError
    if kind.startswith("enum:"):
        names = kind[5:].split(",")
        if word.isdecimal() and len(word) < 6 and int(word) < len(names):
            return names[int(word)]
        if word not in names:
            raise ValueError
        return word
    if kind in ("float", "double"):
        if _NUMBER.fullmatch(word.lower()) is None:
            raise ValueError
        return float(word.rstrip("fF") if not word.lower().endswith("inf") else word)
    if len(word) > 20 or kind in ("string", "bytes"):
        raise ValueError
    value = int(word, 0)
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError
    return value
