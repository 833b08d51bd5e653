"""Chat templates: Jinja in a sandbox, with the settings and helpers that templates expect."""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from bireme.core.errors import BiremeError, InvalidArgument


class TemplateError(BiremeError, ValueError):
    """A chat template that cannot be used, or that refuses the messages."""


def _tojson(
    x: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is: Jinja's own filter would escape it for HTML."""
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


@functools.lru_cache(maxsize=32)
def _compiled(template: str) -> Any:
    from bireme.zoo.tokenizer import need

    need("jinja2")
    import jinja2
    from jinja2 import nodes
    from jinja2.ext import Extension

    from bireme.zoo.sandbox import Environment

    class Generation(Extension):
        """`{% generation %}` marks what the assistant said, for training; here it is its body."""

        tags = {"generation"}  # noqa: RUF012 (as Jinja declares it)

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = _strftime_now
    try:
        return environment.from_string(template)
    except Exception as e:  # whatever a stranger's text may lead to
        raise TemplateError(f"[chat] the chat template is not valid: {e}") from e


def _plain(value: Any) -> Any:
    """The value in JSON's types: a template comes from a stranger and sees no objects with
    methods of their own."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {_plain(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    raise InvalidArgument(
        "[chat] messages and tools are dicts, lists, strings and numbers. Received: "
        f"{type(value).__name__}"
    )


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = False,
    **variables: object,
) -> str:
    """The prompt that a template makes of messages.

    Variables such as `bos_token` or `enable_thinking` are passed on to the template.
    """
    chat = _plain(list(messages))
    if not all(isinstance(m, dict) and "role" in m for m in chat):
        raise InvalidArgument('[chat] every message is a dict like {"role": "user", "content": ""}')
    compiled = _compiled(template)
    given = {
        "messages": chat,
        "tools": _plain(tools),
        "documents": _plain(documents),
        "add_generation_prompt": add_generation_prompt,
        **_plain(variables),
    }
    from bireme.zoo.sandbox import rendered

    try:
        return rendered(compiled, given)
    except Exception as e:  # whatever a stranger's program may raise
        if isinstance(e, BiremeError):
            raise
        raise TemplateError(f"[chat] the chat template failed: {e}") from e
