"""Where a C++ custom op finds what it is built against: XLA's headers and library."""

from __future__ import annotations

import importlib.util
import os


def get_include() -> str:
    """The folder of XLA's C++ headers (its foreign-function interface)."""
    return os.path.join(_jaxlib(), "include")


def get_lib() -> str:
    """The folder of XLA's shared libraries."""
    return _jaxlib()


def _jaxlib() -> str:
    spec = importlib.util.find_spec("jaxlib")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("jaxlib is not installed")
    return next(iter(spec.submodule_search_locations))


__all__ = ["get_include", "get_lib"]
