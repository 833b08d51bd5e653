"""Abstract values: the type of a tensor (shape and dtype) without its contents. Interned, so that
two equal types are one object and a dict look-up on them is a pointer hash."""

from __future__ import annotations

import math
import threading
from typing import Any
from weakref import WeakValueDictionary

from bireme.core.dtype import DType, as_dtype
from bireme.host.arrays import Shaped

# A dimension is an int, or a symbolic dimension object (jax.export) while a graph is captured.
Dim = Any
Shape = tuple[Dim, ...]


class Aval:
    """The shape and dtype of a tensor."""

    __slots__ = ("__weakref__", "dtype", "ndim", "shape")

    def __init__(self, shape: Shape, dtype: DType):
        self.shape = shape
        self.dtype = dtype
        self.ndim = len(shape)

    @property
    def size(self) -> Any:
        return math.prod(self.shape)

    @property
    def is_static(self) -> bool:
        return all(type(d) is int for d in self.shape)

    def __repr__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"


class NumberType:
    """The type of a Python number that enters a trace as a run-time input."""

    __slots__ = ("dtype", "kind", "name", "ndim", "shape")

    def __init__(self, name: str, kind: type, dtype: DType):
        self.name = name
        self.kind = kind
        self.dtype = dtype
        self.shape: Shape = ()
        self.ndim = 0

    def __repr__(self) -> str:
        return self.name


FLOAT = NumberType("float", float, as_dtype("float64"))
INT = NumberType("int", int, as_dtype("int64"))

_lock = threading.Lock()
_interned: dict[tuple[Shape, DType], Aval] = {}
_weak: WeakValueDictionary[tuple[Shape, DType], Aval] = WeakValueDictionary()  # see eviction.py


def aval(shape: Shape, dtype: DType) -> Aval:
    """The one Aval of this shape and dtype."""
    key = (shape, dtype)
    found = _interned.get(key)
    if found is None:
        with _lock:
            found = _interned.get(key) or _weak.get(key) or Aval(shape, dtype)
            _interned[key] = found
    return found


def evict() -> list[Aval]:
    """Evict the types from the table; those that are still referenced stay in a weak one. Returns
    all."""
    with _lock:
        held = list(_interned.values())
        _weak.update(_interned)
        _interned.clear()
    return held


def aval_of(array: Shaped) -> Aval:
    """The Aval of a NumPy or JAX array (or of anything with shape and dtype)."""
    return aval(tuple(array.shape), as_dtype(array.dtype))
