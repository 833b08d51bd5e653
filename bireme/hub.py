"""Models from a folder with a `hubconf.py`, on this machine or in a Git repository."""

from __future__ import annotations

import builtins
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import zipfile
from contextlib import suppress
from types import ModuleType
from typing import Any
from urllib.parse import quote

from bireme.api.types import PlaceLike
from bireme.core.errors import BiremeError, InvalidArgument
from bireme.host import cache_folder
from bireme.utils.download import get_path_from_url

HUB_DIR = os.path.expanduser("~/.cache/paddle/hub")
_CONF = "hubconf.py"
_ARCHIVES = {
    "github": "https://github.com/{owner}/{name}/archive/{branch}.zip",
    "gitee": "https://gitee.com/{owner}/{name}/repository/archive/{branch}.zip",
}

_NAME = re.compile(r"(?!\.+$)[A-Za-z0-9._-]+")
_PLAIN_BRANCH = re.compile(r"[a-z0-9.-]+")
_imported: dict[str, set[str]] = {}  # the names of modules that came from each folder


class HubError(BiremeError, RuntimeError, ValueError):
    """A repository without what was asked for."""


def list(repo_dir: str, source: str = "github", force_reload: bool = False) -> builtins.list[str]:
    """The names of the entry points: public functions of the repository's `hubconf.py`.

    >>> list("my_models", source="local")  # doctest: +SKIP
    ['resnet18']
    """
    conf = _hubconf(repo_dir, source, force_reload)
    return [n for n, v in vars(conf).items() if callable(v) and not n.startswith("_")]


def help(
    repo_dir: str, model: str, source: str = "github", force_reload: bool = False
) -> str | None:
    """The docstring of an entry point."""
    return _entry(_hubconf(repo_dir, source, force_reload), model).__doc__


def load(
    repo_dir: str, model: str, source: str = "github", force_reload: bool = False, **kwargs: Any
) -> Any:
    """Call an entry point: what it returns, usually a Layer."""
    conf = _hubconf(repo_dir, source, force_reload)
    missing = [n for n in getattr(conf, "dependencies", ()) if importlib.util.find_spec(n) is None]
    if missing:
        raise HubError(f"[hub.load] {repo_dir!r} needs packages: {', '.join(missing)}")
    return _entry(conf, model)(**kwargs)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    check_hash: bool = False,
    file_name: str | None = None,
    map_location: PlaceLike | None = None,
) -> Any:
    """The state dict in a file that is downloaded once and then kept in `model_dir`.

    With `check_hash` the file's name must end in the beginning of its SHA-256, as in
    `resnet-1f2e3d4c.pdparams`. `map_location` is a device to put the tensors on.
    """
    from bireme.io.serialization import load as load_file

    folder = model_dir or os.path.join(HUB_DIR, "checkpoints")
    path = get_path_from_url(url, folder)
    if file_name is not None and os.path.isfile(path):
        renamed = os.path.join(folder, file_name)
        if os.path.abspath(renamed) != os.path.abspath(path):
            shutil.copyfile(path, renamed)
        path = renamed
    if os.path.isdir(path):
        files = sorted(os.listdir(path))
        if len(files) != 1:
            raise HubError(f"[load_state_dict_from_url] the archive holds {files}, not one file")
        path = os.path.join(path, files[0])
    if check_hash:
        _check_hash(path)
    found = load_file(path)
    if map_location is not None:
        found = {k: v.to(map_location) if hasattr(v, "to") else v for k, v in found.items()}
    return found


def _check_hash(path: str) -> None:
    stem = os.path.basename(path).partition(".")[0]
    wanted = stem.rpartition("-")[2]
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if not wanted or not found.startswith(wanted):
        raise HubError(
            f"[load_state_dict_from_url] {path!r} has the SHA-256 {found[:16]}…, which its name "
            "does not announce"
        )


