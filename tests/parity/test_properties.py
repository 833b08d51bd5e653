"""What every row must satisfy on its own: tiers agree, gradients are right, calls are cached."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bireme
from bireme.core import stats, trace
from bireme.host import config
from tests.parity.harness import Run, close
from tests.parity.table import CASES, Case

CALLS = [c for c in CASES if not c.must_raise and c.check_value]


@pytest.fixture(autouse=True)
def many_programs_per_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows are called from one line of the harness, which is no fault of theirs."""
    monkeypatch.setattr(stats, "RECOMPILE_WARNING_AFTER", 10**9)


@pytest.fixture
def mode(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def switch(name: str) -> None:
        trace.flush()
        monkeypatch.setattr(config, "compile_mode", name)

    return switch


def run_whole(case: Case, weights: dict[str, np.ndarray] | None = None) -> tuple[Run, list, dict]:
    """Forward and backward recorded before anything is read, so that they are one program."""
    run = Run(bireme, case)
    run.outputs(weights)
    gradients = run.backward() if case.check_grad else {}
    values = run.values()
    return run, values, {k: None if g is None else g.numpy() for k, g in gradients.items()}


# Rows are compiled together, because a small program costs mostly overhead.
BATCH = 16
BATCHES = [CALLS[i : i + BATCH] for i in range(0, len(CALLS), BATCH)]
Outcome = tuple[list[Any], dict[str, Any]]


def run_together(batch: list[Case], weights: list[Any]) -> list[Outcome]:
    """All rows recorded before any is read: one program, unless a row itself looks at a value."""
    runs = [Run(bireme, case) for case in batch]
    gradients = []
    for run, given in zip(runs, weights, strict=True):
        run.outputs(given)
        gradients.append(run.backward() if run.case.check_grad else {})
    return [
        (run.values(), {k: None if g is None else g.numpy() for k, g in found.items()})
        for run, found in zip(runs, gradients, strict=True)
    ]


def compare_tiers(case: Case, compiled: Outcome, cold: Outcome) -> None:
    assert len(compiled[0]) == len(cold[0])
    for a, b in zip(compiled[0], cold[0], strict=True):
        assert getattr(a, "dtype", None) == getattr(b, "dtype", None)
        close(a, b, max(case.rtol, 2e-5), max(case.atol, 2e-5), "result")
    assert sorted(compiled[1]) == sorted(cold[1])
    for name, b in cold[1].items():
        a = compiled[1][name]
        assert (a is None) == (b is None)
        if b is not None:
            close(a, b, max(case.rtol, 1e-4), max(case.atol, 1e-4), f"gradient by {name}")


@pytest.mark.parametrize("batch", BATCHES, ids=lambda b: f"{b[0].id} and {len(b) - 1} more")
def test_cold_tier_equals_compiled_tier(batch: list[Case], mode: Callable[[str], None]) -> None:
    mode("never")
    runs = [run_whole(case) for case in batch]
    weights = [run.weights if run.layer is not None else None for run, _, _ in runs]
    mode("always")
    try:
        compiled = run_together(batch, weights)
    except Exception:
        for case, given in zip(batch, weights, strict=True):  # whose fault is it?
            try:
                run_together([case], [given])
            except Exception as e:
                raise AssertionError(f"{case.id} fails in the compiled tier: {e}") from e
        raise
    failures = []
    for case, (_, *cold), found in zip(batch, runs, compiled, strict=True):
        try:
            compare_tiers(case, found, (cold[0], cold[1]))
        except AssertionError as e:
            failures.append(f"{case.id}: {e}")
    assert not failures, "\n".join(failures)
    with stats.count_compiles() as compiles:
        run_together(batch, weights)
    assert compiles == [0], f"a repeated call compiled: {stats.compile_events()[-1].reason}"


DIFFERENTIABLE = [
    c
    for c in CALLS
    if c.check_grad
    and c.finite_difference
    and c.kind != "layer"  # its weights are float32, and the functions below it have rows
    and any(s.differentiable for s in c.specs())
    and all(s.dtype in ("float32", "float64") for s in c.specs() if s.differentiable)
]


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=lambda c: c.id)
def test_gradient_equals_finite_difference(case: Case, mode: Callable[[str], None]) -> None:
    mode("never")
    wide = case.in_float64()
    run, _, gradients = run_whole(wide)

    def loss_at(arrays: dict[int, np.ndarray]) -> float:
        probe = Run(bireme, wide, arrays)
        probe.outputs()
        loss = probe.loss()
        return 0.0 if loss is None else float(loss.numpy())

    rng = np.random.default_rng(3)
    for name, gradient in gradients.items():
        if gradient is None or not gradient.size:
            continue
        index = int(name.removeprefix("input "))
        direction = rng.normal(size=gradient.shape)
        step = 1e-6
        plus, minus = copy.deepcopy(run.arrays), copy.deepcopy(run.arrays)
        plus[index] = plus[index] + step * direction
        minus[index] = minus[index] - step * direction
        slope = (loss_at(plus) - loss_at(minus)) / (2 * step)
        expected = float((gradient * direction).sum())
        assert slope == pytest.approx(expected, rel=2e-4, abs=2e-5)
