"""enable_compat: `import torch` as Bireme, for programs that use names both have.

    paddle.enable_compat()
    import torch                        # torch.sin is paddle.sin
    paddle.disable_compat()

What PyTorch calls differently stays different: names and arguments are Paddle's.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from bireme import compat
from bireme.core.errors import InvalidArgument, calling_modules
from bireme.missing import MissingModuleError, own_names

_PREFIX = "torch"


def _under(name: str, roots: Iterable[str]) -> bool:
    return any(name == root or name.startswith(root + ".") for root in roots)


class _TorchFinder(MetaPathFinder, Loader):
    """Answers `import torch…`, for everybody or for code of some modules only."""

    def __init__(self) -> None:
        self.scope: set[str] | None = set()
        self.blocked = {"tvm_ffi"}
        self.real: dict[str, ModuleType] = {}  # PyTorch's own modules, put aside

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not _under(fullname, [_PREFIX]) or not self._is_asked():
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def _is_asked(self) -> bool:
        """Whether the code that imports is to see Bireme. Python tells a finder the name of what
        is imported and not by whom, so the frames are asked."""
        asking = calling_modules()
        if any(_under(name, self.blocked) for name in asking):
            return False
        return self.scope is None or any(_under(name, self.scope) for name in asking)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        name = "bireme" + spec.name[len(_PREFIX) :]
        target = compat._find(name)
        if target is None:
            owner = compat._find(name.rpartition(".")[0]) or importlib.import_module("bireme")
            raise MissingModuleError(spec.name, owner)
        made = compat._alias(spec.name, target)
        if spec.name == _PREFIX:
            functional = importlib.import_module("bireme.nn.functional")
            own_names(made)["relu"] = functional.relu
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: the alias is complete when it is made."""


_finder = _TorchFinder()


def _names(given: str | Iterable[str] | None) -> set[str] | None:
    if given is None:
        return None
    return {given} if isinstance(given, str) else set(given)


def enable_compat(
    *,
    scope: str | Iterable[str] | None = None,
    blocked_modules: str | Iterable[str] | None = None,
    backend: str = "torch",
    silent: bool = False,
) -> None:
    """From now on `import torch` gives Bireme: everywhere, or in code of the modules in `scope`.

    `blocked_modules` keep importing the real one. A wider or other scope than before is warned
    about unless `silent`. PyTorch's own modules, if loaded, are put aside until `disable_compat`.

    >>> enable_compat()
    >>> import torch
    >>> disable_compat()
    """
    if backend != "torch":
        raise InvalidArgument(f"[enable_compat] backend must be 'torch'. Received: {backend!r}")
    _finder.blocked |= _names(blocked_modules) or set()
    wanted = _names(scope)
    if _finder in sys.meta_path:
        if _finder.scope is None and wanted is not None:
            said = "torch is already Bireme everywhere; the scope is smaller from now on"
        elif _finder.scope is not None and wanted is None:
            said = "torch becomes Bireme everywhere; the scope of before no longer matters"
        elif wanted != _finder.scope:
            said = f"the scope grows from {sorted(_finder.scope or ())} by {sorted(wanted or ())}"
            wanted = (wanted or set()) | (_finder.scope or set())
        else:
            said = ""
        if said and not silent:
            warnings.warn(f"[enable_compat] {said}", UserWarning, stacklevel=2)
    else:
        for name in [n for n in sys.modules if _under(n, [_PREFIX])]:
            _finder.real[name] = sys.modules.pop(name)
        sys.meta_path.insert(0, _finder)
    _finder.scope = wanted


def disable_compat() -> None:
    """`import torch` gives PyTorch again, or an error where there is none."""
    if _finder not in sys.meta_path:
        warnings.warn("[disable_compat] enable_compat was not called", UserWarning, stacklevel=2)
        return
    sys.meta_path.remove(_finder)
    for name, module in list(sys.modules.items()):
        if _under(name, [_PREFIX]) and isinstance(module, compat._Alias):
            del sys.modules[name]
    sys.modules.update(_finder.real)
    _finder.real = {}


__all__ = ["disable_compat", "enable_compat"]
