"""Every function of the table refuses a string where its first tensor belongs, as Paddle does."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import bireme
from bireme.core.errors import BiremeError
from tests.parity.harness import Run, resolve
from tests.parity.table import CASES, Case, Spec

# These hand back what they were given, or take numbers and lists as well.
TAKES_ANYTHING = {
    "is_tensor", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.alpha_dropout", "nn.functional.flash_attention.flash_attention", "to_tensor",
    "assign",
}  # fmt: skip

# The wheel drops nothing of a string and adds it to the other tensor.
THE_WHEEL_TAKES = {"incubate.nn.functional.fused_dropout_add"}

FIRST_ROWS: dict[str, Case] = {}
for row in CASES:
    first = row.args[0] if row.args else None
    if row.kind == "call" and not row.must_raise and isinstance(first, Spec):
        FIRST_ROWS.setdefault(row.name, row)


def call_with_a_string(module: Any, name: str) -> None:
    run = Run(module, FIRST_ROWS[name])
    args = [run.build(a) for a in run.case.args]
    kwargs = {k: run.build(v) for k, v in run.case.kwargs.items()}
    resolve(module, name)("one", *args[1:], **kwargs)


@pytest.mark.parametrize("name", [n for n in FIRST_ROWS if n not in TAKES_ANYTHING])
def test_a_string_is_refused(name: str, paddle: Any) -> None:
    with pytest.raises(BiremeError, match=r"[Rr]eceived"):
        call_with_a_string(bireme, name)
    if name not in THE_WHEEL_TAKES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(Exception):  # noqa: B017 (the wheel's classes vary)
                call_with_a_string(paddle, name)
