"""Errors about names that are not there, and the nearest ones that are.

The nearest names are looked for when an error is shown: `hasattr` and `except ImportError` ask
often, and never look.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from bireme.core.errors import BiremeError


class _Missing(BiremeError):
    """A dotted name, as the program has it, and the module of Bireme's that lacks it."""

    def __init__(self, name: str, owner: ModuleType, advice: str = ""):
        super().__init__(name)
        self._name, self._owner, self._advice = name, owner, advice

    def __str__(self) -> str:
        root, _, rest = self._name.partition(".")
        hint = _nearest(rest.rpartition(".")[2], self._owner, root)
        advice = f"; {self._advice}" if self._advice else ""
        return f"{self._name} is not in Bireme{hint}{advice}"

    def __reduce__(self) -> Any:
        return BiremeError, (str(self),)  # modules cannot be sent to another process


class MissingAttributeError(_Missing, AttributeError):
    """A name that a program expects in Paddle and that Bireme lacks."""


class MissingModuleError(_Missing, ModuleNotFoundError):
    """The same, met in an import statement."""


# A module's own dictionary, whatever its class shows as `__dict__`.
own_names: Callable[[ModuleType], dict[str, Any]] = vars(ModuleType)["__dict__"].__get__


def public_names(module: ModuleType) -> list[str]:
    """What `from module import *` should give."""
    names = getattr(module, "__all__", None) or vars(module)
    return sorted(n for n in names if not n.startswith("_"))


def _nearest(leaf: str, owner: ModuleType, root: str) -> str:
    near = difflib.get_close_matches(leaf, public_names(owner), 3, 0.6)
    if near:
        shown = owner.__name__.replace("bireme", root, 1)
        return f"; nearest: {', '.join(f'{shown}.{n}' for n in near)}"
    elsewhere = _elsewhere(leaf)
    return f"; there is {elsewhere.replace('bireme', root, 1)}" if elsewhere else ""


def _elsewhere(leaf: str) -> str | None:
    """The same name in another namespace that is already loaded."""
    for module_name, module in sorted(sys.modules.copy().items()):  # others import meanwhile
        if module_name.startswith("bireme.") and leaf in own_names(module).get("__all__", ()):
            return f"{module_name}.{leaf}"
    return None
