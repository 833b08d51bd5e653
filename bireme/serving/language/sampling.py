"""How one text chooses its tokens: the settings of OpenAI's protocol, on the host.

A choice depends on the scores, the settings, the seed and the text alone: not on other texts, nor
on whether the text was preempted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from bireme.serving.language.grammar import Form


@dataclass(frozen=True, slots=True)
class Sampling:
    """Temperature 0 takes the likeliest token. Penalties count what the text has generated."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: int = -1  # how many of the likeliest tokens to tell; -1: nothing

    @property
    def plain(self) -> bool:
        """Whether the best token is the choice, and nothing is told about others."""
        changes = self.presence_penalty or self.frequency_penalty or self.logit_bias
        return self.temperature == 0 and self.logprobs < 0 and not changes


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen token; with log-probabilities, its own and those of the likeliest tokens."""

    token: int
    logprob: float = 0.0
    likeliest: tuple[tuple[int, float], ...] = ()


class Chooser:
    """Chooses the tokens of one text, among those that its form allows."""

    def __init__(self, sampling: Sampling, seed: int, index: int = 0, form: Form | None = None):
        self.sampling = sampling
        self._form = form
        self._random = np.random.default_rng([seed, index])
        self._counts: dict[int, int] = {}

    @property
    def plain(self) -> bool:
        """Whether the choice is always the best token."""
        return self.sampling.plain and self._form is None

    def choose(self, scores: np.ndarray) -> Choice:
        """The next token for scores [vocabulary]."""
        adjusted = self._adjusted(scores)
        s = self.sampling
        token = int(adjusted.argmax()) if s.temperature == 0 else self._drawn(adjusted)
        self._counts[token] = self._counts.get(token, 0) + 1
        if self._form is not None:
            self._form.take(token)
        if s.logprobs < 0:
            return Choice(token)
        logs = adjusted - _log_sum(adjusted)
        best = np.argsort(-logs, kind="stable")[: s.logprobs]
        return Choice(token, float(logs[token]), tuple((int(t), float(logs[t])) for t in best))

    def _adjusted(self, scores: np.ndarray) -> np.ndarray:
        s = self.sampling
        found = scores.astype(np.float64)
        if (s.presence_penalty or s.frequency_penalty) and self._counts:
            tokens = np.fromiter(self._counts, np.int64)
            counts = np.fromiter(self._counts.values(), np.float64)
            found[tokens] -= s.frequency_penalty * counts + s.presence_penalty
        for token, bias in s.logit_bias.items():
            found[token] += bias
        if self._form is not None:
            found[~self._form.allowed(len(found))] = -np.inf
        return found

    def _drawn(self, scores: np.ndarray) -> int:
        """A token drawn by probability among those that top_k, top_p and min_p leave."""
        s = self.sampling
        order = np.argsort(-scores, kind="stable")
        if s.top_k:
            order = order[: s.top_k]
        logs = scores[order] / s.temperature
        weights = np.exp(logs - logs[0])
        if s.min_p:
            weights = weights[weights >= s.min_p]
        weights /= weights.sum()
        if s.top_p < 1:
            before = np.cumsum(weights) - weights
            weights = weights[: max(int((before < s.top_p).sum()), 1)]
        sums = np.cumsum(weights)
        at = int(np.searchsorted(sums, self._random.random() * sums[-1], side="right"))
        return int(order[min(at, len(sums) - 1)])


def _log_sum(scores: np.ndarray) -> float:
    top = float(scores.max())
    return top + math.log(float(np.exp(scores - top).sum()))
