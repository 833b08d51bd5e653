"""What changes scores before the next token is chosen: penalties, biases, a least probability."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

import bireme as paddle
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class Adjusting:
    """Which adjustments a program makes. Their numbers are inputs, so others compile nothing."""

    least: bool = False
    penalties: bool = False
    biases: int = 0  # room for that many tokens

    def types(self) -> list[Aval]:
        """Of the inputs: the least probability, three penalties, biased tokens and biases."""
        types = [aval((), dt.float32)] * (self.least + 3 * self.penalties)
        if self.biases:
            types += [aval((self.biases,), dt.int64), aval((self.biases,), dt.float32)]
        return types

    def start(self, ids: Tensor, counts: Tensor, vocabulary: int) -> Tensor:
        """The history [batch, vocabulary] after a prompt: 1 for its tokens, 0 for others."""
        real = (paddle.arange(ids.shape[1]) < counts.unsqueeze(-1)).astype("int32")
        blank = paddle.zeros([ids.shape[0], vocabulary], "int32")
        found = paddle.put_along_axis(blank, ids, real, 1, reduce="add")
        return (found > 0).astype("int32")

    def add(self, history: Tensor, token: Tensor) -> Tensor:
        """The history with one more token per sample: 2 for each time that it was generated."""
        two = paddle.full([token.shape[0], 1], 2, "int32")
        return paddle.put_along_axis(history, token.unsqueeze(-1), two, 1, reduce="add")

    def apply(
        self, logits: Tensor, history: Tensor | None, temperature: Tensor, numbers: list[Tensor]
    ) -> Tensor:
        """The adjusted scores [batch, vocabulary]."""
        logits, rest = logits.astype("float32"), list(numbers)
        least = rest.pop(0) if self.least else None
        if self.penalties and history is not None:
            repetition, presence, frequency = rest[:3]
            rest = rest[3:]
            punished = paddle.where(logits > 0, logits / repetition, logits * repetition)
            logits = paddle.where(history > 0, punished, logits)
            generated = paddle.floor(history.astype("float32") / 2)
            logits = logits - frequency * generated
            logits = logits - presence * (generated > 0).astype("float32")
        if self.biases:
            tokens, biases = rest
            logits = paddle.index_add(logits, tokens, 1, biases.expand([logits.shape[0], -1]))
        if least is not None:
            lowest = logits.max(-1, keepdim=True) + temperature * paddle.log(least)
            logits = paddle.where(logits >= lowest, logits, paddle.full_like(logits, -math.inf))
        return logits


def adjusting(
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    logit_bias: Mapping[int, float] | None = None,
) -> tuple[Adjusting, list[np.ndarray]]:
    """(the adjustments, their numbers) of a generation's options."""
    if not 0 <= min_p <= 1 or repetition_penalty <= 0:
        raise InvalidArgument(
            "[generate] min_p must be in [0, 1] and repetition_penalty positive. Received: "
            f"{min_p}, {repetition_penalty}"
        )
    penalties = (repetition_penalty, presence_penalty, frequency_penalty)
    numbers: list[Any] = [np.float32(min_p)] if min_p else []
    if penalties != (1.0, 0.0, 0.0):
        numbers += [np.float32(p) for p in penalties]
    room = 0
    if logit_bias:
        room = 1 << (len(logit_bias) - 1).bit_length()
        tokens, biases = np.zeros(room, np.int64), np.zeros(room, np.float32)
        tokens[: len(logit_bias)] = list(logit_bias)
        biases[: len(logit_bias)] = list(logit_bias.values())
        if tokens.min() < 0 or np.isnan(biases).any():
            raise InvalidArgument("[generate] logit_bias gives tokens a number to add each")
        numbers += [tokens, biases]
    made = Adjusting(bool(min_p), penalties != (1.0, 0.0, 0.0), room)
    return made, [np.asarray(n) for n in numbers]
