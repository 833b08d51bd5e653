"""Rules about the next token: what must not be written, and what must.

A rule looks at the tokens so far on the host (`given`, small) and changes scores on the device
(`apply`, traced into the step's program).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

import bireme as paddle
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor


class Rule:
    """One rule. `key` is everything that its program depends on."""

    key: Hashable = ()

    def given(self, tokens: np.ndarray) -> np.ndarray | None:
        """What `apply` needs to know of the new tokens [rows, tokens] so far: int64 [rows, n],
        with few different n; or None."""
        return None

    def apply(self, scores: Tensor, given: Tensor | None) -> Tensor:
        """The scores [rows, words], changed."""
        raise TypeError("a rule has its own")  # pragma: no cover


def _without(scores: Tensor, barred: Tensor) -> Tensor:
    return paddle.where(barred, paddle.full([1], float("-inf"), scores.dtype), scores)


class Suppress(Rule):
    """Some tokens are never written, or not as the first one."""

    def __init__(self, tokens: Sequence[int], first: Sequence[int] = ()):
        self.tokens, self.first = tuple(tokens), tuple(first)
        self.key = ("suppress", self.tokens, self.first)

    def given(self, tokens: np.ndarray) -> np.ndarray | None:
        return np.full((len(tokens), 1), tokens.shape[1]) if self.first else None

    def apply(self, scores: Tensor, given: Tensor | None) -> Tensor:
        never = np.zeros(scores.shape[-1], bool)
        never[list(self.tokens)] = True
        barred = paddle.to_tensor(never)
        if given is not None:
            first = never.copy()
            first[list(self.first)] = True
            barred = paddle.where(given == 0, paddle.to_tensor(first), barred)
        return _without(scores, barred)


class Forced(Rule):
    """The first token, the last one that fits, or none before `least` tokens, are given."""

    def __init__(self, first: int | None = None, last: int | None = None, longest: int = 0):
        self.first, self.last, self.longest = first, last, longest
        self.key = ("forced",)

    def given(self, tokens: np.ndarray) -> np.ndarray | None:
        count, token = tokens.shape[1], -1
        if count == 0 and self.first is not None:
            token = self.first
        elif count == self.longest - 1 and self.last is not None:
            token = self.last
        return np.full((len(tokens), 1), token)

    def apply(self, scores: Tensor, given: Tensor | None) -> Tensor:
        if given is None:
            return scores
        words = paddle.arange(scores.shape[-1])
        other = _without(paddle.zeros([1], scores.dtype), words != given)
        return paddle.where(given < 0, scores, other)


class Biased(Rule):
    """Numbers that are added to tokens' scores."""

    def __init__(self, biases: Mapping[int, float]):
        self.biases = dict(biases)
        if any(t < 0 for t in self.biases) or any(b != b for b in self.biases.values()):
            raise InvalidArgument("[generate] biases give tokens a number to add each")
        self.key = ("biased", tuple(self.biases.items()))

    def apply(self, scores: Tensor, given: Tensor | None) -> Tensor:
        added = np.zeros(scores.shape[-1], np.float32)
        if self.biases and max(self.biases) >= len(added):
            raise InvalidArgument(f"[generate] there are {len(added)} tokens, not {self.biases}")
        added[list(self.biases)] = list(self.biases.values())
        return scores + paddle.to_tensor(added)


class Least(Rule):
    """Only tokens with at least that share of the likeliest one's probability, at a temperature."""

    def __init__(self, share: float, temperature: float = 1.0):
        if not 0 < share <= 1 or not temperature > 0:
            raise InvalidArgument(
                "[generate] the least probability must be in (0, 1] and the temperature positive. "
                f"Received: {share}, {temperature}"
            )
        self.distance = -math.log(share) * temperature
        self.key = ("least", self.distance)

    def apply(self, scores: Tensor, given: Tensor | None) -> Tensor:
        return _without(scores, scores < scores.max(-1, keepdim=True) - self.distance)


_FEW = 8  # tokens that can be barred without another program


class Barred(Rule):
    """No `ngram` tokens in a row are written twice, and none of `ends` before `least` tokens."""

    def __init__(self, ngram: int = 0, least: int = 0, ends: Sequence[int] = ()):
        self.ngram, self.least, self.ends = ngram, least, tuple(ends)
        self.key = ("barred",)

    def given(self, tokens: np.ndarray) -> np.ndarray | None:
        rows = [self._of(row.tolist()) for row in tokens]
        wide = max(_FEW, *(1 << (len(r) - 1).bit_length() for r in rows if r), 1)
        return np.array([[*r, *[-1] * (wide - len(r))] for r in rows], np.int64)

    def _of(self, tokens: list[int]) -> list[int]:
        n, found = self.ngram, set()
        if n and len(tokens) >= n - 1:
            last = tokens[len(tokens) - n + 1 :]
            for i in range(len(tokens) - n + 1):
                if tokens[i : i + n - 1] == last:
                    found.add(tokens[i + n - 1])
        if len(tokens) < self.least:
            found.update(self.ends)
        return sorted(found)

    def apply(self, scores: Tensor, given: Tensor | None) -> Tensor:
        if given is None:
            return scores
        words = paddle.arange(scores.shape[-1]).reshape([1, -1, 1])
        return _without(scores, (words == given.unsqueeze(1)).any(-1))
