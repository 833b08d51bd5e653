"""Empty stand-ins for third-party packages that client code imports and its models do not use.

A stand-in answers every name with a class that can be named, subclassed and used as a decorator, so
that import statements and class definitions pass. It has no behaviour for a model to lean on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class Absent:
    """What a stand-in has under every name."""

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        used = args[0] if len(args) == 1 and callable(args[0]) else None
        return used or Absent()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent()

    def __mro_entries__(self, bases: tuple) -> tuple:
        return (Absent,)


class AbsentModule(ModuleType):
    __version__ = "0.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Absent,), {}) if name[:1].isupper() else Absent()


class _Finder(MetaPathFinder, Loader):
    def __init__(self, names: Iterable[str], values: dict[str, Any]):
        self.names, self.values = frozenset(names), values

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in self.names:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = AbsentModule(spec.name)
        for full, value in self.values.items():
            owner, _, name = full.rpartition(".")
            if owner == spec.name:
                setattr(module, name, value)
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


def stand_in(names: Iterable[str], values: dict[str, Any]) -> None:
    """From now on these top-level packages can be imported, with nothing but `values` in them."""
    sys.meta_path.insert(0, _Finder(names, values))


def bare_package(name: str, folder: str, **attributes: Any) -> None:
    """Make a package importable without running its `__init__`: its submodules run unmodified.

    The `__init__` of these packages imports command lines, servers and plotting.
    """
    module = ModuleType(name)
    module.__path__ = [folder]
    module.__spec__ = ModuleSpec(name, None, is_package=True)
    vars(module).update(attributes)
    sys.modules[name] = module
