"""NumPy's own matrix library, on one thread while the cold tier runs.

Two threads of OpenBLAS wait for each other awake, at each product. On a machine that has anything
else to do, the compiler of the same process for example, a step with small products takes 10 to 100
times as long (two cores, 64 x 256 x 256: 1.8 against 190 ms). Large products are shared among the
kernels' threads instead (cpu_products.py).
"""

from __future__ import annotations

import ctypes
import functools
import glob
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_lock = threading.Lock()
_inside = 0  # how many threads run the cold tier
_before = 0  # how many threads the library had before the first of them


@functools.cache
def library() -> ctypes.CDLL | None:
    """The OpenBLAS that NumPy's wheels bring and have loaded; None where there is another one."""
    folder = os.path.dirname(np.__file__)
    if sys.platform == "win32":
        return None
    for pattern in (f"{folder}.libs/*openblas*", f"{folder}/.dylibs/*openblas*"):
        for path in glob.glob(pattern):
            try:
                return ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            except OSError:
                continue
    return None


@functools.cache
def function(name: str) -> Any:
    """A function of the library, whatever prefix and suffix its build gave it; None without."""
    found = library()
    names = (f"scipy_{name}64_", f"{name}64_", f"scipy_{name}", name)
    return next((getattr(found, n) for n in names if hasattr(found, n)), None)


@functools.cache
def _counts() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    getter, setter = function("openblas_get_num_threads"), function("openblas_set_num_threads")
    return None if getter is None or setter is None else (getter, setter)


@contextmanager
def alone() -> Iterator[None]:
    """Inside the block NumPy's products run on the thread that asks for them. The number belongs to
    the process: the last of several threads that leave restores it."""
    global _inside, _before
    counts = _counts()
    if counts is None:
        yield
        return
    get, put = counts
    with _lock:
        if _inside == 0:
            _before = get()
            put(1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                put(_before)
