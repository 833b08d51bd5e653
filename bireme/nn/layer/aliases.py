"""Alternative keywords of constructors, such as `eps` for `epsilon`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from bireme.core.errors import TypeMismatch

F = TypeVar("F", bound=Callable[..., Any])


def keyword_aliases(**names: str) -> Callable[[F], F]:
    """`@keyword_aliases(eps="epsilon")`: a caller may write eps= for epsilon=."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            for alias, name in names.items():
                if alias in kwargs:
                    if name in kwargs:
                        raise TypeMismatch(
                            f"{alias!r} is another name of {name!r}: pass only one of them"
                        )
                    kwargs[name] = kwargs.pop(alias)
            return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]

    return decorate
