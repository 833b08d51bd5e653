"""Variants of the table's rows: other dtypes, broadcasting, negative axes, empty and 0-d tensors,
one change at a time or two ("int8+empty").

A variant that the wheel takes must give the same values, shapes and dtypes here; one that it
refuses may work or be refused, but at the call and with an error that explains itself. What
differs on purpose is in `sweeps_known.txt`, with the reason.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import pathlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import bireme
from bireme.core.errors import BiremeError
from tests.parity.harness import Run, compare, compare_gradients, resolve
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


def _empty(at: int) -> Change:
    """No elements along the first or last dimension of every tensor that has it."""

    def made(case: Case) -> Case | None:
        lengths = {s.shape[at] for s in case.specs() if s.shape}
        if len(lengths) != 1 or any(s.value is not None for s in case.specs()):
            return None
        return _specs(case, lambda s: dataclasses.replace(s, shape=_put(s.shape, at, 0)))

    return made


def _put(shape: tuple[int, ...], at: int, size: int) -> tuple[int, ...]:
    sizes = list(shape)
    if sizes:
        sizes[at] = size
    return tuple(sizes)


def _scalar(case: Case) -> Case | None:
    if any(s.value is not None or not s.shape for s in case.specs()):
        return None
    return _specs(case, lambda s: dataclasses.replace(s, shape=()))


def _last(change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Change:
    """The last of several tensors has another shape."""

    def made(case: Case) -> Case | None:
        specs = list(case.specs())
        last = specs[-1] if specs else None
        if len(specs) < 2 or last is None or not last.shape or last.value is not None:
            return None
        shape = change(last.shape)
        return _specs(case, lambda s: dataclasses.replace(s, shape=shape) if s is last else s)

    return made


AXES = {"axis", "axes", "axis1", "axis2", "dim", "dim1", "dim2", "dims", "start_axis", "stop_axis"}


def _negative(case: Case) -> Case | None:
    """axis=1 of a matrix as axis=-1, also in lists and by position."""
    specs = list(case.specs())
    if not specs:
        return None
    rank = len(specs[0].shape)

    def turned(name: str, value: Any) -> Any:
        if name not in AXES:
            return value
        if type(value) is int and 0 <= value < rank:
            return value - rank
        if isinstance(value, list | tuple) and all(type(v) is int for v in value):
            return type(value)(turned(name, v) for v in value)
        return value

    names = _positional(case)
    args = tuple(turned(n, a) for n, a in zip(names, case.args, strict=False))
    args += case.args[len(args) :]
    kwargs = {k: turned(k, v) for k, v in case.kwargs.items()}
    if args == case.args and kwargs == case.kwargs:
        return None
    return dataclasses.replace(case, args=args, kwargs=kwargs)


def _positional(case: Case) -> list[str]:
    """Names of the positional parameters of the function that a row calls."""
    function = (
        getattr(bireme.Tensor, case.name) if case.kind == "method" else resolve(bireme, case.name)
    )
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a property, a class
        return []


CHANGES: dict[str, Change] = {
    "float64": _as("float64"),
    "float16": _as("float16"),
    "bfloat16": _as("bfloat16"),
    "int8": _as("int8"),
    "uint8": _as("uint8"),
    "int16": _as("int16"),
    "int32": _as("int32"),
    "int64": _as("int64"),
    "bool": _as("bool"),
    "complex64": _as("complex64"),
    "empty": _empty(0),
    "empty rows": _empty(-1),
    "0-d": _scalar,
    "broadcast": _last(lambda shape: (*shape[:-1], 1)),
    "lower rank": _last(lambda shape: shape[1:]),
    "negative axis": _negative,
}
WITH_GRADIENT = (
    "float64", "float16", "bfloat16", "complex64", "broadcast", "lower rank", "negative axis",
)  # fmt: skip

# Two changes: a dtype and a shape, or two shapes.
DTYPES = tuple(itertools.takewhile(lambda name: name != "empty", CHANGES))
SHAPES = tuple(name for name in CHANGES if name not in DTYPES)
PAIRS = tuple(
    f"{first}+{second}"
    for first, second in (
        *itertools.product(DTYPES, SHAPES),
        *itertools.combinations(SHAPES, 2),
    )
)

# Where the digits are fewer than in the row, or come from another order of summation.
TOLERANCES = {
    "float16": 5e-3, "bfloat16": 4e-2, "int8": 1e-4, "uint8": 1e-4, "int16": 1e-4, "int32": 1e-4,
    "int64": 1e-4, "bool": 1e-4, "complex64": 1e-4, "0-d": 1e-4,
}  # fmt: skip

# Calls that take the wheel's process down, or never come back from it.
WHEEL_FAILS = {
    ("matmul", "int32"), ("matmul", "int64"), ("pow", "int32"), ("pow", "int64"),
    ("unique", "negative axis"), ("linalg.solve", "lower rank"), ("nn.functional.pad", "0-d"),
    ("nn.functional.zeropad2d", "0-d"), ("signal.frame", "empty rows"),
    ("signal.overlap_add", "empty"), ("signal.overlap_add", "empty rows"),
    ("slice_scatter", "negative axis"),  # writes outside of the tensor's memory
    *((f"fft.{name}", "0-d") for name in ("fftn", "hfftn", "ifftn", "ihfftn", "irfftn", "rfftn")),
}  # fmt: skip


def _known() -> dict[tuple[str, str], str]:
    """(function, change) -> why the two differ, from the list beside this file."""
    found = {}
    reason = ""
    for line in pathlib.Path(__file__).with_name("sweeps_known.txt").read_text().splitlines():
        if line.startswith("# "):
            reason = line[2:]
        elif line:
            changes, _, names = line.partition(": ")
            found |= {(n, c): reason for n in names.split() for c in _each(changes)}
    return found


def _each(changes: str) -> Iterator[str]:
    """ "int8|bool+empty" stands for "int8+empty" and "bool+empty"."""
    for parts in itertools.product(*[p.split("|") for p in changes.split("+")]):
        yield "+".join(parts)


KNOWN = _known()


def rows() -> list[Case]:
    """The rows that can be varied: plain calls and methods whose values are compared.

    Left out: layers and snippets, which are made of functions that are swept and whose weights
    have a dtype of their own; rows whose values are random; half-precision rows that the wheel
    has no kernel for; rows whose results are reduced to what is comparable; rows without tensors.
    """
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


def pairs() -> Iterator[tuple[Case, str]]:
    """The same for two changes at once."""
    for case in rows():
        for change in PAIRS:
            if not known(case, change) and changed(case, change) is not None:
                yield case, change


def changed(case: Case, change: str) -> Case | None:
    """The row with one change or two; None where there is nothing to change."""
    varied: Case | None = case
    for part in reversed(change.split("+")):  # shapes before dtypes
        varied = None if varied is None else CHANGES[part](varied)
    return varied


def known(case: Case, change: str) -> bool:
    places = [(called(case), c) for c in {change, *change.split("+")}]
    return any(where in KNOWN or where in WHEEL_FAILS for where in places)


def called(case: Case) -> str:
    return f"Tensor.{case.name}" if case.kind == "method" else case.name


def check(case: Case, change: str, paddle: Any) -> bool:
    """Compare one variant; False if the wheel does not take it."""
    varied = changed(case, change)
    assert varied is not None
    parts = change.split("+")
    tolerance = max(TOLERANCES.get(part, 0.0) for part in parts)
    varied.rtol, varied.atol = max(varied.rtol, tolerance), max(varied.atol, tolerance / 10)
    gradient = set(parts) <= set(WITH_GRADIENT) and case.check_grad and case.paddle_grad
    theirs, ours = Run(paddle, varied), Run(bireme, varied)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = theirs.outputs()
            expected = theirs.backward() if gradient else {}
    except Exception:  # whatever the wheel raises
        try:
            ours.outputs()
        except BiremeError:
            return False
        ours.values()  # what was recorded must run: errors belong to the call
        return False
    got = ours.outputs()
    gradients = ours.backward() if gradient else {}
    compare(got, want, varied, "result")
    if gradient:
        compare_gradients(gradients, expected, varied)
    return True
