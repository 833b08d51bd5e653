"""Files by address: from the cache, from this machine, or over the network."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile

from bireme.core.errors import BiremeError, InvalidArgument

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
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part = f"{path}.{os.getpid()}.part"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer, open(part, "wb") as file:
            shutil.copyfileobj(answer, file, 1 << 20)
        os.replace(part, path)
    except (OSError, urllib.error.URLError) as e:
        raise DownloadError(
            f"[download] {url} cannot be fetched ({e}). Without a network put the file at {path}, "
            "or give a local path"
        ) from None
    finally:
        if os.path.exists(part):
            os.unlink(part)


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
    """Unpack beside the archive; the single folder or file in it, or the folder made for it."""
    folder = os.path.dirname(path)
    if tarfile.is_tarfile(path):
        with tarfile.open(path) as archive:
            names = [m.name for m in archive.getmembers()]
            target = _target(folder, path, names)
            archive.extractall(target, filter="data")  # refuses paths that lead out
    else:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            target = _target(folder, path, names)
            archive.extractall(target)  # drops '..' and leading '/' by itself
    tops = {n.split("/")[0] for n in names if n.split("/")[0] not in ("", ".")}
    return os.path.join(folder, tops.pop()) if target == folder and len(tops) == 1 else target


def _target(folder: str, path: str, names: list[str]) -> str:
    tops = {n.split("/")[0] for n in names if n.split("/")[0] not in ("", ".")}
    if len(tops) == 1:
        return folder
    stem = os.path.basename(path)
    for ending in (".zip", ".gz", ".tgz", ".bz2", ".xz", ".tar"):
        stem = stem.removesuffix(ending)
    return os.path.join(folder, stem)


_decompress = _unpacked  # Paddle's name, which programs import


def _get_unique_endpoints(trainer_endpoints: list[str]) -> set[str]:
    """One of the addresses `host:port` of each host: the process there that downloads."""
    first: dict[str, str] = {}
    for endpoint in sorted(trainer_endpoints):
        first.setdefault(endpoint.partition(":")[0], endpoint)
    return set(first.values())


__all__ = ["get_weights_path_from_url"]
