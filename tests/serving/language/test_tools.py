"""Calls of tools: what models write, in pieces of any size, and what requests may say."""

from __future__ import annotations

import itertools
import json
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from bireme.serving.errors import BadRequest
from bireme.serving.language.grammar import Grammars
from bireme.serving.language.reading import CallReader
from bireme.serving.language.sampling import Chooser, Sampling
from bireme.serving.language.tools import begins, demand, style_of, tools_of, turns
from bireme.zoo.tokenizer import Tokenizer
from tests.serving.language.made_up import TEMPLATE, tokenizer

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a place.",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"$ref": "#/$defs/place"},
                    "days": {"type": "integer", "minimum": 1, "maximum": 9},
                },
                "required": ["place", "days"],
                "additionalProperties": False,
                "$defs": {"place": {"type": "string", "maxLength": 6}},
            },
        },
    },
    {"type": "function", "function": {"name": "now"}},
]
TEMPLATES = {
    "hermes": "{% if tools %}{{ tools | tojson }} use <tool_call></tool_call>{% endif %}",
    "llama": '{% if tools %}{{ tools }} as {"name": n, "parameters": p}{% endif %}',
    "mistral": "{% if tools %}[AVAILABLE_TOOLS] {{ tools }} [TOOL_CALLS]{% endif %}",
    "newer mistral": "{% if tools %}{{ tools }} [TOOL_CALLS]name[ARGS]{% endif %}",
    "gemma": "",
}
WRITTEN = {
    "hermes": "I look.\n<tool_call>\n"
    '{"name": "weather", "arguments": {"place": "Oslo", "days": 2}}\n</tool_call>\n'
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
    "llama": '{"name": "weather", "parameters": {"place": "Oslo", "days": 2}}; '
    '{"name": "now", "parameters": {}}',
    "mistral": "I look.\n[TOOL_CALLS] "
    '[{"name": "weather", "arguments": {"place": "Oslo", "days": 2}}, '
    '{"name": "now", "arguments": {}}]',
    "newer mistral": 'I look.\n[TOOL_CALLS]weather[ARGS]{"place": "Oslo", "days": 2}'
    "[TOOL_CALLS]now[ARGS]{}",
    "gemma": '```json\n{"name": "weather", "parameters": {"place": "Oslo", "days": 2}}\n'
    '{"name": "now", "parameters": {}}\n```',
}
PLAIN = ["", " ", "It is warm.", 'Use {"a": 1}.', "a < b <tool", "[TOOL", '{"name": "other"}',
         "```\nx\n```", '{"name": "weather", "parameters": 3}', "{", "[1, 2]"]  # fmt: skip


def words(kind: str, special: bool = False) -> Tokenizer:
    found = tokenizer()
    settings = {**found.settings, "chat_template": TEMPLATES[kind] + TEMPLATE}
    if special:
        marks = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>"]
        found.inner.add_special_tokens(marks)
    return Tokenizer(found.inner, settings)


def asked(choice: Any = "auto", parallel: bool = True) -> Any:
    return tools_of(TOOLS, choice, parallel)


def read(kind: str, pieces: list[str], tools: Any = None) -> tuple[str, list[Any]]:
    found = words(kind)
    reader = CallReader(style_of(found), tools or asked(), found)
    shown = "".join(reader.put(None, piece) for piece in pieces)
    rest, calls = reader.end()
    return shown + rest, [(c.name, json.loads(c.arguments)) for c in calls]


def cut(text: str, places: list[int]) -> list[str]:
    ends = [0, *sorted(p % (len(text) + 1) for p in places), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(ends)]


@pytest.mark.parametrize("kind", TEMPLATES)
@given(places=st.lists(st.integers(0, 10**6), max_size=20))
def test_calls_in_pieces_of_any_size(kind: str, places: list[int]) -> None:
    text, calls = read(kind, cut(WRITTEN[kind], places))
    assert text.strip() == ("I look." if WRITTEN[kind].startswith("I") else "")
    assert calls == [("weather", {"place": "Oslo", "days": 2}), ("now", {})]


@pytest.mark.parametrize("kind", TEMPLATES)
@given(text=st.sampled_from(PLAIN) | st.text(max_size=40), places=st.lists(st.integers(0, 99)))
def test_nothing_else_is_lost(kind: str, text: str, places: list[int]) -> None:
    assert read(kind, cut(text, places)) == (text, [])


