"""Models from a folder with a `hubconf.py`, on this machine or in a Git repository."""

from __future__ import annotations

import builtins
import importlib.util
import os
import shutil
import sys
import zipfile
from types import ModuleType
from typing import Any

from bireme.core.errors import BiremeError, InvalidArgument
from bireme.utils.download import get_path_from_url

HUB_DIR = os.path.expanduser("~/.cache/paddle/hub")
_CONF = "hubconf.py"
_ARCHIVES = {
    "github": "https://github.com/{owner}/{name}/archive/{branch}.zip",
    "gitee": "https://gitee.com/{owner}/{name}/repository/archive/{branch}.zip",
}


class HubError(BiremeError, RuntimeError):
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
    map_location: Any = None,
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
    import hashlib

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
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except ImportError as e:
        raise HubError(f"[hub] {path!r} cannot be imported: {e}") from e
    finally:
        sys.path.remove(folder)
    return module


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
    owner, slash, name = path.partition("/")
    if not slash or "/" in name or not owner or not name:
        raise InvalidArgument(f"[hub] a repository is 'owner/name[:branch]'. Received: {repo!r}")
    branch = branch or ("main" if source == "github" else "master")
    folder = os.path.join(HUB_DIR, f"{owner}_{name}_{branch.replace('/', '_')}")
    if os.path.exists(folder) and not force_reload:
        return folder
    url = _ARCHIVES[source].format(owner=owner, name=name, branch=branch)
    archive = get_path_from_url(url, HUB_DIR, check_exist=False, decompress=False)
    with zipfile.ZipFile(archive) as files:
        top = files.namelist()[0].split("/")[0]
        files.extractall(HUB_DIR)
    os.unlink(archive)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.move(os.path.join(HUB_DIR, top), folder)
    return folder


__all__ = ["help", "list", "load", "load_state_dict_from_url"]
