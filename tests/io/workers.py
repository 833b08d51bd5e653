"""Worker processes that tests leave behind."""

from __future__ import annotations

import gc
import multiprocessing
from multiprocessing.process import BaseProcess


def left_workers() -> list[BaseProcess]:
    """Processes that still run. A loader that a traceback or a cycle keeps ends with those, so they
    are collected first."""
    gc.collect()
    return multiprocessing.active_children()