def test_text_comes_as_it_is_written() -> None:
    found = words("hermes")
    reader = CallReader(style_of(found), asked(), found)
    assert reader.put(None, "I look") == "I look"
    assert reader.put(None, " now <tool") == " now "
    assert reader.put(None, "s") == "<tools"


def test_marks_that_are_special_tokens_have_no_text() -> None:
    found = words("hermes", special=True)
    reader = CallReader(style_of(found), asked(), found)
    shown = ""
    for token in found.encode(WRITTEN["hermes"], add_special_tokens=False):
        shown += reader.put(token, found.decode([token], skip_special_tokens=True))
    rest, calls = reader.end()
    assert (shown + rest).strip() == "I look."
    assert [c.name for c in calls] == ["weather", "now"]


def test_one_call_where_several_are_not_wanted() -> None:
    _, calls = read("llama", [WRITTEN["llama"]], asked(parallel=False))
    assert [name for name, _ in calls] == ["weather"]


@pytest.mark.parametrize("kind", TEMPLATES)
@pytest.mark.parametrize("choice", ["required", "weather", "now"])
def test_a_demanded_call_fits_its_schema(kind: str, choice: str) -> None:
    """Whatever the model would say."""
    found = words(kind)
    style = style_of(found)
    if kind == "newer mistral" and choice == "required":
        with pytest.raises(BadRequest, match="of one function"):
            begins(style, asked("required"))
        return
    wanted = choice if choice == "required" else {"type": "function", "function": {"name": choice}}
    tools = asked(wanted)
    form = Grammars(found).form(demand(style, tools))
    for seed in range(3):
        random = np.random.default_rng(seed)
        chooser = Chooser(Sampling(), seed, form=form.copy())
        reader = CallReader(style, tools, found)
        shown = ""
        for _ in range(3000):
            token = chooser.choose(random.normal(size=300)).token
            if token in found.end_ids:
                break
            shown += reader.put(token, chr(0) if token > 256 else found.decode([token]))
        rest, (call,) = reader.end()
        assert shown + rest == ""
        assert call.name in ({"weather", "now"} if choice == "required" else {choice})
        if call.name == "weather":
            arguments = json.loads(call.arguments)
            assert set(arguments) == {"place", "days"}
            assert 1 <= arguments["days"] <= 9


def test_turns_with_calls() -> None:
    call = {
        "id": "abc123def",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"place": "Oslo"}'},
    }
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Warm?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "12 degrees", "tool_call_id": "abc123def"},
        {"role": "user", "content": "And?"},
    ]
    same = turns(messages, style_of(words("hermes")), asked())
    assert same[2]["tool_calls"][0]["function"]["arguments"] == {"place": "Oslo"}
    told = turns(messages, style_of(words("gemma")), asked())
    assert [m["role"] for m in told] == ["system", "user", "assistant", "user"]
    assert "You can call functions" in told[1]["content"]
    assert told[1]["content"].endswith("Warm?")
    assert json.loads(told[2]["content"]) == {"name": "weather", "parameters": {"place": "Oslo"}}
    assert told[3]["content"] == "Result of the call: 12 degrees\nAnd?"


@pytest.mark.parametrize(
    ("tools", "choice", "why"),
    [
        ({}, "auto", "list"),
        ([{"type": "web"}], "auto", "type function"),
        ([{"type": "function", "function": {}}], "auto", "has a name"),
        ([{"type": "function", "function": {"name": "a b"}}], "auto", "letters"),
        ([{"type": "function", "function": {"name": "a", "parameters": 1}}], "auto", "JSON schema"),
        ([{"type": "function", "function": {"name": "a", "code": ""}}], "auto", "'code'"),
        ([TOOLS[1], TOOLS[1]], "auto", "one name"),
        (TOOLS, "sometimes", "tool_choice"),
        (TOOLS, {"type": "function", "function": {"name": "other"}}, "tool_choice"),
        ([], "required", "tool_choice"),
        ([TOOLS[1]] * 129, "auto", "128"),
    ],
)
def test_wrong_tools_are_refused(tools: Any, choice: Any, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        tools_of(tools, choice, True)


def test_no_call_is_wanted() -> None:
    assert tools_of(TOOLS, "none", True) is None
    assert tools_of([], "auto", True) is None


def test_unknown_forms_are_refused() -> None:
    found = tokenizer()
    settings = {**found.settings, "chat_template": "{{ tools }} <function=name>" + TEMPLATE}
    with pytest.raises(BadRequest, match="not known"):
        style_of(Tokenizer(found.inner, settings))
