"""Integers that fit nothing are answered alike in both tiers, and never by a raw error.

Every function of the table that takes a tensor of integers gets one far too large and one far too
small among them: labels, ids, positions, lengths, shifts.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import bireme
from bireme.core import trace
from bireme.core.errors import BiremeError
from bireme.host import config
from tests.parity.harness import Run
from tests.parity.table import CASES, Case, Spec

BAD = (100_000, -100_000)
OVERFLOWS = {"pow"}  # no integer is right


class Spoiled(Run):
    """A row with one element of one of its input tensors replaced."""

    def __init__(self, case: Case, which: int, element: int):
        super().__init__(bireme, case)
        self._which = which
        self._element = element

    def build(self, x: Any) -> Any:
        index = len(self.tensors)
        if isinstance(x, Spec) and index == self._which:
            array = x.make(np.random.default_rng(3)).copy()
            array.reshape(-1)[-1] = self._element
            self.arrays[index] = array
        return super().build(x)


def _specs(case: Case) -> list[Spec]:
    run = Run(bireme, case)
    for x in case.inputs if case.kind == "layer" else (*case.args, *case.kwargs.values()):
        run.build(x)
    return [s for s, _ in run.tensors]


def _inputs() -> list[Any]:
    """(row, number of the input), once for each function and input."""
    found: dict[Any, Any] = {}
    for case in CASES:
        if not case.must_raise and case.kind != "layer" and case.name not in OVERFLOWS:
            for i, spec in enumerate(_specs(case)):
                if spec.dtype in ("int32", "int64") and np.prod(spec.shape):
                    found.setdefault((case.name, case.kind, i), pytest.param(case, i, id=case.id))
    return list(found.values())


def _outcome(case: Case, which: int, element: int, mode: str) -> Any:
    """The class of the error, or the values."""
    trace.flush()
    config.compile_mode = mode
    bireme.seed(5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Spoiled(case, which, element).outcome()
        except BiremeError as error:
            return type(error)


@pytest.mark.parametrize(("case", "which"), _inputs())
def test_tiers_answer_alike(case: Case, which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "compile_mode", config.compile_mode)
    for element in BAD:
        cold = _outcome(case, which, element, "never")
        compiled = _outcome(case, which, element, "always")
        if isinstance(cold, type) or isinstance(compiled, type):
            assert cold is compiled
            continue
        for a, b in zip(cold, compiled, strict=True):
            if isinstance(a, np.ndarray):
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
            else:
                assert a == b
