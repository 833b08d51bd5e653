"""Giving freed memory back to the system.

Compiling (LLVM) and the cold tier leave hundreds of MiB of freed but resident heap behind:
after one trim a ResNet-18 step peaks at 476 MiB instead of 711.
"""

from __future__ import annotations

import ctypes
import functools
import sys


@functools.cache
def glibc() -> ctypes.CDLL | None:
    """The C library, where it is glibc."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "gnu_get_libc_version") else None


def release() -> None:
    """Return free heap pages to the system, where the C library can."""
    library = glibc()
    if library is not None:
        library.malloc_trim(0)
