"""Beam search of decoders: transformers' tokens (tests/zoo/make_peft.py), alone and in batches."""

from __future__ import annotations

import json
import pathlib
import zipfile
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import zoo
from bireme.core.errors import BiremeError
from bireme.nn.generation import beam_search
from bireme.profiler import count_compiles
from tests.zoo.make_peft import BEAMS, GOLDEN, PROMPTS

pytestmark = pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")


@pytest.fixture
def model_and_found(tmp_path: pathlib.Path) -> tuple[Any, list[dict[str, Any]]]:
    with zipfile.ZipFile(GOLDEN) as file:
        file.extractall(tmp_path)
    model = zoo.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    for param in model.parameters():
        param.set_value(param * 3)
    return model, json.loads((tmp_path / "beams.json").read_text())


def test_as_transformers_and_in_a_batch(model_and_found: Any) -> None:
    """All prompts in one batch give what transformers gives each alone; another batch of the same
    sizes compiles nothing."""
    model, found = model_and_found
    lengths = np.array([len(p) for p in PROMPTS])
    ids = np.zeros((len(PROMPTS), lengths.max()), np.int64)
    for row, prompt in zip(ids, PROMPTS, strict=True):
        row[: len(prompt)] = prompt
    for beams, penalty, early, ends in BEAMS:
        options: dict[str, Any] = {
            "num_beams": beams, "num_return_sequences": 2, "length_penalty": penalty,
            "early_stopping": early, "eos_token_id": ends, "lengths": lengths,
        }  # fmt: skip
        ours = beam_search(model, ids, 10, **options).lists()
        wanted = [f["tokens"] for f in found if f["search"] == [beams, penalty, early, ends]]
        for mine, theirs in zip(ours, wanted, strict=True):
            for row, want in zip(mine, theirs, strict=True):
                assert row == want[: len(row)]
                rest = set(want[len(row) :])  # transformers fills up with an end token
                assert rest <= {0, ends[0]}
                assert not rest or row[-1] in ends
        with count_compiles() as compiled:
            beam_search(model, ids[::-1].copy(), 10, **{**options, "lengths": lengths[::-1]})
        assert compiled == [0]


def test_bad_arguments(model_and_found: Any) -> None:
    model, _ = model_and_found
    for bad in (
        {"num_beams": 1}, {"num_return_sequences": 5}, {"max_new_tokens": 0},
        {"cache_length": 16}, {"lengths": [4]},
    ):  # fmt: skip
        with pytest.raises(BiremeError):
            beam_search(model, [[1, 2, 3]], **{"max_new_tokens": 20, **bad})
    assert isinstance(model, paddle.nn.Layer)
