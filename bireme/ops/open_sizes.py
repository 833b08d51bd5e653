"""Sizes that are open while a program is built, where an op has to decide by them.

What cannot be decided yet is not refused: the op is looked at again for the sizes that are fed.
"""

from __future__ import annotations

from collections.abc import Callable

from bireme.host import jax_door


def surely(holds: Callable[[], bool]) -> bool:
    """Whether a relation of sizes holds, as far as they are known."""
    try:
        return bool(holds())
    except Exception as e:
        if type(e).__name__ != "InconclusiveDimensionOperation":
            raise
        return False


def least(first: int, second: int) -> int:
    """The smaller of two sizes, each a number or an expression of open ones."""
    if type(first) is int and type(second) is int:
        return min(first, second)
    return jax_door.jax().core.min_dim(first, second)


def most(first: int, second: int) -> int:
    """The larger of two sizes."""
    if type(first) is int and type(second) is int:
        return max(first, second)
    return jax_door.jax().core.max_dim(first, second)


def diagonal_length(rows: int, columns: int, offset: int) -> int:
    """How many elements lie on a diagonal of a matrix."""
    return most(least(rows + min(offset, 0), columns - max(offset, 0)), 0)
