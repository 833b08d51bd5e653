"""The programs of a language model on pages: one per number of rows, of new tokens, and of pages.

All are compiled when they are made. The pools of pages are donated from call to call.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import bireme as paddle
from bireme.capture.direct_program import DirectProgram
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument
from bireme.core.stats import RecompileWarning
from bireme.core.tensor import Tensor
from bireme.nn import Layer
from bireme.nn.generation import KVCache, PagedCache

_LONG = 32  # pages of a table for which two sizes are worth it
_STATE = 4  # of a program's arguments: tokens, tables, places, counts; then the pools


@dataclass(frozen=True, slots=True)
class Shapes:
    """The sizes for which programs exist."""

    rows: tuple[int, ...]  # of a step
    chunks: tuple[int, ...]  # tokens of an extension
    tables: tuple[int, ...]  # pages of a text

    def all(self) -> Iterator[tuple[int, int, int]]:
        """(rows, new tokens, pages) of every program, the largest first."""
        for table in reversed(self.tables):
            yield from ((1, chunk, table) for chunk in reversed(self.chunks))
            yield from ((rows, 1, table) for rows in reversed(self.rows))


def shapes_for(rows: int, chunk: int, pages: int) -> Shapes:
    """Few sizes: each program takes time to compile. Long tables have a quarter, too, since a
    text's attention reads its whole table."""
    tables = (pages // 4, pages) if pages >= _LONG else (pages,)
    return Shapes(_steps(1, rows), _steps(min(32, chunk), chunk), tables)


def _steps(least: int, most: int) -> tuple[int, ...]:
    sizes = [least]
    while sizes[-1] < most:
        sizes.append(min(sizes[-1] * 4, most))
    return tuple(sizes)


def layers_of(model: Layer) -> list[tuple[Aval, Aval]]:
    """The types of one token's keys and values [groups, size] in each layer."""
    cache = KVCache(1)
    with paddle.no_grad():
        model(paddle.zeros([1, 1], "int64"), cache=cache)
    if not cache.layers:
        raise InvalidArgument("[serve] the model does not use its cache")
    return [(_type(k), _type(v)) for k, v in cache.layers]


def _type(cached: Tensor) -> Aval:
    return aval(tuple(cached.shape[2:]), dt.as_dtype(cached.dtype))


def page_bytes(layers: Sequence[tuple[Aval, Aval]], page: int) -> int:
    """What a page takes in all layers."""
    elements = [(t.shape[0] * t.shape[1], t.dtype.itemsize) for pair in layers for t in pair]
    return page * sum(count * size for count, size in elements)


class Scores:
    """What a program says about each row's next token: the best one, and all scores."""

    def __init__(self, best: Any, scores: Any):
        self.best = np.asarray(best)
        self._scores: Any = scores
        self._read: np.ndarray | None = None

    def row(self, index: int) -> np.ndarray:
        """The scores [vocabulary] of a row, in float32."""
        if self._read is None:
            self._read = np.asarray(self._scores)
        return self._read[index]


class Programs:
    """A model on `pages` pages of `page` tokens each."""

    def __init__(self, model: Layer, shapes: Shapes, pages: int, page: int):
        layers = layers_of(model)
        self.shapes, self.page = shapes, page
        pools = [aval((pages, page, *t.shape), t.dtype) for pair in layers for t in pair]
        self._calls: dict[tuple[int, int, int], Any] = {}
        self._put: Any = None
        donated = range(_STATE, _STATE + len(pools))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecompileWarning)  # one for each size is the plan
            for key in shapes.all():
                program = DirectProgram(_forward(model), _types(key, pools), donated, "serve")
                self._put = program.put
                self._calls[key] = program.bind()
        self._types = pools
        self._lock = threading.Lock()
        self._pools: list[Any] = []
        self.reset()

    def reset(self) -> None:
        """Empty pools; a failed run may have taken the old ones with it."""
        self._pools = [self._put(np.zeros(t.shape, t.dtype.numpy)) for t in self._types]

    def run(
        self,
        tokens: Sequence[Sequence[int]],
        tables: Sequence[Sequence[int]],
        places: Sequence[int],
    ) -> Scores:
        """Add new tokens to texts: each row's tokens, its pages, and how many tokens it has."""
        key = self._key(len(tokens), max(map(len, tokens)), max(map(len, tables)))
        rows, new, pages = key
        ids, table = np.zeros((rows, new), np.int64), np.zeros((rows, pages), np.int64)
        place, counts = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        for i, (text, own) in enumerate(zip(tokens, tables, strict=True)):
            ids[i, : len(text)], table[i, : len(own)] = text, own
            counts[i] = len(text)
        place[: len(tokens)] = places
        given = [self._put(a) for a in (ids, table, place, counts)]
        with self._lock:
            best, scores, *self._pools = self._calls[key](*given, *self._pools)
        return Scores(best, scores)

    def _key(self, rows: int, new: int, pages: int) -> tuple[int, int, int]:
        s = self.shapes
        table = next(t for t in s.tables if t >= pages)
        if new == 1:
            return next(r for r in s.rows if r >= rows), 1, table
        return 1, next(c for c in s.chunks if c >= new), table


def _forward(model: Layer) -> Any:
    def forward(arguments: list[Tensor]) -> list[Tensor]:
        ids, tables, place, counts, *pools = arguments
        layers = list(zip(pools[::2], pools[1::2], strict=True))
        cache = PagedCache(layers, tables, place, counts)
        logits = model(ids, cache=cache)
        if logits.shape[1] != 1:
            logits = cache.last(logits)
        scores = logits[:, 0].astype("float32")
        return [scores.argmax(-1), scores, *[t for pair in cache.layers for t in pair]]

    def quiet(arguments: list[Tensor]) -> list[Tensor]:
        with paddle.no_grad():
            return forward(arguments)

    return quiet


def _types(key: tuple[int, int, int], pools: Sequence[Aval]) -> list[Aval]:
    rows, new, pages = key
    return [
        aval((rows, new), dt.int64),
        aval((rows, pages), dt.int64),
        aval((rows,), dt.int64),
        aval((rows,), dt.int64),
        *pools,
    ]
