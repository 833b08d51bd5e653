"""One worker thread for compilations. At exit it finishes the job at hand and drops the rest:
a program that nobody will run any more must not keep the process waiting."""

from __future__ import annotations

import atexit
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

_jobs: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None]
_jobs = queue.SimpleQueue()
_thread: threading.Thread | None = None
_stopping = False
_lock = threading.Lock()


def submit(function: Callable[..., Any], *args: Any) -> Future[Any]:
    """Call `function(*args)` in the worker; the future holds its result or exception."""
    global _thread
    future: Future[Any] = Future()
    with _lock:
        if _thread is None:
            _thread = threading.Thread(target=_work, name="bireme-compile", daemon=True)
            _thread.start()
            atexit.register(finish)
    _jobs.put((future, function, args))
    return future


def _work() -> None:
    while (job := _jobs.get()) is not None:
        future, function, args = job
        if _stopping or not future.set_running_or_notify_cancel():
            future.cancel()
            continue
        try:
            future.set_result(function(*args))
        except BaseException as e:  # handed to whoever asks for the result
            future.set_exception(e)


def finish() -> None:
    """Wait for the job at hand and drop the rest; nothing is done after this."""
    global _stopping
    _stopping = True
    _jobs.put(None)
    if _thread is not None:
        _thread.join()
