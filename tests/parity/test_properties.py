"""What every row must satisfy on its own: tiers agree, gradients are right, calls are cached."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import bireme
from bireme.core import config, stats
from tests.parity.harness import Run, numbers
from tests.parity.table import CASES, Case

CALLS = [c for c in CASES if c.kind == "call" and c.check_value]


@pytest.fixture
def mode(monkeypatch: pytest.MonkeyPatch):
    def switch(name: str) -> None:
        monkeypatch.setattr(config, "compile_mode", name)

    return switch


@pytest.mark.parametrize("case", CALLS, ids=lambda c: c.id)
def test_cold_tier_equals_compiled_tier(case: Case, mode) -> None:
    mode("never")
    cold = Run(bireme, case)
    values = [numbers(r) for r in cold.outputs()]
    cold_grads = cold.gradients() if case.check_grad else []
    mode("always")
    compiled = Run(bireme, case)
    for a, b in zip(values, [numbers(r) for r in compiled.outputs()], strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=max(case.rtol, 2e-5), atol=max(case.atol, 2e-5))
    grads = compiled.gradients() if case.check_grad else []
    for a, b in zip(cold_grads, grads, strict=True):
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=max(case.rtol, 1e-4), atol=max(case.atol, 1e-4))
    with stats.count_compiles() as compiles:
        again = Run(bireme, case)
        _ = [numbers(r) for r in again.outputs()]
        if case.check_grad:
            again.gradients()
    assert compiles == [0], f"a repeated call compiled: {stats.compile_events()[-1].reason}"


DIFFERENTIABLE = [c for c in CALLS if c.check_grad and c.finite_difference]


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=lambda c: c.id)
def test_gradient_equals_finite_difference(case: Case, mode) -> None:
    mode("never")
    wide = case.in_float64()
    run = Run(bireme, wide)
    run.outputs()
    grads = run.gradients()
    specs = [(i, s) for i, (s, _) in enumerate(run.tensors) if s.differentiable]
    if not grads or not specs:
        pytest.skip("nothing to differentiate")
    if any(s.dtype != "float64" for _, s in specs):
        pytest.skip("finite differences are for float64 inputs")

    def loss_at(arrays: dict[int, np.ndarray]) -> float:
        probe = Run(bireme, wide, arrays)
        probe.outputs()
        loss = probe.loss()
        return 0.0 if loss is None else loss.item()

    rng = np.random.default_rng(3)
    for (index, _), grad in zip(specs, grads, strict=False):
        if grad is None:
            continue
        direction = rng.normal(size=grad.shape)
        step = 1e-6
        plus, minus = copy.deepcopy(run.arrays), copy.deepcopy(run.arrays)
        plus[index] = plus[index] + step * direction
        minus[index] = minus[index] - step * direction
        slope = (loss_at(plus) - loss_at(minus)) / (2 * step)
        expected = float((grad * direction).sum())
        assert slope == pytest.approx(expected, rel=2e-4, abs=2e-5)
