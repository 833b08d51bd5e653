"""Entry points of installed packages. Python reads the metadata of every package for each question;
programs ask in every step whether there is CUDA."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Those of a group; they are read again when `sys.path` has changed."""
    return _read(group, tuple(sys.path))


@functools.lru_cache(maxsize=16)
def _read(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    from importlib import metadata  # slow to import

    return tuple(metadata.entry_points(group=group))
