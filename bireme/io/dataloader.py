"""DataLoader: batches of a dataset, read ahead by a thread or by worker processes."""

from __future__ import annotations

import itertools
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from bireme.core import trace
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.place import Place, as_place
from bireme.io import tuning
from bireme.io.collate import Collate, collate, default_convert_fn, to_tensors
from bireme.io.dataset import IterableDataset
from bireme.io.pool import Pool
from bireme.io.position import (
    Position,
    begin,
    borrowed,
    checked,
    generators,
    sampler_state,
    set_sampler_state,
)
from bireme.io.sampler import BatchSampler
from bireme.io.worker import HAS_SHARED_MEMORY, End, Source

if TYPE_CHECKING:
    from bireme.io.dataset import Dataset


# Seconds that loops have waited for batches in this process; the profiler reads it.
waited = [0.0]


class DataLoader:
    """Iterates over a dataset in batches.

    With `num_workers=0` a thread reads ahead (unless `use_buffer_reader=False`); otherwise that
    many processes do. Batches come in the sampler's order whatever the number of workers.
    Worker processes start fresh, so the dataset, `collate_fn` and `worker_init_fn` are sent to
    them: by name from modules and scripts, by value from notebooks and functions.
    """

    def __init__(
        self,
        dataset: Dataset | Iterable[Any],
        feed_list: Sequence[Any] | None = None,
        places: object = None,
        return_list: bool = True,
        batch_sampler: Iterable[Any] | None = None,
        batch_size: int | None = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: Collate | None = None,
        num_workers: int = 0,
        use_buffer_reader: bool = True,
        reader_buffer_size: int = 2,
        prefetch_factor: int = 2,
        use_shared_memory: bool = True,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        persistent_workers: bool = False,
    ):
        self.dataset: Any = dataset
        self.is_stream = isinstance(dataset, IterableDataset)
        self._feed_names = _feed_names(feed_list, return_list)
        self._place = _one_place(places)
        self.reader_buffer_size = _at_least("reader_buffer_size", reader_buffer_size, 1)
        self.prefetch_factor = _at_least("prefetch_factor", prefetch_factor, 1)
        self.timeout = _at_least("timeout", timeout, 0)
        self.use_buffer_reader = use_buffer_reader
        self._wants_shared_memory = use_shared_memory
        self._use_workers(_at_least("num_workers", num_workers, 0))
        self.worker_init_fn = worker_init_fn
        self.persistent_workers = persistent_workers
        self.drop_last = drop_last
        self.batch_size = batch_size
        self.batch_sampler = self._batches(batch_sampler, batch_size, shuffle, drop_last)
        batching = batch_sampler is not None or batch_size is not None
        self.collate_fn = collate_fn or (collate if batching else default_convert_fn)
        self._pool: Pool | None = None
        self._position: Position | None = None  # of the pass that was begun last
        self._resumed: dict[str, Any] | None = None  # where the next pass begins
        if tuning.steps:
            self._use_workers(tuning.best_workers(self))

    def _use_workers(self, count: int) -> None:
        self.num_workers = count
        self.use_shared_memory = self._wants_shared_memory and count > 0 and HAS_SHARED_MEMORY

    def _batches(self, batch_sampler: Any, batch_size: Any, shuffle: bool, drop_last: bool) -> Any:
        if self.is_stream:
            if shuffle or batch_sampler is not None:
                raise InvalidArgument(
                    "[DataLoader] an IterableDataset sets its own order: shuffle and "
                    "batch_sampler do not apply to it"
                )
            if batch_size is not None:
                _at_least("batch_size", batch_size, 1)
            return None
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or drop_last:
                raise InvalidArgument(
                    "[DataLoader] batch_size, shuffle and drop_last belong to the batch_sampler; "
                    "leave them out when you give one"
                )
            self.batch_size = None
            return batch_sampler
        if not hasattr(self.dataset, "__getitem__"):
            raise TypeMismatch(
                "[DataLoader] the dataset must have __getitem__ and __len__, or derive from "
                f"paddle.io.IterableDataset. Received: {type(self.dataset).__name__}"
            )
        if batch_size is None:
            return None
        return BatchSampler(
            self.dataset, None, shuffle, _at_least("batch_size", batch_size, 1), drop_last
        )

    def __len__(self) -> int:
        if self.is_stream:
            raise InvalidArgument("[DataLoader] the length of an IterableDataset is not known")
        return len(self.dataset if self.batch_sampler is None else self.batch_sampler)

    def __call__(self) -> Iterator[Any]:
        return iter(self)

    def __iter__(self) -> Iterator[Any]:
        resumed, self._resumed = self._resumed, None
        pool = None
        if self.num_workers:
            # Going on must not take a number from generators that are the program's.
            with borrowed() if resumed else nullcontext():
                pool = self._open_pool()
        if self.is_stream:
            position, requests = Position(generators(), None), itertools.repeat(None)
        else:
            position, requests = begin(lambda: _requests(self), self.batch_sampler, resumed)
        self._position = position
        # Only arrays that the default collation has just stacked are certainly unshared.
        owned = self.collate_fn is collate
        if pool is not None:
            # Over the pool, not the loader: the workers end with the last reference to it.
            batches, owned = pool.run(requests, close=not self.persistent_workers), True
        else:
            batches = _in_process(self, requests)
        if self.is_stream and resumed:
            for _ in range(resumed["batches"]):  # read again: the position of a stream is unknown
                next(batches, None)
                position.hand_out()
        if pool is None and self.use_buffer_reader:
            batches = _ReadAhead(batches, self.reader_buffer_size)
        return _Batches(self, batches, owned, position)

    def _open_pool(self) -> Pool:
        pool = self._pool
        if pool is None or not pool.is_open:
            pool = Pool(self)
            if self.persistent_workers:
                self._pool = pool
        return pool

    def state_dict(self) -> dict[str, Any]:
        """Where the pass is that was begun last, for `set_state_dict`: how many batches it has
        handed out, and what its order was drawn from. Batches that were read ahead do not count."""
        if self._resumed is not None:
            return dict(self._resumed)
        if self._position is None or self._position.over:
            return Position(None, sampler_state(self.batch_sampler)).state()
        return self._position.state()

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Begin the next pass where the pass of `state_dict` was, with the same order.

        The passes after it draw their orders from NumPy's generator as always. A stream is read
        from its beginning, up to that place.
        """
        state = checked(state_dict)
        set_sampler_state(self.batch_sampler, state["sampler"])
        self._resumed = state if state["start"] is not None else None
        self._position = None

    load_state_dict = set_state_dict


class _Batches(Iterator[Any]):
    """Turns raw batches into Tensors in the thread that asks for them."""

    def __init__(self, loader: DataLoader, batches: Iterator[Any], owned: bool, position: Position):
        self._position = position
        self._batches = batches
        self._owned = owned
        self._place = loader._place
        self._feed_names = loader._feed_names

    def __next__(self) -> Any:
        # Asking for the next batch ends a training step: let the device start on it.
        trace.flush_sealed()
        start = time.perf_counter()
        try:
            raw = next(self._batches)
        except StopIteration:
            self._position.over = True
            raise
        batch = to_tensors(raw, self._place, self._owned)
        self._position.hand_out()
        waited[0] += time.perf_counter() - start
        if self._feed_names is None:
            return batch
        return dict(zip(self._feed_names, batch, strict=True))


def _requests(loader: DataLoader) -> Iterator[Any]:
    """What to fetch, in order: lists of sample numbers, or single ones."""
    if loader.batch_sampler is not None:
        return iter(loader.batch_sampler)
    return iter(range(len(loader.dataset)))


def _in_process(loader: DataLoader, requests: Iterator[Any]) -> Iterator[Any]:
    source = Source(
        loader.dataset, loader.is_stream, loader.collate_fn, loader.batch_size, loader.drop_last
    )
    for request in requests:
        batch = source.fetch(request)
        if isinstance(batch, End):
            return
        yield batch


class _ReadAhead(Iterator[Any]):
    """Runs an iterator in a thread, at most `size` items ahead."""

    def __init__(self, items: Iterator[Any], size: int):
        self._ready: queue.Queue[tuple[bool, Any]] = queue.Queue(size)
        stop = threading.Event()
        # The thread holds the queue and the event only, so that dropping this object stops it.
        thread = threading.Thread(
            target=_read, args=(items, self._ready, stop), name="bireme-read-ahead", daemon=True
        )
        self.close = weakref.finalize(self, _stop, self._ready, stop, thread)
        self._done = False
        thread.start()

    def __next__(self) -> Any:
        if self._done:
            raise StopIteration
        good, item = self._ready.get()
        if good:
            return item
        self._done = True
        if item is None:
            raise StopIteration
        raise item


def _read(items: Iterator[Any], ready: queue.Queue[tuple[bool, Any]], stop: Any) -> None:
    try:
        for item in items:
            ready.put((True, item))
            if stop.is_set():
                return
        ready.put((False, None))
    except BaseException as e:
        ready.put((False, e))


def _stop(ready: queue.Queue[Any], stop: threading.Event, thread: threading.Thread) -> None:
    stop.set()
    try:
        while True:  # make room, so that the thread can reach its check
            ready.get_nowait()
    except queue.Empty:
        pass
    if thread is not threading.current_thread():
        thread.join(timeout=1)


def _feed_names(feed_list: Sequence[Any] | None, return_list: bool) -> list[str] | None:
    if return_list:
        return None
    if feed_list is None:
        raise InvalidArgument("[DataLoader] return_list=False needs feed_list, for the names")
    return [v if isinstance(v, str) else v.name for v in feed_list]


def _one_place(places: Any) -> Place | None:
    if isinstance(places, list | tuple):
        if len(places) != 1:
            raise InvalidArgument(
                f"[DataLoader] give one place; one process feeds one. Received: {places!r}"
            )
        places = places[0]
    return None if places is None else as_place(places)


def _at_least(name: str, value: Any, least: int) -> Any:
    if not isinstance(value, int | float) or isinstance(value, bool) or value < least:
        kind = "a positive integer" if least else "0 or more"
        raise InvalidArgument(f"[DataLoader] {name} must be {kind}. Received: {value!r}")
    return value
