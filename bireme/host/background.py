"""One worker thread for compilations, those included that the user's code waits for: Ctrl-C is
raised in the main thread, and in the middle of JAX's tracing it would leave that thread in a trace.

At exit compilations are dropped: a program that nobody will run any more must not keep the process
waiting. Between the stages of a compilation a job calls `check`, and it waits for other processes
in `pause`; both end it. A compiler that runs cannot be stopped: the process ends without it
(leaving.py)."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 (JAX needs it, and it cannot be imported at exit)
import os
import queue
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from bireme.host import config, jax_door, leaving

T = TypeVar("T")

_jobs: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None]
_jobs = queue.SimpleQueue()
_thread: threading.Thread | None = None
_stopping = threading.Event()
_lock = threading.Lock()
_NICENESS = 10  # of a compiler that nobody waits for
_aside: list[threading.Thread] = []  # those of `submit_aside`
_at_work = False  # whether the worker is in a job
_PATIENCE = 0.05  # seconds: an idle worker, and a job between two stages, end in less


class Stopped(BaseException):
    """The process ends, and what a job was waiting for is of no use any more."""


def submit(function: Callable[..., Any], *args: Any) -> Future[Any]:
    """Call `function(*args)` in the worker; the future holds its result or exception. The worker
    itself, and a process without one, do it at once."""
    global _thread
    future: Future[Any] = Future()
    if is_worker() or _stopping.is_set() or config.forked:
        _do(future, function, args)
        return future
    with _lock:
        if _thread is None:
            config.watch_forks()
            _thread = threading.Thread(target=_work, name="bireme-compile", daemon=True)
            _thread.start()
            atexit.register(finish)
    _jobs.put((future, function, args))
    return future


def submit_aside(function: Callable[[], Any]) -> Future[Any]:
    """Call `function` in a thread of its own: long work that nothing waits for."""
    future: Future[Any] = Future()
    thread = threading.Thread(target=_do, args=(future, function, ()), daemon=True)
    _aside[:] = [*(t for t in _aside if t.is_alive()), thread]
    thread.start()
    return future


def yielding(function: Callable[[], T]) -> T:
    """What `function` returns, which it computes in native code; the rest of the process goes first
    if the job at hand is one that nobody waits for.

    It has a thread of its own, because a priority cannot be raised again, and one that runs Python
    would keep others from Python. Threads that the compiler starts inherit the priority.
    """
    if not (is_worker() and config.compile_mode == "auto" and sys.platform.startswith("linux")):
        return function()

    def work() -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        _do(made, function, ())

    made: Future[T] = Future()
    threading.Thread(target=work, name="bireme-compiler", daemon=True).start()
    return made.result()


def pause(seconds: float) -> None:
    """Sleep; raises `Stopped` as soon as the process ends."""
    if _stopping.wait(seconds):
        raise Stopped


def check() -> None:
    """In the thread that compiles, raise `Stopped` if the process ends."""
    if is_worker():
        pause(0)


def is_worker() -> bool:
    """Whether this is the thread that compiles."""
    return threading.current_thread() is _thread


def _work() -> None:
    global _at_work
    with suppress(Stopped):  # which may also come just behind a job
        while (job := _jobs.get()) is not None:
            future, function, args = job
            if _stopping.is_set() or not future.set_running_or_notify_cancel():
                future.cancel()
                continue
            _at_work = True
            _do(future, function, args)
            _at_work = False
            del job, future, function, args  # what the job holds is not kept until the next comes


def _do(future: Future[Any], function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        future.set_result(function(*args))
    except BaseException as e:  # handed to whoever asks for the result
        future.set_exception(e)


def finish(patience: float | None = _PATIENCE) -> None:
    """Drop all jobs; nothing is done after this. At the end of the process, which waits for the job
    at hand for `patience` seconds (None: until it has ended).

    What other exit functions still compute runs uncompiled: it must neither wait for programs that
    were dropped nor find their cancelled futures.
    """
    config.compile_mode = "never"
    _stopping.set()
    _jobs.put(None)
    if _thread is None:
        return
    # While JAX is imported, an exception would leave modules behind that others still import.
    if patience is not None and _at_work and not jax_door.is_loading():
        leaving.interrupt(_thread.ident or 0, Stopped)
    _thread.join(patience)
    busy = [t for t in (_thread, *_aside) if t.is_alive()]
    if busy and not leaving.without_waiting():
        for thread in busy:
            thread.join()
