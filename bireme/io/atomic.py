"""Files that appear whole: one, or several that belong together.

A new file is written under a temporary name, brought to the disk, and takes the place of the old
one in a single step. Several are made one by a mark (`mark.py`). All savers come through here.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import IO, TypeVar

from bireme.core.errors import BiremeError, InvalidArgument
from bireme.io import mark as marks
from bireme.io.foreign import open_regular
from bireme.io.temporaries import (
    Temporary,
    folder_lock,
    is_temporary,
    sweep,
    sync_folder,
)

T = TypeVar("T")

_PATIENCE = 60.0  # seconds for which a reader waits for a moment between two saves


class WriteError(BiremeError, OSError):
    """A file that could not be written: a full disk, a missing right, a broken device."""


class WriteRefused(WriteError, PermissionError):
    """A file or folder that may not be written."""


class UnsteadyFiles(BiremeError, RuntimeError):
    """Files that never stood still long enough to be read together."""


def is_ours(name: str) -> bool:
    """Whether a file of this name belongs to a save that is going on, or was killed."""
    return name == marks.NAME or is_temporary(name)


# --- writing --------------------------------------------------------------------------------


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` only when it is complete and on disk."""
    with Save() as save, save.file(path) as file:
        yield file


class Save:
    """Files that take their places together, or not at all.

    with Save() as save:
        with save.file("m.pdparams") as file: ...
        with save.file("m.pdopt") as file: ...
        save.remove("m.pdscaler")

    All of them lie in one folder, or at some depth below `folder` if that is given. A name that is
    a link stays one, and what it leads to is replaced; a device or pipe is written to.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._root = folder
        self._folder: str | None = None
        self._names: dict[str, str] = {}  # by name: the temporary name
        self._removed: list[str] = []
        self._open: list[Temporary] = []
        self._may_be_marked = False

    @contextmanager
    def file(self, path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
        """A file to be written, complete when the block is left."""
        name = _checked(path)
        with _explained(name):
            info = _info(name)
            target = os.path.realpath(name)
            if info is not None and not _is_replaceable(info, target):
                with open(name, "wb", opener=_only_written) as file:
                    yield file
                return
            if info is not None and not os.access(target, os.W_OK):
                raise PermissionError(13, "it is read-only")
            folder = os.path.dirname(target)
            os.makedirs(folder, exist_ok=True)
            base = self._add(name)
            home = self._folder or folder
            sweep(folder, home, _is_committed)
            made = Temporary(folder, info, home)
            try:
                yield made.file
                made.complete()
            except BaseException:
                made.discard()
                raise
            self._open.append(made)
            self._names[base] = os.path.basename(made.path)

    def remove(self, path: str | os.PathLike[str]) -> None:
        """A file that is no part of what is saved, and goes if it is there."""
        self._removed.append(self._add(_checked(path)))

    def _add(self, name: str) -> str:
        folder, base = _place(name, self._root)
        if self._folder not in (None, folder):
            raise InvalidArgument(
                f"files of one save lie in one folder. Received: {self._folder!r} and {folder!r}"
            )
        self._folder = folder
        return base

    @property
    def staged(self) -> dict[str, str]:
        """The temporary names of the complete files, by name, for another process to commit."""
        self._may_be_marked = True
        return dict(self._names)

    def take(self, folder: str, staged: dict[str, str]) -> None:
        """Files that another process has staged, and holds until this one has committed them."""
        for base, temporary in staged.items():
            self._add(os.path.join(folder, base))
            self._names[base] = temporary

    def commit(self) -> None:
        """Put all files in their places. What goes wrong before leaves the old ones."""
        folder = self._folder
        if folder is None:
            return
        with _explained(os.path.join(folder, next(iter([*self._names, *self._removed])))):
            if len(self._names) == 1 and not self._removed:
                if marks.read_content(folder) is not None:
                    with folder_lock(folder):
                        _finish(folder)
                self._commit_one(folder)
                return
            with folder_lock(folder):
                _finish(folder)
                made = marks.Mark.of(folder, self._names, self._removed)
                if len(made.entries) == 1 and self._names:
                    self._commit_one(folder)
                    return
                if not made.entries:
                    return
                self._may_be_marked = True
                made.write()
                self.release()
                _apply(made)

    def _commit_one(self, folder: str) -> None:
        ((base, temporary),) = self._names.items()
        target = os.path.realpath(os.path.join(folder, base))
        os.replace(os.path.join(os.path.dirname(target), temporary), target)
        sync_folder(os.path.dirname(target))
        self.release()

    def release(self) -> None:
        """Let go of the files; those that were not committed are rubbish from now on."""
        for made in self._open:
            made.close()
        self._open.clear()

    def discard(self) -> None:
        """Remove what was not committed."""
        try:
            if not self._may_be_marked or self._folder is None:
                self._remove(lambda name: False)
            else:  # perhaps by another process, which was killed then or is at it
                folder = self._folder
                with folder_lock(folder):
                    self._remove(lambda name: _is_committed(folder, name))
        finally:
            self.release()

    def _remove(self, is_wanted: Callable[[str], bool]) -> None:
        for made in self._open:
            if not is_wanted(os.path.basename(made.path)):
                made.discard()

    def __enter__(self) -> Save:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.commit()
        finally:
            self.discard()


def _apply(mark: marks.Mark) -> None:
    try:
        mark.apply()
    except OSError as e:
        raise WriteError(
            e.errno,
            f"{', '.join(mark.entries)} in {mark.folder!r} are saved, and are read as such, but "
            f"could not all take their names: {e.strerror or e}. The next save there does it",
        ) from e


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        if isinstance(e, BiremeError):
            raise
        kind = WriteRefused if isinstance(e, PermissionError) else WriteError
        raise kind(
            e.errno,
            f"{name!r} cannot be written: {e.strerror or e}. What was there before is unchanged",
        ) from e


def _checked(path: str | os.PathLike[str]) -> str:
    name = os.fsdecode(path)
    if not os.path.basename(name) or "\0" in name:
        raise InvalidArgument(f"a file's name was expected. Received: {path!r}")
    return name


def _info(name: str) -> os.stat_result | None:
    try:
        return os.stat(name)
    except FileNotFoundError:
        if os.path.islink(os.path.realpath(name)):  # a circle of links
            raise
        return None


def _is_replaceable(info: os.stat_result, target: str) -> bool:
    """Whether this is a plain file under the name `target`; devices, pipes and files that are only
    open, such as /dev/stdout, are not."""
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(21, "it is a folder")
    try:
        return stat.S_ISREG(info.st_mode) and os.path.samestat(info, os.lstat(target))
    except FileNotFoundError:
        return False


def _only_written(name: str, flags: int) -> int:
    return os.open(name, os.O_WRONLY | os.O_CLOEXEC)


def _place(name: str, root: str | None) -> tuple[str, str]:
    """(the folder whose mark may speak of a name, the name there)."""
    folder, base = os.path.realpath(os.path.dirname(name)), os.path.basename(name)
    if root is None:
        return folder, base
    top = os.path.realpath(root)
    return top, os.path.relpath(os.path.join(folder, base), top)


def _finish(folder: str) -> None:
    """Finish the save of a writer that was killed after its mark. The folder is locked."""
    pending = marks.read(folder)
    if pending is None:
        return
    if pending.holds():
        pending.apply()
    else:
        pending.drop()


def _is_committed(folder: str, temporary: str) -> bool:
    pending = marks.read(folder)
    return pending is not None and any(e.temporary == temporary for e in pending.entries.values())


# --- reading --------------------------------------------------------------------------------


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """An open file, of the newest whole save."""
    found = together(lambda files: files.need(path))
    with found:
        yield found


def together(work: Callable[[Files], T], folder: str | None = None) -> T:
    """What `work` gives when all the files that it opens are of one save.

    It opens them by the argument, and is done again if they were replaced meanwhile: it should
    open, and leave the reading for later. An open file keeps its contents, whoever replaces it.
    `folder` is that of the `Save`.
    """
    end = time.monotonic() + _PATIENCE
    while True:
        files = Files(folder)
        done = False
        try:
            found = work(files)
            done = files._is_steady()
            if done:
                return found
        except Exception:
            if files._is_steady():
                raise
        finally:
            if not done:
                files.close()
        if time.monotonic() > end:
            raise UnsteadyFiles(
                f"other processes replace {', '.join(files._seen)} all the time; they could not be "
                f"read together within {_PATIENCE:.0f} s"
            )
        time.sleep(0.001)


class Files:
    """Files of one save, opened one after the other."""

    def __init__(self, root: str | None = None) -> None:
        self._root = root
        self._marks: dict[str, tuple[bytes | None, marks.Mark | None]] = {}
        self._seen: dict[str, tuple[IO[bytes] | None, bool]] = {}

    def open(self, path: str | os.PathLike[str]) -> IO[bytes] | None:
        """The file of this name in the newest save; None if it has none."""
        name = os.fspath(path)
        folder, base = _place(name, self._root)
        pending = self._mark(folder)
        entry = None if pending is None else pending.entries.get(base)
        if pending is not None and entry is not None:
            temporary = pending.temporary(entry)
            file = None if temporary is None else _open(temporary) or _open(name)
        else:
            file = _open(name)
        self._seen[name] = (file, entry is not None)
        return file

    def need(self, path: str | os.PathLike[str]) -> IO[bytes]:
        """The same, of a file that must be there."""
        file = self.open(path)
        if file is None:
            raise FileNotFoundError(2, "there is no such file", os.fspath(path))
        return file

    def names(self, folder: str) -> set[str]:
        """The names in a folder, without those of the saving itself."""
        pending = self._mark(os.path.realpath(folder))
        found = {n for n in os.listdir(folder) if not is_ours(n)}
        if pending is not None:
            for entry in pending.entries.values():
                (found.discard if entry.temporary is None else found.add)(entry.name)
        return found

    def close(self) -> None:
        for file, _ in self._seen.values():
            if file is not None:
                file.close()

    def _mark(self, folder: str) -> marks.Mark | None:
        if folder not in self._marks:
            content = marks.read_content(folder)
            # Known before it is looked into: one that is gone by then says nothing about the files.
            self._marks[folder] = (content, None)
            pending = None if content is None else marks.parse(folder, content)
            if pending is not None and pending.holds():
                self._marks[folder] = (content, pending)
        return self._marks[folder][1]

    def _is_steady(self) -> bool:
        """Whether there was a moment at which the names led to what was opened."""
        for folder, (content, _) in self._marks.items():
            if marks.read_content(folder) != content:
                return False
        return all(marked or _leads_to(name, file) for name, (file, marked) in self._seen.items())


def _open(name: str) -> IO[bytes] | None:
    try:
        return open_regular(name)  # its reader closes it
    except FileNotFoundError:
        return None


def _leads_to(name: str, file: IO[bytes] | None) -> bool:
    if file is None:
        return not os.path.exists(name)
    try:
        return os.path.samestat(os.stat(name), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
