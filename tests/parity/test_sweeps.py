"""Variants of the rows against the wheel: a few in every run, all of them with `make parity`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bireme.host import config
from tests.parity import sweeps

VARIANTS = list(sweeps.variants())
PAIRS = list(sweeps.pairs())
PER_TEST = 500
PARTS = range(0, len(VARIANTS), PER_TEST)
PAIR_PARTS = range(0, len(PAIRS), 4 * PER_TEST)


@pytest.fixture(autouse=True)
def cold_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "compile_mode", "never")


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(at=st.integers(0, len(VARIANTS) - 1), pair=st.integers(0, len(PAIRS) - 1))
@pytest.mark.filterwarnings("ignore")  # of numbers that leave their range
def test_a_few(at: int, pair: int, paddle: Any) -> None:
    sweeps.check(*VARIANTS[at], paddle)
    sweeps.check(*PAIRS[pair], paddle)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of numbers that leave their range
@pytest.mark.parametrize("start", PARTS)
def test_all(start: int, paddle: Any) -> None:
    _check_all(VARIANTS[start : start + PER_TEST], paddle)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("start", PAIR_PARTS)
def test_all_pairs(start: int, paddle: Any) -> None:
    _check_all(PAIRS[start : start + 4 * PER_TEST], paddle)


def _check_all(variants: list[tuple[sweeps.Case, str]], paddle: Any) -> None:
    failures = []
    for case, change in variants:
        try:
            sweeps.check(case, change, paddle)
        except Exception as e:
            failures.append(f"{change}: {case.id}: {type(e).__name__}: {str(e)[:120]}")
    assert not failures, "\n".join(failures)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_what_is_listed_still_differs(paddle: Any) -> None:
    """A pair all of whose variants agree by now must come off the list."""
    agreeing = set(sweeps.KNOWN)
    for case in sweeps.rows():
        for change in (*sweeps.CHANGES, *sweeps.PAIRS):
            pair = (sweeps.called(case), change)
            if pair not in agreeing or sweeps.changed(case, change) is None:
                continue
            try:
                sweeps.check(case, change, paddle)
            except Exception:
                agreeing.discard(pair)
    assert not agreeing, f"{sorted(agreeing)} agree with the wheel: take them off the list"


def test_the_list_of_differences_names_rows() -> None:
    changes = (*sweeps.CHANGES, *sweeps.PAIRS)
    there = {(sweeps.called(c), change) for c in sweeps.rows() for change in changes}
    stale = sorted(set(sweeps.KNOWN) - there)
    assert not stale, f"{stale} are no rows"
