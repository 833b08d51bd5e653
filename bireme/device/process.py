"""Settings of the whole process, which a library does not touch by itself.

`import bireme` leaves the allocator and the interpreter's hooks as they are. They are changed where
the process is Bireme's own (`bireme run`, `bireme demo`, the processes of `spawn`) and where a
program asks for it: `tune_process`. What is done to the C heap, `BIREME_HEAP` says:

    BIREME_HEAP=keep[:MiB]  this much freed memory stays with the process (512 unless told)
    BIREME_HEAP=huge[:MiB]  all of it stays, in pages of 2 MiB for the first MiB (1024 unless told)
    BIREME_HEAP=off         glibc is left alone

By default glibc gives every large array fresh zeroed pages and takes them back when it is freed, so
each step pays for the same page faults again: a seventh of an encoder's step on a CPU.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import traceback
import warnings
from types import TracebackType

from bireme.api import hints
from bireme.core.errors import BiremeError, shows_internal_frames, without_internal_frames
from bireme.host import heap as c_heap

# <malloc.h>
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_NEVER = 2**31 - 1
_PAD = 64 << 20
_HUGE_PAGE = 2 << 20

_heap_setting: str | None = None  # the one in force
_previous_hook = sys.excepthook


def tune_process(*, heap: bool = True, tracebacks: bool = True) -> None:
    """Set this process up for Bireme. Call it first, before anything is computed.

    With `heap` freed memory stays with the process (up to 512 MiB; `BIREME_HEAP` says otherwise)
    and all threads take theirs from one heap. That makes training on CPUs up to a seventh faster,
    where the C library is glibc. With `tracebacks` an uncaught error of Bireme's is shown with the
    program's own lines only, and one of a call as in PyTorch with what to write instead.

    >>> paddle.device.tune_process()  # doctest: +SKIP
    """
    if heap:
        _tune_heap()
    if tracebacks:
        _filter_tracebacks()


def _tune_heap() -> None:
    global _heap_setting
    given = os.environ.get("BIREME_HEAP", "")
    wanted = given or "keep"
    if wanted == "off" or _heap_setting is not None:
        return
    kind, _, size = wanted.partition(":")
    if kind not in ("keep", "huge") or (size and not size.isdigit()):
        warnings.warn(
            f"BIREME_HEAP must be 'off', 'keep', 'huge' or one of the latter with ':<MiB>', not "
            f"{wanted!r}; it is ignored",
            RuntimeWarning,
            stacklevel=3,
        )
        return
    libc = c_heap.glibc()
    if libc is None:
        if given:
            warnings.warn("BIREME_HEAP needs glibc; it is ignored", RuntimeWarning, stacklevel=3)
        return
    # glibc spreads new threads over the heaps that there are. With a second heap (the compiling
    # thread's) the same buffer of a step lay now in one, now in the other, and both kept its pages.
    libc.mallopt(_ARENA_MAX, 1)
    _keep(libc, _NEVER if kind == "huge" else min(int(size or 512) << 20, _NEVER))
    if kind == "huge":
        _use_huge_pages(libc, int(size or 1024) << 20)
    _heap_setting = wanted


def _keep(libc: ctypes.CDLL, most: int) -> None:
    for option, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, most), (_TOP_PAD, _PAD)):
        libc.mallopt(option, value)


def _use_huge_pages(libc: ctypes.CDLL, size: int) -> None:
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    block = libc.malloc(size)  # grows the heap; nothing is touched yet
    if not block:
        return
    first = -(-block // _HUGE_PAGE) * _HUGE_PAGE
    libc.madvise(first, block + size - first, mmap.MADV_HUGEPAGE)
    libc.free(block)


def _filter_tracebacks() -> None:
    global _previous_hook
    if sys.excepthook is not _show:
        _previous_hook, sys.excepthook = sys.excepthook, _show


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    better = hints.at_display(error)
    if better is not error:
        kind, error = type(better), better
    if isinstance(error, BiremeError) and not shows_internal_frames():
        trace = without_internal_frames(trace)
        traceback.print_exception(kind, error.with_traceback(trace), trace)
    else:
        _previous_hook(kind, error, trace)


__all__ = ["tune_process"]
