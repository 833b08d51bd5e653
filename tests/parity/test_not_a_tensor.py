"""Every function of the table, given a string where its first tensor belongs."""

from __future__ import annotations

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

FIRST_ROWS: dict[str, Case] = {}
for row in CASES:
    first = row.args[0] if row.args else None
    if row.kind == "call" and not row.must_raise and isinstance(first, Spec):
        FIRST_ROWS.setdefault(row.name, row)


@pytest.mark.parametrize("name", [n for n in FIRST_ROWS if n not in TAKES_ANYTHING])
def test_a_string_is_refused(name: str) -> None:
    run = Run(bireme, FIRST_ROWS[name])
    args = [run.build(a) for a in run.case.args]
    kwargs = {k: run.build(v) for k, v in run.case.kwargs.items()}
    with pytest.raises(BiremeError, match=r"[Rr]eceived"):
        resolve(bireme, name)("one", *args[1:], **kwargs)
