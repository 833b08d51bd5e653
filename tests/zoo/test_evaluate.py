"""Bits per byte and choices, against the same sums taken token by token."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import zoo
from bireme.core.errors import BiremeError
from tests.zoo.tuning.conftest import Load, load

__all__ = ["load"]


def _log_probability(model: Any, ids: list[int], first: int) -> float:
    """Of the tokens from `first` on."""
    with paddle.no_grad():
        scores = model(paddle.to_tensor(np.array([ids]))).numpy()[0].astype(np.float64)
    logs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    return float(sum(logs[i - 1, ids[i]] for i in range(first, len(ids))))


def test_bits_per_byte(load: Load) -> None:
    model, tokenizer = load()
    text = "the cat sat on the mat" * 3
    ids = tokenizer.encode(text)
    parts = [ids[i : i + 8] for i in range(0, len(ids) - 1, 7)]
    total = -sum(_log_probability(model, part, 1) for part in parts)
    assert sum(len(p) - 1 for p in parts) == len(ids) - 1
    found = zoo.evaluate(model, tokenizer, text, window=8)
    assert found["bits_per_byte"] == pytest.approx(total / math.log(2) / len(text), rel=1e-6)
    assert found["perplexity"] == pytest.approx(math.exp(total / (len(ids) - 1)), rel=1e-6)


def test_choices(load: Load) -> None:
    model, tokenizer = load()
    items = [
        {"prompt": "abc" * n, "choices": [" the", " cat sat", "b" * n], "answer": n % 3}
        for n in range(1, 12)
    ]
    right = by_length = 0
    for item in items:
        ids = [(tokenizer.encode(item["prompt"] + c), len(c)) for c in item["choices"]]
        first = len(tokenizer.encode(item["prompt"]))
        logs = [_log_probability(model, i, first) for i, _ in ids]
        right += int(np.argmax(logs)) == item["answer"]
        by_length += (
            int(np.argmax([s / n for s, (_, n) in zip(logs, ids, strict=True)])) == (item["answer"])
        )
    found = zoo.evaluate(model, tokenizer, items)
    assert found == {"accuracy": right / 11, "accuracy_by_length": by_length / 11, "items": 11.0}
    cut = zoo.evaluate(model, tokenizer, items, window=24)  # prompts lose their beginnings
    assert cut["items"] == 11.0


def test_bad_items_and_models(load: Load) -> None:
    model, tokenizer = load()
    bad: Any
    for bad in ([], ["a"], [{"prompt": "a", "choices": ["b"], "answer": 1}],
                [{"prompt": "a", "choices": [""], "answer": 0}],
                [{"prompt": "", "choices": ["b"], "answer": 0}]):  # fmt: skip
        with pytest.raises(BiremeError):
            zoo.evaluate(model, tokenizer, bad)
    for text in ("", "a"):
        with pytest.raises(BiremeError):
            zoo.evaluate(model, tokenizer, text)
    with pytest.raises(BiremeError, match="causal language model"):
        zoo.evaluate(paddle.nn.Linear(2, 2), tokenizer, "abc")
