"""Giving freed memory back to the system.

Compiling (LLVM) and the cold tier leave hundreds of MiB of freed but resident heap behind:
after one trim a ResNet-18 step peaks at 476 MiB instead of 711.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable


@functools.cache
def _trim() -> Callable[[int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):  # not glibc
        return None


def release() -> None:
    """Return free heap pages to the system, where the C library can."""
    trim = _trim()
    if trim is not None:
        trim(0)
