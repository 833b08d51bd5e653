"""What every row must satisfy on its own: tiers agree, gradients are right, calls are cached."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest

import bireme
from bireme.core import config, stats, trace
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


@pytest.mark.parametrize("case", CALLS, ids=lambda c: c.id)
def test_cold_tier_equals_compiled_tier(case: Case, mode: Callable[[str], None]) -> None:
    mode("never")
    run, cold, cold_gradients = run_whole(case)
    weights = run.weights if case.kind == "layer" else None
    mode("always")
    _, compiled, gradients = run_whole(case, weights)
    assert len(cold) == len(compiled)
    for a, b in zip(compiled, cold, strict=True):
        assert getattr(a, "dtype", None) == getattr(b, "dtype", None)
        close(a, b, max(case.rtol, 2e-5), max(case.atol, 2e-5), "result")
    assert sorted(cold_gradients) == sorted(gradients)
    for name, b in cold_gradients.items():
        a = gradients[name]
        assert (a is None) == (b is None)
        if b is not None:
            close(a, b, max(case.rtol, 1e-4), max(case.atol, 1e-4), f"gradient by {name}")
    with stats.count_compiles() as compiles:
        run_whole(case, weights)
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
