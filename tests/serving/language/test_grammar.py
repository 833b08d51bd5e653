"""Texts of a form: whatever a model would say, the form holds."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from bireme.serving.errors import BadRequest
from bireme.serving.language.grammar import Grammars
from bireme.serving.language.sampling import Chooser, Sampling
from tests.serving.language.made_up import tokenizer

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"enum": ["cat", "dog"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(tokenizer())


def nested(depth: int) -> dict[str, Any]:
    """A schema of arrays of arrays."""
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def written(grammars: Grammars, form: Any, seed: int) -> str:
    """What a model that knows nothing writes in a form."""
    words, random = tokenizer(), np.random.default_rng(seed)
    chooser = Chooser(Sampling(), seed, form=grammars.form(form).copy())
    tokens: list[int] = []
    for _ in range(500):
        token = chooser.choose(random.normal(size=300)).token
        if token in words.end_ids:
            return words.decode(tokens)
        tokens.append(token)
    raise AssertionError(f"no end: {words.decode(tokens)!r}")


@pytest.mark.parametrize("seed", range(5))
def test_json_of_a_schema(grammars: Grammars, seed: int) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "pet", "schema": SCHEMA}}
    found = json.loads(written(grammars, form, seed))
    assert set(found) == {"name", "age", "kind"}
    assert len(found["name"]) <= 5
    assert 0 <= found["age"] <= 99
    assert found["kind"] in ("cat", "dog")


def test_expressions_and_choices(grammars: Grammars) -> None:
    for seed in range(5):
        text = written(grammars, {"type": "regex", "regex": "[0-9]{2,4}-[ab]"}, seed)
        assert re.fullmatch("[0-9]{2,4}-[ab]", text)
        choices = ["yes (a)", "no*", "über"]
        assert written(grammars, {"type": "choice", "choices": choices}, seed) in choices


@pytest.mark.parametrize(
    "form",
    [
        {}, {"type": "xml"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {}},
        {"type": "json_schema", "json_schema": {"schema": {"type": "wish"}}},
        {"type": "json_schema", "json_schema": {"schema": {"enum": ["x" * 70_000]}}},
        {"type": "json_schema", "json_schema": {"schema": {"$ref": "http://evil.example/a"}}},
        {"type": "regex"}, {"type": "regex", "regex": "("},
        {"type": "json_schema", "json_schema": {"schema": nested(300)}},
        {"type": "choice", "choices": []}, {"type": "choice", "choices": [1]},
    ],
)  # fmt: skip
def test_forms_that_are_wrong_or_too_large_are_refused(grammars: Grammars, form: Any) -> None:
    with pytest.raises(BadRequest):
        grammars.form(form)


def test_a_form_that_explodes_ends_its_text_only(grammars: Grammars) -> None:
    form = grammars.form({"type": "regex", "regex": "((a{1,99}){1,99}){1,99}"})
    (token,) = tokenizer().encode("a")

    def write() -> None:
        for _ in range(1000):
            form.allowed(257)
            form.take(token)

    with pytest.raises(BadRequest, match="too complex"):
        write()
