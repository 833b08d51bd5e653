"""Beam search with models that continue a text: several candidates per prompt, the best at the end.

One program reads the prompts, one continues all beams by a token. The caches of the beams that run
on are picked inside the step's program. Which ones run on is decided on the host (`Beams`).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import bireme as paddle
from bireme.api.types import TensorLike
from bireme.capture.direct_program import DirectProgram
from bireme.core import dtype as dt
from bireme.core import place, trace
from bireme.core.aval import Aval, aval
from bireme.core.cache import BoundedCache
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn.generation.beams import Beams
from bireme.nn.generation.cache import KVCache
from bireme.nn.generation.generate import bucket_of, checked_prompt, logits_of
from bireme.nn.generation.seq2seq import Written

if TYPE_CHECKING:
    from bireme.nn.layer.layer import Layer

_MAX_PROGRAMS = 64
_known: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def beam_search(
    model: Layer,
    input_ids: TensorLike,
    max_new_tokens: int = 20,
    *,
    num_beams: int = 4,
    num_return_sequences: int = 1,
    lengths: TensorLike | None = None,
    length_penalty: float = 1.0,
    early_stopping: bool | str = False,
    eos_token_id: int | Sequence[int] | None = None,
    pad_token_id: int = 0,
    cache_length: int | None = None,
) -> Written:
    """The best continuations of `input_ids` [batch, tokens], by a search with `num_beams` beams.

    `model`, `lengths` and `cache_length` are as in `generate`. A finished sequence counts its sum
    of log-probabilities divided by the number of its new tokens to the power of `length_penalty`.
    `early_stopping` is True, False or "never", see `Beams`.

        beam_search(model, prompts, 50, num_beams=4).lists()[0][0]  # the first prompt's best
    """
    if max_new_tokens < 1 or not 1 <= num_return_sequences <= num_beams or num_beams < 2:
        raise InvalidArgument(
            "[beam_search] max_new_tokens must be positive, num_beams 2 or more, and "
            "num_return_sequences at most num_beams. Received: "
            f"{max_new_tokens}, {num_beams}, {num_return_sequences}"
        )
    ids, counts = checked_prompt(input_ids, lengths)
    ends = [] if eos_token_id is None else np.atleast_1d(eos_token_id).tolist()
    bucket = bucket_of(ids.shape[1])
    length = cache_length or bucket_of(bucket + max_new_tokens)
    if bucket > length or ids.shape[1] + max_new_tokens > length:
        raise InvalidArgument(
            f"[beam_search] a prompt of {ids.shape[1]} tokens (padded to {bucket}) and "
            f"{max_new_tokens} new ones do not fit a cache of {length}"
        )
    search = Beams(
        len(ids), num_beams, max_new_tokens, ends, length_penalty, early_stopping, pad_token_id
    )
    padded = np.zeros((len(ids), bucket), np.int64)
    padded[:, : ids.shape[1]] = ids
    with paddle.no_grad():
        run = _Run(model, padded, counts, num_beams, search.wide, length)
        while True:
            order, token = search.take(*run.best())
            if search.done:
                return Written(*search.best(num_return_sequences))
            run.step(token, order)


def _programs(model: Any) -> BoundedCache[Any, DirectProgram]:
    marks = [(id(t), t._value.aval) for t in (*model.parameters(), *model.buffers())]
    kept = _known.get(model)
    if kept is None or kept[0] != marks:
        kept = _known[model] = (marks, BoundedCache(_MAX_PROGRAMS))
    return kept[1]


def _best(logits: Tensor, wide: int) -> list[Tensor]:
    logs = paddle.nn.functional.log_softmax(logits[:, -1].astype("float32"), -1)
    found: Any = paddle.topk(logs, min(wide, logs.shape[-1]), axis=-1)
    return [found[0], found[1]]


def _state(cache: KVCache) -> list[Tensor]:
    assert cache.place is not None  # noqa: S101 (it has just advanced)
    return [cache.place, *[t for pair in cache.layers for t in pair]]


def _repeated(x: Tensor, times: int) -> Tensor:
    wide = x.unsqueeze(1).expand([x.shape[0], times, *x.shape[1:]])
    return wide.reshape([x.shape[0] * times, *x.shape[1:]])


class _Run:
    """One search, a step at a time."""

    def __init__(
        self, model: Any, ids: np.ndarray, counts: np.ndarray, beams: int, wide: int, length: int
    ):
        self._model, self._length, self._wide = model, length, wide
        self._kept = _programs(model)
        training, amp = bool(getattr(model, "training", False)), trace.state.trace.amp
        key = (place.default_place(), training, amp, length, wide, beams)

        def begin(arguments: list[Tensor]) -> list[Tensor]:
            given, sizes = arguments
            cache = KVCache(length)
            cache.counts = sizes
            logits = logits_of(model, given, cache)
            logits = logits if logits.shape[1] == 1 else cache.last(logits)
            cache.advance(sizes)
            return [_repeated(t, beams) for t in (*_best(logits, wide), *_state(cache))]

        types = [aval(ids.shape, dt.int64), aval(counts.shape, dt.int64)]
        first = self._program(("begin", *key, *types), begin, types, ())
        found = first.bind()(first.put(ids), first.put(counts))
        self._found, self._state, self._types = found[:2], found[2:], list(first.outs[2:])
        self._key = ("step", *key, *self._types)
        self._bound: Any = None

    def _program(
        self, key: Any, function: Any, types: list[Aval], donated: tuple[int, ...]
    ) -> DirectProgram:
        found = self._kept.get(key)
        if found is None:
            found = self._kept.add(key, DirectProgram(function, types, donated, "beam_search"))
        return found

    def best(self) -> tuple[np.ndarray, np.ndarray]:
        """(log-probabilities, tokens) [rows, wide] of each beam's best continuations."""
        return np.asarray(self._found[0]), np.asarray(self._found[1])

    def step(self, token: np.ndarray, order: np.ndarray) -> None:
        """Continue every beam by a token; row i goes on from row `order[i]`."""
        if self._bound is None:
            rows = aval((len(token),), dt.int64)
            types = [*self._types, rows, rows]
            donated = tuple(range(1, len(self._types)))
            made = self._program(self._key, self._next, types, donated)
            self._bound = made, made.bind()
        program, run = self._bound
        token, order = token.astype(np.int64), order.astype(np.int64)
        found = run(*self._state, program.put(token), program.put(order))
        self._found, self._state = found[:2], found[2:]

    def _next(self, arguments: list[Tensor]) -> list[Tensor]:
        *kept, token, order = arguments
        cache = KVCache(self._length)
        cache.place = kept[0]  # the same for all beams of a prompt
        own = [paddle.index_select(t, order, 0) for t in kept[1:]]
        cache.layers = list(zip(own[::2], own[1::2], strict=True))
        logits = logits_of(self._model, token.unsqueeze(-1), cache)
        cache.advance(1)
        return [*_best(logits, self._wide), *_state(cache)]
