"""`import paddle` as `import bireme`: an alias for scripts that must not be changed.

    from bireme import compat
    compat.install()
    import paddle.nn.functional as F    # bireme.nn.functional

A name that Bireme lacks raises at once and names the nearest one that exists; a few that programs
import and seldom use raise when they are used (compat_later.py).
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from bireme import compat_later, version
from bireme.core.errors import BiremeError
from bireme.host import config
from bireme.missing import MissingAttributeError, MissingModuleError, own_names, public_names

PREFIX = "paddle"
OCR = "paddleocr"


class _Alias(ModuleType):
    """`paddle.x`: looks every attribute up in `bireme.x`."""

    @property
    def __dict__(self) -> dict[str, Any]:
        """What programs that look through a module's names should find."""
        own = own_names(self)
        return {**vars(own["_target"]), **own}

    def __init__(self, name: str, target: ModuleType):
        super().__init__(name, target.__doc__)
        own_names(self)["_target"] = target
        self.__path__ = []  # makes submodules importable
        if name == PREFIX:  # programs choose their ways by Paddle's version, not by ours
            self.__version__, self.__git_commit__ = version.full_version, version.commit

    def __getattr__(self, name: str) -> Any:
        target = own_names(self)["_target"]
        if name == "__all__":
            return public_names(target)
        if name == self.__name__:  # Paddle is a name in itself, and programs import it from there
            return self
        try:
            found = getattr(target, name)
        except AttributeError:
            if name.startswith("__"):
                raise
            found = _find(f"{target.__name__}.{name}") or _later(self.__name__, name, target)
            if found is None:
                raise MissingAttributeError(f"{self.__name__}.{name}", target) from None
        if isinstance(found, ModuleType) and found.__name__.startswith("bireme."):
            found = _alias(f"{self.__name__}.{name}", found)  # explains its missing names too
        if callable(found) or isinstance(found, _Alias):
            own_names(self)[name] = found  # a training loop does not pass here again
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        elif isinstance(value, _Alias):  # the import system hands a package its submodules
            found = getattr(own_names(self)["_target"], name, None)
            if found is None or isinstance(found, ModuleType):  # anything else has priority
                super().__setattr__(name, value)
        else:  # a script that patches paddle means the real thing
            own_names(self).pop(name, None)
            setattr(own_names(self)["_target"], name, value)

    def __dir__(self) -> list[str]:
        return public_names(own_names(self)["_target"])


class _CallableAlias(_Alias):
    """`paddle.tensor`, a function too."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return own_names(self)["_target"](*args, **kwargs)


@functools.cache
def _alias(name: str, target: ModuleType) -> _Alias:
    """One per module, however it was reached: what a script patches is patched for all."""
    return (_CallableAlias if callable(target) else _Alias)(name, target)


class _Finder(MetaPathFinder, Loader):
    """Answers `import paddle…`."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname == "pip":
            _setuptools_before_pip()
        if fullname != PREFIX and not fullname.startswith(PREFIX + "."):
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        name = "bireme" + spec.name[len(PREFIX) :]
        target = _find(name)
        if target is None:
            parent, _, leaf = name.rpartition(".")
            owner = _find(parent)
            target = own_names(owner).get(leaf) if owner else None
            if not isinstance(target, ModuleType) and compat_later.has_module(spec.name):
                target = ModuleType(name, "Names that may be imported but not used.")
            if not isinstance(target, ModuleType):
                owner = owner or importlib.import_module("bireme")
                raise MissingModuleError(spec.name, owner)
        return _alias(spec.name, target)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: the alias is complete when it is made."""


def _setuptools_before_pip() -> None:
    """`import pip` turns off setuptools' redirection of `distutils`, and setuptools 65 cannot be
    imported after that. Paddle's own import loads it, so clients of Paddle never meet this."""
    if "_distutils_hack" in sys.modules and "setuptools" not in sys.modules:
        with suppress(ImportError):
            importlib.import_module("setuptools")


class _OcrFinder(MetaPathFinder, Loader):
    """Answers `import paddleocr` where that package is not installed: it is asked last."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname == OCR else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _alias(OCR, importlib.import_module("bireme.paddleocr"))

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
    error = MissingAttributeError(full, owner, advice)
    return compat_later.stand_in(full, error, f"Not in Bireme; {advice}.")


def _exists(name: str) -> bool:
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except MissingModuleError:
        return False
    except ModuleNotFoundError as e:
        if f"{name}.".startswith(f"{e.name}."):  # a parent that is not there
            return False
        raise


_finder = _Finder()
_ocr_finder = _OcrFinder()


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
        sys.meta_path.append(_ocr_finder)
        config.in_workers.append(install)


def uninstall() -> None:
    """Undo `install`."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
        sys.meta_path.remove(_ocr_finder)
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
