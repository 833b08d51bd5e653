"""A reader of tar archives that trusts nothing in them.

Python's own follows links, fills sparse files with zeros of any length, copies global headers for
every member, and searches extended headers with expressions that can take quadratic time. Data
sets need none of it: here members are regular files that lie in the archive as they are.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from bireme.core.errors import FileFormatError
from bireme.io.foreign import open_unpacked, reading

_BLOCK = 512
_MAX_HEADER = 1 << 16  # bytes of a long name or an extended header
_FILE, _LONG_NAME, _EXTENDED = (b"0", b"\0", b"7"), b"L", b"x"


@dataclass(frozen=True, slots=True)
class Member:
    """A regular file in an archive: where its contents lie."""

    name: str
    at: int
    size: int


class TarFile:
    """The regular files of an archive, which may be compressed."""

    def __init__(self, path: str | os.PathLike[str], owner: str):
        self.owner, self.path = owner, os.fspath(path)
        self._file = open_unpacked(path, owner)
        try:
            self.members = self._scan()
        except BaseException:
            self.close()
            raise
        self._by_name = {_plain(m.name): m for m in self.members}

    def names(self) -> list[str]:
        return [m.name for m in self.members]

    def __contains__(self, name: str) -> bool:
        return _plain(name) in self._by_name

    def read(self, member: Member | str) -> bytes:
        """The contents of a member; its name may begin with `./`."""
        if isinstance(member, str):
            found = self._by_name.get(_plain(member))
            if found is None:
                raise FileFormatError(
                    f"[{self.owner}] the archive {self.path!r} has no file {member!r}"
                )
            member = found
        return self._take(member.at, member.size, member.name)

    def lines(self, member: Member | str) -> io.BytesIO:
        """A member as a file."""
        return io.BytesIO(self.read(member))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> TarFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the format -----------------------------------------------------------------------

    def _scan(self) -> list[Member]:
        with reading(self.owner, self.path):
            return list(self._each())

    def _each(self) -> Iterator[Member]:
        at, empty = 0, 0
        name: str | None = None
        size: int | None = None
        while empty < 2:
            header = _read_at(self._file, at, _BLOCK)
            if not header and empty:
                return  # one block of zeros instead of two
            if len(header) < _BLOCK:
                raise self._damaged(at, "it ends before its end is marked")
            at += _BLOCK
            if not any(header):
                empty += 1
                continue
            empty = 0
            self._check(header, at - _BLOCK)
            kind = header[156:157]
            length = self._number(header[124:136], at)
            if kind in (_LONG_NAME, _EXTENDED):
                if length > _MAX_HEADER:
                    raise self._damaged(at, f"a header of {length} bytes")
                content = self._take(at, length, "a header")
                if kind == _LONG_NAME:
                    name = _text(content.rstrip(b"\0"))
                else:
                    name, size = self._extended(content, at, name, size)
            else:
                length = length if size is None else size
                name = name or _name(header)
                if kind in _FILE and not name.endswith("/"):
                    yield Member(name, at, length)
                name = size = None
                length = length if kind in _FILE or kind.isalpha() else 0
            at += -(-length // _BLOCK) * _BLOCK

    def _check(self, header: bytes, at: int) -> None:
        told = self._number(header[148:156], at)
        if told != sum(header[:148]) + 8 * 32 + sum(header[156:]):
            raise self._damaged(at, "the checksum of a header is wrong; it is no tar archive")

    def _number(self, field: bytes, at: int) -> int:
        if field[0] == 0x80:  # GNU's form for what octal digits cannot hold
            return int.from_bytes(field[1:], "big")
        digits = field.strip(b" \0")
        if digits.strip(b"01234567"):
            raise self._damaged(at, f"{digits!r} is no number")
        return int(digits or b"0", 8)

    def _extended(
        self, content: bytes, at: int, name: str | None, size: int | None
    ) -> tuple[str | None, int | None]:
        """(name, size) as records `length key=value` say them."""
        start = 0
        while start < len(content):
            space = content.find(b" ", start, start + 8)
            length = int(content[start:space]) if space > start else 0
            record = content[space + 1 : start + length]
            if length <= space - start or not record.endswith(b"\n"):
                raise self._damaged(at, "an extended header that is cut off")
            key, _, value = record[:-1].partition(b"=")
            if key == b"path":
                name = _text(value)
            elif key == b"size":
                size = int(value[:20])
            elif key.startswith(b"GNU.sparse"):
                raise self._damaged(at, "a sparse file, which is not read")
            start += length
        if size is not None and size < 0:
            raise self._damaged(at, f"a file of {size} bytes")
        return name, size

    def _take(self, at: int, size: int, what: str) -> bytes:
        with reading(self.owner, self.path):
            data = _read_at(self._file, at, size)
        if len(data) != size:
            raise self._damaged(at, f"{what!r} has {len(data)} of its {size} bytes")
        return data

    def _damaged(self, at: int, why: str) -> FileFormatError:
        what = "is truncated or damaged" if at > _BLOCK else "is no tar archive, or damaged"
        return FileFormatError(f"[{self.owner}] {self.path!r} {what}, at byte {at}: {why}")


def _read_at(file: IO[bytes], at: int, size: int) -> bytes:
    """Up to `size` bytes. They are taken in pieces: a size in a file is a claim."""
    file.seek(at)
    pieces = []
    while size > 0:
        piece = file.read(min(size, 1 << 20))
        if not piece:
            break
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _plain(name: str) -> str:
    return name.removeprefix("./")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _name(header: bytes) -> str:
    name = _text(header[:100].partition(b"\0")[0])
    prefix = header[345:500].partition(b"\0")[0] if header[257:262] == b"ustar" else b""
    # GNU's archives keep times where others have a prefix.
    if prefix and header[257:265] != b"ustar  \0":
        return f"{_text(prefix)}/{name}"
    return name
