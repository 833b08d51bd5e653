"""Builds one library, as a process of its own: it outlives the program that needs the library.

    python -I -S builder.py '{"target": …, "sources": […], "link": […], …}'

Python's own modules are all it needs. Of several that are started for one library, one builds and
the others end with `BUSY`; the lock goes with its process, however that ends. The library carries
the digest of its contents behind its last byte, where loaders do not look, and appears under its
name when it is whole. A note beside it says what failed. It is written before the first compiler
starts, so that builds that are killed are counted, too.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

BUSY = 3  # exit status: another process builds this library
OURS = ("bireme_kernels_", "bireme_cuda_")
INTERRUPTED = "the build was interrupted"
_MAGIC = b"bireme-library\n"
_END = len(_MAGIC) + hashlib.sha256().digest_size
_KEPT = 30 * 24 * 3600  # seconds that a library stays after it was last loaded
_ROOM = 32 * 2**20  # bytes that a build may take


class BuildFailed(Exception):
    """A compiler that failed, or was not heard of for too long."""


def is_whole(library: Path) -> bool:
    """Whether a library is there with all its bytes as they were written."""
    try:
        content = library.read_bytes()
    except OSError:
        return False
    return content[-_END:] == _MAGIC + hashlib.sha256(content[:-_END]).digest()


def seal(library: Path) -> None:
    """Append to a library what `is_whole` looks for."""
    digest = hashlib.sha256(library.read_bytes()).digest()
    with library.open("ab") as file:
        file.write(_MAGIC + digest)


def run_compiler(command: list[str], timeout: float) -> str:
    """What a compiler says; BuildFailed if it fails. One that takes too long, or is interrupted, is
    stopped with all that it has started."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as e:
        raise BuildFailed(f"{command[0]} cannot be started: {e.strerror}") from e
    with process:
        try:
            output = process.communicate(timeout=timeout)[0].strip()
        except BaseException as e:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(e, subprocess.TimeoutExpired):
                raise BuildFailed(f"{command[0]} took over {timeout:g} s") from None
            raise
    if process.returncode:
        signalled = f" (killed by signal {-process.returncode})" if process.returncode < 0 else ""
        raise BuildFailed(f"{command[0]} failed{signalled}: {output[:8000]}")
    return output


def note_of(library: Path) -> Path:
    return library.with_suffix(".note")


def read_note(library: Path) -> dict[str, Any]:
    """What is known of builds of this library that did not end well; empty if there were none."""
    try:
        note = json.loads(note_of(library).read_bytes())
        known = {"reason": str(note["reason"]), "tries": int(note["tries"])}
        return known | {"time": float(note["time"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _write_note(library: Path, reason: str, tries: int) -> None:
    made = note_of(library).with_suffix(f".{os.getpid()}.tmp")
    with suppress(OSError):  # a full disk: the next build will find it full at once
        made.write_text(json.dumps({"reason": reason, "tries": tries, "time": time.time()}))
        os.replace(made, note_of(library))


@contextmanager
def lock(library: Path) -> Iterator[bool]:
    """Whether this process alone builds the library, for the duration of a `with` block."""
    with library.with_suffix(".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:
            pass  # a file system without locks: two may build, and the last one's library stays
        yield True


def find_room(folder: Path) -> None:
    """Raise OSError if a build finds no room in this folder."""
    path = folder / f".room.{os.getpid()}.tmp"
    try:
        with path.open("wb") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, _ROOM)
            else:
                file.write(bytes(_ROOM))
    finally:
        with suppress(OSError):
            path.unlink()


def remove_old(keep: Path) -> None:
    """Remove libraries and leftovers of killed builds that were not used for a month.
    Processes that have a library loaded keep it; one that finds it gone builds."""
    for path in keep.parent.iterdir():
        if path.stem == keep.stem or not (path.name.startswith(OURS) or path.suffix == ".tmp"):
            continue
        with suppress(OSError):  # another process was faster, or the folder is not ours to clean
            if time.time() - path.stat().st_mtime > _KEPT:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def make_room() -> None:
    """Let programs of this machine go first: what is built is for later."""
    with suppress(OSError):
        os.nice(10)


def build(plan: dict[str, Any]) -> None:
    """Compile, link and install; several sources at once, as there are cores."""
    target = Path(plan["target"])
    work = target.with_suffix(".tmp")  # one for all: only the process with the lock is here
    shutil.rmtree(work, ignore_errors=True)
    find_room(target.parent)
    work.mkdir(mode=0o700)
    try:

        def compiled(at: int) -> str:
            made = str(work / f"{at}.o")
            run_compiler([*plan["sources"][at], "-o", made], plan["timeout"])
            return made

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            try:
                objects = list(pool.map(compiled, range(len(plan["sources"]))))
            except BuildFailed:
                pool.shutdown(cancel_futures=True)  # one failure is enough
                raise
        library = work / target.name
        linked = [*plan["link"], *objects, "-o", str(library), *plan["libraries"]]
        run_compiler(linked, plan["timeout"])
        seal(library)
        os.replace(library, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    remove_old(target)


def main(plan: dict[str, Any]) -> int:
    target = Path(plan["target"])
    make_room()
    os.umask(0o077)
    with lock(target) as alone:
        if not alone:
            return BUSY
        if is_whole(target):
            return 0
        tries = read_note(target).get("tries", 0) + 1
        _write_note(target, INTERRUPTED, tries)
        try:
            build(plan)
        except (BuildFailed, OSError) as e:
            _write_note(target, str(e)[:2000], tries)
            return 1
        with suppress(OSError):
            note_of(target).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
