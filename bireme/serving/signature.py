"""Signatures: the names, types and shapes of a model's inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bireme.serving.errors import BadRequest
from bireme.serving.tensors import DTYPES, datatype_of


@dataclass(frozen=True, slots=True)
class Field:
    """One input or output. A size of -1 is open."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def check(self, array: np.ndarray) -> None:
        """Raise unless the array is one for this input."""
        if datatype_of(array.dtype) != self.datatype:
            raise BadRequest(
                f"the input {self.name!r} is {self.datatype}. Received: {datatype_of(array.dtype)}"
            )
        fits = array.ndim == len(self.shape) and all(
            want in (-1, got) for want, got in zip(self.shape, array.shape, strict=True)
        )
        if not fits:
            raise BadRequest(
                f"the input {self.name!r} has the shape {list(self.shape)} (-1 is open). "
                f"Received: {list(array.shape)}"
            )


@dataclass(frozen=True, slots=True)
class Signature:
    """All inputs and outputs. `batched`: the first size of each is a number of independent rows."""

    inputs: tuple[Field, ...]
    outputs: tuple[Field, ...]
    batched: bool = False

    def check(self, given: Mapping[str, np.ndarray]) -> int:
        """The number of rows of a request's inputs; raises where they do not fit."""
        names = [f.name for f in self.inputs]
        if set(given) != set(names):
            raise BadRequest(
                f"the model takes the inputs {', '.join(names)}. Received: {', '.join(given)}"
            )
        for field in self.inputs:
            field.check(given[field.name])
        if not self.batched:
            return 1
        rows = {given[n].shape[0] for n in names}
        if len(rows) != 1 or 0 in rows:
            raise BadRequest(
                "all inputs must have the same number of rows, at least one. Received: "
                + ", ".join(f"{n} {list(given[n].shape)}" for n in names)
            )
        return rows.pop()

    def chosen(self, names: Sequence[str]) -> tuple[str, ...]:
        """The outputs that a request asks for; all if it names none."""
        known = [f.name for f in self.outputs]
        unknown = [n for n in names if n not in known]
        if unknown:
            raise BadRequest(
                f"the model has no output {unknown[0]!r}. There are: {', '.join(known)}"
            )
        return tuple(dict.fromkeys(names)) or tuple(known)


def fields(declared: Mapping[str, tuple[str, Sequence[int]]], what: str) -> tuple[Field, ...]:
    """Fields written as {"x": ("FP32", [-1, 16])}."""
    found = []
    for name, (datatype, shape) in declared.items():
        if datatype not in DTYPES:
            raise BadRequest(
                f"the {what} {name!r} has the datatype {datatype!r}. Known: {', '.join(DTYPES)}"
            )
        found.append(Field(name, datatype, tuple(int(s) for s in shape)))
    return tuple(found)
