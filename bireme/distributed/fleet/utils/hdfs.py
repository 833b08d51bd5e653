"""HDFSClient: files of a Hadoop file system, by its command line program."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bireme.core.errors import BiremeError
from bireme.distributed.fleet.utils.fs import FSFileExistsError, FSFileNotExistsError, LocalFS


class ExecuteError(BiremeError, RuntimeError):
    """A command of Hadoop failed."""


class FSTimeOut(BiremeError, TimeoutError):
    """A command of Hadoop kept failing until there was no time left."""


class FSShellCmdAborted(ExecuteError):
    """A command of Hadoop ended itself (status 134)."""


class HDFSClient:
    """The files that `hadoop_home/bin/hadoop fs` reaches with the settings in `configs`.

    A command that fails is tried again every `sleep_inter` milliseconds, for up to `time_out`.

    >>> client = HDFSClient(
    ...     "/opt/hadoop", {"fs.default.name": "hdfs://host:54310", "hadoop.job.ugi": "me,secret"}
    ... )
    >>> client.ls_dir("hdfs:/data")  # doctest: +SKIP
    """

    def __init__(
        self,
        hadoop_home: str,
        configs: Mapping[str, str] | None,
        time_out: int = 5 * 60 * 1000,
        sleep_inter: int = 1000,
    ) -> None:
        settings = [f"-D{k}={v}" for k, v in (configs or {}).items()]
        self.pre_commands = [f"{hadoop_home}/bin/hadoop", "fs", *settings]
        self._time_out = time_out / 1000
        self._sleep = sleep_inter / 1000

    # --- commands -------------------------------------------------------------------------

    def _once(self, *words: str) -> tuple[int, str]:
        """(status, output) of one command; words are passed as they are, no shell reads them."""
        done = subprocess.run(
            [*self.pre_commands, *words], capture_output=True, text=True, check=False
        )
        if done.returncode == 134:
            raise FSShellCmdAborted(f"[HDFSClient] {' '.join(words)} was aborted")
        return done.returncode, done.stdout if done.returncode == 0 else done.stderr

    def _run(self, *words: str) -> list[str]:
        """The lines that a command prints, once it works."""
        began = time.monotonic()
        while True:
            status, output = self._once(*words)
            if status == 0:
                return output.splitlines()
            if time.monotonic() - began + self._sleep > self._time_out:
                raise FSTimeOut(
                    f"[HDFSClient] {' '.join(words)} still failed (status {status}) after "
                    f"{self._time_out:g} s: {output[-500:]}"
                )
            time.sleep(self._sleep)

    def _each(self, function: Callable[[str], Any], items: Sequence[str], workers: int) -> None:
        with ThreadPoolExecutor(max(1, workers)) as pool:
            list(pool.map(function, items))

    # --- looking --------------------------------------------------------------------------

    def is_exist(self, fs_path: str) -> bool:
        return self._once("-test", "-e", fs_path)[0] == 0

    def is_dir(self, fs_path: str) -> bool:
        return self._once("-test", "-d", fs_path)[0] == 0

    def is_file(self, fs_path: str) -> bool:
        return self.is_exist(fs_path) and not self.is_dir(fs_path)

    def ls_dir(self, fs_path: str) -> tuple[list[str], list[str]]:
        """(folders, files) in a folder; nothing where there is no folder."""
        if not self.is_exist(fs_path):
            return [], []
        rows = self._listed(fs_path)
        named = [(r[0].startswith("d"), os.path.basename(r[7])) for r in rows]
        return [n for folder, n in named if folder], [n for folder, n in named if not folder]

    def list_dirs(self, fs_path: str) -> list[str]:
        return self.ls_dir(fs_path)[0]

    def list_files_info(self, path_list: Sequence[str]) -> list[dict[str, Any]]:
        """Path and size of everything in these folders (or of these files)."""
        if not path_list:
            return []
        return [{"path": r[7], "size": int(r[4])} for r in self._listed(*path_list)]

    def _listed(self, *paths: str) -> list[list[str]]:
        """The words of each line about a file; the last one is its path, spaces included."""
        rows = [line.split(None, 7) for line in self._run("-ls", *paths)]
        return [r for r in rows if len(r) == 8]

    def cat(self, fs_path: str | None = None) -> str:
        """A file's text; nothing where there is no file."""
        if fs_path is None or not self.is_file(fs_path):
            return ""
        return "\n".join(self._run("-cat", fs_path))

    def need_upload_download(self) -> bool:
        return True

    # --- changing -------------------------------------------------------------------------

    def mkdirs(self, fs_path: str) -> None:
        """Make a folder and those above it."""
        if not self.is_exist(fs_path):
            self._run("-mkdir", "-p", fs_path)

    def touch(self, fs_path: str, exist_ok: bool = True) -> None:
        """Make an empty file unless there is one."""
        if self.is_exist(fs_path):
            if exist_ok:
                return
            raise FSFileExistsError(f"[touch] {fs_path!r} is there already")
        self._run("-touchz", fs_path)

    def delete(self, fs_path: str) -> None:
        """Remove a file, or a folder with all that is in it."""
        if self.is_dir(fs_path):
            self._run("-rm", "-r", fs_path)
        elif self.is_exist(fs_path):
            self._run("-rm", fs_path)

    def mv(
        self,
        fs_src_path: str,
        fs_dst_path: str,
        overwrite: bool = False,
        test_exists: bool = True,
    ) -> None:
        """Move a file or folder. With `test_exists` it is looked first whether the one is there
        and nothing is in the other's place."""
        if overwrite and self.is_exist(fs_dst_path):
            self.delete(fs_dst_path)
        if test_exists:
            if not self.is_exist(fs_src_path):
                raise FSFileNotExistsError(f"[mv] there is no {fs_src_path!r}")
            if self.is_exist(fs_dst_path):
                raise FSFileExistsError(f"[mv] {fs_dst_path!r} is in the way; pass overwrite=True")
        self._run("-mv", fs_src_path, fs_dst_path)

    def upload(
        self, local_path: str, fs_path: str, multi_processes: int = 5, overwrite: bool = False
    ) -> None:
        """Copy a local file, or the contents of a local folder, `multi_processes` at a time."""
        if not LocalFS().is_exist(local_path):
            raise FSFileNotExistsError(f"[upload] there is no {local_path!r}")
        files = [local_path]
        if os.path.isdir(local_path):
            files = [os.path.join(local_path, n) for n in sorted(os.listdir(local_path))]
        if overwrite and self.is_exist(fs_path):
            self.delete(fs_path)
            self.mkdirs(fs_path)
        self._each(lambda name: self._put(name, fs_path), files, multi_processes)

    def upload_dir(self, local_dir: str, dest_dir: str, overwrite: bool = False) -> None:
        """Copy a local folder into a folder."""
        target = f"{dest_dir.rstrip('/')}/{os.path.basename(local_dir.rstrip('/'))}"
        if overwrite and self.is_exist(target):
            self.delete(target)
        self.mkdirs(dest_dir.rstrip("/"))
        self._put(local_dir.rstrip("/"), dest_dir.rstrip("/"))

    def download(
        self, fs_path: str, local_path: str, multi_processes: int = 5, overwrite: bool = False
    ) -> None:
        """Copy a file here, or the contents of a folder, `multi_processes` at a time. With
        `overwrite` what is in the way here is removed first."""
        if not self.is_exist(fs_path):
            raise FSFileNotExistsError(f"[download] there is no {fs_path!r}")
        local = LocalFS()
        if overwrite and local.is_exist(local_path):
            was_folder = local.is_dir(local_path)
            local.delete(local_path)
            if was_folder:
                local.mkdirs(local_path)
        if self.is_file(fs_path):
            self._run("-get", fs_path, local_path)
            return
        folders, files = self.ls_dir(fs_path)
        self._each(
            lambda name: self._run("-get", f"{fs_path}/{name}", local_path),
            [*files, *folders],
            multi_processes,
        )

    def _put(self, local: str, remote: str) -> None:
        self._run("-put", local, remote)
