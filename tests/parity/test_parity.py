"""Every row against the real Paddle, in the same process."""

from __future__ import annotations

from typing import Any

import pytest

import bireme
from bireme.core.errors import BiremeError
from tests.parity.harness import Run, close, compare
from tests.parity.table import CASES, Case

CALLS = [c for c in CASES if c.kind != "raises"]
RAISES = [c for c in CASES if c.kind == "raises"]


@pytest.mark.parametrize("case", CALLS, ids=lambda c: c.id)
def test_equals_paddle(case: Case, paddle: Any) -> None:
    theirs = Run(paddle, case)
    want = theirs.outputs()
    weights = None
    if case.kind == "layer":
        weights = {k: v.numpy() for k, v in theirs.layer.state_dict().items()}
    ours = Run(bireme, case)
    got = ours.outputs(weights)
    compare(got, want, case, "result")
    if case.check_grad and case.check_value:
        expected = theirs.gradients()
        for i, (a, b) in enumerate(zip(ours.gradients(), expected, strict=True)):
            assert (a is None) == (b is None), f"gradient {i}: {a} instead of {b}"
            if a is not None and b is not None:
                close(a, b, case, f"gradient {i}")


@pytest.mark.parametrize("case", RAISES, ids=lambda c: c.id)
def test_both_raise(case: Case, paddle: Any) -> None:
    with pytest.raises(Exception):  # noqa: B017 (Paddle's classes vary)
        _ = [r.numpy() for r in Run(paddle, case).outputs()]
    with pytest.raises(BiremeError) as caught:
        Run(bireme, case).outputs()
    assert "Received" in str(caught.value) or "received" in str(caught.value)
