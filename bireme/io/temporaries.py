"""Temporary files beside the files that they will replace, and how those of dead writers go.

A writer holds a lock on its temporary file, which the system takes away when it dies. A temporary
file without one is nobody's, and the next writer in that folder removes it. Process numbers would
not do: they come back, and mean nothing in another container or on another host.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

_NAME = re.compile(r"\.bireme-[0-9a-f]{16}(?:-([0-9a-f]{8}))?\.tmp")
_WAIT = 60.0  # seconds for which a writer waits for another one in the same folder
_PER_SAVE = 1024  # a folder of more entries is searched at every second save, every third, ...
_rests: dict[str, int] = {}  # saves in a large folder until it is searched again
_guard = threading.Lock()


def is_temporary(name: str) -> bool:
    """Whether a file of this name is a temporary one of a save."""
    return _NAME.fullmatch(name) is not None


def _sign(folder: str, home: str) -> str | None:
    """What the name of a temporary file says of the folder whose save it is part of: nothing, if it
    is that in which it lies. A link or a path with slashes may lead to another."""
    return None if home == folder else hashlib.sha256(os.fsencode(home)).hexdigest()[:8]


class Temporary:
    """An open file under a temporary name, of the mode and owner of the file that it will replace.

    The name is short and does not grow with that of the file, which may have 255 bytes. `home` is
    the folder of the save, if that is another than the file's.
    """

    def __init__(self, folder: str, replaced: os.stat_result | None, home: str | None = None):
        sign = _sign(folder, home or folder)
        end = ".tmp" if sign is None else f"-{sign}.tmp"
        while True:
            self.path = os.path.join(folder, f".bireme-{secrets.token_hex(8)}{end}")
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            # A file without a predecessor gets the mode that the umask gives.
            number = os.open(self.path, flags, 0o666 if replaced is None else 0o600)
            try:
                _try_lock(number, fcntl.LOCK_EX)
                if _is_at(self.path, number):  # a sweep may have come between the two calls
                    break
                os.close(number)
            except BaseException:
                os.close(number)
                os.unlink(self.path)
                raise
        self.file: IO[bytes] = os.fdopen(number, "w+b")
        try:
            if replaced is not None:
                _look_like(number, replaced)
        except BaseException:
            self.discard()
            raise

    def complete(self) -> None:
        """Bring the contents to the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def close(self) -> None:
        """Give up the lock; the file stays where it is."""
        with suppress(OSError):  # what a full disk did not take is still in the buffer
            self.file.close()

    def discard(self) -> None:
        """Remove the file if it still has its temporary name."""
        try:
            if os.path.lexists(self.path):
                os.unlink(self.path)
        finally:
            self.close()


def _look_like(number: int, other: os.stat_result) -> None:
    """Mode and, where that is possible, owner and group of another file."""
    mode, own = stat.S_IMODE(other.st_mode), os.fstat(number)
    if (own.st_uid, own.st_gid) != (other.st_uid, other.st_gid):
        try:
            os.fchown(number, other.st_uid, other.st_gid)
        except OSError:
            mode &= 0o777  # never set-user-id of another user
            try:
                os.fchown(number, -1, other.st_gid)
            except OSError:  # another group gets the rights of others only
                mode &= 0o707 | (mode & 0o007) << 3
    os.fchmod(number, mode)


def _is_at(path: str, number: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(number))
    except FileNotFoundError:
        return False


def _try_lock(number: int, how: int) -> bool:
    """Whether the lock was got; file systems without locks do not give it."""
    try:
        fcntl.flock(number, how)
    except OSError:
        return False
    return True


def sweep(folder: str, home: str, is_wanted: Callable[[str, str], bool]) -> None:
    """Remove the temporary files of dead writers from a folder: those of saves of that folder, and
    of saves of `home`. `is_wanted` says of a home and a name whether the file is to stay.

    Large folders are searched less often, so that saving many files into one takes linear time.
    """
    with _guard:
        rest = _rests.get(folder, 0)
        if rest:
            _rests[folder] = rest - 1
            return
    count = 0
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                count += 1
                match = _NAME.fullmatch(entry.name)
                if match and match[1] in (None, _sign(folder, home)):
                    found.append((entry.name, folder if match[1] is None else home))
    except OSError:  # a folder that may be written but not listed
        return
    with _guard:
        if count > _PER_SAVE:
            _rests[folder] = count // _PER_SAVE
        else:
            _rests.pop(folder, None)
    for name, its_home in found:
        _remove_dead(folder, name, its_home, is_wanted)


def _remove_dead(folder: str, name: str, home: str, is_wanted: Callable[[str, str], bool]) -> None:
    path = os.path.join(folder, name)
    try:
        number = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # gone, or another user's
        return
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            return
        if not _try_lock(number, fcntl.LOCK_EX | fcntl.LOCK_NB):
            return
        # Its writer is dead. What it has committed stays, and a save by several processes is
        # committed by one of them: that one holds the folder meanwhile. Who holds it may just be
        # making this very file, and waits for its lock: the file is left to the next save then.
        with folder_lock(home, wait=0.0):
            if not is_wanted(home, name) and _is_at(path, number):
                os.unlink(path)
    except OSError:
        return  # it takes space and does no harm
    finally:
        os.close(number)


@contextmanager
def folder_lock(folder: str, wait: float = _WAIT) -> Iterator[None]:
    """Only one thread of all processes is in here for one folder, where the file system can lock
    folders (network file systems cannot always). It is held for moments; TimeoutError after `wait`
    seconds."""
    try:
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:  # a folder that may be written but not listed
        yield
        return
    try:
        end = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise TimeoutError(
                        f"another process holds a lock on the folder {folder!r}"
                    ) from None
                time.sleep(0.001)
            except OSError:
                break
        yield
    finally:
        # A process that was forked meanwhile shares the lock: closing alone would not release it.
        _try_lock(number, fcntl.LOCK_UN)
        os.close(number)


def sync_folder(folder: str) -> None:
    """Bring a folder's names to the disk, where the file system can."""
    try:
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.fsync(number)
    except OSError:
        return
    finally:
        os.close(number)
