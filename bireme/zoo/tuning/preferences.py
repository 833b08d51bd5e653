"""Direct preference optimisation: pairs of answers of which one is preferred."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import bireme as paddle
from bireme.core import trace
from bireme.core.errors import InvalidArgument
from bireme.nn.layer.layer import Layer
from bireme.zoo.tokenizer import Tokenizer
from bireme.zoo.tuning import checkpoint
from bireme.zoo.tuning.losses import dpo_losses, log_probabilities
from bireme.zoo.tuning.plan import Plan
from bireme.zoo.tuning.samples import Rows, Tokens, continued, padded


@dataclasses.dataclass(frozen=True)
class Dpo:
    """How preferences are learned: `beta` holds the model near the reference, which is the model
    as it is before the first step; `smoothing` is the share of pairs expected to be wrong."""

    beta: float = 0.1
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not self.beta > 0 or not 0 <= self.smoothing < 0.5:
            raise InvalidArgument(
                "[Dpo] beta must be positive and smoothing in [0, 0.5). Received: "
                f"{self.beta}, {self.smoothing}"
            )


class Preferences:
    """Steps on pairs of answers.

    The reference's log-probabilities are computed once, from the model as it is before the first
    step; new adapters change nothing yet.
    """

    def __init__(
        self,
        model: Layer,
        tokenizer: Tokenizer,
        samples: Sequence[Any],
        longest: int,
        batch_size: int,
        accumulate: int,
        seed: int,
        dpo: Dpo,
    ):
        self.model, self._dpo, self._longest = model, dpo, longest
        pairs = [_pair(s, tokenizer, longest) for s in samples]
        if not pairs:
            raise InvalidArgument("[finetune] there are no samples")
        self._chosen = [p[0] for p in pairs]
        self._rejected = [p[1] for p in pairs]
        self._batch = batch_size
        self._plan = Plan(self._chosen, batch_size, accumulate, longest, False, seed)
        self.steps = self._plan.steps
        self._reference = self._all(batch_size)
        data = checkpoint.fingerprint([self._chosen, self._rejected])
        known = hashlib.sha256(self._reference.tobytes()).hexdigest()[:32]
        self.fingerprint = f"{data}, reference {known}"

    def _all(self, batch_size: int) -> np.ndarray:
        """The reference's log-probabilities of chosen and rejected answers: [pairs, 2]."""
        found = np.zeros((len(self._chosen), 2), np.float32)
        training = self.model.training
        self.model.eval()
        with paddle.no_grad():
            for begin in range(0, len(found), batch_size):
                part = range(begin, min(begin + batch_size, len(found)))
                logs = log_probabilities(self.model, self._rows(part)).numpy().reshape(2, -1)
                found[part.start : part.stop] = logs[:, : len(part)].T
        if training:
            self.model.train()
        return found

    def _rows(self, numbers: Sequence[int]) -> Rows:
        """Rows of the chosen answers, and then as many of the rejected ones; the last pair fills
        them up."""
        full = [*numbers, *[numbers[-1]] * (self._batch - len(numbers))]
        both = [self._chosen[i] for i in full] + [self._rejected[i] for i in full]
        return padded(both, self._longest, 2 * self._batch)

    def run(self, number: int, optimizer: paddle.optimizer.Optimizer) -> tuple[float, int]:
        """One step; (the mean loss of its pairs, how many tokens it saw)."""
        batches = self._plan.numbers(number)
        count, n = sum(len(b) for b in batches), self._batch
        parts, tokens = [], 0
        for batch in batches:
            rows = self._rows(batch)
            logs = log_probabilities(self.model, rows)
            known = np.zeros((n, 2), np.float32)
            known[: len(batch)] = self._reference[batch]
            counts = paddle.to_tensor((np.arange(n) < len(batch)).astype(np.float32) / count)
            before = paddle.to_tensor(known)
            each = dpo_losses(
                logs[:n], logs[n:], before[:, 0], before[:, 1], self._dpo.beta, self._dpo.smoothing
            )
            loss = (each * counts).sum()
            loss.backward()
            parts.append(loss.detach())
            tokens += int(rows.ids.size)
            if len(batches) > 1:
                trace.flush()
        optimizer.step()
        optimizer.clear_grad()
        return sum(float(p) for p in parts), tokens


def _pair(sample: Any, tokenizer: Tokenizer, longest: int) -> tuple[Tokens, Tokens]:
    keys = ("prompt", "chosen", "rejected")
    good = isinstance(sample, Mapping) and set(sample) == set(keys)
    if not good or not all(isinstance(sample[k], str) for k in keys):
        raise InvalidArgument(
            '[finetune] a preference is {"prompt", "chosen", "rejected"}, three strings. Received: '
            f"{sorted(sample) if isinstance(sample, Mapping) else type(sample).__name__}"
        )
    found = [continued(tokenizer, sample["prompt"], sample[k]) for k in keys[1:]]
    if any(len(t) > longest for t in found):
        raise InvalidArgument(
            f"[finetune] a preference has {max(len(t) for t in found)} tokens, more than "
            f"max_length={longest}: cut off, it would compare something else"
        )
    return found[0], found[1]
