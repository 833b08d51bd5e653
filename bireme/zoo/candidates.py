"""Several continuations of each prompt, with their probabilities: by beam search, or drawn."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Unpack

import numpy as np

import bireme as paddle
from bireme.core.errors import InvalidArgument
from bireme.nn import generation
from bireme.nn.layer.layer import Layer
from bireme.zoo.generating import (
    Sampling,
    cache_length,
    encoded_prompts,
    padded_prompts,
    sampling_options,
)
from bireme.zoo.tokenizer import Tokenizer
from bireme.zoo.tuning.losses import token_log_probabilities
from bireme.zoo.tuning.samples import NONE, Rows


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A continuation: its text, its tokens (the end token included, if it ended), and each one's
    log-probability by the model itself, before temperature, penalties and the like."""

    text: str
    tokens: list[int]
    log_probabilities: list[float]


def candidates(
    model: Layer,
    tokenizer: Tokenizer,
    prompts: str | Sequence[str],
    max_new_tokens: int = 128,
    *,
    count: int = 4,
    num_beams: int = 1,
    length_penalty: float = 1.0,
    early_stopping: bool | str = False,
    **sampling: Unpack[Sampling],
) -> list[list[Candidate]]:
    """`count` continuations of every prompt, best first if `num_beams` is above 1.

    A beam search finds likely texts; without it each continuation is drawn, with the settings of
    `generate` (temperature 1 if none is given).

        for found in zoo.candidates(model, tokenizer, "Once upon a time", 20, num_beams=4)[0]:
            print(sum(found.log_probabilities), found.text)
    """
    if count < 1 or (num_beams > 1 and (sampling or count > num_beams)):
        raise InvalidArgument(
            "[candidates] count must be positive, with beams at most num_beams, and a beam search "
            f"takes no settings of sampling. Received: {count}, {num_beams}, {sorted(sampling)}"
        )
    encoded = encoded_prompts(tokenizer, prompts)
    if not encoded:
        return []
    if num_beams > 1:
        padded, lengths = padded_prompts(encoded)
        tokens = generation.beam_search(
            model, padded, max_new_tokens, num_beams=num_beams, num_return_sequences=count,
            lengths=lengths, length_penalty=length_penalty, early_stopping=early_stopping,
            eos_token_id=list(tokenizer.end_ids) or None,
            cache_length=cache_length(padded.shape[1], max_new_tokens),
        ).lists()  # fmt: skip
    else:
        settings = Sampling(**sampling)
        settings["temperature"] = sampling.get("temperature") or 1.0
        padded, lengths = padded_prompts([ids for ids in encoded for _ in range(count)])
        drawn = generation.generate(
            model,
            padded,
            max_new_tokens,
            lengths=lengths,
            cache_length=cache_length(padded.shape[1], max_new_tokens),
            **sampling_options(tokenizer, settings),
        ).numpy()
        rows = [_ended(row, tokenizer.end_ids) for row in drawn]
        tokens = [rows[i : i + count] for i in range(0, len(rows), count)]
    logs = [_logs(model, ids, several) for ids, several in zip(encoded, tokens, strict=True)]
    return [
        [Candidate(_text(tokenizer, t), t, g) for t, g in zip(several, given, strict=True)]
        for several, given in zip(tokens, logs, strict=True)
    ]


def _text(tokenizer: Tokenizer, tokens: list[int]) -> str:
    return tokenizer.decode(t for t in tokens if t not in tokenizer.end_ids)


def _ended(row: np.ndarray, ends: Sequence[int]) -> list[int]:
    """The tokens up to the first end token, with it."""
    found = np.isin(row, ends)
    return row[: int(found.argmax()) + 1 if found.any() else len(row)].tolist()


def _logs(model: Layer, prompt: list[int], several: list[list[int]]) -> list[list[float]]:
    """The log-probabilities of the tokens of a prompt's continuations, in one pass over them."""
    longest = len(prompt) + max(len(t) for t in several)
    wide = 1 << (longest - 1).bit_length()
    ids = np.zeros((len(several), wide), np.int64)
    targets = np.full_like(ids, NONE)
    for row, target, new in zip(ids, targets, several, strict=True):
        row[: len(prompt) + len(new)] = [*prompt, *new]
        target[len(prompt) - 1 : len(prompt) - 1 + len(new)] = new
    with paddle.no_grad():
        found = token_log_probabilities(model, Rows(ids, targets)).numpy()
    first = len(prompt) - 1
    return [found[i, first : first + len(new)].tolist() for i, new in enumerate(several)]
