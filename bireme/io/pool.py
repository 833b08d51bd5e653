"""The worker processes of a DataLoader, seen from the parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import connection as connections
from multiprocessing import forkserver
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.errors import ExecutionError, InvalidArgument, TypeMismatch
from bireme.host import config
from bireme.io import by_value
from bireme.io.failures import Failure, as_exception
from bireme.io.worker import End, Job, main, receive

if TYPE_CHECKING:
    from bireme.io.dataloader import DataLoader

_GRACE = 0.5  # seconds that idle workers get to leave on their own
_REAPED = 30.0  # seconds until the system has told the end of a process that ends for certain
_STARTS = 3  # how often a process is started whose fork server dies meanwhile


class Pool:
    """Workers with a socket each. Requests are dealt out in turn and answered in order."""

    def __init__(self, loader: DataLoader):
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise InvalidArgument(_NEEDS_MAIN_GUARD)
        if multiprocessing.current_process().daemon:
            raise InvalidArgument(
                "[DataLoader] this process is a daemon (a worker of a pool or of another loader), "
                "which may not have processes of its own: set num_workers=0 here"
            )
        seed = int(np.random.randint(0, sys.maxsize))
        self.timeout = loader.timeout
        self.ahead = loader.prefetch_factor
        self.is_stream = loader.is_stream
        self.epoch = 0
        self.workers: list[Any] = []
        self.sockets: list[Any] = []
        self.started: set[int] = set()  # workers that were heard of
        self.close = weakref.finalize(self, _shut_down, self.workers, self.sockets)
        payloads = [_pickled(loader, i, seed) for i in range(loader.num_workers)]
        try:
            for i in range(loader.num_workers):
                worker, socket = _start(f"bireme-data-{i}")
                self.workers.append(worker)
                self.sockets.append(socket)
            # Only now, because a large one is taken when its worker has started.
            for i, payload in enumerate(payloads):
                self._send(i, payload)
        except BaseException:
            self.close()
            raise

    def run(self, requests: Iterator[Any], close: bool) -> Iterator[Any]:
        """The results of one pass over the data."""
        self.epoch += 1
        try:
            for worker in range(len(self.workers)):
                self._send(worker, (None, self.epoch))
            yield from _Pass(self, requests)
        except GeneratorExit:  # the caller broke off; persistent workers stay
            pass
        except BaseException:
            close = True
            raise
        finally:
            if close:
                self.close()

    @property
    def is_open(self) -> bool:
        return self.close.alive

    def _send(self, worker: int, message: Any) -> None:
        socket = self.sockets[worker]
        try:
            if isinstance(message, bytes):
                socket.send_bytes(message)
            else:
                socket.send(message)
        except OSError:
            raise self.death(worker) from None

    def wait(self, worker: int, since: float) -> list[int]:
        """Workers with something to receive; raises when `worker` died or is too slow."""
        left = None if not self.timeout else since + self.timeout - time.monotonic()
        ready = connections.wait(self.sockets, left if left is None else max(left, 0))
        if not ready:
            raise ExecutionError(
                f"[DataLoader] worker {worker} delivered no batch within timeout="
                f"{self.timeout} s. The dataset's __getitem__ is slow or blocked: raise the "
                "timeout, use more workers, or set timeout=0 to wait without limit"
            )
        return [self.sockets.index(s) for s in ready]

    def death(self, worker: int) -> ExecutionError:
        process = self.workers[worker]
        # Its socket is closed, so it ends; a busy machine may take a while to say how.
        process.join(_REAPED)
        code = process.exitcode
        how = "it closed its connection" if code is None else f"exit code {code}"
        if code is not None and code < 0:
            how = f"signal {signal.Signals(-code).name}"
        if worker not in self.started and code == 1:
            hint = _NEEDS_MAIN_GUARD
        elif code == 255:
            hint = "its fork server may have been ended, and with it what is known of the worker"
        elif code is not None and code < 0:
            hint = "it may have run out of memory"
        else:
            hint = "its code or a library of its dataset ended the process"
        return ExecutionError(f"[DataLoader] worker {worker} died ({how}); {hint}")


class _Pass(Iterator[Any]):
    """One pass: keeps every worker `ahead` requests busy and gives results in request order."""

    def __init__(self, pool: Pool, requests: Iterator[Any]):
        self.pool = pool
        self.requests = requests
        self.exhausted = False
        self.active = list(range(len(pool.workers)))  # those whose stream has not ended
        self.turn = 0
        self.sent = self.next = 0
        self.owner: dict[int, int] = {}
        self.arrived: dict[int, Any] = {}
        for _ in range(pool.ahead * len(pool.workers)):
            self._request()

    def _request(self) -> None:
        if self.exhausted or not self.active:
            return
        try:
            request = next(self.requests)
        except StopIteration:
            self.exhausted = True
            return
        worker = self.active[self.turn % len(self.active)]
        self.turn += 1
        self.owner[self.sent] = worker
        self.pool._send(worker, ((self.pool.epoch, self.sent), request))
        self.sent += 1

    def __next__(self) -> Any:
        while self.next < self.sent:
            worker = self.owner[self.next]
            if self.next not in self.arrived:
                self._receive_until(self.next, worker)
            result = self.arrived.pop(self.next)
            del self.owner[self.next]
            self.next += 1
            if isinstance(result, Failure):
                raise as_exception(result, worker)
            if isinstance(result, End):
                self._retire(worker)
                continue
            self._request()
            return result
        raise StopIteration

    def _receive_until(self, number: int, worker: int) -> None:
        since = time.monotonic()
        while number not in self.arrived:
            for ready in self.pool.wait(worker, since):
                try:
                    (epoch, done), result = receive(self.pool.sockets[ready])
                except (EOFError, OSError):  # it died, perhaps in the middle of a message
                    raise self.pool.death(ready) from None
                self.pool.started.add(ready)
                if epoch == self.pool.epoch:
                    self.arrived[done] = result

    def _retire(self, worker: int) -> None:
        """A stream ended: its turn goes to the others."""
        if worker in self.active:
            at = self.active.index(worker)
            position = self.turn % len(self.active)
            self.active.remove(worker)
            if self.active:
                self.turn = (position - (at < position)) % len(self.active)


def _context() -> Any:
    """Fresh processes: forking one that has XLA's threads deadlocks."""
    methods = multiprocessing.get_all_start_methods()
    if "forkserver" not in methods:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bireme.io.worker", "bireme.io.collate"])
    return context


