"""Running a model over many inputs of different lengths with few programs.

Inputs are sorted by length and cut into batches; a batch's length is one of a few sizes, and its
number of rows follows from that. Padding changes no result: a mask covers it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import bireme as paddle
from bireme.capture.direct_program import DirectProgram
from bireme.core import dtype as dt
from bireme.core.aval import aval
from bireme.core.cache import BoundedCache
from bireme.core.tensor import Tensor
from bireme.nn import Layer

_SIZES = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_TOKENS = 1024  # of a full batch, about
_MOST_ROWS = 32
_MAX_PROGRAMS = 64


def size_of(length: int, longest: int) -> int:
    """The size that inputs of `length` are padded to, at most `longest`."""
    for size in _SIZES:
        if length <= size:
            return min(size, longest)
    return min(-(-length // 512) * 512, longest)


def rows_of(size: int) -> int:
    """How many inputs of a size make a full batch."""
    rows = max(1, _TOKENS // size)
    return min(1 << (rows.bit_length() - 1), _MOST_ROWS)


def batches(lengths: Sequence[int], longest: int) -> Iterator[tuple[list[int], int, int]]:
    """(which inputs, rows, size) of each batch, the longest first. The last batch, if it is less
    than half full, has the rows of one or of a quarter."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    at = 0
    while at < len(order):
        size = size_of(lengths[order[at]], longest)
        rows = rows_of(size)
        chosen = order[at : at + rows]
        quarter = max(rows // 4, 1)
        if len(chosen) <= quarter:
            rows = 1 if len(chosen) == 1 else quarter
        yield chosen, rows, size
        at += len(chosen)


class Compiled:
    """`function(*tensors)` of a model, compiled once for every shape of its arguments."""

    def __init__(self, model: Layer, function: Callable[..., Any]):
        self._model, self._function = weakref.ref(model), function
        self._programs: BoundedCache[Any, Callable[..., list[Any]]] = BoundedCache(_MAX_PROGRAMS)
        self._marks: Any = None

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        model: Any = self._model()
        marks = [(id(t), t._value) for t in (*model.parameters(), *model.buffers())]
        if self._marks != marks:
            # Weights are read when a program is bound: others need other programs.
            self._programs, self._marks = BoundedCache(_MAX_PROGRAMS), marks
        types = tuple(aval(a.shape, dt.as_dtype(a.dtype)) for a in arrays)
        run = self._programs.get(types)
        if run is None:
            run = self._programs.add(types, self._compiled(types))
        return [np.asarray(a) for a in run(*arrays)]

    def _compiled(self, types: Any) -> Callable[..., list[Any]]:
        def flat(arguments: list[Tensor]) -> list[Tensor]:
            found = self._function(*arguments)
            return list(found) if isinstance(found, tuple | list) else [found]

        with paddle.no_grad():
            program = DirectProgram(flat, list(types), (), "task")
        run = program.bind()
        return lambda *arrays: run(*[program.put(a) for a in arrays])


def run_rows(
    compiled: Compiled, columns: Sequence[Sequence[np.ndarray]], fill: Sequence[Any], longest: int
) -> list[list[np.ndarray]]:
    """For every input the rows of the results.

    `columns` are the model's arguments, each a list with one vector per input, of the same length
    for all arguments of an input; `fill` is what each argument is padded with. An extra argument,
    the mask, comes last.
    """
    lengths = [len(v) for v in columns[0]]
    found: list[list[np.ndarray]] = [[] for _ in lengths]
    for chosen, rows, size in batches(lengths, longest):
        arrays = [np.full((rows, size), value, np.int64) for value in fill]
        mask = np.zeros((rows, size), np.int64)
        mask[len(chosen) :, 0] = 1  # of rows without an input: of nothing there is no mean
        for row, i in enumerate(chosen):
            for array, column in zip(arrays, columns, strict=True):
                array[row, : lengths[i]] = column[i]
            mask[row, : lengths[i]] = 1
        results = compiled(*arrays, mask)
        for row, i in enumerate(chosen):
            found[i] = [r[row] for r in results]
    return found
