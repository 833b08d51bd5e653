"""Symbolic dimensions: sizes that are not known while a graph is captured.

Such a size is an object of JAX's; `capture/symbols.py` makes them and replaces them by numbers.
"""

from __future__ import annotations

from typing import Any


def is_symbolic(dim: object) -> bool:
    return type(dim) is not int


def may_be_equal(size: object, other: object) -> bool:
    """Whether two sizes are equal as far as it is known. In a program that is checked again for
    the sizes of its feeds, one that is open may be any other."""
    if size == other:
        return True
    from bireme.core.trace import state

    return state.trace.checked_for_sizes and (is_symbolic(size) or is_symbolic(other))


def likeliest(size: Any, other: Any) -> Any:
    """The one of two sizes that are equal of which more is known."""
    return other if is_symbolic(size) else size


def is_dim_expression(value: object) -> bool:
    """Whether an attribute is a symbolic dimension (JAX's class, known by its module)."""
    return type(value).__module__.endswith("shape_poly")
