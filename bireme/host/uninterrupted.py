"""Calls that Ctrl-C cannot cut off between their effect and their result.

Python raises KeyboardInterrupt between two instructions of the main thread. A native call has none,
but the first call of a compiled program goes through Python functions of JAX. An interrupt in them
loses the results when the donated inputs are gone, or leaves the thread within one of JAX's traces.
So such a call is made in a thread of its own, where nothing is raised, and the interrupt is raised
when it is over.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def run(work: Callable[[], T]) -> T:
    """What `work` returns. It is done whole, or not at all."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    made: list[T] = []
    waiting = _thread.allocate_lock()
    waiting.acquire()
    raised: list[BaseException] = []
    started: list[int] = []
    over: list[bool] = []

    def target() -> None:
        try:
            made.append(work())
        except BaseException as e:
            raised.append(e)
        over.append(True)
        waiting.release()

    try:
        # One native call, so that an interrupt comes when `started` is right.
        started.extend(map(_thread.start_new_thread, (target,), ((),)))
        waiting.acquire()
    except BaseException as e:
        if started:
            while not over:
                with suppress(BaseException):  # a second interrupt
                    waiting.acquire(True, 0.01)
        elif isinstance(e, RuntimeError):  # there can be no more threads
            return work()
        raise
    if raised:
        raise raised[0]
    return made[0]
