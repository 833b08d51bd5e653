"""LocalFS: the files of this machine, with the names that remote file systems have too."""

from __future__ import annotations

import os
import shutil

from bireme.core.errors import BiremeError, InvalidArgument
from bireme.io import atomic


class FSFileExistsError(BiremeError, FileExistsError):
    """Something is in the way."""


class FSFileNotExistsError(BiremeError, FileNotFoundError):
    """There is nothing of that name."""


def _copy_file(source: str, target: str) -> None:
    """A copy that appears when it is complete."""
    if os.path.isdir(target):
        target = os.path.join(target, os.path.basename(source))
    with open(source, "rb") as given, atomic.replacing(target) as file:
        shutil.copyfileobj(given, file, 1 << 20)
    shutil.copymode(source, target)


class LocalFS:
    """Files and folders of this machine.

    >>> LocalFS().is_exist("/")
    True
    """

    def ls_dir(self, fs_path: str) -> tuple[list[str], list[str]]:
        """(folders, files) in a folder; nothing where there is no folder."""
        if not self.is_exist(fs_path):
            return [], []
        names = sorted(os.listdir(fs_path))
        folders = [n for n in names if os.path.isdir(os.path.join(fs_path, n))]
        return folders, [n for n in names if n not in folders]

    def list_dirs(self, fs_path: str) -> list[str]:
        return self.ls_dir(fs_path)[0]

    def mkdirs(self, fs_path: str) -> None:
        """Make a folder and those above it."""
        if os.path.isfile(fs_path):
            raise InvalidArgument(f"[mkdirs] {fs_path!r} is a file")
        os.makedirs(fs_path, exist_ok=True)

    def rename(self, fs_src_path: str, fs_dst_path: str) -> None:
        os.rename(fs_src_path, fs_dst_path)

    def delete(self, fs_path: str) -> None:
        """Remove a file, or a folder with all that is in it."""
        if os.path.isdir(fs_path) and not os.path.islink(fs_path):
            shutil.rmtree(fs_path)
        elif os.path.lexists(fs_path):
            os.remove(fs_path)

    def need_upload_download(self) -> bool:
        return False

    def is_file(self, fs_path: str) -> bool:
        return os.path.isfile(fs_path)

    def is_dir(self, fs_path: str) -> bool:
        return os.path.isdir(fs_path)

    def is_exist(self, fs_path: str) -> bool:
        return os.path.exists(fs_path)

    def touch(self, fs_path: str, exist_ok: bool = True) -> None:
        """Make an empty file unless there is one."""
        if self.is_exist(fs_path):
            if exist_ok:
                return
            raise FSFileExistsError(f"[touch] {fs_path!r} is there already")
        with open(fs_path, "a"):
            pass

    def mv(
        self, src_path: str, dst_path: str, overwrite: bool = False, test_exists: bool = False
    ) -> None:
        """Move a file or folder, which must be there, tested or not. What is in the way is removed
        with `overwrite` only."""
        if not self.is_exist(src_path):
            raise FSFileNotExistsError(f"[mv] there is no {src_path!r}")
        if overwrite and os.path.isfile(src_path) and os.path.isfile(dst_path):
            os.replace(src_path, dst_path)
            return
        if overwrite and self.is_exist(dst_path):
            self.delete(dst_path)
        if self.is_exist(dst_path):
            raise FSFileExistsError(f"[mv] {dst_path!r} is in the way; pass overwrite=True")
        self.rename(src_path, dst_path)

    def upload(self, local_path: str, fs_path: str) -> None:
        """A copy under another name."""
        self._copy(local_path, fs_path)

    def download(self, fs_path: str, local_path: str) -> None:
        self._copy(fs_path, local_path)

    def _copy(self, source: str, target: str) -> None:
        if os.path.isdir(source):
            shutil.copytree(source, target, copy_function=_copy_file, dirs_exist_ok=True)
        else:
            _copy_file(source, target)

    def cat(self, fs_path: str) -> str:
        """A file's text."""
        with open(fs_path, encoding="utf-8") as file:
            return file.read()
