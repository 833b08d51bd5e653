"""Checks of input dtypes by kind: `@op(takes="if")` accepts integers and floats.

The check runs once for every new combination of types, when a Call is made; repeated calls pay
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.aval import Aval
from bireme.core.dtype import DType, kind
from bireme.core.errors import TypeMismatch, not_a_tensor

if TYPE_CHECKING:
    from bireme.core.op import Op

Takes = str | dict[str, str]

_LETTERS = {"bool": "b", "int": "i", "float": "f", "complex": "c"}
_WORDS = {"b": "booleans", "i": "integers", "f": "floats", "c": "complex numbers"}
# What to write instead, by what was given and the first letter here that the op does take.
_INSTEAD = {
    "b": {"i": "{}.astype('int64')", "f": "{}.astype('float32')"},
    "i": {"f": "{}.astype('float32')", "b": "{} != 0", "c": "{}.astype('complex64')"},
    "f": {"i": "{}.astype('int64')", "b": "{} != 0", "c": "{}.astype('complex64')"},
    "c": {"f": "{0}.real(), {0}.imag() or {0}.abs()"},
}


def check_kinds(takes: Takes, names: list[str], types: Sequence[Any]) -> None:
    """Raise for the first tensor whose kind is not among the letters b, i, f, c of `takes`.

    `takes` speaks of every tensor, or of each input by its name. The engine adds the op's name
    and what was received.
    """
    for name, t in zip(names, types, strict=True):
        if not isinstance(t, Aval):
            continue
        letters = takes if isinstance(takes, str) else takes.get(name.partition("[")[0])
        if letters is not None and _LETTERS[kind(t.dtype)] not in letters:
            raise TypeMismatch(f"{name} is {t.dtype.name}, but {_wanted(letters, t.dtype, name)}")


def _wanted(letters: str, given: DType, name: str) -> str:
    words = [_WORDS[letter] for letter in letters]
    listed = " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
    ways = _INSTEAD[_LETTERS[kind(given)]]
    instead = next((way.format(name) for letter, way in ways.items() if letter in letters), None)
    return f"only {listed} are taken here" + ("" if instead is None else f"; write {instead}")


def expect_a_tensor(
    op: Op, index: int, x: object, inputs: Sequence[Any], tensor_types: set[type]
) -> None:
    """Refuse numbers and arrays alone, as Paddle does: one of the inputs is a tensor."""
    if not op.of_numbers and not any(_holds_a_tensor(i, tensor_types) for i in inputs):
        raise not_a_tensor(op.shown, op.inputs[index].lstrip("*"), x)


def _holds_a_tensor(x: Any, tensor_types: set[type]) -> bool:
    if isinstance(x, tuple | list):
        return any(_holds_a_tensor(i, tensor_types) for i in x)
    return x.__class__ in tensor_types or (
        not isinstance(x, np.ndarray | np.generic | int | float | complex | None)
    )
