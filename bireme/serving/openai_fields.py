"""The fields of OpenAI's requests, checked: what is not understood is refused by name."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

from bireme.serving.errors import BadRequest
from bireme.serving.language.sampling import Sampling

# Fields that change nothing about an answer.
_HARMLESS = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
             "prompt_cache_retention")  # fmt: skip
_DEEPEST = 100  # levels of objects and lists
_MOST_BIASES, _MOST_STOPS, _MOST_CHOICES, _MOST_LOGPROBS = 1024, 16, 64, 20


class Fields:
    """A request's document; every field is taken once, and `done` refuses the rest."""

    def __init__(self, document: object):
        if not isinstance(document, dict):
            raise BadRequest("the body must be an object")
        _check_depth(document, "the body")
        self._left = {k: v for k, v in document.items() if v is not None and k not in _HARMLESS}

    def take(self, name: str, usual: Any = None) -> Any:
        """A field as it is."""
        return self._left.pop(name, usual)

    def number(self, name: str, usual: float, low: float, high: float) -> float:
        """A number between two others."""
        value = self._left.pop(name, usual)
        if type(value) not in (int, float) or not low <= value <= high:
            raise BadRequest(f"{name} must be a number from {low} to {high}. Received: {value!r}")
        return float(value)

    def whole(self, name: str, usual: int, low: int, high: int) -> int:
        """A whole number between two others."""
        value = self._left.pop(name, usual)
        if type(value) is not int or not low <= value <= high:
            raise BadRequest(f"{name} must be a number from {low} to {high}. Received: {value!r}")
        return value

    def flag(self, name: str, usual: bool = False) -> bool:
        """True or false."""
        value = self._left.pop(name, usual)
        if type(value) is not bool:
            raise BadRequest(f"{name} must be true or false. Received: {value!r}")
        return value

    def only(self, name: str, *values: Any) -> None:
        """A field that is supported with these values."""
        value = self._left.pop(name, values[0])
        if value not in values:
            raise BadRequest(f"{name} is supported as {values[0]!r} only. Received: {value!r:.200}")

    def done(self) -> None:
        """Refuse what nobody took."""
        if self._left:
            raise BadRequest(f"the field {next(iter(self._left))!r} is not supported")


def _check_depth(document: Any, what: str) -> None:
    """Refuse what is nested so deep that walking it would exceed Python's recursion limit."""
    level = [document]
    for _ in range(_DEEPEST):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise BadRequest(f"{what} is nested more than {_DEEPEST} levels deep")


def sampling_of(fields: Fields, vocabulary: int, logprobs: int) -> Sampling:
    """The settings of a request by which tokens are chosen."""
    return Sampling(
        temperature=fields.number("temperature", 1.0, 0.0, 2.0),
        top_k=fields.whole("top_k", 0, 0, vocabulary),
        top_p=fields.number("top_p", 1.0, 1e-6, 1.0),
        min_p=fields.number("min_p", 0.0, 0.0, 1.0),
        presence_penalty=fields.number("presence_penalty", 0.0, -2.0, 2.0),
        frequency_penalty=fields.number("frequency_penalty", 0.0, -2.0, 2.0),
        logit_bias=_biases(fields.take("logit_bias", {}), vocabulary),
        logprobs=logprobs,
    )


def _biases(given: object, vocabulary: int) -> Mapping[int, float]:
    if not isinstance(given, dict) or len(given) > _MOST_BIASES:
        raise BadRequest(f"logit_bias must be an object of at most {_MOST_BIASES} tokens")
    found = {}
    for token, bias in given.items():
        known = token.isdecimal() and len(token) < 12 and int(token) < vocabulary
        if not known or type(bias) not in (int, float) or not -100 <= bias <= 100:
            raise BadRequest(
                f"logit_bias gives tokens a number from -100 to 100. Received: {token!r}: {bias!r}"
            )
        found[int(token)] = float(bias)
    return found


