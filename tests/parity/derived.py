"""Rows that follow from others: Tensor methods and in-place forms of functions with a row.

`Tensor.acos` is called as the row of `acos` calls it, `acos_` too, on a copy of its tensor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from tests.parity.table import CASES, Case, Spec

# In place the wheel takes less than the first row gives: these have rows of their own.
OWN_ROWS = {"cumsum_", "multiply_", "pow_", "sinc_", "where_"}


def _takes_a_tensor(case: Case) -> bool:
    first = case.args[0] if case.args else None
    return (
        case.kind == "call"
        and not case.must_raise
        and not case.wide_oracle
        and case.check_value
        and isinstance(first, Spec)
    )


def first_rows(*spaces: str) -> dict[str, Case]:
    """The first row of every function of these namespaces that takes a tensor, by short name."""
    found: dict[str, Case] = {}
    for case in CASES:
        if not _takes_a_tensor(case):
            continue
        for space in spaces:
            name = case.name.removeprefix(space)
            if case.name.startswith(space) and "." not in name:
                found.setdefault(name, case)
    return found


def as_method(name: str, row: Case) -> Case:
    return dataclasses.replace(row, name=name, kind="method", id=f"Tensor.{name} as {row.id}")


def in_place(name: str, row: Case, method: bool, space: str = "") -> Case:
    """`name` on a copy of the row's tensor; the result and the copy are compared."""

    def call(p: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        copy = x + 0 if "bool" not in str(x.dtype) else x | x
        owner = p
        for part in space.split(".") if space else ():
            owner = getattr(owner, part)
        function: Callable[..., Any] = getattr(copy, name) if method else getattr(owner, name)
        result = function(*args, **kwargs) if method else function(copy, *args, **kwargs)
        return result, copy

    shown = f"Tensor.{name}" if method else f"{space}.{name}".lstrip(".")
    return dataclasses.replace(
        row, name=name, kind="function", function=call, id=f"{shown} as {row.id}",
        finite_difference=False,
    )  # fmt: skip


def derived(methods: list[str], functions: list[str]) -> Iterator[tuple[str, Case]]:
    """(name, row) for each of these names that a function's row serves."""
    rows = first_rows("", "linalg.", "signal.")
    activations = first_rows("nn.functional.")
    for name in methods:
        base = name.removeprefix("Tensor.")
        if base in rows:
            yield name, as_method(base, rows[base])
        elif base.endswith("_") and base[:-1] in rows and base not in OWN_ROWS:
            yield name, in_place(base, rows[base[:-1]], True)
    for name in functions:
        space, _, base = name.rpartition(".")
        of_space = activations if space == "nn.functional" else rows
        if base.endswith("_") and base[:-1] in of_space and base not in OWN_ROWS:
            yield name, in_place(base, of_space[base[:-1]], False, space)
