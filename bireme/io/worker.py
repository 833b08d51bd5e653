"""A DataLoader's worker process: reads samples, sends batches of NumPy arrays.

Workers come from a fork server that never loaded JAX (forking a process with XLA's threads
deadlocks). One socket joins each worker and the parent; it closes when either dies, which is
how both learn of it. Large arrays travel in an unnamed memory file whose descriptor is passed
along, so that nothing is copied and nothing is left behind after a crash.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import queue
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import reduction
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core import random as core_random
from bireme.core.errors import ExecutionError
from bireme.host import config
from bireme.io import by_value
from bireme.io.failures import Failure, failure
from bireme.io.sampler import in_batches

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


HAS_SHARED_MEMORY = hasattr(os, "memfd_create")
# Arrays smaller than this are cheaper to send than to map.
_SHARED_MINIMUM = 16 * 1024
_ALIGNMENT = 64
# The number of a worker's first message, which says that it has started. Passes count from 1.
_STARTED = (0, 0)
_LEAVE = 5.0  # seconds that a sample under way may take after the parent has gone


@dataclass(frozen=True)
class WorkerInfo:
    """Which worker this is; see `get_worker_info`."""

    id: int
    num_workers: int
    dataset: Any
    seed: int


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker process its number, the number of workers, the dataset; elsewhere None."""
    return _worker_info


@dataclass
class Job:
    """What a worker needs to know to do its work; sent pickled, once."""

    dataset: Any
    is_stream: bool
    collate: Callable[[Any], Any]
    batch_size: int | None
    drop_last: bool
    init: Callable[[int], None] | None
    worker_id: int
    num_workers: int
    seed: int
    shared_memory: bool


class End:
    """A stream has no more batches."""


class Source:
    """Batches of a dataset, in the parent or in a worker."""

    def __init__(
        self,
        dataset: Any,
        is_stream: bool,
        collate: Callable[[Any], Any],
        batch_size: int | None,
        drop_last: bool,
    ):
        self.dataset, self.collate = dataset, collate
        self.stream: Iterator[Any] | None = None
        if is_stream:
            samples = iter(dataset)
            if batch_size is not None:
                samples = in_batches(samples, batch_size, drop_last)
            self.stream = samples

    def fetch(self, request: Any) -> Any:
        """The batch of these sample numbers (one number when batching is off), or the next."""
        if self.stream is not None:
            try:
                sample = next(self.stream)
            except StopIteration:
                return End()
            return self.collate(sample)
        if isinstance(request, list | tuple):
            return self.collate([self.dataset[i] for i in request])
        return self.collate(self.dataset[request])


