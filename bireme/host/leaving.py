"""Ends a process in which another thread is still in native code that cannot be interrupted.

Python's own end is as always: exit functions, flushed streams, the destruction of modules. Then the
process calls C's exit functions and the destructors of libraries, which would take away what the
other thread works with. A function of C that is registered last comes before all of these, and
ends the process with its status.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress


def interrupt(thread: int, error: type[BaseException]) -> None:
    """Raise an exception in a thread, by its identity, as soon as it runs Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


def without_waiting() -> bool:
    """Have this process end as soon as Python has finished, whatever other threads do. False if the
    system offers no way (this one is glibc's).

    Only for a process that is ending, and that has such a thread: C's exit functions that were
    registered before are not called.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    try:
        on_exit, at_exit = libc.on_exit, libc.__cxa_atexit
        leave, flush, sleep = libc._exit, libc.fflush, libc.sleep
    except AttributeError:
        return False
    # The last one registered is called first: C's streams are flushed, then the process ends.
    # `_exit` gets the process's status from `on_exit`, `fflush` a null pointer: all streams.
    on_exit(leave, None)
    at_exit(flush, None, None)
    # Python 3.11 to 3.13 end a thread that comes back from native code while Python finishes, by
    # `pthread_exit`, and C++ frames below abort the process then. The handler of that signal sleeps
    # in the thread (for its argument's number of seconds, 6), and the process ends meanwhile.
    # C++'s own handler would print that an exception was not caught.
    with suppress(OSError, AttributeError):
        cpp = ctypes.CDLL("libstdc++.so.6", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        set_terminate = cpp._ZSt13set_terminatePFvvE
        set_terminate.argtypes = [ctypes.c_void_p]
        set_terminate(ctypes.cast(libc.abort, ctypes.c_void_p))
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.signal.restype = ctypes.c_void_p
    libc.signal(signal.SIGABRT, ctypes.cast(sleep, ctypes.c_void_p))
    return True
