"""Variants of the table's rows: other dtypes, broadcasting, negative axes, empty and 0-d tensors.

A variant that the wheel takes must give the same values, shapes and dtypes here; one that it
refuses may work or be refused, but with an error that explains itself. What differs on purpose
is in `sweeps_known.txt`, with the reason.
"""

from __future__ import annotations

import dataclasses
import pathlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import bireme
from bireme.core.errors import BiremeError
from tests.parity.harness import Run, compare, compare_gradients
from tests.parity.table import CASES, Case, Spec

Change = Callable[[Case], Case | None]


def _map(x: Any, change: Callable[[Spec], Spec]) -> Any:
    if isinstance(x, Spec):
        return change(x)
    if isinstance(x, list | tuple):
        return type(x)(_map(i, change) for i in x)
    return x


def _specs(case: Case, change: Callable[[Spec], Spec]) -> Case:
    kwargs = {k: _map(v, change) for k, v in case.kwargs.items()}
    return dataclasses.replace(case, args=_map(case.args, change), kwargs=kwargs)


def _as(dtype: str) -> Change:
    floating = "float" in dtype or "complex" in dtype

    def change(spec: Spec) -> Spec:
        if spec.dtype != "float32":
            return spec
        value = spec.value if floating else None
        low, high = (spec.low, spec.high) if floating else (max(1, int(spec.low)), 4)
        return dataclasses.replace(spec, dtype=dtype, low=low, high=high, value=value)

    def made(case: Case) -> Case | None:
        if not any(s.dtype == "float32" for s in case.specs()):
            return None
        return _specs(case, change)

    return made


def _empty(case: Case) -> Case | None:
    """No elements along the first dimension of every tensor that has it."""
    lengths = {s.shape[0] for s in case.specs() if s.shape}
    if "." in case.name or len(lengths) != 1 or any(s.value is not None for s in case.specs()):
        return None
    return _specs(case, lambda s: dataclasses.replace(s, shape=(0, *s.shape[1:])))


def _scalar(case: Case) -> Case | None:
    # Functions of other namespaces want images, sequences …, and the wheel crashes over a few.
    if "." in case.name or any(s.value is not None or not s.shape for s in case.specs()):
        return None
    return _specs(case, lambda s: dataclasses.replace(s, shape=()))


def _broadcast(case: Case) -> Case | None:
    """The last of several tensors of one shape has a 1 in place of its last dimension."""
    specs = list(case.specs())
    last = specs[-1] if specs else None
    if len(specs) < 2 or last is None or not last.shape or last.value is not None:
        return None
    return _specs(
        case,
        lambda s: dataclasses.replace(s, shape=(*s.shape[:-1], 1)) if s is last else s,
    )


def _negative(case: Case) -> Case | None:
    """axis=1 of a matrix as axis=-1."""
    specs = list(case.specs())
    axis = case.kwargs.get("axis")
    if not specs or type(axis) is not int or not 0 <= axis < len(specs[0].shape):
        return None
    kwargs = case.kwargs | {"axis": axis - len(specs[0].shape)}
    return dataclasses.replace(case, kwargs=kwargs)


CHANGES: dict[str, Change] = {
    "float64": _as("float64"),
    "int32": _as("int32"),
    "int64": _as("int64"),
    "bool": _as("bool"),
    "complex64": _as("complex64"),
    "empty": _empty,
    "0-d": _scalar,
    "broadcast": _broadcast,
    "negative axis": _negative,
}
WITH_GRADIENT = ("float64", "broadcast", "negative axis")

# Calls that take the wheel's process down, or never come back from it.
WHEEL_FAILS = {
    ("matmul", "int32"), ("matmul", "int64"), ("pow", "int32"), ("pow", "int64"),
    ("unique", "negative axis"),
}  # fmt: skip


def _known() -> dict[tuple[str, str], str]:
    """(function, change) -> why the two differ, from the list beside this file."""
    found = {}
    reason = ""
    for line in pathlib.Path(__file__).with_name("sweeps_known.txt").read_text().splitlines():
        if line.startswith("# "):
            reason = line[2:]
        elif line:
            change, _, names = line.partition(": ")
            found |= {(name, change): reason for name in names.split()}
    return found


KNOWN = _known()


def rows() -> list[Case]:
    """The rows that can be varied: plain calls and methods whose values are compared."""
    return [
        c
        for c in CASES
        if c.kind in ("call", "method")
        and not c.must_raise
        and c.check_value
        and not c.wide_oracle
        and c.post is None
        and any(True for _ in c.specs())
    ]


def variants() -> Iterator[tuple[Case, str]]:
    """(row, change) of every variant, without those that `KNOWN` lists."""
    for case in rows():
        for change, make in CHANGES.items():
            if not known(case, change) and make(case) is not None:
                yield case, change


def known(case: Case, change: str) -> bool:
    where = (called(case), change)
    return where in KNOWN or where in WHEEL_FAILS


def called(case: Case) -> str:
    return f"Tensor.{case.name}" if case.kind == "method" else case.name


def check(case: Case, change: str, paddle: Any) -> bool:
    """Compare one variant; False if the wheel does not take it."""
    varied = CHANGES[change](case)
    assert varied is not None
    wide = change in ("float64", "empty", "negative axis", "broadcast")
    varied.rtol = varied.rtol if wide else max(varied.rtol, 1e-4)
    gradient = change in WITH_GRADIENT and case.check_grad and case.paddle_grad
    theirs, ours = Run(paddle, varied), Run(bireme, varied)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = theirs.outputs()
            expected = theirs.backward() if gradient else {}
    except Exception:  # whatever the wheel raises
        try:
            ours.outputs()
            ours.values()
        except BiremeError:
            pass
        return False
    got = ours.outputs()
    gradients = ours.backward() if gradient else {}
    compare(got, want, varied, "result")
    if gradient:
        compare_gradients(gradients, expected, varied)
    return True
