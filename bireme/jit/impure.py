"""Impure functions of Python's library: their results change from call to call, or they have side
effects.

A graph would freeze the results of the capture. Printing and logging are deferred until a call's
tensors are there; the others make a function run eagerly.
"""

from __future__ import annotations

import builtins
import io
import logging
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.core.errors import CaptureError, user_line
from bireme.jit.watch import current

_MODULES = frozenset(("time", "secrets", "uuid", "random"))
_SOURCES = (random.Random, np.random.RandomState, np.random.Generator, io.IOBase)
_LOG = frozenset(("debug", "info", "warning", "error", "critical", "log"))
_CLOCKS = frozenset(("now", "today", "utcnow"))
_BUILTINS = (builtins.input, builtins.open)


def check(function: Callable[..., Any]) -> None:
    """Raise CaptureError if a call of `function` cannot be part of a graph."""
    if current() is None:
        return
    owner = getattr(function, "__self__", None)
    if (
        isinstance(owner, _SOURCES)
        or any(function is b for b in _BUILTINS)
        or (getattr(function, "__module__", None) or "").split(".")[0] in _MODULES
        or (isinstance(owner, type) and function.__name__ in _CLOCKS)
    ):
        name = getattr(function, "__qualname__", function)
        raise CaptureError(
            f"{name}() at {user_line()} gives something else in every call, and a graph would keep "
            "what it gave now. Call it outside and pass the result as a tensor"
        )


def replaced(function: Callable[..., Any]) -> Any:
    """The function to call in place of a library function."""
    if current() is None:
        return function
    if function is print or _logs(function):
        return _later(function)
    check(function)
    return function


def _logs(function: Callable[..., Any]) -> bool:
    name = getattr(function, "__name__", None)
    owner = getattr(function, "__self__", logging)
    return name in _LOG and (
        isinstance(owner, logging.Logger) or getattr(logging, name, None) is function
    )


def _later(function: Callable[..., Any]) -> Callable[..., None]:
    def call(*args: Any, **kwargs: Any) -> None:
        watch = current()
        if watch is not None:
            watch.will_print(function, args, kwargs)

    return call
