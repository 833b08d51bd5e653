"""The mark that makes several files one: a small file that says which are being replaced.

It is written when all the new files lie complete beside the old ones, and it is gone when they
have taken their places. So there are three states, and a kill or a power cut leaves one of them:

    no mark             what has the names is the old save; temporary files are rubbish
    a mark              the new save; a file of it has its name, or still its temporary one
    no mark any more    the new save has all its names

Readers look through a mark, so they need no right to write; the next writer finishes the work.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from bireme.core.errors import FileFormatError
from bireme.io.temporaries import Temporary, is_temporary, sync_folder

NAME = ".bireme-pending.json"
_VERSION = 1
_MAX_BYTES = 1 << 26
_ENDS = 1 << 16  # bytes at either end of a file that tell it from others


@dataclass(frozen=True)
class Entry:
    """One file of a save: its name, its temporary name (None if it is to be removed), and what is
    there before and after, so that a file that somebody put there later is recognised."""

    name: str
    temporary: str | None
    before: str | None
    after: str | None


class Mark:
    """The mark in a folder. It names nothing outside: a foreign one can move only files that have
    temporary names, and remove only files in its folder."""

    def __init__(self, folder: str, entries: Iterable[Entry]):
        self.folder = folder
        self.entries = {e.name: e for e in entries}
        self.content = json.dumps(
            {"version": _VERSION, "files": [asdict(e) for e in self.entries.values()]}
        ).encode()

    @classmethod
    def of(cls, folder: str, temporaries: dict[str, str], removed: Iterable[str]) -> Mark:
        """The mark of complete files under temporary names, and of names that go."""
        made = []
        for name, temporary in temporaries.items():
            target = os.path.realpath(os.path.join(folder, name))
            after = fingerprint(os.path.join(os.path.dirname(target), temporary))
            if after is None:
                raise FileNotFoundError(f"the temporary file of {target!r} is gone")
            made.append(Entry(name, temporary, fingerprint(target), after))
        for name in removed:
            before = fingerprint(os.path.join(folder, name))
            if before is not None:
                made.append(Entry(name, None, before, None))
        return cls(folder, made)

    @property
    def path(self) -> str:
        return os.path.join(self.folder, NAME)

    def target(self, entry: Entry) -> str:
        """Where the file goes; a name that is a link keeps being one."""
        path = os.path.join(self.folder, entry.name)
        return path if entry.temporary is None else os.path.realpath(path)

    def temporary(self, entry: Entry) -> str | None:
        if entry.temporary is None:
            return None
        return os.path.join(os.path.dirname(self.target(entry)), entry.temporary)

    def write(self) -> None:
        """From here on the new save is what is there."""
        made = Temporary(self.folder, None)
        try:
            made.file.write(self.content)
            made.complete()
            os.replace(made.path, self.path)
        finally:
            made.discard()
        sync_folder(self.folder)

    def apply(self) -> None:
        """Give the files their names, in order, and take the mark away."""
        folders = {self.folder}
        for entry in self.entries.values():
            temporary, target = self.temporary(entry), self.target(entry)
            folders.add(os.path.dirname(target))
            try:
                if temporary is None:
                    os.unlink(target)
                else:
                    os.replace(temporary, target)
            except FileNotFoundError:
                continue  # done before
        for folder in folders:
            sync_folder(folder)
        self.remove()

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self.path)

    def drop(self) -> None:
        """Take the mark away, and the files that have not taken their places."""
        self.remove()
        for entry in self.entries.values():
            temporary = self.temporary(entry)
            if temporary is not None:
                with suppress(FileNotFoundError):
                    os.unlink(temporary)

    def holds(self) -> bool:
        """Whether the files are those that the mark speaks of.

        If they were replaced by something that knows no marks, say from a backup, they are taken
        as they are. A writer may be at work meanwhile: a temporary name is looked at before the
        name that it becomes.
        """
        states = [self._state(entry) for entry in self.entries.values()]
        if "lost" in states and "done" in states:
            names = ", ".join(self.entries)
            raise FileFormatError(
                f"the files {names} in {self.folder!r} do not belong together: a save of them was "
                f"interrupted and its temporary files were removed. Restore them, and delete "
                f"{NAME} there"
            )
        return not {"lost", "foreign"} & set(states)

    def _state(self, entry: Entry) -> str:
        temporary = self.temporary(entry)
        waits = temporary is None or os.path.lexists(temporary)
        there = fingerprint(self.target(entry))
        if there == entry.after:
            return "done"
        if there != entry.before:
            return "foreign"
        return "waits" if waits else "lost"


def fingerprint(path: str) -> str | None:
    """Tells one save of a file from another; None where there is no file. It survives copying,
    and does not read a large file whole."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            size = os.fstat(file.fileno()).st_size
            digest = hashlib.sha256(file.read(_ENDS))
            file.seek(max(size - _ENDS, 0))
            digest.update(file.read(_ENDS))
    except FileNotFoundError:
        return None
    except OSError:  # one that may be replaced and not read
        return f"{os.lstat(path).st_size}"
    return f"{size}:{digest.hexdigest()}"


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a FIFO may have taken the place


def read_content(folder: str) -> bytes | None:
    """The bytes of a folder's mark; None if there is none."""
    try:
        with open(os.path.join(folder, NAME), "rb", opener=_without_waiting) as file:
            return file.read(_MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None


def parse(folder: str, content: bytes) -> Mark:
    """A mark from its bytes, which anybody may have written."""
    try:
        if len(content) > _MAX_BYTES:
            raise ValueError("it is too large")
        document: Any = json.loads(content)
        if document["version"] != _VERSION:
            raise ValueError("it is newer than this program")
        entries = [Entry(**e) for e in document["files"]]
        for e in entries:
            texts = [e.name, *(t for t in (e.temporary, e.before, e.after) if t is not None)]
            if not all(isinstance(t, str) for t in texts):
                raise ValueError("a name is no text")
            parts = e.name.split("/")
            if {"", ".", ".."} & set(parts) or "\0" in e.name:
                raise ValueError(f"it names {e.name!r}, which is not in its folder")
            if e.temporary is None and len(parts) > 1:
                raise ValueError(f"it removes {e.name!r}, which is not in its folder")
            if e.temporary is not None and not is_temporary(e.temporary):
                raise ValueError(f"{e.temporary!r} is no temporary file")
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise FileFormatError(
            f"{os.path.join(folder, NAME)} is damaged ({e}); delete it to take the files in that "
            "folder as they are"
        ) from None
    return Mark(folder, entries)


def read(folder: str) -> Mark | None:
    """The mark in a folder, if there is one."""
    content = read_content(folder)
    return None if content is None else parse(folder, content)
