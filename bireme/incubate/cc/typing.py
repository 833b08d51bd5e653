"""What a compiled function says about its arguments: sizes, element types, tensors."""

from __future__ import annotations

from collections.abc import Sequence

from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument


class DimVar:
    """A size: a number, or a name for one that may change from call to call, in a range."""

    def __init__(self, name_or_value: str | int, min: int | None = None, max: int | None = None):
        self.name_or_value = name_or_value
        self.min = min
        self.max = max

    def __repr__(self) -> str:
        return str(self.name_or_value)


class DTypeVar:
    """An element type that is one of the candidates."""

    def __init__(self, name: str, *candidates: str):
        if not candidates or len(candidates) != len(set(candidates)):
            raise InvalidArgument(
                f"[DTypeVar] {name!r} needs candidates, each once. Received: {list(candidates)}"
            )
        self.name = name
        self.candidates = tuple(dt.as_dtype(c).name for c in candidates)


class Tensor:
    """The type of an argument: sizes (numbers or DimVars) and a DTypeVar."""

    def __init__(self, shape: Sequence[int | DimVar], dtype: DTypeVar):
        self.shape = list(shape)
        self.dtype = dtype


Dim = DimVar
DType = DTypeVar

__all__ = ["DTypeVar", "DimVar", "Tensor"]
