"""Backends: how a Graph becomes something that runs. Third parties add one by entry point."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bireme.backends.base import Backend, Executable, WithFixed
from bireme.core.errors import InvalidArgument
from bireme.host import config, plugins

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from bireme.backends.numpy_backend import NumpyBackend

ENTRY_POINTS = "bireme.backends"

_loaded: dict[str, Backend] = {}
_by_kind: dict[str, Backend] = {}


def get_backend(name: str) -> Backend:
    """The backend of this name: `xla`, `numpy`, `null`, or one that is installed."""
    backend = _loaded.get(name)
    if backend is None:
        backend = _loaded[name] = _load(name)
    return backend


def serving(kind: str) -> Backend:
    """The backend of a kind of device: XLA serves CPUs, GPUs and the chips of PJRT plug-ins, and
    every other backend the kind that is called like it."""
    backend = _by_kind.get(kind)
    if backend is None:
        is_xla = kind in ("cpu", "gpu") or kind not in available_backends()
        backend = _by_kind[kind] = get_backend("xla" if is_xla else kind)
    return backend


def reference() -> NumpyBackend:
    """The backend of the cold tier, which runs op by op."""
    from bireme.backends.numpy_backend import NumpyBackend

    backend = get_backend("numpy")
    assert isinstance(backend, NumpyBackend)  # noqa: S101 (no plug-in can take its name)
    return backend


def _numpy() -> Backend:
    from bireme.backends.numpy_backend import NumpyBackend

    return NumpyBackend()


def _xla() -> Backend:
    from bireme.backends.xla_backend import XlaBackend

    return XlaBackend()


def _null() -> Backend:
    from bireme.backends.null_backend import NullBackend

    return NullBackend()


_BUILT_IN: dict[str, Callable[[], Backend]] = {"numpy": _numpy, "xla": _xla, "null": _null}


_registered: dict[str, Callable[[], Backend]] = {}


def register(name: str, make: Callable[[], Backend]) -> None:
    """Let `make()` be the backend `name` in this process. A package has an entry point instead."""
    if name in ("cpu", "gpu", *_BUILT_IN):
        raise InvalidArgument(f"the backend {name!r} is Bireme's own; choose another name")
    _registered[name] = make
    _loaded.pop(name, None)
    _by_kind.pop(name, None)


def _load(name: str) -> Backend:
    if name in _BUILT_IN:
        return _BUILT_IN[name]()
    make = _others().get(name)
    if make is None:
        raise InvalidArgument(
            f"no backend named {name!r}. Installed: {', '.join(available_backends())}"
        )
    made = make()
    if not isinstance(made, Backend):
        raise InvalidArgument(
            f"the backend {name!r} must be a subclass of bireme.backends.Backend. Received: "
            f"{type(made).__name__}"
        )
    config.several_backends = True
    return made


def _others() -> dict[str, Callable[[], Backend]]:
    """What makes the backends that are not Bireme's own."""
    found = {p.name: _loader(p) for p in plugins.entry_points(ENTRY_POINTS)} | _registered
    return {name: make for name, make in found.items() if name not in _BUILT_IN}


def _loader(point: EntryPoint) -> Callable[[], Backend]:
    return lambda: point.load()()


def other_backends() -> list[str]:
    """Names of the backends that are not Bireme's own."""
    return list(_others())


def available_backends() -> list[str]:
    """Names that `get_backend` accepts."""
    return [*_BUILT_IN, *other_backends()]


__all__ = [
    "Backend",
    "Executable",
    "WithFixed",
    "available_backends",
    "get_backend",
    "other_backends",
    "reference",
    "register",
    "serving",
]
