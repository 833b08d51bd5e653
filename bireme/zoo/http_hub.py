"""Repositories of Hugging Face's hub, or of a mirror that answers as it does.

A repository is fetched into a folder of its own that takes its name when every file is complete and
has the announced size and hash; a fetch that was cut off goes on where it ended.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from bireme.core.errors import InvalidArgument
from bireme.zoo.hub import HubError, is_offline, models_folder

_NAME = re.compile(r"([A-Za-z0-9][\w.-]*)/([A-Za-z0-9][\w.-]*)(?:@([\w][\w.-]*))?")
_TEXTS = (".json", ".jinja", ".txt", ".model")
_MOST_FILES, _MOST_LIST = 2_000, 16 << 20
_TIMEOUT, _TRIES = 30.0, 5
_PIECE = 1 << 20


def endpoint() -> str:
    """The hub's address: HF_ENDPOINT if it is set."""
    address = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    if not address.startswith(("https://", "http://")):
        raise InvalidArgument(f"[zoo] HF_ENDPOINT must be an http address. Received: {address!r}")
    return address.rstrip("/")


def repository(name: str) -> str:
    """The folder of a repository's files, fetched if it is not there."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise InvalidArgument(f"[zoo] a repository is named owner/name. Received: {name!r}")
    owner, repo, revision = found[1], found[2], found[3] or "main"
    stem = f"{owner}--{repo}" + (f"@{revision}" if found[3] else "")
    folder = os.path.join(models_folder(), "hf", stem)
    if os.path.isdir(folder):
        return folder
    if is_offline():
        raise HubError(f"[zoo] hf:{name} was not fetched yet, and BIREME_OFFLINE forbids it")
    base = f"{endpoint()}/{{}}{quote(owner)}/{quote(repo)}/{{}}/{quote(revision)}"
    files = _chosen(_listed(base.format("api/models/", "tree") + "?recursive=true"), name)
    work = os.path.join(os.path.dirname(folder), f".{stem}.partial")
    os.makedirs(work, exist_ok=True)
    for entry in files:
        target = os.path.join(work, *entry["path"].split("/"))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        _fetch(f"{base.format('', 'resolve')}/{quote(entry['path'])}", target, entry)
    if os.path.isdir(folder):  # somebody else was faster
        shutil.rmtree(work)
    else:
        os.replace(work, folder)
    return folder


def _listed(address: str) -> list[dict[str, Any]]:
    """The hub's list of a repository's files, checked."""
    with _opened(address, {}) as answer:
        data = answer.read(_MOST_LIST + 1)
    try:
        found = json.loads(data) if len(data) <= _MOST_LIST else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or len(found) > _MOST_FILES:
        raise HubError(f"[zoo] {address} gave no list of files")
    files = []
    for entry in found:
        if not isinstance(entry, dict) or entry.get("type") != "file":
            continue
        path, size = entry.get("path"), entry.get("size")
        parts = path.split("/") if isinstance(path, str) else [""]
        safe = all(re.fullmatch(r"[\w][\w. +()=-]*", p) for p in parts)
        if safe and type(size) is int and 0 <= size < 1 << 44:
            files.append(entry)
    return files


def _chosen(files: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The files that a model needs: texts, and weights in the best format there is."""
    paths = [f["path"] for f in files]
    flat = [p for p in paths if "/" not in p]
    for end in (".safetensors", ".bin", ".gguf", ".pdparams"):
        weights = [p for p in flat if p.endswith(end)]
        if weights:
            break
    else:
        raise HubError(f"[zoo] hf:{name} has no weights that are read: {', '.join(flat[:20])}")
    if len(weights) > 1 and weights[0].endswith(".gguf"):
        raise HubError(
            f"[zoo] hf:{name} has several GGUF files; download one of them and give its path: "
            f"{', '.join(weights[:20])}"
        )
    texts = [p for p in paths if p.endswith(_TEXTS) and p.count("/") <= 1]
    wanted = {*weights, *texts}
    return [f for f in files if f["path"] in wanted]


def _opened(address: str, headers: dict[str, str]) -> Any:
    token = os.environ.get("HF_TOKEN")
    sent = {"User-Agent": "bireme", **headers}
    request = urllib.request.Request(address, headers=sent)
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        return urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as e:
        if e.code in (401, 403, 404):
            raise HubError(
                f"[zoo] {address} answers {e.code}: there is no such model, or it needs a token "
                "in HF_TOKEN"
            ) from e
        raise


def _fetch(address: str, target: str, entry: dict[str, Any]) -> None:
    """One file, in several tries if need be; what is there already is not fetched again."""
    size, check = entry["size"], _check(entry)
    part = f"{target}.part"
    if os.path.exists(target):
        return
    wrong = "nothing came"
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(min(0.2 * 2**attempt, 5.0))
        try:
            _continue(address, part, size)
        except (OSError, ValueError) as e:  # urllib's errors are OSErrors
            wrong = f"{type(e).__name__}: {e}"
            continue
        if os.path.getsize(part) == size and check(part):
            os.replace(part, target)
            return
        wrong = f"{os.path.getsize(part)} of {size} bytes, or others than announced"
        if os.path.getsize(part) >= size:
            os.unlink(part)
    raise HubError(f"[zoo] {address} could not be fetched in {_TRIES} tries: {wrong}")


def _continue(address: str, part: str, size: int) -> None:
    """Append what is missing of a file."""
    have = os.path.getsize(part) if os.path.exists(part) else 0
    if have >= size:
        if have > size:
            os.unlink(part)
            have = 0
        elif size:
            return
    headers = {"Range": f"bytes={have}-"} if have else {}
    with _opened(address, headers) as answer:
        goes_on = have and answer.status == 206
        bar = _Bar(os.path.basename(part).removesuffix(".part"), size)
        with open(part, "ab" if goes_on else "wb") as file:
            done = have if goes_on else 0
            while done <= size:
                piece = answer.read(min(_PIECE, size - done + 1))
                if not piece:
                    break
                file.write(piece)
                done += len(piece)
                bar.at(done)
        bar.end()


def _check(entry: dict[str, Any]) -> Callable[[str], bool]:
    """What compares a file with its announced hash: SHA-256 of large ones, Git's of small ones."""
    large = entry.get("lfs")
    wanted = large.get("oid") if isinstance(large, dict) else entry.get("oid")
    if not isinstance(wanted, str) or not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", wanted):
        raise HubError(f"[zoo] the hub gives no hash of {entry['path']!r}")

    def check(path: str) -> bool:
        digest = hashlib.sha256() if len(wanted) == 64 else hashlib.sha1(usedforsecurity=False)
        if len(wanted) == 40:
            digest.update(b"blob %d\0" % os.path.getsize(path))
        with open(path, "rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
        return digest.hexdigest() == wanted

    return check


class _Bar:
    """Progress on a terminal; nothing elsewhere."""

    def __init__(self, name: str, size: int):
        self._name, self._size, self._shown = name, max(size, 1), 0.0
        self._is_on = sys.stderr is not None and sys.stderr.isatty() and size > 1 << 20

    def at(self, done: int) -> None:
        now = time.monotonic()
        if self._is_on and now - self._shown > 0.1:
            self._shown = now
            share = done / self._size
            filled = "#" * int(30 * share)
            sys.stderr.write(
                f"\r{self._name:.40} [{filled:30}] {share:4.0%} of {self._size >> 20} MB"
            )
            sys.stderr.flush()

    def end(self) -> None:
        if self._is_on:
            sys.stderr.write("\n")
