"""How good a language model is: bits per byte of a text, and answers chosen from several."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import bireme as paddle
from bireme.core.errors import InvalidArgument
from bireme.nn.layer.layer import Layer
from bireme.zoo.tokenizer import Tokenizer
from bireme.zoo.tuning.losses import log_probabilities
from bireme.zoo.tuning.samples import Tokens, padded

_AT_ONCE = 1024  # tokens, or one row


def evaluate(
    model: Layer,
    tokenizer: Tokenizer,
    data: str | Iterable[Mapping[str, Any]],
    *,
    window: int = 1024,
) -> dict[str, float]:
    """Figures of a causal language model on a text, or on items with choices.

    Of a text: `bits_per_byte`, and `perplexity` per token. It is read in windows of `window`
    tokens, each of which begins with the last token of the one before, so that every token but the
    first is predicted once.

        zoo.evaluate(model, tokenizer, open("book.txt").read())["bits_per_byte"]

    Of items {"prompt", "choices", "answer"} (the number of the right choice): `accuracy`, where
    the likeliest choice counts, and `accuracy_by_length`, where the log-probability is divided by
    the number of characters before.

        items = [{"prompt": "2 + 2 =", "choices": [" 4", " 5"], "answer": 0}]
        zoo.evaluate(model, tokenizer, items)["accuracy"]
    """
    if getattr(model, "task", None) != "causal_lm":
        raise InvalidArgument(
            "[evaluate] the model must be a causal language model from bireme.zoo. Received: "
            f"{type(model).__name__}"
        )
    if window < 2:
        raise InvalidArgument(f"[evaluate] window must be 2 or more. Received: {window}")
    training = model.training
    model.eval()
    try:
        with paddle.no_grad():
            if isinstance(data, str):
                return _of_text(model, tokenizer, data, window)
            return _of_items(model, tokenizer, list(data), window)
    finally:
        model.train() if training else model.eval()


def _of_text(model: Layer, tokenizer: Tokenizer, text: str, window: int) -> dict[str, float]:
    ids = np.asarray(tokenizer.encode(text), np.int64)
    if len(ids) < 2:
        raise InvalidArgument("[evaluate] the text has fewer than two tokens")
    parts = [ids[i : i + window] for i in range(0, len(ids) - 1, window - 1)]
    samples = [Tokens(part, np.arange(len(part)) > 0) for part in parts]
    total = -math.fsum(_scored(model, samples, window))
    return {
        "bits_per_byte": total / math.log(2) / len(text.encode()),
        "perplexity": math.exp(min(total / (len(ids) - 1), 700.0)),
    }


def _of_items(
    model: Layer, tokenizer: Tokenizer, items: list[Any], longest: int
) -> dict[str, float]:
    samples, sizes = [], []
    for item in items:
        prompt, choices, _ = _parts(item)
        samples += [_joined(tokenizer, prompt, c, longest) for c in choices]
        sizes.append(len(choices))
    if not samples:
        raise InvalidArgument("[evaluate] there are no items")
    scores = np.split(np.asarray(_scored(model, samples, longest)), np.cumsum(sizes)[:-1])
    plain = by_length = 0
    for item, found in zip(items, scores, strict=True):
        lengths = np.array([len(c) for c in item["choices"]])
        plain += int(found.argmax()) == item["answer"]
        by_length += int((found / lengths).argmax()) == item["answer"]
    count = len(items)
    return {
        "accuracy": plain / count,
        "accuracy_by_length": by_length / count,
        "items": float(count),
    }


def _parts(item: Any) -> tuple[str, Sequence[str], int]:
    good = isinstance(item, Mapping) and {"prompt", "choices", "answer"} <= set(item)
    if good:
        prompt, choices, answer = item["prompt"], item["choices"], item["answer"]
        listed = isinstance(choices, Sequence) and not isinstance(choices, str)
        good = isinstance(prompt, str) and listed and all(isinstance(c, str) and c for c in choices)
        if good and type(answer) is int and 0 <= answer < len(choices):
            return prompt, choices, answer
    raise InvalidArgument(
        '[evaluate] an item is {"prompt": text, "choices": texts that are not empty, "answer": '
        f"the right one's number from 0}}. Received: {item!r:.300}"
    )


def _joined(tokenizer: Tokenizer, prompt: str, choice: str, longest: int) -> Tokens:
    """Prompt and choice, tokenised together; the choice's tokens are scored. Spaces at the prompt's
    end belong to the choice, as tokens begin with spaces."""
    kept = prompt.rstrip(" ")
    whole = tokenizer.encode(kept + prompt[len(kept) :] + choice)
    first = len(tokenizer.encode(kept)) if kept else 1
    first = min(first, len(whole) - 1)
    cut = max(0, len(whole) - longest)  # from the beginning of the prompt
    if first < 1 or first - cut < 1:
        raise InvalidArgument(
            f"[evaluate] a choice has no token before it, or is longer than {longest} tokens: "
            f"{choice!r:.100}"
        )
    ids = np.asarray(whole[cut:], np.int64)
    return Tokens(ids, np.arange(len(ids)) >= first - cut)


def _scored(model: Layer, samples: list[Tokens], longest: int) -> list[float]:
    """The log-probability of each sample's scored tokens. Samples are sorted by length and padded
    to a few sizes."""
    found = np.zeros(len(samples), np.float64)
    for wide, numbers in _batches([len(s) for s in samples], longest):
        rows = padded([samples[i] for i in numbers], wide, max(1, _AT_ONCE // wide), whole=True)
        found[numbers] = log_probabilities(model, rows).numpy()[: len(numbers)]
    return found.tolist()


def _batches(lengths: list[int], longest: int) -> Iterator[tuple[int, list[int]]]:
    """(width, samples) of batches whose samples have about one length."""
    groups: dict[int, list[int]] = {}
    for i, n in enumerate(lengths):
        groups.setdefault(min(longest, max(32, 1 << (n - 1).bit_length())), []).append(i)
    for wide, numbers in sorted(groups.items()):
        rows = max(1, _AT_ONCE // wide)
        for at in range(0, len(numbers), rows):
            yield wide, numbers[at : at + rows]
