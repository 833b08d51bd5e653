"""Choosing the next token from scores, on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.op import op
from bireme.ops import random_bits


def _token_type(logits: Aval, *_: Any, strategy: str) -> Aval:
    return aval(logits.shape[:1], dt.int64)


def _filtered(xp: Any, scores: Any, top_k: Any, top_p: Any) -> Any:
    """-inf for what is neither among the k best (0: all) nor in the smallest set of the best whose
    probabilities reach p."""
    best = xp.flip(xp.sort(scores, axis=-1), axis=-1)
    ranks = xp.arange(scores.shape[-1])
    best = xp.where((ranks < top_k) | (top_k <= 0), best, -xp.inf)
    weights = xp.exp(best - best[:, :1])
    weights = weights / xp.sum(weights, axis=-1, keepdims=True)
    before = xp.cumsum(weights, axis=-1) - weights
    kept = (before < top_p) & (best > -xp.inf)
    kept = kept | (ranks == 0)  # the best one, whatever p is
    lowest = xp.min(xp.where(kept, best, xp.inf), axis=-1, keepdims=True)
    return xp.where(scores >= lowest, scores, -xp.inf)


@op(
    name="next_token",
    infer=_token_type,
    differentiable=False,
    inputs=("logits", "seed", "offset", "temperature", "top_k", "top_p"),
)
def next_token(xp, logits, seed, offset, temperature, top_k, top_p, strategy="greedy"):
    """One token per row of `logits` [batch, vocabulary].

    `strategy` is "greedy", "sample" (by probability after division by the temperature) or "filter"
    (the same among those that top_k and top_p leave).
    """
    scores = logits.astype(np.float32)
    if strategy != "greedy":
        scores = scores / xp.asarray(temperature).astype(np.float32)
        if strategy == "filter":
            scores = _filtered(xp, scores, top_k, xp.asarray(top_p).astype(np.float32))
        # The largest of scores plus Gumbel noise is a draw by probability.
        unit = random_bits.uniform(xp, seed, offset, scores.shape) + np.float32(2.0**-25)
        scores = scores - xp.log(-xp.log(unit))
    return xp.argmax(scores, axis=-1).astype(np.int64)
