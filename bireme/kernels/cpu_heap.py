"""How the C heap, from which XLA takes its CPU buffers, treats large blocks: `BIREME_HEAP`.

By default glibc gives every large array fresh zeroed pages and takes them back when it is freed, so
each step pays for the same page faults again. The settings are process-wide, which is why the
default is to leave them alone:

    BIREME_HEAP=keep        freed memory stays with the process: its peak is never given back
    BIREME_HEAP=huge[:MiB]  the same, in pages of 2 MiB for the first MiB (1024 unless told)
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import warnings

# <malloc.h>
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_NEVER = 2**31 - 1
_PAD = 64 << 20
_HUGE_PAGE = 2 << 20

active: str | None = None  # the setting in force


def apply() -> None:
    """Do what BIREME_HEAP says, once, before the first large buffer is made."""
    global active
    wanted = os.environ.get("BIREME_HEAP", "")
    if not wanted or active is not None:
        return
    kind, _, size = wanted.partition(":")
    if kind not in ("keep", "huge") or (size and not size.isdigit()):
        warnings.warn(
            f"BIREME_HEAP must be 'keep', 'huge' or 'huge:<MiB>', not {wanted!r}; it is ignored",
            RuntimeWarning,
            stacklevel=2,
        )
        return
    if platform.libc_ver()[0] != "glibc":
        warnings.warn("BIREME_HEAP needs glibc; it is ignored", RuntimeWarning, stacklevel=2)
        return
    _keep(kind == "huge", int(size or 1024) << 20)
    active = wanted


def _keep(huge: bool, size: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    # Without the single arena the threads' own arenas go on as before.
    for option, value in (
        (_ARENA_MAX, 1), (_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER), (_TOP_PAD, _PAD),
    ):  # fmt: skip
        libc.mallopt(option, value)
    if not huge or not hasattr(mmap, "MADV_HUGEPAGE"):
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
