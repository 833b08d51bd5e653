"""Files from others, opened with limits: what is wrong with one is a FileFormatError.

Only regular files are read: a FIFO would wait for a writer, and a device may never end. What a
compressed file unfolds to is held to a multiple of its own size.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from bireme.core.errors import BiremeError, FileFormatError

MAX_RANK = 32  # dimensions of an array; NumPy takes no more everywhere
_SLACK = 32 << 20
_RATIO = 32  # texts and pictures shrink to a tenth at best

# What readers of the standard library and of others raise at damaged files.
_DAMAGE = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, EOFError, RuntimeError,
    AssertionError, SyntaxError,
)  # fmt: skip
_READERS = {"struct", "zlib", "_lzma", "zipfile", "tarfile", "_csv"}  # with errors of their own


def open_regular(path: str | os.PathLike[str], owner: str = "load") -> IO[bytes]:
    """A regular file for reading; anything else is refused without waiting for it."""
    name = os.fspath(path)
    if "\0" in name:
        raise FileFormatError(f"[{owner}] a file's name holds a NUL character: {name!r:.100}")
    _check_kind(os.stat(name), name, owner)
    number = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    file = open(number, "rb")  # noqa: SIM115 (the caller closes it)
    try:
        _check_kind(os.fstat(file.fileno()), name, owner)  # it may have been replaced meanwhile
    except BaseException:
        file.close()
        raise
    return file


def _check_kind(found: os.stat_result, name: str, owner: str) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not stat.S_ISREG(found.st_mode):
        kind = "FIFO" if stat.S_ISFIFO(found.st_mode) else "device or socket"
        raise FileFormatError(f"[{owner}] {name!r} is a {kind}, not a regular file")


def read_whole(path: str | os.PathLike[str], owner: str = "load") -> bytes:
    """The contents of a regular file."""
    with open_regular(path, owner) as file:
        return file.read()


def possible_shape(shape: Sequence[Any]) -> bool:
    """Whether an array may have this shape: few enough dimensions and small enough sizes, so that
    counting its elements is quick and its strides fit into NumPy's integers."""
    if len(shape) > MAX_RANK or not all(type(d) is int and 0 <= d < 2**58 for d in shape):
        return False
    return math.prod([max(d, 1) for d in shape]) < 2**58


@contextmanager
def reading(owner: str, name: object) -> Iterator[None]:
    """What goes wrong in here is the fault of the file `name`."""
    try:
        yield
    except BiremeError:
        raise
    except Exception as e:
        if not _says_damage(e):
            raise
        raise _damaged(owner, name, e) from e


def _says_damage(e: Exception) -> bool:
    if isinstance(e, OSError):  # others are the system's complaints, such as a missing file
        return e.errno in (None, errno.EINVAL, errno.ENAMETOOLONG)
    return isinstance(e, _DAMAGE) or type(e).__module__.partition(".")[0] in _READERS


def _damaged(owner: str, name: Any, e: BaseException) -> FileFormatError:
    return FileFormatError(
        f"[{owner}] {name!r:.300} is truncated, damaged or of another format: "
        f"{type(e).__name__}: {e!s:.300}"
    )


def read_json(path: str | os.PathLike[str], owner: str = "load") -> Any:
    """The value in a JSON file."""
    with reading(owner, os.fspath(path)):
        return json.loads(read_whole(path, owner))


_PLAIN_ARRAY = re.compile(
    rb"\{'descr': '([|<>=]?[biufcSU]\d{1,6}|\|b1)', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,19}, )*(?:\d{1,19},?)?)\), \} *\n?"
)


def read_npy(path: str | os.PathLike[str], owner: str = "load") -> np.ndarray:
    """The array in a .npy file; those of Python objects or of records are refused."""
    data, name = read_whole(path, owner), os.fspath(path)
    wide = data[6:7] != b"\x01"
    start = 12 if wide else 10
    end = start + int.from_bytes(data[8:start], "little")
    found = _PLAIN_ARRAY.fullmatch(data, start, end) if data[:6] == b"\x93NUMPY" else None
    if found is None or end > len(data):
        raise FileFormatError(f"[{owner}] {name!r} is no .npy file of numbers, or it is damaged")
    with reading(owner, name):
        shape = [int(d) for d in found[3].replace(b" ", b"").split(b",") if d]
        dtype = np.dtype(found[1].decode())
        if not possible_shape(shape) or math.prod(shape) * dtype.itemsize != len(data) - end:
            raise ValueError(
                f"an array of shape {shape} and type {dtype} does not have {len(data) - end} bytes"
            )
        array = np.frombuffer(data, dtype, offset=end) if len(data) > end else np.zeros(0, dtype)
        return array.reshape(shape, order="F" if found[2] == b"True" else "C").copy()


