"""Backends: how a Graph becomes something that runs. Third parties add one by entry point."""

from __future__ import annotations

from typing import Any

from bireme.backends.base import Backend, Executable
from bireme.core.errors import InvalidArgument

_loaded: dict[str, Backend] = {}


def get_backend(name: str) -> Any:
    """The backend of this name: `xla`, `numpy`, or one installed under `bireme.backends`."""
    backend = _loaded.get(name)
    if backend is None:
        backend = _loaded[name] = _load(name)
    return backend


def _load(name: str) -> Backend:
    if name == "numpy":
        from bireme.backends.numpy_backend import NumpyBackend

        return NumpyBackend()
    if name == "xla":
        from bireme.backends.xla_backend import XlaBackend

        return XlaBackend()
    for point in _installed():
        if point.name == name:
            return point.load()()
    raise InvalidArgument(
        f"no backend named {name!r}. Installed: {', '.join(available_backends())}"
    )


def available_backends() -> list[str]:
    """Names that `get_backend` accepts."""
    return ["numpy", "xla", *(point.name for point in _installed())]


def _installed() -> Any:
    from importlib.metadata import entry_points  # slow to import

    return entry_points(group="bireme.backends")


__all__ = ["Backend", "Executable", "available_backends", "get_backend"]