def _start(name: str) -> tuple[Any, Any]:
    """A new worker and the socket to it."""
    context = _context()
    ours, theirs = context.Pipe()
    try:
        for attempt in range(_STARTS):
            worker = context.Process(
                target=main,
                args=(theirs, dict(os.environ), config.in_workers),
                name=name,
                daemon=True,
            )
            try:
                with by_value.startable_main():
                    worker.start()
            except (EOFError, OSError) as e:
                # The fork server was killed, or belongs to a process that this one was forked from.
                if attempt == _STARTS - 1:
                    raise ExecutionError(
                        "[DataLoader] no worker process could be started, also not by a new fork "
                        f"server: {type(e).__name__}: {e}. Set num_workers=0 to do without"
                    ) from e
                _forget_fork_server()
            else:
                return worker, ours
        raise AssertionError
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()


def _forget_fork_server() -> None:
    """Let the next process come from a new fork server."""
    server: Any = forkserver._forkserver  # type: ignore[attr-defined]
    with server._lock:
        alive, server._forkserver_alive_fd = server._forkserver_alive_fd, None
        pid, server._forkserver_pid = server._forkserver_pid, None
        server._forkserver_address = None
        if alive is not None:
            os.close(alive)  # an old server that still lives ends by this
        if pid is not None:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _pickled(loader: DataLoader, worker_id: int, seed: int) -> bytes:
    job = Job(
        loader.dataset, loader.is_stream, loader.collate_fn, loader.batch_size, loader.drop_last,
        loader.worker_init_fn, worker_id, loader.num_workers, seed, loader.use_shared_memory,
    )  # fmt: skip
    try:
        return by_value.pickled(job)
    except Exception as e:
        raise TypeMismatch(_unpicklable(loader, e)) from e


def _unpicklable(loader: DataLoader, error: Exception) -> str:
    culprit = "the dataset"
    for name in ("dataset", "collate_fn", "worker_init_fn"):
        try:
            by_value.pickled(getattr(loader, name))
        except Exception:
            culprit = f"{name} ({getattr(loader, name)!r})"
            break
    return (
        f"[DataLoader] worker processes need a picklable dataset and functions, and {culprit} is "
        f"not: {error}. Open files, locks and devices cannot be sent, neither as attributes nor "
        "as globals or closures that functions use: open them on first use, or set num_workers=0"
    )


def _shut_down(workers: list[Any], sockets: list[Any]) -> None:
    for socket in sockets:
        socket.close()
    deadline = time.monotonic() + _GRACE
    for worker in workers:
        worker.join(max(deadline - time.monotonic(), 0))
    for stop in ("terminate", "kill"):
        for worker in workers:
            if worker.is_alive():
                getattr(worker, stop)()
                worker.join(_GRACE if stop == "terminate" else _REAPED)
    for worker in workers:
        if not worker.is_alive():
            worker.close()
    workers.clear()
    sockets.clear()


_NEEDS_MAIN_GUARD = (
    "a script that uses num_workers > 0 must keep its training code under "
    "`if __name__ == '__main__':`, because worker processes import the script to find its "
    "classes; or set num_workers=0"
)
