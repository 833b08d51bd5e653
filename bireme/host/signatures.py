"""Signatures that are worked out when somebody asks for them.

Making the signatures of a thousand functions would take longer than the rest of their
definitions, and few of them are ever read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any


class LazySignature(inspect.Signature):
    """The signature that `make()` returns, from the first use on."""

    __slots__ = ("_make",)

    @classmethod
    def of(cls, make: Callable[[], inspect.Signature]) -> LazySignature:
        made = cls.__new__(cls)  # the fields of the base class stay empty: see __getattr__
        made._make = make
        return made

    def __getattr__(self, name: str) -> Any:
        if name not in inspect.Signature.__slots__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        made = self._make()
        for field in inspect.Signature.__slots__:
            setattr(self, field, getattr(made, field))
        return getattr(self, name)


def own_signature(function: FunctionType) -> inspect.Signature:
    """The signature in a function's code, whatever function it stands for."""
    plain = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__
    )
    plain.__kwdefaults__ = function.__kwdefaults__
    plain.__annotations__ = function.__annotations__
    return inspect.signature(plain)
