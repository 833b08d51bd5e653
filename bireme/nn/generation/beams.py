"""Beam search: which of the continuations are kept, and which sequences are the best in the end.

The scores come from a model; here are only small arrays on the host. The rules are those of
transformers, so that both find the same sequences.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_NEVER = np.float32(-1e9)


class Beams:
    """A search for `batch` samples with `count` beams each, of at most `longest` new tokens.

    A finished sequence counts its score divided by its length to the power of `length_penalty`.
    With `early` True the search of a sample ends with its `count`-th finished sequence; with False
    when the running ones look worse than those; with "never" when they cannot get better.
    """

    def __init__(
        self,
        batch: int,
        count: int,
        longest: int,
        ends: Sequence[int],
        length_penalty: float = 1.0,
        early: bool | str = False,
        fill: int = 0,
    ):
        self.batch, self.count, self.longest = batch, count, longest
        self.ends, self.penalty, self.early = np.asarray(ends, np.int64), length_penalty, early
        self.length = 0
        shape = (batch, count)
        self.running = np.full(shape, _NEVER)
        self.running[:, 0] = 0.0  # all beams are the same at first
        self.tokens = np.full((*shape, longest), fill, np.int64)
        self.scores = np.full(shape, _NEVER)
        self.finished = np.zeros(shape, bool)
        self.found = self.tokens.copy()
        self.lengths = np.zeros(shape, np.int64)
        self.hopeful = np.ones((batch, 1), bool)
        self.done = False

    @property
    def wide(self) -> int:
        """How many of each beam's best continuations must be known."""
        return max(2, 1 + len(self.ends)) * self.count

    def take(self, scores: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Continue with the best continuations [batch * count, wide], log-probabilities and tokens.

        Returns, for the `batch * count` beams that run on, the row each comes from and its token.
        """
        batch, count, wide = self.batch, self.count, scores.shape[-1]
        total = scores.reshape(batch, count, wide).astype(np.float32) + self.running[:, :, None]
        total = total.reshape(batch, -1)
        pick = np.argsort(-total, axis=1, kind="stable")[:, : self.wide]
        best = np.take_along_axis(total, pick, 1)
        token = np.take_along_axis(ids.reshape(batch, -1), pick, 1)
        source = pick // wide
        texts = np.take_along_axis(self.tokens, source[:, :, None], 1)
        texts[:, :, self.length] = token
        self.length += 1
        over = np.isin(token, self.ends) | (self.length == self.longest)
        self._finish(best, texts, over)
        running = best + over * _NEVER
        kept = np.argsort(-running, axis=1, kind="stable")[:, :count]
        self.running = np.take_along_axis(running, kept, 1)
        self.tokens = np.take_along_axis(texts, kept[:, :, None], 1)
        self._look(over)
        rows = np.take_along_axis(source, kept, 1) + np.arange(batch)[:, None] * count
        return rows.reshape(-1), np.take_along_axis(token, kept, 1).reshape(-1)

    def _finish(self, best: np.ndarray, texts: np.ndarray, over: np.ndarray) -> None:
        """Put what has ended among the finished sequences. Only the best `count` continuations
        can: the others are there so that enough beams run on."""
        ended = over & (np.arange(best.shape[1]) < self.count)
        scores = best / np.float32(self.length**self.penalty)
        full = self.finished.all(1, keepdims=True) & (self.early is True)
        scores = scores + full * _NEVER + ~self.hopeful * _NEVER + ~ended * _NEVER
        every = np.concatenate([self.scores, scores.astype(np.float32)], 1)
        pick = np.argsort(-every, axis=1, kind="stable")[:, : self.count]
        lengths = np.full(best.shape, self.length)
        self.scores = np.take_along_axis(every, pick, 1)
        self.found = np.take_along_axis(np.concatenate([self.found, texts], 1), pick[:, :, None], 1)
        self.lengths = np.take_along_axis(np.concatenate([self.lengths, lengths], 1), pick, 1)
        self.finished = np.take_along_axis(np.concatenate([self.finished, ended], 1), pick, 1)

    def _look(self, over: np.ndarray) -> None:
        """Whether a running sequence can still be among the best."""
        longest = self.early == "never" and self.penalty > 0
        length = self.longest if longest else self.length
        possible = self.running[:, :1] / np.float32(length**self.penalty)
        worst = np.where(self.finished, self.scores.min(1, keepdims=True), _NEVER)
        self.hopeful &= (possible > worst).any(1, keepdims=True)
        closed = bool(self.finished.all()) and self.early is True
        self.done = not self.hopeful.any() or closed or bool(over.all())

    def best(self, sequences: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(tokens [batch, sequences, longest], their numbers, scores) of the best sequences."""
        n = sequences
        return self.found[:, :n], self.lengths[:, :n], self.scores[:, :n]
