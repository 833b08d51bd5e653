"""How the C heap, from which XLA takes its CPU buffers, treats large blocks: `BIREME_HEAP`.

By default glibc gives every large array fresh zeroed pages and takes them back when it is freed, so
each step pays for the same page faults again: a seventh of an encoder's step. Bireme has it keep
them, up to a bound. The settings are process-wide:

    BIREME_HEAP=keep[:MiB]  this much freed memory stays with the process (512 unless told)
    BIREME_HEAP=huge[:MiB]  all of it stays, in pages of 2 MiB for the first MiB (1024 unless told)
    BIREME_HEAP=off         glibc is left alone
"""

from __future__ import annotations

import ctypes
import mmap
import os
import warnings

from bireme.core import heap

# <malloc.h>
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_NEVER = 2**31 - 1
_PAD = 64 << 20
_HUGE_PAGE = 2 << 20

active: str | None = None  # the setting in force


def share() -> None:
    """Have all threads take memory from one heap, before there are threads of ours.

    glibc spreads new threads over the heaps that there are, and one that has allocated stays with
    its own. With a second heap (the compiling thread's) the same buffer of a step lay now in one,
    now in the other, and both kept its pages.
    """
    libc = heap.glibc()
    kind = os.environ.get("BIREME_HEAP", "").partition(":")[0]
    if libc is not None and kind in ("", "keep", "huge"):
        libc.mallopt(_ARENA_MAX, 1)


def apply() -> None:
    """Do what BIREME_HEAP says, once, before the first large buffer is made."""
    global active
    given = os.environ.get("BIREME_HEAP", "")
    wanted = given or "keep"
    if wanted == "off" or active is not None:
        return
    kind, _, size = wanted.partition(":")
    if kind not in ("keep", "huge") or (size and not size.isdigit()):
        warnings.warn(
            f"BIREME_HEAP must be 'off', 'keep', 'huge' or one of the latter with ':<MiB>', not "
            f"{wanted!r}; it is ignored",
            RuntimeWarning,
            stacklevel=2,
        )
        return
    libc = heap.glibc()
    if libc is None:
        if given:
            warnings.warn("BIREME_HEAP needs glibc; it is ignored", RuntimeWarning, stacklevel=2)
        return
    _keep(libc, _NEVER if kind == "huge" else min(int(size or 512) << 20, _NEVER))
    if kind == "huge":
        _use_huge_pages(libc, int(size or 1024) << 20)
    active = wanted


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
