"""Getting a library built by a process of its own, and waiting for it as long as there is need.

The process (builder.py) is detached: a program that ends meanwhile ends at once, and leaves the
library to the next one.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bireme.host import background, cache_folder
from bireme.kernels.native import builder
from bireme.kernels.native.builder import BuildFailed

_TIMEOUT = 300  # seconds for one source
_PAUSE = 0.1  # seconds between looks at a build
_RETRY = 3600  # seconds after which a build that failed is tried again
_TRIES = 3  # of builds that are interrupted, before they count as failed


def opened(
    target: Path, sources: Sequence[Sequence[str]], link: Sequence[str], libraries: Sequence[str]
) -> ctypes.CDLL:
    """The library at `target`, which is built if it is not there, or not whole.

    `sources` are the compiler's calls, `link` and `libraries` the linker's around the objects.
    Raises BuildFailed, also for a build that failed a short time ago.
    """
    while True:
        build(target, sources, link, libraries)
        try:
            return ctypes.CDLL(str(target))
        except OSError as e:
            if target.exists():
                raise BuildFailed(f"{target} cannot be loaded: {e}") from e
            # Removed as an old one, a moment ago.


def build(
    target: Path, sources: Sequence[Sequence[str]], link: Sequence[str], libraries: Sequence[str]
) -> None:
    """The same without loading it."""
    plan = json.dumps(
        {
            "target": str(target),
            "sources": list(map(list, sources)),
            "link": list(link),
            "libraries": list(libraries),
            "timeout": _TIMEOUT,
        }
    )
    started = 0
    while not is_there(target):
        with builder.lock(target) as free:
            pass
        if free:
            _raise_what_failed(target, started)
            started += _run(plan) != builder.BUSY
        else:
            background.pause(_PAUSE)


def is_there(target: Path) -> bool:
    """Whether the library can be opened; what others could have written is removed."""
    try:
        info = target.stat()
    except OSError:
        return False
    if not cache_folder.only_ours(info):
        with suppress(OSError):
            target.unlink()
        return False
    return builder.is_whole(target)


def _raise_what_failed(target: Path, started: int) -> None:
    note = builder.read_note(target)
    if note:
        final = note["reason"] != builder.INTERRUPTED or note["tries"] >= _TRIES
        left = note["time"] + _RETRY - time.time()
        if started or (final and 0 < left <= _RETRY):
            again = f" (tried again after an hour, or when {builder.note_of(target)} is removed)"
            raise BuildFailed(note["reason"] + again)
    elif started >= _TRIES:
        raise BuildFailed(builder.INTERRUPTED)
    try:
        builder.find_room(target.parent)
    except OSError as e:
        raise BuildFailed(f"there is no room in {target.parent}: {e.strerror}") from e


def _run(plan: str) -> int:
    """The exit status of a builder; if this process is about to end, it is left alone."""
    command = [sys.executable, "-I", "-S", builder.__file__, plan]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
    except OSError as e:
        raise BuildFailed(f"no builder can be started: {e}") from e
    try:
        while process.poll() is None:
            background.pause(_PAUSE)
    except BaseException:
        process.returncode = 0  # it is not waited for: no warning that it still runs
        raise
    return process.returncode


def keep_young(library: Path) -> None:
    """Mark a library as used: builds remove unused ones."""
    with suppress(OSError):  # a folder that is only read
        os.utime(library)
