"""Tools: functions that a chat may ask its client to call.

A model writes a call in the form that its chat template taught it. `Style` knows the forms,
`reading` finds calls in the text as it comes. A template without tools gets them described in
the first turn of the user. A call that a client demands is held to the function's JSON schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from bireme.serving.errors import BadRequest
from bireme.zoo.tokenizer import Tokenizer

Message: TypeAlias = "dict[str, Any]"

_MOST_TOOLS, _MOST_BYTES = 128, 256 << 10
_DESCRIBED = (
    "You can call functions. To call one, answer with nothing but JSON of the form "
    '{"name": function name, "parameters": object of arguments}. Call a function only if it is '
    "needed; otherwise answer in words. The functions:\n"
)


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a model wrote: arguments are JSON of an object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Tools:
    """The functions of a request, and which of them must be called."""

    functions: tuple[Mapping[str, Any], ...]
    demanded: tuple[str, ...] = ()  # one of these must be called
    parallel: bool = True

    @property
    def names(self) -> frozenset[str]:
        return frozenset(f["name"] for f in self.functions)

    def specifications(self) -> list[dict[str, Any]]:
        """As templates take them."""
        return [{"type": "function", "function": f} for f in self.functions]


@dataclass(frozen=True, slots=True)
class Style:
    """How a model writes calls.

    `opening` begins them, `closing` ends each. Where neither a closing nor a separator is usual, an
    answer that begins with JSON may be a call. `key` is what holds the arguments. After `separator`
    come the arguments alone, and the name stands before it. `optional`: calls come without the
    opening, too. `described`: the template knows no tools.
    """

    opening: str = ""
    closing: str = ""
    optional: bool = False
    key: str = "arguments"
    separator: str = ""
    described: bool = False

    def prefix(self, name: str | None) -> str:
        """What an answer begins with whose call of this function is demanded."""
        if self.separator:
            return f"{self.opening}{name}{self.separator}"
        return "" if self.optional else self.opening

    def schema(self, functions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The JSON that follows the prefix: a call of one of the functions."""
        # A reference inside a function's schema now starts at the schema of the call.
        parameters = [_moved(f["parameters"], f"#/$defs/{i}") for i, f in enumerate(functions)]
        inner = {"$defs": {str(i): p for i, p in enumerate(parameters)}}
        if self.separator:
            return {**inner, "$ref": "#/$defs/0"}
        calls = [
            {
                "type": "object",
                "properties": {
                    "name": {"const": f["name"]},
                    self.key: {"$ref": f"#/$defs/{i}"},
                },
                "required": ["name", self.key],
                "additionalProperties": False,
            }
            for i, f in enumerate(functions)
        ]
        return {**inner, "anyOf": calls}


def style_of(tokenizer: Tokenizer) -> Style:
    """The form in which a tokenizer's model writes calls, by its chat template."""
    template = tokenizer.chat_template or ""
    if "tools" not in template:
        return Style(key="parameters", described=True)
    if "[TOOL_CALLS]" in template:
        if "[ARGS]" in template:
            return Style(opening="[TOOL_CALLS]", separator="[ARGS]")
        return Style(opening="[TOOL_CALLS]")
    if "<tool_call>" in template and "<function=" not in template:
        return Style(opening="<tool_call>", closing="</tool_call>")
    if '"parameters"' in template:
        return Style(opening="<|python_tag|>", optional=True, key="parameters")
    raise BadRequest("this model writes calls of tools in a form that is not known here")


def tools_of(given: object, choice: object, parallel: bool) -> Tools | None:
    """The tools of a request; None if it has none, or wants no call."""
    if not isinstance(given, list) or len(given) > _MOST_TOOLS:
        raise BadRequest(f"tools must be a list of at most {_MOST_TOOLS} functions")
    functions = tuple(_function(tool) for tool in given)
    if len(json.dumps(functions)) > _MOST_BYTES:
        raise BadRequest(f"tools have at most {_MOST_BYTES} bytes")
    found = Tools(functions, (), parallel)
    if len(found.names) != len(functions):
        raise BadRequest("two tools have one name")
    if choice in ("none", "auto"):
        return found if functions and choice == "auto" else None
    if choice == "required" and functions:
        return replace(found, demanded=tuple(f["name"] for f in functions))
    named = choice.get("function") if isinstance(choice, dict) else None
    name = named.get("name") if isinstance(named, dict) else None
    if not isinstance(name, str) or name not in found.names:
        raise BadRequest(
            "tool_choice must be none, auto, required or a function of tools. Received: "
            f"{choice!r:.200}"
        )
    return replace(found, demanded=(name,))


