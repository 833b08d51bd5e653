"""LazyGuard: parameters without contents, for networks that are filled from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

from bireme.core.aval import Aval
from bireme.core.errors import BiremeError
from bireme.core.tensor import Parameter
from bireme.core.trace import Value
from bireme.core.value import value_of


class NotInitialized(BiremeError, RuntimeError):
    """A parameter that was used before it had contents."""


class Unset(Value):
    """The value of a parameter that has a type and no contents yet."""

    __slots__ = ("_make", "_name")

    def __init__(self, aval: Aval, name: str, make: Callable[[], Any]):
        self.aval, self.trace, self.slot = aval, None, 0
        self._name, self._make = name, make

    @property
    def buf(self) -> NoReturn:
        raise NotInitialized(
            f"parameter {self._name!r} was made under LazyGuard and has no contents yet; call "
            "its initialize(), or load a state"
        )

    def initialized(self) -> Value:
        """A value with the contents that the initializer makes."""
        return value_of(self.aval, self._make())


class LazyGuard:
    """Layers made inside the block have parameters that take no memory.

    >>> with paddle.LazyGuard():
    ...     net = paddle.nn.Linear(10, 10)
    >>> for p in net.parameters():
    ...     p.initialize()
    """

    depth = 0

    def __enter__(self) -> None:
        LazyGuard.depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        LazyGuard.depth -= 1


def is_lazy() -> bool:
    return LazyGuard.depth > 0


def without_contents(param: Parameter, make: Callable[[], Any]) -> Parameter:
    """Take a parameter's contents away until someone makes or loads them."""
    param._value = Unset(param._value.aval, param.name, make)
    return param


def _initialize(self: Parameter) -> None:
    """Make the contents of a parameter that was made under LazyGuard; others keep theirs."""
    if isinstance(self._value, Unset):
        self._put(self._value.initialized())


def _is_initialized(self: Parameter) -> bool:
    return not isinstance(self._value, Unset)


# Attached here: core knows nothing of initializers.
for _name, _method in (("initialize", _initialize), ("_is_initialized", _is_initialized)):
    setattr(Parameter, _name, _method)


__all__ = ["LazyGuard"]
