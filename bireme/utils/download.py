"""Files by address: from the cache, from this machine, or over the network."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile

from bireme.core.errors import BiremeError, FileFormatError, InvalidArgument
from bireme.io import atomic
from bireme.io.foreign import open_zip, reading
from bireme.io.tar_file import TarFile

# Paddle's folders: what it has downloaded is found.
WEIGHTS_HOME = os.path.expanduser("~/.cache/paddle/hapi/weights")
_TIMEOUT = 30


class DownloadError(BiremeError, RuntimeError):
    """A file that could not be had, or is not what it should be."""


def is_url(path: str) -> bool:
    """Whether `path` is an address on the network."""
    return path.startswith(("http://", "https://"))


def get_weights_path_from_url(url: str, md5sum: str | None = None) -> str:
    """The local path of a file with weights; downloaded once, then taken from the cache."""
    return get_path_from_url(url, WEIGHTS_HOME, md5sum)


def get_path_from_url(
    url: str,
    root_dir: str,
    md5sum: str | None = None,
    check_exist: bool = True,
    decompress: bool = True,
    method: str = "get",
) -> str:
    """The local path of what `url` names; archives are unpacked beside themselves.

    `method` is Paddle's choice between two programs; there is one here, and both names mean it.
    """
    if method not in ("get", "wget"):
        raise InvalidArgument(f"[download] method must be 'get' or 'wget'. Received: {method!r}")
    path = _local(url)
    if path is None:
        path = os.path.join(root_dir, os.path.basename(urllib.parse.urlparse(url).path))
        if not (check_exist and os.path.exists(path) and _has_md5(path, md5sum)):
            _fetch(url, path)
    if not os.path.exists(path):
        raise DownloadError(f"[download] there is no file {path!r}")
    if not _has_md5(path, md5sum):
        raise DownloadError(f"[download] {path!r} does not have the MD5 sum {md5sum}")
    if decompress and os.path.isfile(path) and (tarfile.is_tarfile(path) or _is_zip(path)):
        return _unpacked(path)
    return path


def _local(url: str) -> str | None:
    """The path of a file:// address or a plain path; None for the network."""
    if is_url(url):
        return None
    parts = urllib.parse.urlparse(url)
    if parts.scheme == "file":
        return urllib.request.url2pathname(parts.path)
    if "://" in url:
        raise InvalidArgument(f"[download] http, https and file are known. Received: {url!r}")
    return url


def _fetch(url: str, path: str) -> None:
    try:
        with (
            urllib.request.urlopen(url, timeout=_TIMEOUT) as answer,
            atomic.replacing(path) as file,
        ):
            shutil.copyfileobj(answer, file, 1 << 20)
    except (OSError, urllib.error.URLError) as e:
        raise DownloadError(
            f"[download] {url} cannot be fetched ({e}). Without a network put the file at {path}, "
            "or give a local path"
        ) from None


def _has_md5(path: str, md5sum: str | None) -> bool:
    if md5sum is None:
        return True
    digest = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest() == md5sum


def _is_zip(path: str) -> bool:
    """A real archive: by its name too, since other formats are zip files inside."""
    return path.endswith(".zip") and zipfile.is_zipfile(path)


def _unpacked(path: str) -> str:
    """Unpack beside the archive; the single folder or file in it, or the folder made for it.

    What an archive holds never takes the place of anything that is there already.
    """
    folder = os.path.dirname(path)
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=folder or ".") as work:
        found = os.path.join(work, _stem(path))
        _extract(path, found)
        tops = os.listdir(found)
        if len(tops) == 1:
            found = os.path.join(found, tops[0])
        target = os.path.join(folder, os.path.basename(found))
        if not os.path.lexists(target):
            os.rename(found, target)
        elif not _is_there(found, target):
            raise DownloadError(
                f"[download] {path!r} holds {os.path.basename(found)!r}, and something else has "
                f"that name in {folder!r}; move it away, or put the archive into another folder"
            )
    return target


def _is_there(found: str, target: str) -> bool:
    """Whether this has been unpacked before: all of its files are there, with their sizes."""
    if not os.path.isdir(found):
        return os.path.isfile(target) and os.path.getsize(found) == os.path.getsize(target)
    return os.path.isdir(target) and all(
        _is_there(os.path.join(found, name), os.path.join(target, name))
        for name in os.listdir(found)
        if not os.path.islink(os.path.join(found, name))
    )


def _extract(path: str, into: str) -> None:
    """All of an archive, below a folder of its own."""
    try:
        with reading("download", path):
            if tarfile.is_tarfile(path):
                with TarFile(path, "download"):
                    pass  # no bomb, no endless header: Python's reader would work on both for long
                with tarfile.open(path) as tar:
                    tar.extractall(into, filter="data")  # refuses paths that lead out
            else:
                with open_zip(path, "download"), zipfile.ZipFile(path) as packed:
                    packed.extractall(into)  # drops '..' and leading '/' by itself
            os.makedirs(into, exist_ok=True)
    except (IsADirectoryError, NotADirectoryError, FileExistsError) as e:
        raise FileFormatError(
            f"[download] {path!r} is damaged: its names do not fit together ({e})"
        ) from None


def _stem(path: str) -> str:
    stem = os.path.basename(path)
    for ending in (".zip", ".gz", ".tgz", ".bz2", ".xz", ".tar"):
        stem = stem.removesuffix(ending)
    return stem


_decompress = _unpacked  # Paddle's name, which programs import


def _get_unique_endpoints(trainer_endpoints: list[str]) -> set[str]:
    """One of the addresses `host:port` of each host: the process there that downloads."""
    first: dict[str, str] = {}
    for endpoint in sorted(trainer_endpoints):
        first.setdefault(endpoint.partition(":")[0], endpoint)
    return set(first.values())


__all__ = ["get_weights_path_from_url"]
