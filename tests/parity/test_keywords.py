"""Every second name of a keyword works, in both packages, and means the same."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from typing import Any

import pytest

import bireme
from bireme.api import public
from bireme.host import config
from tests.parity.harness import Run, compare, resolve
from tests.parity.table import CASES, Case

# A function that is found in several namespaces has one form: it is called by the first.
NAMED = [
    (f"{space}.{record.name}".removeprefix("paddle.").removeprefix("."), other, mine)
    for space in ("paddle", "paddle.nn.functional", "paddle.linalg", "paddle.fft")
    for record in public.every(space)
    if record.spaces[0] == space
    for other, mine in record.also.items()
]
ROWS: dict[str, list[Case]] = {}
for row in CASES:
    if row.kind == "call" and not row.must_raise and not row.wide_oracle:
        ROWS.setdefault(row.name, []).append(row)


def renamed(case: Case, other: str, mine: str) -> Case | None:
    """The row with its arguments by keyword and `mine` given as `other`; None if it has none."""
    names = list(inspect.signature(resolve(bireme, case.name)).parameters)
    kwargs = dict(zip(names, case.args, strict=False)) | case.kwargs
    if len(case.args) > len(names) or mine not in kwargs or "more" in kwargs:
        return None  # sizes one by one have no keyword
    kwargs = {other if k == mine else k: v for k, v in kwargs.items()}
    return dataclasses.replace(case, args=(), kwargs=kwargs)


CALLS = [
    found[0]
    for name, other, mine in NAMED
    if (found := [(name, other, r) for c in ROWS.get(name, ()) if (r := renamed(c, other, mine))])
]


@pytest.mark.parametrize("space", ["", "nn.functional", "linalg", "fft"])
def test_second_names_mean_the_same(
    space: str, paddle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "compile_mode", "never")
    calls = [c for c in CALLS if c[0].rpartition(".")[0] == space]
    assert calls
    ours_only = []
    for name, other, case in calls:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the wheel's own
                want = Run(paddle, case).outputs()
        except Exception:
            ours_only.append(f"{name}({other}=)")
            continue
        compare(Run(bireme, case).outputs(), want, case, f"{name}({other}=)")
    assert not ours_only, f"the wheel does not take {', '.join(ours_only)}"


def test_a_keyword_under_both_names_is_refused() -> None:
    x = bireme.ones([2, 3])
    with pytest.raises(TypeError, match="'dim' is another name for 'axis'"):
        bireme.sum(x, axis=0, dim=0)  # type: ignore[call-arg]
