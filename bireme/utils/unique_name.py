"""Names that no other layer, parameter or optimizer state has: `fc_0`, `fc_1` …"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bireme.nn import naming
from bireme.nn.naming import UniqueNames as UniqueNameGenerator
from bireme.nn.naming import generate, guard

NameChecker = Callable[[str], Any]


def switch(
    new_generator: UniqueNameGenerator | None = None, new_para_name_checker: object = None
) -> tuple[UniqueNameGenerator, Any]:
    """Use other counters from now on; returns what was in use, to be passed back later.

    Bireme checks no parameter names, so the second value only travels along.

    >>> before = switch()
    >>> generate("fc")
    'fc_0'
    >>> _ = switch(*before)
    """
    global _checker
    old = naming.switch(new_generator), _checker
    _checker = new_para_name_checker
    return old


_checker: Any = None

__all__ = ["generate", "guard", "switch"]
