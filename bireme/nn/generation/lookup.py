"""Several tokens in one pass where the text repeats itself, with the tokens of one at a time.

What followed the last few tokens the last time they occurred is proposed, and one program gives
the best token after each of the proposed ones. Those are taken as long as they agree. Sums of
several rows may be rounded otherwise than those of one: where the two best scores are so close
that this could matter, the usual step decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

import bireme as paddle
from bireme.capture.direct_program import DirectProgram
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.tensor import Tensor
from bireme.nn.generation.cache import KVCache

if TYPE_CHECKING:
    from bireme.nn.generation.generate import _Run
    from bireme.nn.layer.layer import Layer

_LONGEST, _SHORTEST = 4, 2  # tokens that must have occurred before
_CLOSE = 1e-3  # of the largest score: two that differ by less are left to the usual step


class _WholeCache(KVCache):
    """A cache whose model gives the scores of all tokens."""

    def last(self, x: Tensor) -> Tensor:
        return x


def proposed(text: Sequence[int], count: int) -> list[int]:
    """Up to `count` tokens that followed the end of the text where it occurred before."""
    for size in range(min(_LONGEST, len(text) - 1), _SHORTEST - 1, -1):
        end = list(text[-size:])
        for at in range(len(text) - size - 1, -1, -1):
            if text[at] == end[0] and list(text[at : at + size]) == end:
                return list(text[at + size : at + size + count])
    return []


def compile_check(
    model: Layer,
    logits_of: Callable[..., Tensor],
    rows: int,
    length: int,
    layers: Sequence[Aval],
) -> DirectProgram:
    """The best token after each of `rows` tokens, whether it is clearly the best, and the cache."""

    def check(arguments: list[Tensor]) -> list[Tensor]:
        ids, place, *kept = arguments
        cache = _WholeCache(length)
        cache.place = place
        cache.layers = list(zip(kept[::2], kept[1::2], strict=True))
        scores = logits_of(model, ids, cache).astype("float32")
        best, which = paddle.topk(scores, 2, axis=-1)
        clear = best[..., 0] - best[..., 1] > _CLOSE * scores.abs().max(-1)
        flat = [t for pair in cache.layers for t in pair]
        return [which[..., 0].astype("int64"), clear, *flat]

    types = [aval((1, rows), dt.int64), aval((1,), dt.int64), *layers]
    return DirectProgram(check, types, tuple(range(2, len(types))), "generate")


def agreed(guess: Sequence[int], best: np.ndarray, clear: np.ndarray) -> list[int]:
    """The tokens that a check settles: those that agree, and the first that does not. It stops
    before one that is not clear."""
    taken: list[int] = []
    for i, token in enumerate(best.tolist()):
        if not clear[i]:
            break
        taken.append(token)
        if i == len(guess) or token != guess[i]:
            break
    return taken


def tokens_by_lookup(run: _Run, new: int, count: int) -> Iterator[int]:
    """Up to `new` tokens of a greedy generation of one sample, `count` of them proposed at once."""
    text = list(run.prompt)
    ready = [int(np.asarray(run.token)[0])]  # the last one is not in the cache yet
    given = 0
    while True:
        for token in ready:
            text.append(token)
            given += 1
            yield token
            if given == new or token in run.ends:
                return
        at = run.place
        guess = proposed(text, count)
        taken: list[int] = []
        # No token is fed to a place that plain steps would not reach.
        if len(guess) == count and given + count < new:
            taken = agreed(guess, *run.check([text[-1], *guess]))
            # The usual step may write the last token again; that changes nothing.
            run.resume((taken or text)[-1], at + len(taken))
        if not taken:
            run.step()
            taken = [int(np.asarray(run.token)[0])]
        ready = taken
