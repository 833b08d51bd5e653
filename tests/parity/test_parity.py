"""Every row against the real Paddle, in the same process."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import bireme
from bireme.core.errors import BiremeError
from bireme.host import config
from tests.parity.harness import Run, compare, compare_gradients
from tests.parity.table import CASES, Case

CALLS = [c for c in CASES if not c.must_raise]
RAISES = [c for c in CASES if c.must_raise]


@pytest.fixture(autouse=True)
def cold_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row runs once, so nothing would be compiled anyway; this keeps it so."""
    monkeypatch.setattr(config, "compile_mode", "never")


@pytest.mark.parametrize("case", CALLS, ids=lambda c: c.id)
def test_equals_paddle(case: Case, paddle: Any) -> None:
    check_equal(case, paddle)


def check_equal(case: Case, paddle: Any) -> None:
    theirs = Run(paddle, case.for_paddle())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Paddle's own; ours are errors
        want = theirs.outputs()
        expected = theirs.backward() if case.check_grad and case.paddle_grad else {}
    ours = Run(bireme, case)
    got = ours.outputs(theirs.weights if case.kind == "layer" else None)
    gradients = ours.backward() if case.check_grad else {}
    compare(got, want, case, "result")
    if case.check_grad and case.paddle_grad:
        compare_gradients(gradients, expected, case)


@pytest.mark.parametrize("case", RAISES, ids=lambda c: c.id)
def test_both_raise(case: Case, paddle: Any) -> None:
    check_raises(case, paddle)


def check_raises(case: Case, paddle: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception):  # noqa: B017 (Paddle's classes vary)
            Run(paddle, case).outputs()
    with pytest.raises(BiremeError) as caught:
        Run(bireme, case).outcome()
    text = str(caught.value)
    assert "received" in text.lower() or "[" in text or any(c.isdigit() for c in text), text
