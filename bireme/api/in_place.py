"""In-place forms of functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from bireme.core.trace import state

_F = TypeVar("_F", bound=Callable[..., Any])


def in_place_of(function: Callable[..., Any]) -> Callable[[_F], _F]:
    """Mark the in-place form of a function. In a static program it is the function itself, and
    says so, as in Paddle: a program's variables are written by `paddle.assign(value, output=x)`."""

    def mark(form: _F) -> _F:
        @wraps(form)
        def call(*args: Any, **kwargs: Any) -> Any:
            if state.trace.changes_tensors:
                return form(*args, **kwargs)
            warnings.warn(
                f"{call.__name__}() does not change its tensor in a static program: it returns "
                f"what {function.__name__}() returns. Go on with that result, or write "
                "paddle.assign(result, output=x)",
                UserWarning,
                stacklevel=2,
            )
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return mark
