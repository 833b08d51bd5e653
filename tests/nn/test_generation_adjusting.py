"""Penalties, biases and a least probability: what `generate` chooses against a loop in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import nn
from bireme.core.errors import InvalidArgument
from bireme.nn.generation import generate
from bireme.nn.generation.adjusting import Adjusting

WORDS = 11


class Tiny(nn.Layer):
    """One attention layer over embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(WORDS, 8)
        self.head = nn.Linear(8, WORDS)

    def forward(self, ids: Any, cache: Any = None) -> Any:
        x = self.token(ids)
        q = x.reshape([*x.shape[:2], 2, 4])
        if cache is None:
            y = nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        else:
            y = cache.attend(0, q, q, q)
        return self.head(x + y.reshape(x.shape)) * 3


def _chosen(
    model: Any, prompt: list[int], new: int, repetition: float = 1.0, presence: float = 0.0,
    frequency: float = 0.0, bias: dict[int, float] | None = None,
) -> list[int]:  # fmt: skip
    found: list[int] = []
    for _ in range(new):
        ids = paddle.to_tensor(np.array([prompt + found]))
        scores = model(ids).numpy()[0, -1].astype(np.float64)
        for t in {*prompt, *found}:
            scores[t] = scores[t] / repetition if scores[t] > 0 else scores[t] * repetition
        for t in set(found):
            scores[t] -= presence + frequency * found.count(t)
        for t, more in (bias or {}).items():
            scores[t] += more
        found.append(int(scores.argmax()))
    return found


@pytest.mark.parametrize(
    ("options", "own"),
    [
        ({"repetition_penalty": 1.7}, {"repetition": 1.7}),
        ({"presence_penalty": 1.5}, {"presence": 1.5}),
        ({"frequency_penalty": 0.8}, {"frequency": 0.8}),
        ({"logit_bias": {3: 5.0, 4: 4.5, 5: -100.0}}, {"bias": {3: 5.0, 4: 4.5, 5: -100.0}}),
        (
            {"repetition_penalty": 1.2, "frequency_penalty": 0.5, "logit_bias": {1: 2.0}},
            {"repetition": 1.2, "frequency": 0.5, "bias": {1: 2.0}},
        ),
    ],
)
def test_scores_are_adjusted(options: Any, own: Any) -> None:
    paddle.seed(4)
    model = Tiny()
    prompts = [[1, 2, 3], [7]]
    padded = [[1, 2, 3], [7, 0, 0]]  # token 0 stands for padding and must not be punished
    found = generate(model, padded, 9, lengths=[3, 1], **options).numpy()
    wanted = [_chosen(model, p, 9, **own) for p in prompts]
    np.testing.assert_array_equal(found, wanted)
    plain = generate(model, padded, 9, lengths=[3, 1]).numpy()
    assert (found != plain).any()


def test_a_least_probability_leaves_only_good_tokens() -> None:
    scores = paddle.to_tensor(np.log(np.array([[0.5, 0.3, 0.15, 0.05]], np.float32)))
    one = paddle.to_tensor(np.float32(1.0))
    adjust = Adjusting(least=True)
    kept = adjust.apply(scores, None, one, [paddle.to_tensor(np.float32(0.4))]).numpy()
    np.testing.assert_array_equal(np.isfinite(kept), [[True, True, False, False]])
    cold = adjust.apply(scores, None, one * 0.5, [paddle.to_tensor(np.float32(0.4))]).numpy()
    np.testing.assert_array_equal(np.isfinite(cold), [[True, False, False, False]])


def test_options_that_cannot_be() -> None:
    for options in ({"min_p": 2.0}, {"repetition_penalty": 0.0}, {"logit_bias": {-1: 1.0}}):
        with pytest.raises(InvalidArgument):
            generate(Tiny(), [[1]], 2, **options)  # type: ignore[arg-type]