def _hubconf(repo_dir: str, source: str, force_reload: bool) -> ModuleType:
    if source not in ("github", "gitee", "local"):
        raise InvalidArgument(
            f"[hub] source must be 'github', 'gitee' or 'local'. Received: {source!r}"
        )
    folder = repo_dir if source == "local" else _repository(repo_dir, source, force_reload)
    path = os.path.join(folder, _CONF)
    if not os.path.isfile(path):
        raise HubError(f"[hub] there is no {_CONF} in {folder!r}")
    spec = importlib.util.spec_from_file_location("hubconf", path)
    if spec is None or spec.loader is None:
        raise HubError(f"[hub] {path!r} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    _forget_others(folder)
    before = set(sys.modules)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except ImportError as e:
        raise HubError(f"[hub] {path!r} cannot be imported: {e}") from e
    finally:
        sys.path.remove(folder)
        _imported.setdefault(folder, set()).update(
            name for name in set(sys.modules) - before if _is_from(sys.modules[name], folder)
        )
    return module


def _forget_others(folder: str) -> None:
    """Two repositories may both have a `helper`; the second must not be given the first one's."""
    for other, names in _imported.items():
        if other != folder:
            for name in names:
                sys.modules.pop(name, None)
            names.clear()


def _is_from(module: ModuleType | None, folder: str) -> bool:
    path = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
    return os.path.abspath(path).startswith(os.path.join(os.path.abspath(folder), ""))


def _entry(conf: ModuleType, name: str) -> Any:
    if not isinstance(name, str):
        raise InvalidArgument(f"[hub] model must be the name of a function. Received: {name!r}")
    found = getattr(conf, name, None)
    if not callable(found):
        raise HubError(f"[hub] {conf.__file__} has no function {name!r}")
    return found


def _repository(repo: str, source: str, force_reload: bool) -> str:
    """The folder of a repository 'owner/name[:branch]': from the cache, or fetched into it."""
    path, _, branch = repo.partition(":")
    owner, _, name = path.partition("/")
    branch = branch or ("main" if source == "github" else "master")
    if not all(_NAME.fullmatch(n) for n in (owner, name)):
        raise InvalidArgument(f"[hub] a repository is 'owner/name[:branch]'. Received: {repo!r}")
    why = cache_folder.problem(HUB_DIR)
    if why is not None:
        raise HubError(
            f"[hub] repositories cannot be kept in {HUB_DIR!r}, because {why}, and their code is "
            "run. Set HOME to a folder that only you can write to, or fetch the repository "
            "yourself and name its folder with source='local'"
        )
    folder = os.path.join(HUB_DIR, _folder_name(source, owner, name, branch))
    if os.path.isdir(folder) and not force_reload:
        return folder
    url = _ARCHIVES[source].format(owner=owner, name=name, branch=quote(branch))
    os.makedirs(HUB_DIR, exist_ok=True)
    # A folder of its own: two archives of one name, and what an archive holds, meet nobody there.
    work = tempfile.mkdtemp(prefix=".fetch-", dir=HUB_DIR)
    try:
        archive = get_path_from_url(url, work, check_exist=False, decompress=False)
        _put_in_place(_unpacked(archive, os.path.join(work, "files")), folder, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder


def _folder_name(source: str, owner: str, name: str, branch: str) -> str:
    """A name that no other repository or branch has.

    It is Paddle's where that is one: owners have no underscore on GitHub, so only a branch with
    one (or with a slash, which becomes one) and other hosts need more than the three parts.
    """
    joined = re.sub(r"[^A-Za-z0-9._-]", "_", f"{owner}_{name}_{branch}")
    if source == "github" and "_" not in owner and _PLAIN_BRANCH.fullmatch(branch):
        return joined
    whole = f"{source}:{owner}/{name}:{branch}".encode()
    return f"{joined}@{hashlib.sha256(whole).hexdigest()[:16]}"


def _unpacked(archive: str, target: str) -> str:
    """The single folder that the archive holds, unpacked below `target`."""
    try:
        with zipfile.ZipFile(archive) as files:
            names = files.namelist()
            parts = [n.split("/") for n in names]
            tops = {p[0] for p in parts}
            if any({"", ".", ".."} & {*p[:-1], p[-1] or "-"} or "\\" in "".join(p) for p in parts):
                raise HubError("[hub] the archive has members that lead out of it")
            if len(tops) != 1 or any(len(p) < 2 for p in parts):
                raise HubError(
                    f"[hub] the archive must hold one folder. Received: {sorted(tops)[:5]}"
                )
            files.extractall(target)
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError) as e:
        if isinstance(e, HubError):
            raise
        raise HubError(f"[hub] the archive cannot be unpacked: {e}") from e
    return os.path.join(target, tops.pop())


def _put_in_place(found: str, folder: str, work: str) -> None:
    """Give a whole folder its name, in the place of an older one."""
    with suppress(FileNotFoundError):
        os.rename(folder, os.path.join(work, "old"))
    try:
        os.rename(found, folder)
    except OSError:
        if not os.path.isdir(folder):  # otherwise another process was faster
            raise


__all__ = ["help", "list", "load", "load_state_dict_from_url"]
