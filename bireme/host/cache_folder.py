"""The cache folder: compiled programs, native libraries and code of generated functions.

Its files are executed, so the folder is used only if no other user can write to it: an absolute
path, every component of which belongs to the user or to root and is writable by no one else.
Otherwise there is no cache, and one warning says why.

Files appear atomically and carry the digest of their contents; a damaged file counts as missing and
is replaced. A folder that refuses files (a full disk, a read-only one) is tried once per process.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import hashlib
import os
import stat
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator

from bireme.host import config

_MAGIC = b"bireme-cache-1\n"
_START = len(_MAGIC) + hashlib.sha256().digest_size
_PART = ".part"  # ends the names of files that are being written
_PART_AGE = 24 * 3600  # seconds after which such a file belongs to a process that was killed
_MANY_LINKS = 40

_checked: dict[str, str | None] = {}  # folders, and the problem with them
_told: set[str] = set()
_full: dict[str, int] = {}  # folders that took no file, and the system's number for why
# A folder that is only read is no surprise, nor one that was removed meanwhile.
_EXPECTED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT)
_swept: set[str] = set()


def inside(*parts: str, make: bool = True, tell: bool = True) -> str | None:
    """A folder in the cache, None where there is no cache that can be trusted.

    It is made if need be, for the user alone. Without `make` nothing is written, and a folder that
    is not there is None. Without `tell` no warning says why there is none.
    """
    if not config.cache_dir:
        return None
    path = os.path.join(config.cache_dir, *parts)
    if not make and not os.path.isdir(path):
        return None
    if path not in _checked:
        why = problem(config.cache_dir) or problem(path)
        _checked[path] = why or (_made(path) if make else None)
    why = _checked[path]
    if why is not None and tell:
        _tell(
            f"there is no cache: {config.cache_dir!r} cannot be used, because {why}. Programs are "
            "compiled again in every process. Set BIREME_CACHE_DIR to an absolute path that only "
            "you can write to, or to nothing to work without a cache"
        )
    return path if why is None else None


@functools.cache
def for_this_process() -> str:
    """A folder for files that cannot be in the cache; removed at exit."""
    made = tempfile.TemporaryDirectory(prefix="bireme-", ignore_cleanup_errors=True)
    atexit.register(made.cleanup)
    return made.name


def problem(path: str) -> str | None:
    """Why another user may have written to `path`, or None.

    Every folder and every symbolic link on the way counts: a user who can rename one of them can
    replace the contents. In a folder such as /tmp (sticky bit) other users cannot move the user's
    entries.
    """
    if not os.path.isabs(path):
        return "it is not an absolute path"
    at, links = "/", 0
    rest = [p for p in reversed(path.split("/")) if p]
    while True:
        try:
            info = os.lstat(at)
        except FileNotFoundError:
            return None  # it will be made inside of what was seen
        except (OSError, ValueError) as e:
            return f"{at!r} cannot be looked at ({_reason(e)})"
        if info.st_uid not in (0, os.geteuid()):
            return f"{at!r} belongs to another user (number {info.st_uid})"
        if stat.S_ISLNK(info.st_mode):
            links += 1
            if links > _MANY_LINKS:
                return f"{path!r} is a circle of links"
            target = os.readlink(at)
            at = "/" if target.startswith("/") else os.path.dirname(at)
            rest.extend(p for p in reversed(target.split("/")) if p)
        elif _open_to_others(info) and not (rest and info.st_mode & stat.S_ISVTX):
            return f"others can write to {at!r}"
        if not rest:
            return None
        name = rest.pop()
        if name == "..":
            at = os.path.dirname(at)
        elif name != ".":
            at = os.path.join(at, name)


def fetch(path: str) -> bytes | None:
    """The payload that `store` wrote at `path`; None if it is missing, incomplete, or writable by
    other users. A damaged file is removed."""
    try:
        with open(path, "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode) or not only_ours(info):
                return None
            content = file.read()
    except OSError:
        return None
    start, payload = content[:_START], content[_START:]
    if start == _MAGIC + hashlib.sha256(payload).digest():
        return payload
    with contextlib.suppress(OSError):
        os.unlink(path)
    return None


def store(path: str, payload: bytes) -> bool:
    """Write a file that `fetch` reads, atomically; False where the folder takes none."""
    folder, name = os.path.split(path)
    if folder in _full:
        return False
    _sweep(folder)
    part = ""
    try:
        handle, part = tempfile.mkstemp(dir=folder, prefix=f".{name[:40]}.", suffix=_PART)
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + hashlib.sha256(payload).digest() + payload)
        os.replace(part, path)
    except OSError as e:
        if part:
            with contextlib.suppress(OSError):
                os.unlink(part)
        _full[folder] = e.errno or errno.EIO
        return False
    return True


def only_ours(info: os.stat_result) -> bool:
    """Whether only the user (or root) can have written a file."""
    return info.st_uid in (0, os.geteuid()) and not _open_to_others(info)


class NotCached(BaseException):
    """A program is not on disk. JAX takes exceptions of the cache for none and compiles."""


class _Wanted(threading.local):
    cached_only = False


_wanted = _Wanted()


@contextlib.contextmanager
def cached_only() -> Iterator[None]:
    """In the block a compilation whose result is not on disk raises `NotCached` at once."""
    _wanted.cached_only = True
    try:
        yield
    finally:
        _wanted.cached_only = False


class Programs:
    """XLA's compiled programs on disk, as JAX asks for them."""

    def __init__(self, folder: str):
        self._path = folder  # JAX has this name for it

    def get(self, key: str) -> bytes | None:
        found = fetch(self._file(key))
        if found is None and _wanted.cached_only:
            raise NotCached
        return found

    def put(self, key: str, value: bytes) -> None:
        if not store(self._file(key), value) and _full[self._path] not in _EXPECTED:
            _tell(
                "compiled programs are not kept for other processes: the cache folder "
                f"{self._path!r} takes no more files ({os.strerror(_full[self._path])})"
            )

    def _file(self, key: str) -> str:
        return os.path.join(self._path, f"{key}-cache")


def _open_to_others(info: os.stat_result) -> bool:
    if info.st_mode & stat.S_IWOTH:
        return True
    return bool(info.st_mode & stat.S_IWGRP) and not _private_group(info.st_gid)


def _private_group(number: int) -> bool:
    """Whether a group has no member but the user: many systems make one for each, and let it write
    to all that its user makes."""
    if number == 0:
        return True
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(number)
    except KeyError:
        return False
    alone = set(group.gr_mem) <= {user.pw_name}
    return number == user.pw_gid and group.gr_name == user.pw_name and alone


def _made(path: str) -> str | None:
    """Make a folder for the user alone; why that failed."""
    try:
        missing = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for folder in reversed(missing):
            with contextlib.suppress(FileExistsError):  # another process was faster
                os.mkdir(folder, 0o700)
        if missing and not os.path.isdir(missing[0]):
            return f"{missing[0]!r} is not a folder"
        return problem(missing[0]) if missing else None
    except OSError as e:
        return f"it cannot be made ({_reason(e)})"


def _sweep(folder: str) -> None:
    """Remove partial files of processes that were killed while they wrote."""
    if folder in _swept:
        return
    _swept.add(folder)
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") and entry.name.endswith(_PART):
                with contextlib.suppress(OSError):
                    if time.time() - entry.stat().st_mtime > _PART_AGE:
                        os.unlink(entry.path)


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


def _tell(message: str) -> None:
    if message not in _told:
        _told.add(message)
        warnings.warn(message, RuntimeWarning, stacklevel=3)
