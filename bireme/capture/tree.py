"""Nested arguments and results: flattening into tensors and a structure, and back.

A structure is hashable, so that it can be part of a signature: it holds the containers, the keys
and the values of everything that is not a tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from bireme.core.errors import CaptureError
from bireme.core.op import TENSOR_TYPES
from bireme.core.tensor import Tensor, constant

_PLAIN = (type(None), bool, int, float, complex, str, bytes)


class Leaf:
    """Stands for a tensor in a structure."""

    def __repr__(self) -> str:
        return "*"


LEAF = Leaf()


class Static:
    """A value that is not a tensor; equal only to one of the same type (1 is not True or 1.0)."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Static) or type(self.value) is not type(other.value):
            return False
        return self.value is other.value or bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))

    def __repr__(self) -> str:
        return repr(self.value)


def flatten_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Tensor], Any]:
    """`flatten((args, kwargs))`; the usual call with nothing but tensors is quick."""
    if not kwargs and TENSOR_TYPES.issuperset(map(type, args)):
        return list(args), _only_tensors(len(args))
    return flatten((args, kwargs))


@lru_cache(maxsize=64)
def _only_tensors(count: int) -> Any:
    return (tuple, (tuple, *[LEAF] * count), (dict, ()))


def flatten(tree: Any) -> tuple[list[Tensor], Any]:
    """(tensors in order, structure). NumPy arrays count as tensors."""
    found: list[Tensor] = []
    return found, _structure(tree, found)


def _structure(tree: Any, found: list[Tensor]) -> Any:
    kind = tree.__class__
    if kind in TENSOR_TYPES or isinstance(tree, Tensor):
        found.append(tree)
        return LEAF
    if kind in _PLAIN:
        return Static(tree)
    if kind is np.ndarray:
        found.append(constant(tree.copy()))
        return LEAF
    if kind is tuple or kind is list:
        return (kind, *[_structure(t, found) for t in tree])
    if isinstance(tree, dict):
        return (kind, tuple(tree), *[_structure(t, found) for t in tree.values()])
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return (kind, *[_structure(t, found) for t in tree])
    return Static(tree)


def unflatten(structure: Any, tensors: Sequence[Any]) -> Any:
    """The nested value again, with `tensors` in place of its tensors."""
    return _build(structure, iter(tensors))


def _build(structure: Any, tensors: Iterator[Any]) -> Any:
    if structure is LEAF:
        return next(tensors)
    if structure.__class__ is Static:
        return structure.value
    kind = structure[0]
    if kind is tuple or kind is list:
        return kind([_build(s, tensors) for s in structure[1:]])
    if issubclass(kind, dict):
        return kind(zip(structure[1], [_build(s, tensors) for s in structure[2:]], strict=True))
    return kind(*[_build(s, tensors) for s in structure[1:]])


def check_plain(structure: Any, what: str) -> None:
    """Raise unless all that is not a tensor is a plain value (it cannot hide a tensor)."""
    if structure is LEAF:
        return
    if structure.__class__ is Static:
        value = structure.value
        if not isinstance(value, (*_PLAIN, np.generic, type)):
            raise CaptureError(
                f"{what} holds an object of type {type(value).__name__}, which a captured graph "
                "cannot return: return tensors, numbers, strings, lists, tuples and dicts of them"
            )
        return
    start = 2 if issubclass(structure[0], dict) else 1
    for s in structure[start:]:
        check_plain(s, what)
