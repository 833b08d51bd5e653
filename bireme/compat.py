"""`import paddle` as `import bireme`: an alias for scripts that must not be changed.

    from bireme import compat
    compat.install()
    import paddle.nn.functional as F    # bireme.nn.functional

A name that Bireme lacks raises at once and names the nearest one that exists; a few that programs
import and seldom use raise when they are used (compat_later.py).
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from bireme import compat_later, version
from bireme.core import config
from bireme.core.errors import BiremeError

PREFIX = "paddle"


class MissingAttributeError(BiremeError, AttributeError):
    """A name that the script expects in Paddle and that Bireme lacks."""


class MissingModuleError(BiremeError, ModuleNotFoundError):
    """The same, met in an import statement."""


# A module's own dictionary, whatever its class shows as `__dict__`.
_own = vars(ModuleType)["__dict__"].__get__


class _Alias(ModuleType):
    """`paddle.x`: looks every attribute up in `bireme.x`."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        """What programs that look through a module's names should find."""
        own = _own(self)
        return {**vars(own["_target"]), **own}

    def __init__(self, name: str, target: ModuleType):
        super().__init__(name, target.__doc__)
        _own(self)["_target"] = target
        self.__path__: list[str] = []  # makes submodules importable
        if name == PREFIX:  # programs choose their ways by Paddle's version, not by ours
            self.__version__, self.__git_commit__ = version.full_version, version.commit

    def __getattr__(self, name: str) -> Any:
        target = _own(self)["_target"]
        if name == "__all__":
            return public_names(target)
        if name == self.__name__:  # Paddle is a name in itself, and programs import it from there
            return self
        try:
            found = getattr(target, name)
        except AttributeError:
            if name.startswith("__"):
                raise
            moved = compat_later.MOVED.get(f"{self.__name__}.{name}", f"{target.__name__}.{name}")
            found = _find(moved) or _later(self.__name__, name, target)
            if found is None:
                message = _missing(f"{self.__name__}.{name}", target)
                raise MissingAttributeError(message) from None
        if isinstance(found, ModuleType) and found.__name__.startswith("bireme."):
            found = _alias(f"{self.__name__}.{name}", found)  # explains its missing names too
        if callable(found) or isinstance(found, _Alias):
            _own(self)[name] = found  # a training loop does not pass here again
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        elif isinstance(value, _Alias):  # the import system hands a package its submodules
            if not callable(getattr(_own(self)["_target"], name, None)):  # a function has priority
                super().__setattr__(name, value)
        else:  # a script that patches paddle means the real thing
            _own(self).pop(name, None)
            setattr(_own(self)["_target"], name, value)

    def __dir__(self) -> list[str]:
        return public_names(_own(self)["_target"])


class _CallableAlias(_Alias):
    """`paddle.tensor`, a function too."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _own(self)["_target"](*args, **kwargs)


@functools.cache
def _alias(name: str, target: ModuleType) -> _Alias:
    """One per module, however it was reached: what a script patches is patched for all."""
    return (_CallableAlias if callable(target) else _Alias)(name, target)


class _Finder(MetaPathFinder, Loader):
    """Answers `import paddle…`."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != PREFIX and not fullname.startswith(PREFIX + "."):
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        name = "bireme" + spec.name[len(PREFIX) :]
        target = _find(compat_later.MOVED.get(spec.name, name))
        if target is None and compat_later.has_module(spec.name):
            target = ModuleType(name)
            vars(target).update(compat_later.VALUES.get(spec.name, {}))
        if target is None:
            parent, _, leaf = name.rpartition(".")
            owner = _find(parent)
            target = vars(owner).get(leaf) if owner else None
            if not isinstance(target, ModuleType):
                owner = owner or importlib.import_module("bireme")
                raise MissingModuleError(_missing(spec.name, owner))
        return _alias(spec.name, target)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: the alias is complete when it is made."""


def _find(name: str) -> ModuleType | None:
    """A module of Bireme, or None where there is none of that name."""
    return importlib.import_module(name) if _exists(name) else None


def _later(module: str, name: str, owner: ModuleType) -> type | None:
    """A name that may be imported but not used, None where there is none."""
    advice = compat_later.advice(module, name)
    if advice is None:
        return None
    full = f"{module}.{name}"
    error = MissingAttributeError(f"{_missing(full, owner)}; {advice}")
    return compat_later.stand_in(full, error)


def public_names(module: ModuleType) -> list[str]:
    """What `from module import *` should give."""
    names = getattr(module, "__all__", None) or vars(module)
    return sorted(n for n in names if not n.startswith("_"))


def _exists(name: str) -> bool:
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as e:
        if f"{name}.".startswith(f"{e.name}."):  # a parent that is not there
            return False
        raise


def _missing(name: str, owner: ModuleType) -> str:
    """The message for a name that is not there, with the nearest ones that are."""
    leaf = name.rpartition(".")[2]
    near = difflib.get_close_matches(leaf, public_names(owner), 3, 0.6)
    shown = owner.__name__.replace("bireme", PREFIX, 1)
    hint = f"; nearest: {', '.join(f'{shown}.{n}' for n in near)}" if near else ""
    elsewhere = _elsewhere(leaf) if not near else None
    if elsewhere:
        hint = f"; there is {elsewhere}"
    return f"{name} is not in Bireme{hint}"


def _elsewhere(leaf: str) -> str | None:
    """The same name in another namespace that is already loaded."""
    for module_name, module in sorted(sys.modules.copy().items()):  # others import meanwhile
        if module_name.startswith("bireme.") and leaf in getattr(module, "__all__", ()):
            return f"{module_name.replace('bireme', PREFIX, 1)}.{leaf}"
    return None


_finder = _Finder()


def install() -> None:
    """From now on `import paddle` gives Bireme. A real paddle that is already loaded stays."""
    loaded = sys.modules.get(PREFIX)
    if loaded is not None and not isinstance(loaded, _Alias):
        raise BiremeError(
            "the real paddle is already imported in this process; call bireme.compat.install() "
            "before anything imports it"
        )
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
        config.in_workers.append(install)


def uninstall() -> None:
    """Undo `install`."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
        config.in_workers.remove(install)
    for name in [n for n, m in sys.modules.items() if isinstance(m, _Alias)]:
        del sys.modules[name]


@contextmanager
def installed() -> Iterator[None]:
    """`install` for the duration of a `with` block."""
    install()
    try:
        yield
    finally:
        uninstall()
