"""The models of a server: loaded, warmed up, swapped, drained.

A model's new version answers only when it is loaded and warm. One that fails leaves the old
version in service, and `index` says why.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bireme.core.errors import BiremeError, InvalidArgument
from bireme.serving.errors import NotFound, Unavailable
from bireme.serving.models import Arrays, Embedder, Model, Ocr, Written, load_saved
from bireme.serving.options import Options, read_options
from bireme.serving.version import Version

logger = logging.getLogger("bireme.serving")

_TASKS: dict[str, Callable[[str], Any]] = {"embedding": Embedder}


@dataclass(slots=True)
class Entry:
    """A model: where it comes from, its versions in service, and what went wrong last."""

    source: Any
    options: Options
    versions: dict[str, Version] = field(default_factory=dict)
    reason: str = ""
    state: str = "UNAVAILABLE"
    lock: threading.Lock = field(default_factory=threading.Lock)  # one load at a time


class Repository:
    """All models by name."""

    def __init__(self, drain_seconds: float = 30.0):
        self.drain_seconds = drain_seconds
        self._entries: dict[str, Entry] = {}
        self._lock = threading.Lock()

    def add(self, name: str, source: object, options: Options | None = None) -> None:
        """Name a model without loading it. A source is a path, a folder of versions, `ocr`,
        `embedding:PATH`, `module:Class`, `file.py:Class`, or a Python class or object."""
        if not name or "/" in name or len(name) > 200:
            raise InvalidArgument(f"[serve] a model cannot be called {name!r}")
        with self._lock:
            if name in self._entries:
                raise InvalidArgument(f"[serve] there are two models called {name!r}; name one")
            self._entries[name] = Entry(source, options or Options())

    def names(self) -> list[str]:
        """The models' names."""
        return list(self._entries)

    def load(self, name: str) -> None:
        """Load a model, or load it again: the newest files take over when they are warm."""
        entry = self._entry(name)
        with entry.lock:
            entry.state = "READY" if entry.versions else "LOADING"
            try:
                fresh = self._made(name, entry)
            except Exception as e:  # what a stranger's file or class raises
                entry.reason = f"{type(e).__name__}: {e}"
                entry.state = "READY" if entry.versions else "UNAVAILABLE"
                if not isinstance(e, BiremeError | OSError):
                    logger.exception("%s could not be loaded", name)
                raise
            old, entry.versions = entry.versions, fresh
            entry.reason, entry.state = "", "READY"
        for version in old.values():
            version.drain(self.drain_seconds)

    def unload(self, name: str) -> None:
        """Take a model out of service when its requests are done."""
        entry = self._entry(name)
        with entry.lock:
            old, entry.versions = entry.versions, {}
            entry.reason, entry.state = "unloaded", "UNAVAILABLE"
        for version in old.values():
            version.drain(self.drain_seconds)

    def get(self, name: str, number: str = "") -> Version:
        """The version that answers requests: the given one, or the newest."""
        entry = self._entry(name)
        versions = entry.versions
        if not versions:
            why = f": {entry.reason}" if entry.reason else ""
            raise Unavailable(f"the model {name!r} is not loaded{why}")
        if not number:
            return versions[max(versions, key=int)]
        found = versions.get(number)
        if found is None:
            raise NotFound(
                f"{name!r} has no version {number!r} in service. There are: "
                f"{', '.join(sorted(versions, key=int))}"
            )
        return found

    def versions(self, name: str) -> list[str]:
        """The numbers of the versions in service."""
        return sorted(self._entry(name).versions, key=int)

    def all(self) -> list[Version]:
        """All versions in service."""
        return [v for e in list(self._entries.values()) for v in list(e.versions.values())]

    def index(self) -> list[dict[str, str]]:
        """Name, version, state and reason of each model."""
        rows = []
        for name, entry in list(self._entries.items()):
            for number in list(entry.versions) or [""]:
                row = {"name": name, "version": number, "state": entry.state}
                rows.append({**row, "reason": entry.reason})
        return rows

    @property
    def ready(self) -> bool:
        """Whether every model is in service, but for those that were unloaded on request."""
        return all(e.versions or e.reason == "unloaded" for e in list(self._entries.values()))

    def close(self) -> None:
        """Drain everything at once."""
        drains = [threading.Thread(target=v.drain, args=(self.drain_seconds,)) for v in self.all()]
        for thread in drains:
            thread.start()
        for thread in drains:
            thread.join()

    def call(self, name: str, **inputs: Any) -> Arrays:
        """Run a model and wait: what Python models call others by."""
        from bireme.serving.calling import call

        return call(self.get(name), inputs)

    def _entry(self, name: str) -> Entry:
        found = self._entries.get(name)
        if found is None:
            raise NotFound(f"there is no model {name!r}. There are: {', '.join(self._entries)}")
        return found

    def _made(self, name: str, entry: Entry) -> dict[str, Version]:
        options = entry.options
        folder = entry.source if isinstance(entry.source, str) else ""
        numbers = numbers_in(folder)
        if not numbers:
            model = make(entry.source, options, self.call)
            newest = max([0, *[int(n) for n in entry.versions]])
            return {str(newest + 1): Version(name, str(newest + 1), model, options)}
        options = read_options(folder, options)
        made: dict[str, Version] = {}
        try:
            for number in _wanted(numbers, options.versions, name):
                own = read_options(os.path.join(folder, str(number)), options)
                model = make(os.path.join(folder, str(number)), own, self.call)
                made[str(number)] = Version(name, str(number), model, own)
        except BaseException:
            for version in made.values():
                version.drain(0)
            raise
        return made


