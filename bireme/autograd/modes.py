"""Switching the recording of gradients on and off, for this thread."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from bireme.autograd.scoped import Scoped
from bireme.core.trace import state


def is_grad_enabled() -> bool:
    """Whether operations are being recorded for gradients in this thread."""
    return state.trace.tape


class _GradMode(Scoped):
    """A context manager and decorator that sets the mode and puts the old one back."""

    _attribute = "tape"
    enabled = False

    def __init__(self, func: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self._func = func
        if func is not None:
            functools.update_wrapper(self, func)

    def __enter__(self) -> None:
        self._begin(self.enabled)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._func is not None:  # used as `@no_grad` without parentheses
            with type(self)():
                return self._func(*args, **kwargs)
        return self._decorate(args[0])

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def _decorate(self, func: Callable[..., Any]) -> Callable[..., Any]:
        make = self._again
        if inspect.isgeneratorfunction(func):

            @functools.wraps(func)
            def generator(*args: Any, **kwargs: Any) -> Any:
                inner = func(*args, **kwargs)
                try:
                    while True:
                        # The mode holds inside the generator only, not in its consumer.
                        with make():
                            try:
                                item = next(inner)
                            except StopIteration as stop:
                                return stop.value
                        yield item
                finally:
                    inner.close()

            return generator

        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with make():
                return func(*args, **kwargs)

        return wrapper

    def _again(self) -> _GradMode:
        return type(self)()


class no_grad(_GradMode):  # noqa: N801 (Paddle's name)
    """Do not record for gradients: `with no_grad():` or `@no_grad()`."""

    enabled = False


class enable_grad(_GradMode):  # noqa: N801 (Paddle's name)
    """Record for gradients, also inside `no_grad`."""

    enabled = True


class set_grad_enabled(_GradMode):  # noqa: N801 (Paddle's name)
    """Switch recording for gradients on or off."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.enabled = bool(mode)
        self._before: bool | None = state.trace.tape
        state.trace.tape = self.enabled

    def __enter__(self) -> None:
        if self._before is not None:  # `with set_grad_enabled(...)`: the block has begun above
            state.trace.tape, self._before = self._before, None
        self._begin(self.enabled)

    def _again(self) -> _GradMode:
        return enable_grad() if self.enabled else no_grad()
