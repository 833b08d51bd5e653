"""`paddle.incubate.autotune`: what is chosen by measurement."""

from __future__ import annotations

import os
import warnings
from typing import Any

from bireme.core import kernels, trace
from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.io import tuning
from bireme.io.foreign import read_json
from bireme.kernels import install as install_kernels

_KNOWN = {
    "kernel": ("enable", "tuning_range"),
    "layout": ("enable",),
    "dataloader": ("enable", "tuning_steps"),
}


def set_config(config: dict[str, Any] | str | os.PathLike[str] | None = None) -> None:
    """Turn tuning on or off: a dict, the path of a JSON file with one, or None for all of it.

    >>> set_config({"dataloader": {"enable": True, "tuning_steps": 50}})

    kernel: whether hand-written kernels are used beside XLA's, which tunes its own while it
    compiles. layout: XLA chooses layouts in every program, so this cannot be turned off.
    dataloader: loaders made from now on measure how many workers they need.
    """
    if config is None:
        config = {name: {"enable": True} for name in _KNOWN}
    elif not isinstance(config, dict):
        config = _read(config)
    for part, settings in config.items():
        _check(part, settings)
    kernel, layout, loader = (config.get(name, {}) for name in _KNOWN)
    if "enable" in kernel:
        trace.flush()  # what was recorded before belongs to the setting of before
        install_kernels()
        for name in kernels.names():
            (kernels.enable if kernel["enable"] else kernels.disable)(name)
    if "tuning_range" in kernel:
        warnings.warn(
            "tuning_range has no effect: XLA tunes its kernels when it compiles a program, and not "
            "in certain steps",
            stacklevel=2,
        )
    if layout.get("enable") is False:
        warnings.warn("XLA always chooses the layout; it cannot be turned off", stacklevel=2)
    if loader:
        count = loader.get("tuning_steps", tuning.DEFAULT_STEPS)
        tuning.set_steps(count if loader.get("enable", False) else 0)


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        found = read_json(path, "autotune.set_config")
    except OSError as e:
        raise InvalidArgument(f"[autotune.set_config] {path!r} cannot be read: {e}") from None
    if not isinstance(found, dict):
        raise FileFormatError(
            f"[autotune.set_config] {path!r} must hold an object. Received: {type(found).__name__}"
        )
    return found


def _check(part: Any, settings: Any) -> None:
    if part not in _KNOWN or not isinstance(settings, dict):
        raise InvalidArgument(
            f"[autotune.set_config] the config maps {', '.join(_KNOWN)} to dicts. Received: "
            f"{part!r}: {settings!r}"
        )
    for name, value in settings.items():
        if name not in _KNOWN[part]:
            raise InvalidArgument(
                f"[autotune.set_config] {part} has {', '.join(_KNOWN[part])}. Received: {name!r}"
            )
        wanted = {"enable": bool, "tuning_range": list, "tuning_steps": int}[name]
        if not isinstance(value, wanted) or (name == "tuning_steps" and value < 1):
            raise InvalidArgument(
                f"[autotune.set_config] {part}'s {name} must be a {wanted.__name__}"
                f"{' above 0' if wanted is int else ''}. Received: {value!r}"
            )


__all__ = ["set_config"]
