"""paddle.reader: functions that make readers of readers.

A reader is a function without arguments that returns an iterable of samples; these were Paddle's
data pipelines before `paddle.io.Dataset`.
"""

from __future__ import annotations

import itertools
import queue
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bireme.core.errors import BiremeError, InvalidArgument

Reader = Callable[[], Iterable[Any]]


class ComposeNotAligned(BiremeError, ValueError):
    """Readers that are read in step do not have equally many samples."""


def cache(reader: Reader) -> Reader:
    """Reads `reader` once, completely, and then repeats what it gave."""
    samples = tuple(reader())
    return lambda: iter(samples)


def map_readers(func: Callable[..., Any], *readers: Reader) -> Reader:
    """`func` of one sample of each reader, until the shortest ends."""
    return lambda: map(func, *[r() for r in readers])


def shuffle(reader: Reader, buf_size: int) -> Reader:
    """Samples in random order within blocks of `buf_size`; 0 and 1 keep their order."""

    def shuffled() -> Iterator[Any]:
        samples = iter(reader())
        while block := list(itertools.islice(samples, max(buf_size, 1))):
            random.shuffle(block)
            yield from block

    return shuffled


def chain(*readers: Reader) -> Reader:
    """One reader after the other."""
    return lambda: itertools.chain.from_iterable(r() for r in readers)


def compose(*readers: Reader, check_alignment: bool = True) -> Reader:
    """Tuples of one sample of each reader; a sample that is a tuple gives its parts.

    Readers of different lengths are an error, unless `check_alignment` is False: then the
    shortest one ends the pass.
    """
    missing = object()

    def composed() -> Iterator[tuple[Any, ...]]:
        each = [r() for r in readers]
        if not check_alignment:
            yield from (_joined(row) for row in zip(*each, strict=False))
            return
        for row in itertools.zip_longest(*each, fillvalue=missing):
            if any(sample is missing for sample in row):
                raise ComposeNotAligned(
                    "[compose] the readers have different numbers of samples; pass "
                    "check_alignment=False to stop with the shortest"
                )
            yield _joined(row)

    return composed


def _joined(row: Sequence[Any]) -> tuple[Any, ...]:
    parts = [sample if isinstance(sample, tuple) else (sample,) for sample in row]
    return tuple(itertools.chain.from_iterable(parts))


def firstn(reader: Reader, n: int) -> Reader:
    """The first `n` samples."""
    return lambda: itertools.islice(reader(), n)


def buffered(reader: Reader, size: int) -> Reader:
    """Reads up to `size` samples ahead, in a thread."""
    return lambda: _from_threads([reader], max(size, 1))


def multiprocess_reader(
    readers: Sequence[Reader], use_pipe: bool = True, queue_size: int = 1000
) -> Reader:
    """Samples of several readers in the order in which they come; each reader has a thread.

    Readers are closures, which Python hands to threads and not to new processes; `use_pipe`
    chooses between two ways to say the same in Paddle and has no meaning for threads.
    """
    if not isinstance(readers, list | tuple) or not readers:
        raise InvalidArgument(
            f"[multiprocess_reader] readers must be a list of readers. Received: {readers!r:.80}"
        )
    return lambda: _from_threads(readers, max(queue_size, 1))


def _from_threads(readers: Sequence[Reader], size: int) -> Iterator[Any]:
    samples: queue.Queue[tuple[str, Any]] = queue.Queue(size)
    stopped = threading.Event()

    def put(kind: str, value: Any = None) -> None:
        while not stopped.is_set():
            try:
                samples.put((kind, value), timeout=0.1)
                return
            except queue.Full:
                continue

    def read(reader: Reader) -> None:
        try:
            for sample in reader():
                put("sample", sample)
                if stopped.is_set():
                    return
            put("end")
        except Exception as e:
            put("error", e)

    for reader in readers:
        threading.Thread(target=read, args=(reader,), daemon=True).start()
    try:
        running = len(readers)
        while running:
            kind, value = samples.get()
            if kind == "error":
                raise value
            if kind == "end":
                running -= 1
            else:
                yield value
    finally:
        stopped.set()


def xmap_readers(
    mapper: Callable[[Any], Any],
    reader: Reader,
    process_num: int,
    buffer_size: int,
    order: bool = False,
) -> Reader:
    """`mapper` of every sample in `process_num` threads, at most `buffer_size` samples ahead.

    With `order` the results come in the reader's order, otherwise as soon as they are there.
    """

    def mapped() -> Iterator[Any]:
        samples = iter(reader())
        with ThreadPoolExecutor(process_num) as pool:
            waiting = [pool.submit(mapper, s) for s in itertools.islice(samples, buffer_size)]
            while waiting:
                done = 0
                if not order:
                    done = next((i for i, f in enumerate(waiting) if f.done()), 0)
                result = waiting.pop(done).result()
                waiting += [pool.submit(mapper, s) for s in itertools.islice(samples, 1)]
                yield result

    return mapped


__all__ = [
    "ComposeNotAligned", "buffered", "cache", "chain", "compose", "firstn", "map_readers",
    "multiprocess_reader", "shuffle", "xmap_readers",
]  # fmt: skip
