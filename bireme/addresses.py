"""Inner addresses: `bireme.nn.layer.common.Linear` is `bireme.nn.Linear`, as it is in Paddle.

Programs take public objects out of Paddle's inner modules. `addresses.txt` says which of them are
where; `scripts/make_addresses.py` wrote it from the wheel. A finder serves it: a module that
Bireme has gains the names that it lacks (its own have priority), and a module that it does not
have is made of the table's line. Nothing is looked up before a program asks for it.

The finder is an entry of `__path__`, in Bireme's packages alone: no import hook of the process
changes, and no other package's import comes here.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from importlib.abc import Loader, PathEntryFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from bireme.missing import MissingAttributeError, MissingModuleError, own_names

_ROOT = "bireme."
# The entry of `__path__` that stands for the table. Python asks the finder in its cache for it.
_ENTRY = str(Path(__file__).with_suffix(".txt"))
# What `import bireme` itself loads has no inner names of Paddle's: it is left to Python.
_OWN = ("host", "core", "api", "capture", "ops", "backends", "kernels", "missing", "addresses")


class _Book:
    """The table: lines by module, split into names when a module is asked for the first time."""

    def __init__(self, text: str):
        self._lines: dict[str, str] = {}
        self.public: set[str] = set()  # these are here for real, or not at all
        self.children: dict[str, list[str]] = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                self._add(*line.partition(" ")[::2])
        self.names = functools.cache(self._names)

    def _add(self, head: str, rest: str) -> None:
        module = head.removesuffix("!")
        self._lines[module] = rest
        if module != head:
            self.public.add(module)
        while module:
            module, _, child = module.rpartition(".")
            known = self.children.setdefault(module, [])
            if child in known:
                return
            known.append(child)

    def __contains__(self, module: str) -> bool:
        return module in self._lines or module in self.children

    def _names(self, module: str) -> dict[str, tuple[str | None, str]]:
        """The names in a module: (the public owner, None for a module's second name; address)."""
        found: dict[str, tuple[str | None, str]] = {}
        owner: str | None = None
        for word in self._lines.get(module, "").split():
            if word == "->":
                owner = None
            elif word.endswith(":"):
                owner = word[:-1]
            else:
                name, _, other = word.partition("=")
                found[name] = (owner, other or name)
        return found


@functools.cache
def _book() -> _Book:
    book = _Book(Path(_ENTRY).read_text(encoding="utf-8"))
    _hide_modules(sys.modules["bireme"], book)
    return book


def find(module: str, name: str) -> object:
    """What Paddle has as `name` in its inner `module` (both below `paddle`), if it is here."""
    book = _book()
    known = book.names(module).get(name)
    if known is not None:
        owner, there = known
        return _module(there) if owner is None else getattr(_owner(owner), there)
    path = f"{module}.{name}" if module else name
    if path in book:
        return _module(path)
    raise AttributeError(name)


def _module(path: str) -> ModuleType:
    try:
        return importlib.import_module(_ROOT + path)
    except ModuleNotFoundError as e:
        if not f"{_ROOT}{path}.".startswith(f"{e.name}."):
            raise  # a module of Bireme wants something that is not installed
        raise AttributeError(path) from None


def _owner(path: str) -> Any:
    """The module or the class at an address; classes, and only they, are written in capitals."""
    holder, _, name = path.rpartition(".")
    if name[:1].isupper():
        return getattr(_owner(holder), name)
    return _module(path) if path else sys.modules["bireme"]


class InnerModule(ModuleType):
    """A module of Paddle's that Bireme does not have as a file: names of others."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        """What programs that look through a module's names should find."""
        return {**{name: getattr(self, name) for name in self.__all__}, **own_names(self)}

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            inner = _book().names(_below(self.__name__))
            return sorted(n for n in inner if not n.startswith("_") and hasattr(self, n))
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        try:
            found = find(_below(self.__name__), name)
        except AttributeError:
            raise MissingAttributeError(f"{self.__name__}.{name}", self) from None
        own_names(self)[name] = found  # a training loop does not pass here again
        return found

    def __dir__(self) -> list[str]:
        return sorted({*own_names(self), *self.__all__})

    def __repr__(self) -> str:
        return f"<module {self.__name__!r} (names of Paddle's inner module)>"


def _below(name: str) -> str:
    return name[len(_ROOT) :]


def _spec_of_file(name: str, path: Iterable[str]) -> ModuleSpec | None:
    """The module `name` in the folders of `path`, without the table."""
    return PathFinder.find_spec(name, [folder for folder in path if folder != _ENTRY])


class _Finder(PathEntryFinder, Loader):
    """Finds the modules of the table below `bireme`."""

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        if not fullname.startswith(_ROOT) or _below(fullname).partition(".")[0] in _OWN:
            return None
        book, inner = _book(), _below(fullname)
        parent = sys.modules.get(fullname.rpartition(".")[0])
        if inner not in book and not isinstance(parent, InnerModule):
            return None
        spec = _spec_of_file(fullname, getattr(parent, "__path__", ()))
        if inner not in book and spec is None and parent is not None:
            raise MissingModuleError(fullname, parent)
        if spec is None and inner in book.public:
            return None
        if spec is None or spec.loader is None:
            return _inner_spec(fullname, spec)
        if inner in book and type(spec.loader) is SourceFileLoader:
            spec.loader = _Served(fullname, spec.loader.path)
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.insert(0, _ENTRY)
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return InnerModule(spec.name, "Names of one of Paddle's inner modules.")

    def exec_module(self, module: ModuleType) -> None:
        _hide_modules(module, _book())


def _inner_spec(name: str, folder: ModuleSpec | None) -> ModuleSpec:
    """For a module of the table that has no file here; its folder may have some.

    A package always: what it lacks is then asked for as a module, and that error has a hint."""
    spec = ModuleSpec(name, _finder, is_package=True)
    folders = None if folder is None else folder.submodule_search_locations
    spec.submodule_search_locations = [_ENTRY, *(folders or ())]
    return spec


class _Served(SourceFileLoader):
    """Loads a file of Bireme's and lets the module find the table's names after its own."""

    def exec_module(self, module: ModuleType) -> None:
        if not hasattr(module, "__path__") and _below(module.__name__) in _book().children:
            module.__path__ = [_ENTRY]  # a file here, a package there
        super().exec_module(module)
        _serve(module)
        _hide_modules(module, _book())


def _serve(module: ModuleType) -> None:
    """Let a module find names of the table that it lacks."""
    name = module.__name__
    own = vars(module).get("__getattr__")

    def lookup(wanted: str) -> Any:
        if wanted.startswith("__"):
            return _lacks(name, wanted) if own is None else own(wanted)
        if own is not None:
            try:
                return own(wanted)
            except AttributeError as e:
                missing = e
        else:
            missing = MissingAttributeError(f"{name}.{wanted}", module)
        try:
            return find(_below(name), wanted)
        except AttributeError:
            raise missing from None

    vars(module)["__getattr__"] = lookup


def _lacks(module: str, name: str) -> Any:
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def _hide_modules(module: ModuleType, book: _Book) -> None:
    """Make the inner modules whose name is taken in this one, such as the function
    `tensor.einsum`.

    An import binds a module in its parent, unless the module is there already: then the function
    stays, as it does in Paddle, and so does a module of another path."""
    inner, own = _below(module.__name__), own_names(module)
    for child in book.children.get(inner, ()):
        name = f"{module.__name__}.{child}"
        taken = own.get(child)
        if taken is None and child not in (*book.names(inner), *own.get("__all__", ())):
            continue
        if name in sys.modules or _spec_of_file(name, own.get("__path__", ())) is not None:
            continue
        if not isinstance(taken, ModuleType):
            taken = importlib.util.module_from_spec(_inner_spec(name, None))
        sys.modules[name] = taken


_finder = _Finder()

# This file is the first that `import bireme` loads.
sys.path_importer_cache[_ENTRY] = _finder  # type: ignore[assignment] (typeshed: FileFinder's base)
sys.modules["bireme"].__path__.insert(0, _ENTRY)
