"""Texts of a form: JSON of a schema, a regular expression, one of some choices.

llguidance says which tokens may come next. A form comes from a stranger: its size is bounded here,
and what it may cost by the library's limits; what goes beyond is refused before the text begins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.serving.errors import BadRequest, ServingError
from bireme.zoo.tokenizer import Tokenizer

_MOST_BYTES = 64 << 10  # of a form
_MOST_CHOICES = 1000
# Between the parts of a JSON text: a model that writes blanks for ever would never end.
_JSON: Any = {"whitespace_pattern": r"[\x20\x0A\x09]{0,3}"}


class Grammars:
    """The forms of one tokenizer's texts."""

    def __init__(self, tokenizer: Tokenizer):
        try:
            import llguidance
        except ImportError:
            raise BadRequest(
                "response_format needs llguidance: pip install 'bireme[serving]'"
            ) from None
        self._library = llguidance
        ends = list(tokenizer.end_ids)
        if not ends:
            raise InvalidArgument("[serve] the tokenizer has no end token")
        self._ends = ends
        self._tokenizer = llguidance.LLTokenizer(tokenizer.inner.to_str(), eos_token=ends)

    def form(self, given: Mapping[str, Any]) -> Form:
        """The form of a `response_format`; raises for one that is wrong or too large."""
        try:
            grammar = self._grammar(given)
        except ServingError:
            raise
        except ValueError as e:  # the library's, for what it cannot read
            raise BadRequest(f"response_format is refused: {e!s:.500}") from None
        matcher = self._library.LLMatcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise BadRequest(f"response_format is refused: {matcher.get_error():.500}")
        return Form(matcher, self._ends)

    def _grammar(self, given: Mapping[str, Any]) -> str:
        matcher = self._library.LLMatcher
        kind = given.get("type")
        if kind == "json_object":
            return matcher.grammar_from_json_schema('{"type": "object"}', defaults=_JSON)
        if kind == "json_schema":
            return matcher.grammar_from_json_schema(_schema(given), defaults=_JSON)
        if kind == "regex" and isinstance(given.get("regex"), str):
            if len(given["regex"]) > _MOST_BYTES:
                raise BadRequest(f"a regular expression has at most {_MOST_BYTES} characters")
            return matcher.grammar_from_regex(given["regex"])
        if kind == "choice":
            return matcher.grammar_from_regex(_choice(given.get("choices")))
        raise BadRequest(
            "response_format has the type text, json_object, json_schema (with json_schema.schema),"
            f" regex (with regex) or choice (with choices). Received: {given!r:.200}"
        )


def _schema(given: Mapping[str, Any]) -> str:
    inner = given.get("json_schema")
    schema = inner.get("schema") if isinstance(inner, dict) else None
    if not isinstance(schema, dict | bool):
        raise BadRequest("response_format.json_schema.schema must be a JSON schema")
    text = json.dumps(schema)
    if len(text) > _MOST_BYTES:
        raise BadRequest(f"a JSON schema has at most {_MOST_BYTES} bytes. Received: {len(text)}")
    return text


def _choice(choices: object) -> str:
    if not isinstance(choices, list) or not 0 < len(choices) <= _MOST_CHOICES:
        raise BadRequest(f"choices must be 1 to {_MOST_CHOICES} texts")
    if not all(isinstance(c, str) and c for c in choices) or sum(map(len, choices)) > _MOST_BYTES:
        raise BadRequest(f"choices must be texts, of {_MOST_BYTES} characters together")
    return "|".join(re.escape(c) for c in choices)


class Form:
    """Where one text stands in its form."""

    def __init__(self, matcher: Any, ends: Sequence[int]):
        self._matcher, self._ends = matcher, ends

    def copy(self) -> Form:
        """The same place, for another text."""
        return Form(self._matcher.deep_copy(), self._ends)

    def allowed(self, count: int) -> np.ndarray:
        """Which of `count` tokens may come next: bool [count]."""
        found = np.zeros(count, bool)
        if self._matcher.is_stopped():
            found[list(self._ends)] = True
            return found
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        known = np.unpackbits(bits, bitorder="little")[:count].astype(bool)
        found[: len(known)] = known
        if not found.any() or self._matcher.is_error():
            raise BadRequest(f"the form is too complex: {self._matcher.get_error():.300}")
        return found

    def take(self, token: int) -> None:
        """The next token."""
        if self._matcher.is_stopped() or token in self._ends:
            return
        if not self._matcher.consume_token(token):
            raise BadRequest(f"the form is too complex: {self._matcher.get_error():.300}")