def begins(style: Style, tools: Tools) -> str:
    """What is put at the end of the prompt, so that a demanded call follows."""
    names = list(tools.demanded)
    if style.separator and len(names) > 1:
        raise BadRequest("this model's calls can be demanded of one function: name it")
    return style.prefix(names[0]) if names else ""


def demand(style: Style, tools: Tools) -> dict[str, Any]:
    """The `response_format` that holds an answer to a demanded call."""
    if not tools.demanded:
        return {"type": "text"}
    functions = [f for f in tools.functions if f["name"] in tools.demanded]
    return {"type": "json_schema", "json_schema": {"schema": style.schema(functions)}}


def _function(tool: object) -> Mapping[str, Any]:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(tool, dict) or tool.get("type") != "function":
        raise BadRequest(f"a tool has the type function. Received: {tool!r:.200}")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BadRequest(f"a tool's function has a name. Received: {function!r:.200}")
    name, parameters = function["name"], function.get("parameters")
    if not 0 < len(name) <= 64 or not all(c.isalnum() or c in "_-." for c in name):
        raise BadRequest(f"a function's name has 1 to 64 letters, digits, _, - or .: {name!r:.100}")
    if not isinstance(parameters, dict | None):
        raise BadRequest(f"the parameters of {name} must be a JSON schema of an object")
    if not isinstance(function.get("description"), str | None):
        raise BadRequest(f"the description of {name} must be a text")
    strange = set(function) - {"name", "description", "parameters", "strict"}
    if strange:
        raise BadRequest(f"a function's {sorted(strange)[0]!r:.100} is not supported")
    return {
        "name": name,
        "description": function.get("description") or "",
        "parameters": parameters or {"type": "object", "properties": {}},
    }


def _moved(schema: Any, root: str) -> Any:
    """A schema whose references start at another place."""
    if isinstance(schema, list):
        return [_moved(s, root) for s in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        k: root + v[1:] if k == "$ref" and isinstance(v, str) and v[:1] == "#" else _moved(v, root)
        for k, v in schema.items()
    }


# ------------------------------------------------------------------------- turns of a chat


def turns(messages: Sequence[Message], style: Style, tools: Tools | None) -> list[Message]:
    """The messages as the model's template takes them."""
    if not style.described:
        return [_with_objects(m) for m in messages]
    found: list[Message] = []
    for message in messages:
        turn = _in_words(message, style)
        if found and found[-1]["role"] == turn["role"] == "user":
            found[-1] = {"role": "user", "content": f"{found[-1]['content']}\n{turn['content']}"}
        else:
            found.append(turn)
    if tools is not None:
        first = next((i for i, m in enumerate(found) if m["role"] == "user"), None)
        if first is None:
            raise BadRequest("tools need a message of the user")
        listed = json.dumps(tools.specifications(), ensure_ascii=False)
        found[first] = {
            "role": "user",
            "content": f"{_DESCRIBED}{listed}\n\n{found[first]['content']}",
        }
    return found


def _with_objects(message: Message) -> Message:
    """Templates take arguments as an object where the protocol has a text."""
    if not message.get("tool_calls"):
        return message
    calls = [
        {**c, "function": {**c["function"], "arguments": json.loads(c["function"]["arguments"])}}
        for c in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def _in_words(message: Message, style: Style) -> Message:
    if message["role"] == "tool":
        return {"role": "user", "content": f"Result of the call: {message['content']}"}
    if not message.get("tool_calls"):
        return message
    calls = [
        json.dumps(
            {
                "name": c["function"]["name"],
                style.key: json.loads(c["function"]["arguments"]),
            }
        )
        for c in message["tool_calls"]
    ]
    said = [message["content"]] if message["content"] else []
    return {"role": "assistant", "content": "\n".join([*said, *calls])}
