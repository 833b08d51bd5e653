"""Sixteen prompts of 1 to 300 tokens: together each gives what it gives alone, and programs are
compiled once."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

from bireme import zoo
from bireme.profiler import count_compiles
from tests.zoo.make_gguf import tiny_llama

LENGTHS = [1, 2, 5, 9, 13, 16, 33, 40, 47, 52, 64, 257, 270, 288, 299, 300]
NEW = 6


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    tiny_llama(path)
    return zoo.load(path)


def _prompts(seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list("abcdefgijklmnop"), n)) for n in LENGTHS]


@pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")
def test_padding_changes_no_token_and_buckets_are_compiled_once(loaded: Any) -> None:
    model, tokenizer = loaded
    prompts = _prompts(0)
    assert [len(tokenizer.encode(p)) for p in prompts] == LENGTHS
    together = zoo.generate(model, tokenizer, prompts, NEW)
    alone = [zoo.generate(model, tokenizer, p, NEW)[0] for p in prompts]
    assert together == alone
    assert len(set(alone)) > 1
    with count_compiles() as compiled:
        others = _prompts(1)
        again = zoo.generate(model, tokenizer, others[::-1], NEW)[::-1]
        for prompt, text in list(zip(others, again, strict=True))[::5]:
            assert zoo.generate(model, tokenizer, prompt, NEW)[0] == text
    assert compiled == [0]


@pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")
def test_padding_changes_no_beam(loaded: Any) -> None:
    model, tokenizer = loaded
    prompts = _prompts(2)[::5]
    options: dict[str, Any] = {"num_beams": 2, "count": 2}
    together = zoo.candidates(model, tokenizer, prompts, NEW, **options)
    for prompt, found in zip(prompts, together, strict=True):
        alone = zoo.candidates(model, tokenizer, prompt, NEW, **options)[0]
        assert [c.tokens for c in alone] == [c.tokens for c in found]
        for a, b in zip(alone, found, strict=True):
            np.testing.assert_allclose(a.log_probabilities, b.log_probabilities, atol=1e-5)


def test_a_chat_goes_on_from_a_prompt_cache(loaded: Any, tmp_path: pathlib.Path) -> None:
    model, tokenizer = loaded
    kept, turns = zoo.PromptCache(), []
    for question in ("what is the", "and this", "the end"):
        turns = [*turns, {"role": "user", "content": question}]
        want = "".join(zoo.chat(model, tokenizer, turns, 8))
        found = zoo.chat(model, tokenizer, turns, 8, prompt_cache=kept, lookup=3)
        assert "".join(found) == want
    assert len(kept) > 20
    kept.save(tmp_path / "kept")
    assert len(zoo.PromptCache.load(tmp_path / "kept")) == len(kept)