def stops_of(given: object) -> tuple[str, ...]:
    """The strings before which an answer ends."""
    stops = (given,) if isinstance(given, str) else given
    if (
        not isinstance(stops, list | tuple)
        or len(stops) > _MOST_STOPS
        or not all(isinstance(s, str) and 0 < len(s) <= 1000 for s in stops)
    ):
        raise BadRequest(f"stop must be at most {_MOST_STOPS} strings. Received: {given!r:.200}")
    return tuple(stops)


def seed_of(fields: Fields) -> int:
    """The seed, or a new one."""
    given = fields.take("seed")
    if given is None:
        return secrets.randbits(62)
    if type(given) is not int or not -(1 << 63) <= given < 1 << 63:
        raise BadRequest(f"seed must be a whole number. Received: {given!r:.100}")
    return given % (1 << 64)


def choices_of(fields: Fields) -> int:
    """How many answers a request wants."""
    return fields.whole("n", 1, 1, _MOST_CHOICES)


def chat_logprobs(fields: Fields) -> int:
    """How many likeliest tokens a chat tells; -1 without log-probabilities."""
    wanted, count = fields.flag("logprobs"), fields.whole("top_logprobs", 0, 0, _MOST_LOGPROBS)
    if count and not wanted:
        raise BadRequest("top_logprobs needs logprobs: true")
    return count if wanted else -1


def messages_of(given: object) -> list[dict[str, Any]]:
    """The turns of a chat, each with a text."""
    if not isinstance(given, list) or not given:
        raise BadRequest("messages must be a list of at least one message")
    return [_message(m) for m in given]


def _message(given: object) -> dict[str, Any]:
    if not isinstance(given, dict) or not isinstance(given.get("role"), str):
        raise BadRequest("a message is an object with a role and a content")
    strange = set(given) - {"role", "content", "name", "refusal", "tool_calls", "tool_call_id"}
    strange = {k for k in strange if given[k] is not None}
    if strange:
        raise BadRequest(f"a message's {sorted(strange)[0]!r} is not supported")
    calls = given.get("tool_calls") or []
    if not isinstance(calls, list) or (calls and given["role"] != "assistant"):
        raise BadRequest("tool_calls is a list in a message of the assistant")
    content = given.get("content")
    if content is None and calls:
        content = ""
    if isinstance(content, list):
        texts = [p.get("text") for p in content if isinstance(p, dict) and p.get("type") == "text"]
        if len(texts) != len(content) or not all(isinstance(t, str) for t in texts):
            raise BadRequest("a message's content must be text: images and sounds are not read")
        content = "".join(str(t) for t in texts)
    if not isinstance(content, str):
        raise BadRequest("a message's content must be a text")
    found: dict[str, Any] = {"role": given["role"], "content": content}
    if calls:
        found["tool_calls"] = [_call(c) for c in calls]
    if given["role"] == "tool":
        if not isinstance(given.get("tool_call_id"), str):
            raise BadRequest("a message of a tool has a tool_call_id")
        found["tool_call_id"] = given["tool_call_id"]
        if isinstance(given.get("name"), str):
            found["name"] = given["name"]
    return found


def _call(given: object) -> dict[str, Any]:
    function = given.get("function") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(function, dict):
        raise BadRequest("a call in tool_calls has an id, the type function, and a function")
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(given.get("id"), str) or not isinstance(name, str):
        raise BadRequest("a call in tool_calls has an id and a function's name")
    try:
        read = json.loads(arguments) if isinstance(arguments, str) else None
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise BadRequest(f"the arguments of a call must be JSON of an object: {arguments!r:.200}")
    _check_depth(read, "a call's arguments")
    return {
        "id": given["id"],
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def prompts_of(given: object, vocabulary: int) -> list[str | list[int]]:
    """The prompts of a completion: texts, or lists of tokens."""
    if isinstance(given, str):
        return [given]
    if isinstance(given, list) and given:
        if all(isinstance(p, str) for p in given):
            return list(given)
        lists: list[Any] = [given] if all(type(t) is int for t in given) else given
        if all(
            isinstance(p, list) and p and all(type(t) is int and 0 <= t < vocabulary for t in p)
            for p in lists
        ):
            return list(lists)
    raise BadRequest("the prompt must be a text, a list of texts, or tokens of the vocabulary")
