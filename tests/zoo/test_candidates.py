"""Several continuations of a prompt, and their probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import zoo
from bireme.core.errors import BiremeError
from bireme.profiler import count_compiles
from tests.zoo.tuning.conftest import Load, load

__all__ = ["load"]
pytestmark = pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")


def test_candidates(load: Load) -> None:
    """Each token's log-probability is what a plain call of the model says; beams come best first;
    a batch gives what singles give; a seed repeats what is drawn."""
    model, tokenizer = load()
    prompts = ["abc", "the cat sat on the mat"]
    together = zoo.candidates(model, tokenizer, prompts, 6, count=3, num_beams=3)
    for prompt, found in zip(prompts, together, strict=True):
        sums = [sum(c.log_probabilities) / len(c.tokens) for c in found]
        assert sums == sorted(sums, reverse=True)
        assert zoo.candidates(model, tokenizer, prompt, 6, count=3, num_beams=3)[0][0].tokens == (
            found[0].tokens
        )
        ids = tokenizer.encode(prompt) + found[0].tokens
        with paddle.no_grad():
            scores = model(paddle.to_tensor(np.array([ids]))).numpy()[0].astype(np.float64)
        logs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
        first = len(ids) - len(found[0].tokens)
        want = [logs[i - 1, ids[i]] for i in range(first, len(ids))]
        np.testing.assert_allclose(found[0].log_probabilities, want, atol=1e-5)
    drawn = [
        zoo.candidates(model, tokenizer, "abc", 6, count=4, temperature=2.0, seed=seed)[0]
        for seed in (1, 1, 2)
    ]
    texts = [[c.tokens for c in found] for found in drawn]
    assert texts[0] == texts[1] != texts[2]
    for one, other in zip(drawn[0], drawn[1], strict=True):  # perhaps from the other tier
        np.testing.assert_allclose(one.log_probabilities, other.log_probabilities, atol=1e-5)
    assert len({c.text for c in drawn[0]}) > 1
    bad: Any
    for bad in ({"count": 0}, {"num_beams": 2, "count": 3}, {"num_beams": 2, "top_k": 3}):
        with pytest.raises(BiremeError):
            zoo.candidates(model, tokenizer, "abc", 4, **{"count": 1, **bad})
    assert zoo.candidates(model, tokenizer, []) == []


@pytest.mark.slow
def test_sixteen_prompts_of_1_to_300_tokens(load: Load) -> None:
    """In one batch, greedy and by beams, each gives what it gives alone; a second pass compiles
    nothing."""
    model, tokenizer = load()
    lengths = [1, 2, 3, 5, 8, 13, 16, 17, 31, 33, 64, 65, 127, 128, 200, 300]
    letters = np.random.default_rng(0).integers(97, 123, 300)
    prompts = ["".join(map(chr, letters[:n])) for n in lengths]

    def pass_over() -> None:
        together = zoo.generate(model, tokenizer, prompts, 8)
        assert together == [zoo.generate(model, tokenizer, p, 8)[0] for p in prompts]
        found = zoo.candidates(model, tokenizer, prompts, 8, count=1, num_beams=3)
        for prompt, both in zip(prompts, found, strict=True):
            alone = zoo.candidates(model, tokenizer, prompt, 8, count=1, num_beams=3)[0]
            assert alone[0].tokens == both[0].tokens

    pass_over()
    with count_compiles() as compiled:
        pass_over()
    assert compiled == [0]
