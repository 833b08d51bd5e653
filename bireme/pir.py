"""paddle.pir: what a variable of a program is, for `isinstance` tests."""

from __future__ import annotations

from typing import Any

from bireme.capture.recorder import CaptureTrace
from bireme.core.tensor import Tensor
from bireme.static import Program


class _OfPrograms(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Tensor) and isinstance(x._value.trace, CaptureTrace)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, Tensor)


class Value(metaclass=_OfPrograms):
    """A tensor that a program or a captured function computes; eager tensors are none."""


__all__ = ["Program", "Value"]