# --- compressed files -----------------------------------------------------------------------


def unfolded_limit(size: int) -> int:
    """How many bytes a compressed file of `size` bytes may unfold to."""
    return _SLACK + _RATIO * size


class _Limited(io.RawIOBase):
    """A stream that refuses to give more than `limit` bytes."""

    def __init__(self, inner: IO[bytes], file: IO[bytes], limit: int, owner: str, name: str):
        self._inner, self._file, self._limit = inner, file, limit
        self._owner, self._name = owner, name

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence != 0 or offset > self._limit:
            raise _too_large(self._owner, self._name, self._limit)
        return self._inner.seek(offset)

    def tell(self) -> int:
        return self._inner.tell()

    def readinto(self, buffer: Any) -> int:
        piece = self._inner.read(len(buffer))
        buffer[: len(piece)] = piece
        if self._inner.tell() > self._limit:
            raise _too_large(self._owner, self._name, self._limit)
        return len(piece)

    def close(self) -> None:
        self._inner.close()
        self._file.close()
        super().close()


def _too_large(owner: str, name: str, limit: int) -> FileFormatError:
    return FileFormatError(
        f"[{owner}] {name!r} unfolds to more than {limit} bytes, far more than its own size allows"
    )


def open_unpacked(path: str | os.PathLike[str], owner: str = "load") -> IO[bytes]:
    """A regular file, unpacked on the fly if it is compressed (gzip, bzip2, xz)."""
    name = os.fspath(path)
    file = open_regular(name, owner)
    limit = unfolded_limit(os.fstat(file.fileno()).st_size)
    return unpacked(file, limit, owner, name)


def unpacked(file: IO[bytes], limit: int, owner: str, name: str) -> IO[bytes]:
    """The same for an open file; at most `limit` bytes come out of a compressed one."""
    start = file.read(6)
    file.seek(0)
    import bz2
    import gzip
    import lzma

    inner: Any
    if start[:2] == b"\x1f\x8b":
        inner = gzip.GzipFile(fileobj=file, mode="rb")
    elif start[:3] == b"BZh":
        inner = bz2.BZ2File(file)
    elif start == b"\xfd7zXZ\x00":
        inner = lzma.LZMAFile(file)  # noqa: SIM115 (closed with what is around it)
    else:
        return file
    return io.BufferedReader(_Limited(inner, file, limit, owner, name), 1 << 16)


# --- zip ------------------------------------------------------------------------------------


class Zip:
    """A zip archive whose members may be read: none of them, nor all together, is a bomb."""

    def __init__(self, file: IO[bytes], owner: str, name: str):
        import zipfile

        self.owner, self.name = owner, name
        with reading(owner, name):
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            self._archive = zipfile.ZipFile(file)
            self._entries = {i.filename: i for i in self._archive.infolist()}
        if sum(i.file_size for i in self._archive.infolist()) > unfolded_limit(size):
            raise _too_large(owner, name, unfolded_limit(size))

    def names(self) -> list[str]:
        """The members in the archive's order, folders left out."""
        return [n for n in self._entries if not n.endswith("/")]

    def read(self, member: str) -> bytes:
        """The contents of one member."""
        entry = self._entries.get(member)
        if entry is None:
            raise FileFormatError(f"[{self.owner}] {self.name!r} holds no file {member!r}")
        if entry.compress_type not in (0, 8):  # stored, deflated
            raise FileFormatError(
                f"[{self.owner}] {self.name!r}: {member!r} is compressed in an unusual way "
                f"(method {entry.compress_type})"
            )
        with reading(self.owner, f"{self.name}: {member}"):
            return self._archive.read(entry)


@contextmanager
def open_zip(path: str | os.PathLike[str], owner: str) -> Iterator[Zip]:
    """The zip archive at `path`."""
    with open_regular(path, owner) as file:
        yield Zip(file, owner, os.fspath(path))
