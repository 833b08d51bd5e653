"""Telling calls of tools from the other text of an answer, as it comes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bireme.serving.language.model import Event
from bireme.serving.language.tools import Call, Style, Tools, begins
from bireme.zoo.generating import overlap
from bireme.zoo.tokenizer import Tokenizer

_FENCE = "```"


class CallReader:
    """Tells calls from the other text of one answer, as it comes.

    What is not a call of one of the functions stays text: nothing that the model wrote is lost.
    """

    def __init__(self, style: Style, tools: Tools, tokenizer: Tokenizer):
        self._style, self._tools = style, tools
        marks = {style.opening, style.closing, style.separator} - {""}
        # Special tokens have no text in an answer.
        self._marks = {
            token: mark
            for mark in marks
            if (token := tokenizer.inner.token_to_id(mark)) is not None
        }
        self._held = begins(style, tools)
        self._inside = bool(tools.demanded)  # a call, or what may be one
        self._begun = False

    def read(self, event: Event) -> Event:
        """The event with the text that is certainly no call; the last one has the calls."""
        if event.error is not None:
            return event
        shown = self.put(None if event.choice is None else event.choice.token, event.piece)
        if event.finish is None:
            return replace(event, piece=shown)
        rest, calls = self.end()
        finish = "tool_calls" if calls else event.finish
        return replace(event, piece=shown + rest, calls=calls, finish=finish)

    def put(self, token: int | None, piece: str) -> str:
        """The text that is certainly not a call."""
        mark = self._marks.get(-1 if token is None else token)
        if mark is not None and not piece.endswith(mark):
            piece += mark
        self._held += piece
        opening = self._style.opening
        if not self._inside and opening and opening in self._held:
            self._inside = True
            shown, _, rest = self._held.partition(opening)
            self._held = opening + rest
            self._begun = True
            return shown
        if not self._begun:
            self._look()
        if self._inside or not self._begun:
            return ""
        ready = len(self._held) - (overlap(self._held, opening) if opening else 0)
        shown, self._held = self._held[:ready], self._held[ready:]
        return shown

    def _look(self) -> None:
        """Whether an answer that begins like this may be JSON of a call, as soon as that shows."""
        start = self._held.lstrip()[: len(_FENCE)]
        if self._style.closing or self._style.separator:
            self._begun = True
        elif start == _FENCE or start[:1] in ("{", "["):
            self._inside = self._begun = True
        elif not _FENCE.startswith(start):
            self._begun = True

    def end(self) -> tuple[str, tuple[Call, ...]]:
        """The rest of the text, and the calls."""
        held, self._held = self._held, ""
        if not self._inside:
            return held, ()
        calls: list[Call] = []
        words: list[str] = []
        for part in _parts(held, self._style):
            found = list(self._calls(part))
            if found and all(found):
                calls += [c for c in found if c is not None]
            elif part.strip():
                words.append(part)
        if not calls:
            return held, ()
        kept = calls if self._tools.parallel else calls[:1]
        return "".join(words), tuple(kept)

    def _calls(self, part: str) -> Iterator[Call | None]:
        """The calls of one piece of JSON; None for what is none."""
        if self._style.separator:
            name, found, arguments = part.partition(self._style.separator)
            rows: list[Any] = [{"name": name.strip(), "arguments": _object(arguments)}]
            if not found:
                rows = [None]
        else:
            rows = list(_documents(part))
        for row in rows:
            yield self._call(row)

    def _call(self, row: Any) -> Call | None:
        if not isinstance(row, dict) or row.get("name") not in self._tools.names:
            return None
        arguments = row.get("arguments", row.get("parameters", {}))
        if isinstance(arguments, str):
            arguments = _object(arguments)
        if not isinstance(arguments, dict):
            return None
        try:
            text = json.dumps(arguments, ensure_ascii=False)
        except RecursionError:  # nested too deep to be written again
            return None
        return Call(secrets.token_hex(5)[:9], row["name"], text)  # Mistral's have 9 letters


def _parts(held: str, style: Style) -> Iterator[str]:
    """The pieces of a text between its marks."""
    if not style.opening:
        yield _unfenced(held)
        return
    before, *opened = held.split(style.opening)
    if before.strip():
        yield before if style.closing else _unfenced(before)
    for text in opened:
        inside, _, after = text.partition(style.closing) if style.closing else (text, "", "")
        yield inside
        yield after


def _unfenced(text: str) -> str:
    text = text.strip()
    if text.startswith(_FENCE) and text.endswith(_FENCE) and "\n" in text:
        return text[text.index("\n") : -len(_FENCE)]
    return text


def _documents(text: str) -> Iterator[Any]:
    """The JSON documents of a text, one after another; None where it is none."""
    reader, at = json.JSONDecoder(), 0
    while True:
        while at < len(text) and (text[at].isspace() or text[at] in ";,"):
            at += 1
        if at == len(text):
            return
        try:
            found, at = reader.raw_decode(text, at)
        except (ValueError, RecursionError):
            yield None
            return
        yield from found if isinstance(found, list) else [found]


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