def main(
    connection: Connection, environment: dict[str, str], first: list[Callable[[], None]]
) -> None:
    """Entry point of the process. What is to be done `first` decides what the job's modules
    find when they are imported."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    # The fork server's environment is that of the first loader; the program may have changed it.
    os.environ.clear()
    os.environ.update(environment)
    os.environ["JAX_PLATFORMS"] = "cpu"  # should a dataset load JAX, it must not take the GPU
    config.compile_mode = "never"
    config.forked = True  # no builds and no cache of compiled programs: samples take the NumPy tier
    for step in first:
        step()
    try:
        send(connection, _STARTED, None, False)
        _serve(connection, connection.recv_bytes())
    except (EOFError, OSError):
        pass  # the parent went away
    finally:
        connection.close()


def _prepared(payload: bytes) -> Job:
    global _worker_info
    job: Job = pickle.loads(payload)
    _seed(job.seed, job.worker_id)
    _worker_info = WorkerInfo(job.worker_id, job.num_workers, job.dataset, job.seed)
    if job.init is not None:
        job.init(job.worker_id)
    return job


def _serve(connection: Connection, payload: bytes) -> None:
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    epoch = [0]
    threading.Thread(target=_receive, args=(connection, requests, epoch), daemon=True).start()
    problem: Failure | None = None
    job: Job | None = None
    try:
        job = _prepared(payload)
    except BaseException as e:
        problem = failure(e)
    source: Source | None = None
    while (request := requests.get()) is not None:
        number, indices = request
        if number is None:  # a new pass over the data
            source = None
            continue
        if number[0] != epoch[0]:  # the parent gave up that pass
            continue
        result: Any = problem
        if problem is None and job is not None:
            try:
                if source is None:
                    source = Source(
                        job.dataset, job.is_stream, job.collate, job.batch_size, job.drop_last
                    )
                result = source.fetch(indices)
            except BaseException as e:  # sys.exit() in a dataset, too, is an error of its own
                result = failure(e)
        send(connection, number, result, job is not None and job.shared_memory)


def _receive(connection: Connection, requests: queue.SimpleQueue[Any], epoch: list[int]) -> None:
    """Always reading, so that the parent never waits to send while this process does."""
    try:
        while True:
            number, indices = connection.recv()
            if number is None:
                epoch[0] = indices
            requests.put((number, indices))
    except (EOFError, OSError):
        requests.put(None)
        # The parent closed the socket or died. A sample that blocks must not keep the process.
        time.sleep(_LEAVE)
        os._exit(1)


def _seed(seed: int, worker_id: int) -> None:
    random.seed(seed + worker_id)
    np.random.seed([worker_id, seed & 0xFFFFFFFF, seed >> 32])
    core_random.seed(seed + worker_id)


def send(connection: Connection, number: object, result: object, shared: bool) -> None:
    """Send one result; large buffers go into a memory file."""
    try:
        data, sizes, file = _packed(result, shared)
    except Exception as e:
        data, sizes, file = _packed(failure(e), False)
    try:
        connection.send((number, sizes))
        connection.send_bytes(data)
        if file is not None:
            reduction.send_handle(connection, file, None)
    finally:
        if file is not None:
            os.close(file)


def _packed(result: Any, shared: bool) -> tuple[bytes, list[int], int | None]:
    """A result as a pickle, and the memory file that has its large buffers, with their sizes."""
    large: list[pickle.PickleBuffer] = []

    def inline(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < _SHARED_MINIMUM:
            return True
        large.append(buffer)
        return False

    out = io.BytesIO()
    by_value.Pickler(out, 5, buffer_callback=inline if shared else None).dump(result)
    if not large:
        return out.getvalue(), [], None
    sizes = [buffer.raw().nbytes for buffer in large]
    file = os.memfd_create("bireme-batch")
    try:
        _write(file, large, sizes)
    except BaseException:
        os.close(file)
        raise
    return out.getvalue(), sizes, file


def receive(connection: Connection) -> tuple[Any, Any]:
    """(number, result) as `send` sent it; large arrays are views of the memory file."""
    number, sizes = connection.recv()
    data = connection.recv_bytes()
    if not sizes:
        return number, pickle.loads(data)
    try:
        file = reduction.recv_handle(connection)
    except RuntimeError as e:  # the system could not give this process one more descriptor
        raise ExecutionError(
            f"[DataLoader] a batch in shared memory cannot be opened ({e}). This process may have "
            "too many open files: raise the limit (ulimit -n), or set use_shared_memory=False"
        ) from e
    try:
        offsets, total = _offsets(sizes)
        memory = memoryview(mmap.mmap(file, total))
    finally:
        os.close(file)
    pieces = [memory[o : o + n] for o, n in zip(offsets, sizes, strict=True)]
    return number, pickle.loads(data, buffers=pieces)


def _write(file: int, buffers: list[pickle.PickleBuffer], sizes: list[int]) -> None:
    offsets, total = _offsets(sizes)
    os.ftruncate(file, total)
    for buffer, offset in zip(buffers, offsets, strict=True):
        rest = buffer.raw()
        while rest.nbytes:  # one call writes at most 2 GiB
            written = os.pwrite(file, rest, offset)
            rest, offset = rest[written:], offset + written


def _offsets(sizes: list[int]) -> tuple[list[int], int]:
    offsets, at = [], 0
    for size in sizes:
        offsets.append(at)
        at += -(-size // _ALIGNMENT) * _ALIGNMENT
    return offsets, at
