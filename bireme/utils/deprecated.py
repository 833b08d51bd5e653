"""Marking functions that will go away."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from bireme import version
from bireme.core.errors import BiremeError, InvalidArgument

F = TypeVar("F", bound=Callable[..., Any])


class VisibleDeprecationWarning(UserWarning):
    """A deprecation that users see without asking Python for it."""


class RemovedFunction(BiremeError, RuntimeError):
    """A function that is only there to say what replaced it."""


def deprecated(
    update_to: str = "", since: str = "", reason: str = "", level: int = 0
) -> Callable[[F], F]:
    """A decorator: level 0 notes it in the docstring, 1 warns at each call, 2 refuses to run.

    >>> @deprecated(update_to="paddle.add", since="2.0", level=1)
    ... def plus(x, y): ...
    """
    if level not in (0, 1, 2):
        raise InvalidArgument(f"[deprecated] level must be 0, 1 or 2. Received: {level!r}")
    if update_to.strip() and not update_to.strip().startswith("paddle."):
        raise InvalidArgument(
            f"[deprecated] update_to must start with 'paddle.'. Received: {update_to!r}"
        )

    def decorate(function: F) -> F:
        name = f"{function.__module__}.{function.__name__}"
        message = _message(name, since.strip(), update_to.strip(), reason.strip())
        if function.__doc__:
            function.__doc__ = (
                f"\n\nWarning:\n    {message}\n\n{inspect.cleandoc(function.__doc__)}"
            )
        if level == 0:
            return function

        @functools.wraps(function)
        def warned(*args: Any, **kwargs: Any) -> Any:
            if level == 2:
                raise RemovedFunction(f"{name} is gone. {message}")
            if version.parse(version.full_version) >= version.parse(since):
                warnings.warn(message, VisibleDeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        return warned  # type: ignore[return-value]

    return decorate


def _message(name: str, since: str, update_to: str, reason: str) -> str:
    text = f'API "{name}" is deprecated'
    text += f" since {since}" if since else ""
    text += ", and will be removed in future versions."
    text += f' Please use "{update_to}" instead.' if update_to else ""
    return text + (f"\n    Reason: {reason}" if reason else "")


__all__ = ["VisibleDeprecationWarning", "deprecated"]
