"""One version of a model in service: its queue, and the threads that run its batches."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.serving.errors import BadRequest, ModelFailed, ServingError, Unavailable
from bireme.serving.models import Arrays, Model
from bireme.serving.options import Options
from bireme.serving.queue import Item, Queue
from bireme.serving.signature import Field
from bireme.serving.sizes import joined, size_for
from bireme.serving.statistics import Stages, Statistics
from bireme.serving.tensors import DTYPES, datatype_of

logger = logging.getLogger("bireme.serving")

# Rows that do not know each other give the same numbers alone and together, but for the order in
# which a program of another size adds.
_NEAR = 1e-3


@dataclass(frozen=True, slots=True)
class Given:
    """What a request gives a model."""

    inputs: Arrays
    deadline: float
    priority: int = 0


Done = Callable[[Arrays | Exception], None]


class Version:
    """A loaded, warm model that takes requests until it is drained."""

    def __init__(self, name: str, number: str, model: Model, options: Options):
        self.name, self.number, self.options = name, number, options
        self.statistics = Statistics()
        self.sizes = options.batch_sizes()
        self._model = model
        self.signature = model.signature
        self._known: set[Any] = set()
        self.platform = model.platform
        if model.compiled:
            self._warm_up()
        most = self.sizes[-1] if self.signature.batched else 1
        self._queue = Queue(options.limits(), most, options.delay, options.workers)
        self._changed = threading.Condition()
        self._open, self._ended = True, False
        models = [model, *(model.clone() for _ in range(options.workers - 1))]
        self._threads = [
            threading.Thread(target=self._work, args=(m,), name=f"serve-{name}", daemon=True)
            for m in models
        ]
        for thread in self._threads:
            thread.start()

    # --- warming up -----------------------------------------------------------------------

    def _warm_up(self) -> None:
        """Run every shape that will be allowed, learn the outputs, and find out whether rows know
        each other."""
        sizes = self.sizes if self.signature.batched else (1,)
        for chosen in self.options.combinations():
            given = {f.name: self._sample(f, chosen.get(f.name), sizes[-1]) for f in self.inputs}
            found: Arrays = {}
            for size in sizes:
                rows = {n: a[:size] if self.signature.batched else a for n, a in given.items()}
                found = self._model.run(rows)
                self._known.add(_shapes(rows))
            self._learn(given, found, sizes)
        if self.signature.batched and not self.independent:
            logger.warning(
                "%s: rows of one batch change each other's results, so each request runs alone",
                self.name,
            )
            self.signature = replace(self.signature, batched=False)

    @property
    def inputs(self) -> tuple[Field, ...]:
        return self.signature.inputs

    def _sample(self, field: Field, chosen: tuple[int, ...] | None, rows: int) -> np.ndarray:
        own = field.shape[1:] if self.signature.batched else field.shape
        shape = own if chosen is None else chosen
        fits = len(shape) == len(own) and all(
            s > 0 and o in (-1, s) for s, o in zip(shape, own, strict=True)
        )
        if not fits:
            raise InvalidArgument(
                f"[serve] the input {field.name!r} of {self.name!r} has open sizes besides the "
                f"rows: {list(own)}. Programs are compiled before the server is ready, so say for "
                f"which shapes: shapes.{field.name} = [[...]] in serve.toml or "
                f"--shape {field.name}=... Received: {None if chosen is None else list(shape)}"
            )
        whole = (rows, *shape) if self.signature.batched else shape
        dtype = DTYPES[field.datatype]
        generator = np.random.default_rng(0)
        if dtype.kind in "iub":
            return generator.integers(0, 2, whole).astype(dtype)
        return generator.random(whole).astype(dtype)

    def _learn(self, given: Arrays, largest: Arrays, sizes: tuple[int, ...]) -> None:
        if not self.signature.outputs:
            self.independent = True
            outputs = [Field(n, datatype_of(a.dtype), a.shape) for n, a in largest.items()]
            self.signature = replace(self.signature, outputs=tuple(outputs))
        elif [f.name for f in self.signature.outputs] != list(largest):
            raise ModelFailed(f"{self.name!r} gives other outputs for other shapes")
        merged = [
            replace(f, shape=_opened(f.shape, largest[f.name].shape))
            for f in self.signature.outputs
        ]
        if self.signature.batched:
            self.independent = self.independent and self._rows_alone(given, largest, sizes)
            merged = (
                [replace(f, shape=(-1, *f.shape[1:])) for f in merged]
                if (self.independent)
                else merged
            )
        self.signature = replace(self.signature, outputs=tuple(merged))

    def _rows_alone(self, given: Arrays, largest: Arrays, sizes: tuple[int, ...]) -> bool:
        """Whether the first rows of the largest batch come out as in a batch of other rows."""
        size, few = sizes[-1], sizes[0]
        if any(a.ndim == 0 or a.shape[0] != size for a in largest.values()):
            return False
        other = {n: joined([a[:few]], size) for n, a in given.items()}
        alone = self._model.run({n: a[:few] for n, a in given.items()})
        padded = self._model.run(other)
        return all(
            _near(largest[n][:few], alone[n]) and _near(padded[n][:few], alone[n]) for n in largest
        )

    # --- requests -------------------------------------------------------------------------

    def submit(self, given: Given, done: Done) -> Item:
        """Queue a request; `done` is called once, from another thread, with outputs or an error.
        Raises where the request is wrong or not admitted."""
        rows = self.signature.check(given.inputs)
        inputs = {f.name: given.inputs[f.name] for f in self.inputs}
        key = _shapes(inputs, 1 if self.signature.batched else 0)
        if self.signature.batched and rows > self.sizes[-1]:
            raise BadRequest(
                f"a request to {self.name!r} has at most {self.sizes[-1]} rows. Received: {rows}"
            )
        self._check_known(inputs, rows)
        size = sum(_bytes(a) for a in inputs.values())
        item = Item(inputs, rows, key, done, size, given.deadline, given.priority)
        with self._changed:
            if not self._open:
                raise Unavailable(f"{self.name!r} version {self.number} is being unloaded")
            self._queue.put(item, time.monotonic())
            self._changed.notify()
        return item

    def _check_known(self, inputs: Arrays, rows: int) -> None:
        if not self._known:
            return
        batched = self.signature.batched
        padded = size_for(rows, self.sizes) if batched else None
        shapes = tuple([(padded, *a.shape[1:]) if batched else a.shape for a in inputs.values()])
        if shapes not in self._known:
            known = ", ".join(sorted({str([list(s) for s in k]) for k in self._known}))
            raise BadRequest(
                f"{self.name!r} was compiled for inputs of the shapes {known:.500}. Received: "
                f"{[list(s) for s in shapes]}"
            )

    def abandon(self, item: Item) -> None:
        """The client of this request has gone."""
        with self._changed:
            self._queue.abandon(item)

    @property
    def waiting(self) -> tuple[int, int]:
        """(requests, bytes) in the queue."""
        return self._queue.count, self._queue.bytes

    def drain(self, seconds: float) -> bool:
        """Take no more requests, run those that wait, and end; False if that took too long."""
        with self._changed:
            self._open = False
            self._changed.notify_all()
        end = time.monotonic() + seconds
        with self._changed:
            while self._queue.count or self._queue.running:
                left = end - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            late = self._queue.clear()
            self._ended = True
            self._changed.notify_all()
        for item in late:
            item.done(Unavailable("the server ended before the request ran"))
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(end - time.monotonic(), 0) + 1)
        self._model.close()
        return not late

    # --- the threads ----------------------------------------------------------------------

    def _work(self, model: Model) -> None:
        while True:
            batch = self._next()
            if not batch:
                return
            start = time.perf_counter()
            self._run(model, batch)
            with self._changed:
                self._queue.finished(time.perf_counter() - start)
                if not self._open:
                    self._changed.notify_all()
            del batch

    def _next(self) -> list[Item]:
        """The next batch, waited for; empty when the version has ended."""
        with self._changed:
            while not self._ended:
                now = time.monotonic()
                batch, again = self._queue.take(now)
                if batch:
                    return batch
                self._changed.wait(None if again > now + 1e9 else max(again - now, 0))
            return []

    def _run(self, model: Model, batch: list[Item]) -> None:
        start, now = time.perf_counter(), time.monotonic()
        try:
            given = self._gathered(batch)
            begun = time.perf_counter()
            found = model.run(given)
            ran = time.perf_counter()
            results = self._cut(batch, found)
        except ServingError as e:
            self._fail(batch, e, start)
            return
        except Exception as e:  # a model may raise anything, and the others must go on
            logger.exception("%s version %s failed", self.name, self.number)
            self._fail(batch, ModelFailed(f"{self.name!r} failed: {type(e).__name__}: {e}"), start)
            return
        stages = Stages(begun - start, ran - begun, time.perf_counter() - ran)
        waits = [now - i.came for i in batch]
        self.statistics.ran(waits, sum(i.rows for i in batch), stages)
        for item, result in zip(batch, results, strict=True):
            if not item.abandoned:
                item.done(result)

    def _fail(self, batch: list[Item], error: ServingError, start: float) -> None:
        for item in batch:
            self.statistics.failed(time.perf_counter() - start)
            if not item.abandoned:
                item.done(error)

    def _gathered(self, batch: list[Item]) -> Arrays:
        if not self.signature.batched:
            return batch[0].payload
        rows = sum(i.rows for i in batch)
        # Programs exist for some numbers of rows only; Python takes any.
        size = size_for(rows, self.sizes) if self._known else rows
        names = [f.name for f in self.inputs]
        return {n: joined([i.payload[n] for i in batch], size) for n in names}

    def _cut(self, batch: list[Item], found: Mapping[str, np.ndarray]) -> list[Arrays]:
        missing = [f.name for f in self.signature.outputs if f.name not in found]
        if missing:
            raise ModelFailed(f"{self.name!r} gave no output {missing[0]!r}")
        if not self.signature.batched:
            return [dict(found)]
        rows = sum(i.rows for i in batch)
        short = [n for n, a in found.items() if a.ndim == 0 or a.shape[0] < rows]
        if short:
            raise ModelFailed(
                f"{self.name!r} gave {list(found[short[0]].shape)} as {short[0]!r} for {rows} rows"
            )
        results, at = [], 0
        for item in batch:
            results.append({n: a[at : at + item.rows] for n, a in found.items()})
            at += item.rows
        return results


def _bytes(array: np.ndarray) -> int:
    if array.dtype.kind != "O":
        return array.nbytes
    return sum(len(x) for x in array.reshape(-1))


def _shapes(arrays: Arrays, skip: int = 0) -> tuple[tuple[int, ...], ...]:
    return tuple([a.shape[skip:] for a in arrays.values()])


def _opened(known: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that is -1 where two differ."""
    if len(known) != len(other):
        raise ModelFailed(f"an output has the shapes {list(known)} and {list(other)}")
    return tuple(k if k == o else -1 for k, o in zip(known, other, strict=True))


def _near(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype.kind not in "fV":
        return bool((a == b).all())
    x, y = a.astype(np.float64), b.astype(np.float64)
    spread = float(np.nanmax(np.abs(y), initial=0.0)) or 1.0
    return bool(np.allclose(x, y, rtol=_NEAR, atol=_NEAR * spread, equal_nan=True))
