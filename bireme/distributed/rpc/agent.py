"""Who serves calls, and who makes them."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any, NamedTuple

from bireme.core.errors import InvalidArgument
from bireme.distributed import door, wire
from bireme.distributed.door import Link
from bireme.distributed.hub import Hub
from bireme.distributed.job import DistributedError, is_local

_FOREVER = -1
_PURPOSE = b"rpc"
_NUMBER = 8  # bytes of a call's number, which its answer has too
_THREADS = 16


class WorkerInfo(NamedTuple):
    """A process that serves calls."""

    name: str
    rank: int
    ip: str
    port: int


class FutureWrapper:
    """A result to come."""

    def __init__(self, future: Future[Any], to: str, timeout: float):
        self._future, self._to = future, to
        self._timeout = timeout if timeout > 0 else None

    def wait(self) -> Any:
        """The result; what the function raised is raised here."""
        try:
            return self._future.result(self._timeout)
        except FutureTimeout:
            raise DistributedError(
                f"[rpc] worker {self._to!r} did not answer within {self._timeout} s"
            ) from None

    def done(self) -> bool:
        return self._future.done()


class _Agent:
    def __init__(self, name: str, rank: int, world: int, master: str, key: bytes):
        self.key = key
        host = wire.endpoint(master)[0]
        chosen = os.environ.get("PADDLE_WORKER_ENDPOINT")
        if chosen is None:
            from bireme.distributed.launch import meeting

            own = "127.0.0.1" if is_local(host) else meeting.own_address(wire.endpoint(master))
            chosen = f"{own}:0"
        ip, port = wire.endpoint(chosen)
        self.pool = ThreadPoolExecutor(_THREADS, "rpc")
        self.numbers = itertools.count()
        self.lock = threading.Lock()
        self.callers: dict[str, _Caller] = {}
        self.door = door.Door((ip, port), key, _PURPOSE, self._welcome)
        self.me = WorkerInfo(name, rank, ip, self.door.address[1])
        self.hub = Hub(rank, world, master, key)
        heard = self.hub.exchange(json.dumps(self.me).encode())
        self.workers = {w.name: w for w in [WorkerInfo(*json.loads(h)) for h in heard]}
        if len(self.workers) != world:
            raise InvalidArgument(
                f"[init_rpc] every worker needs a name of its own. Received: {sorted(self.workers)}"
            )

    def _welcome(self, link: Link) -> None:
        threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: Link) -> None:
        lock = threading.Lock()
        try:
            while True:
                message = link.recv_bytes()
                if len(message) < _NUMBER:
                    break  # nothing that a caller of this job sends
                self.pool.submit(_answer, link, lock, message)
        except (EOFError, OSError, RuntimeError):
            pass  # the caller is gone, or this process stops serving
        finally:
            link.close()

    def call(self, to: str, payload: bytes) -> Future[Any]:
        worker = self.workers.get(to)
        if worker is None:
            raise InvalidArgument(
                f"[rpc] there is no worker {to!r}. Known: {', '.join(sorted(self.workers))}"
            )
        with self.lock:
            caller = self.callers.get(to)
            if caller is None:
                caller = self.callers[to] = _Caller(worker, self.key, self.me.rank)
        return caller.call(next(self.numbers), payload)

    def stop(self) -> None:
        self.hub.exchange(b"")  # calls are served until the last worker has none to make
        self.door.close()
        self.pool.shutdown(wait=True)
        self.hub.exchange(b"")
        for caller in self.callers.values():
            caller.link.close()
        self.hub.close()


class _Caller:
    """The connection to one worker, and the answers that are awaited on it."""

    def __init__(self, worker: WorkerInfo, key: bytes, rank: int):
        self.name = worker.name
        self.link = door.connect((worker.ip, worker.port), key, _PURPOSE, rank)
        self.awaited: dict[int, Future[Any]] = {}
        self.lock = threading.Lock()
        self.ended = False
        threading.Thread(target=self._read, daemon=True).start()

    def call(self, number: int, payload: bytes) -> Future[Any]:
        future: Future[Any] = Future()
        with self.lock:
            if self.ended:
                raise DistributedError(f"[rpc] worker {self.name!r} has ended")
            self.awaited[number] = future
            try:
                self.link.send_bytes(number.to_bytes(_NUMBER, "little"), payload)
            except OSError as e:
                del self.awaited[number]
                raise DistributedError(f"[rpc] worker {self.name!r} cannot be reached: {e}") from e
        return future

    def _read(self) -> None:
        try:
            while True:
                answer = self.link.recv_bytes()
                future = self.awaited.pop(int.from_bytes(answer[:_NUMBER], "little"))
                # The worker has proved to be one of the job's (door.py).
                try:
                    good, value = pickle.loads(memoryview(answer)[_NUMBER:])
                except Exception as e:
                    good, value = False, DistributedError(f"[rpc] the result cannot be read: {e}")
                if good:
                    future.set_result(value)
                else:
                    future.set_exception(value)
        except Exception:  # also what no worker of this job sends
            self.link.close()
            with self.lock:
                self.ended = True
                left, self.awaited = self.awaited, {}
            for future in left.values():
                future.set_exception(DistributedError(f"[rpc] worker {self.name!r} has ended"))


def _answer(link: Link, lock: threading.Lock, message: bytearray) -> None:
    """Run a call and send back its result, or what it raised."""
    try:
        # Only processes that know the job's secret get this far (door.py).
        function, args, kwargs = pickle.loads(memoryview(message)[_NUMBER:])
        answer = wire.pickled((True, function(*args, **kwargs)))
    except Exception as e:
        try:
            answer = pickle.dumps((False, e))
            pickle.loads(answer)
        except Exception:
            text = traceback.format_exc()
            answer = pickle.dumps((False, DistributedError(f"[rpc] the call failed:\n{text}")))
    with lock, suppress(OSError):  # the caller is gone
        link.send_bytes(message[:_NUMBER], answer)


_agent: _Agent | None = None


def _current() -> _Agent:
    if _agent is None:
        raise DistributedError("[rpc] call paddle.distributed.rpc.init_rpc(name) first")
    return _agent


def init_rpc(
    name: str,
    rank: int | None = None,
    world_size: int | None = None,
    master_endpoint: str | None = None,
) -> None:
    """Serve calls under `name`; returns when all workers do.

    Process 0 listens at `master_endpoint` (host:port) for the others to find each other. All of
    them must have the same `BIREME_JOB_SECRET`, which the launcher sets.

    >>> dist.rpc.init_rpc("worker0", 0, 2, "127.0.0.1:8001")  # doctest: +SKIP
    """
    global _agent
    if _agent is not None:
        raise DistributedError(f"[init_rpc] this process is worker {_agent.me.name!r} already")
    env = os.environ
    rank = int(env.get("PADDLE_TRAINER_ID", "0")) if rank is None else rank
    world = int(env.get("PADDLE_TRAINERS_NUM", "1")) if world_size is None else world_size
    master = master_endpoint or env.get("PADDLE_MASTER_ENDPOINT") or env.get("PADDLE_MASTER")
    if master is None:
        raise InvalidArgument("[init_rpc] needs master_endpoint, host:port of process 0")
    _agent = _Agent(name, rank, world, master, wire.secret("init_rpc"))


def rpc_async(
    to: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...] | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: int = _FOREVER,
) -> FutureWrapper:
    """Start `fn(*args, **kwargs)` in worker `to`; `.wait()` gives its result.

    >>> dist.rpc.rpc_async("worker1", min, args=([2, 1],)).wait()  # doctest: +SKIP
    1
    """
    payload = wire.pickled((fn, tuple(args or ()), dict(kwargs or {})))
    return FutureWrapper(_current().call(to, payload), to, timeout)


def rpc_sync(
    to: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...] | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: int = _FOREVER,
) -> Any:
    """The result of `fn(*args, **kwargs)` in worker `to`."""
    return rpc_async(to, fn, args, kwargs, timeout).wait()


def shutdown() -> None:
    """Stop serving calls, when all workers have called this and all calls are answered."""
    global _agent
    _current().stop()
    _agent = None


def get_worker_info(name: str) -> WorkerInfo:
    """Where a worker is."""
    workers = _current().workers
    if name not in workers:
        raise InvalidArgument(
            f"[get_worker_info] there is no worker {name!r}. Known: {', '.join(sorted(workers))}"
        )
    return workers[name]


def get_all_worker_infos() -> list[WorkerInfo]:
    """All workers, in the order of their ranks."""
    return sorted(_current().workers.values(), key=lambda w: w.rank)


def get_current_worker_info() -> WorkerInfo:
    """This process as a worker."""
    return _current().me
