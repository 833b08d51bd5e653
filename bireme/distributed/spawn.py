"""spawn: run a function in several processes that are a job."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from multiprocessing import connection
from typing import Any

from bireme.core.errors import InvalidArgument
from bireme.device import tune_process
from bireme.distributed.job import DistributedError
from bireme.distributed.launch import meeting
from bireme.io import by_value

_OPTIONS = ("start_method", "gpus", "backend", "print_config", "ips")
_GRACE = 10.0  # seconds between asking a process to end and ending it
_environment_lock = threading.Lock()


class MultiprocessContext:
    """The processes of a job that `spawn` has started."""

    def __init__(self, processes: list[Any], errors: list[Any], ports: meeting.Ports):
        self.processes = processes
        self._errors = errors
        self._ports = ports
        self.sentinels = {p.sentinel: i for i, p in enumerate(processes)}

    def join(self, timeout: float | None = None) -> bool:
        """Wait for all processes; True when all have ended. A failure ends all and is raised."""
        if self.sentinels:
            for sentinel in connection.wait(list(self.sentinels), timeout):
                number = self.sentinels.pop(sentinel)  # type: ignore[arg-type]
                self.processes[number].join()  # its end of the pipe closes a moment earlier
                if self.processes[number].exitcode != 0:
                    self._fail(number)
        if self.sentinels:
            return False
        for p in self.processes:
            p.join()
        self._ports.release()
        return True

    def _end(self) -> None:
        for p in self.processes:
            if p.is_alive():
                p.terminate()
        until = time.monotonic() + _GRACE
        for p in self.processes:
            p.join(max(0.0, until - time.monotonic()))
            if p.is_alive():  # stopped, or deaf to signals
                p.kill()
                p.join()
        self._ports.release()

    def _fail(self, number: int) -> None:
        self._end()
        code = self.processes[number].exitcode
        told = self._errors[number]
        try:
            how = f"\n\n{told.recv()}"
        except (EOFError, OSError):  # it was killed, perhaps while it wrote
            how = f" with exit code {code}"
        raise DistributedError(f"[spawn] process {number} failed{how}")


def spawn(
    func: Callable[..., Any],
    args: Iterable[Any] = (),
    nprocs: int = -1,
    join: bool = True,
    daemon: bool = False,
    **options: Any,
) -> MultiprocessContext:
    """Call `func(*args)` in `nprocs` new processes of one job, one per GPU by default.

    `func` and `args` are sent by name from modules and scripts, by value from notebooks. Options:
    `gpus="0,1"`, `backend="gloo"` for processes on CPUs, `start_method="forkserver"`.

    >>> dist.spawn(train, nprocs=2)  # doctest: +SKIP
    """
    for key in options:
        if key not in _OPTIONS:
            raise InvalidArgument(
                f"The config option ({key}) of `paddle.distributed.spawn` is not supported. It "
                f"knows: {', '.join(_OPTIONS)}"
            )
    if options.get("ips") not in (None, "127.0.0.1", "localhost"):
        raise InvalidArgument("[spawn] starts processes on this machine; use the launcher for more")
    method = options.get("start_method", "spawn")
    if method not in ("spawn", "forkserver"):
        raise InvalidArgument(
            f"[spawn] start_method must be 'spawn' or 'forkserver': XLA's threads do not survive a "
            f"fork. Received: {method!r}"
        )
    ports = meeting.Ports()
    told = _environments(nprocs, options.get("gpus"), options.get("backend", "auto"), ports)
    if options.get("print_config"):
        _print_config(told)
    context: Any = multiprocessing.get_context(method)
    task = by_value.pickled((func, tuple(args)))
    processes, errors = [], []
    for env in told:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(task, env, sender), daemon=daemon)
        # Libraries read the environment when they are imported, which is before `_run`.
        with _set(env), by_value.startable_main():
            process.start()
        sender.close()
        processes.append(process)
        errors.append(receiver)
    started = MultiprocessContext(processes, errors, ports)
    try:
        while join and not started.join():
            pass
    except KeyboardInterrupt:
        started._end()
        raise
    return started


def _environments(
    count: int, gpus: str | None, backend: str, ports: meeting.Ports
) -> list[dict[str, str]]:
    if backend not in ("auto", "gloo", "nccl"):
        raise InvalidArgument(f"[spawn] backend must be auto, gloo or nccl. Received: {backend!r}")
    devices = [] if backend == "gloo" else gpus.split(",") if gpus else meeting.gpus()
    if backend == "nccl" and not devices:
        raise InvalidArgument("[spawn] backend='nccl', but this machine has no GPU")
    if count < 1:
        count = len(devices) or 1
    if 0 < len(devices) < count:
        raise InvalidArgument(f"[spawn] nprocs is {count}, but there are {len(devices)} GPUs")
    node = meeting.node("127.0.0.1", count, ports)
    return meeting.environments([node], 0, devices, meeting.job_secret(create=True))


def _print_config(told: list[dict[str, str]]) -> None:
    import sys

    shown = [k for k in told[0] if "SECRET" not in k]
    for env in told:
        sys.stdout.write(" ".join(f"{k}={env[k]}" for k in shown) + "\n")


@contextmanager
def _set(env: dict[str, str]) -> Any:
    with _environment_lock:
        before = {k: os.environ.get(k) for k in env}
        os.environ.update(env)
        try:
            yield
        finally:
            for key, value in before.items():
                if value is None:
                    del os.environ[key]
                else:
                    os.environ[key] = value


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)  # the job's other processes end in the same way


def _run(task: bytes, env: dict[str, str], out: Any) -> None:
    from bireme.distributed import job

    os.environ.update(env)
    tune_process()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        func, args = pickle.loads(task)  # from the process that started this one
        func(*args)
    except BaseException as e:
        if not isinstance(e, SystemExit) or e.code not in (None, 0):
            out.send(traceback.format_exc())
            job.fail(1)
        raise
    job.leave()


__all__ = ["MultiprocessContext", "spawn"]