def numbers_in(path: str) -> list[int]:
    """The versions in a folder NAME/VERSION/."""
    if not path or not os.path.isdir(path):
        return []
    return sorted(
        int(n) for n in os.listdir(path) if n.isdecimal() and os.path.isdir(os.path.join(path, n))
    )


def _wanted(numbers: list[int], versions: Any, name: str) -> list[int]:
    if versions == "latest":
        return numbers[-1:]
    if versions == "all":
        return numbers
    missing = [v for v in versions if v not in numbers]
    if isinstance(versions, str) or missing:
        raise InvalidArgument(
            f"[serve] {name!r}: versions must be 'latest', 'all' or numbers among {numbers}. "
            f"Received: {versions!r}"
        )
    return sorted(versions)


def make(source: object, options: Options, models: Callable[..., Arrays]) -> Model:
    """The model that a source stands for."""
    if not isinstance(source, str):
        return Written(source, models)
    kind, _, rest = source.partition(":")
    if kind == "ocr" and not os.path.exists(source):
        return Written(Ocr(rest or None), models)
    if kind in _TASKS and rest:
        return Written(_TASKS[kind](rest), models)
    if os.path.isdir(source) and os.path.isfile(os.path.join(source, "model.py")):
        return Written(_class(os.path.join(source, "model.py"), "Model"), models)
    where, _, name = source.rpartition(":")
    if where and name.isidentifier() and not os.path.exists(source):
        return Written(_class(where, name), models)
    for path in _onnx_in(source):
        return load_saved(path, options)
    return load_saved(source, options)


def _onnx_in(path: str) -> list[str]:
    if not os.path.isdir(path):
        return []
    names = sorted(n for n in os.listdir(path) if n.endswith(".onnx"))
    return [os.path.join(path, n) for n in names[:1]]


def _class(where: str, name: str) -> Any:
    """A class of a module, or of a Python file."""
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location(f"bireme_served_{abs(hash(where))}", where)
        if spec is None or spec.loader is None or not os.path.isfile(where):
            raise InvalidArgument(f"[serve] there is no file {where!r}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        try:
            module = importlib.import_module(where)
        except ModuleNotFoundError as e:
            if e.name is None or not where.startswith(e.name):
                raise
            raise InvalidArgument(f"[serve] there is no model and no module {where!r}") from None
    found: Any = getattr(module, name, None)
    if found is None:
        raise InvalidArgument(f"[serve] {where!r} has no class {name!r}")
    return found
