"""Learning-rate schedules give the real ones' sequences, also after saving and loading."""

from __future__ import annotations

from typing import Any

import pytest

import bireme

SCHEDULES = {
    "NoamDecay": {"d_model": 8, "warmup_steps": 5},
    "PiecewiseDecay": {"boundaries": [3, 6], "values": [0.1, 0.05, 0.01]},
    "NaturalExpDecay": {"learning_rate": 0.5, "gamma": 0.1},
    "InverseTimeDecay": {"learning_rate": 0.5, "gamma": 0.1},
    "PolynomialDecay": {"learning_rate": 0.5, "decay_steps": 6, "power": 2.0, "cycle": True},
    "LinearWarmup": {"learning_rate": 0.5, "warmup_steps": 4, "start_lr": 0.0, "end_lr": 0.5},
    "ExponentialDecay": {"learning_rate": 0.5, "gamma": 0.9},
    "MultiStepDecay": {"learning_rate": 0.5, "milestones": [2, 5, 9]},
    "StepDecay": {"learning_rate": 0.5, "step_size": 3},
    "LambdaDecay": {"learning_rate": 0.5, "lr_lambda": lambda e: 0.95**e},
    "CosineAnnealingDecay": {"learning_rate": 0.5, "T_max": 4, "eta_min": 0.01},
    "MultiplicativeDecay": {"learning_rate": 0.5, "lr_lambda": lambda e: 0.95},
    "OneCycleLR": {"max_learning_rate": 1.0, "total_steps": 20},
    "CyclicLR": {"base_learning_rate": 0.1, "max_learning_rate": 1.0, "step_size_up": 3},
    "LinearLR": {"learning_rate": 0.5, "total_steps": 5},
    "CosineAnnealingWarmRestarts": {"learning_rate": 0.5, "T_0": 3, "T_mult": 2},
}
VARIANTS = [
    ("PolynomialDecay", {"learning_rate": 0.5, "decay_steps": 6}),
    ("OneCycleLR", {"max_learning_rate": 1.0, "total_steps": 20, "three_phase": True}),
    (
        "OneCycleLR",
        {"max_learning_rate": 1.0, "total_steps": 20, "anneal_strategy": "linear"},
    ),
    (
        "CyclicLR",
        {
            "base_learning_rate": 0.1,
            "max_learning_rate": 1.0,
            "step_size_up": 3,
            "step_size_down": 5,
            "mode": "triangular2",
        },
    ),
    (
        "CyclicLR",
        {
            "base_learning_rate": 0.1,
            "max_learning_rate": 1.0,
            "step_size_up": 3,
            "mode": "exp_range",
            "exp_gamma": 0.9,
        },
    ),
]


def _sequence(lib: Any, name: str, options: dict[str, Any], steps: int = 18) -> list[float]:
    schedule = getattr(lib.optimizer.lr, name)(**options)
    rates = []
    for _ in range(steps):
        rates.append(schedule())
        schedule.step()
    return rates


@pytest.mark.parametrize(("name", "options"), [*SCHEDULES.items(), *VARIANTS])
def test_same_rates(paddle: Any, name: str, options: dict[str, Any]) -> None:
    got, want = _sequence(bireme, name, options), _sequence(paddle, name, options)
    assert got == pytest.approx(want, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_jump_to_epoch(paddle: Any, name: str) -> None:
    rates = []
    for lib in (bireme, paddle):
        schedule = getattr(lib.optimizer.lr, name)(**SCHEDULES[name])
        schedule.step(7)
        rates.append(schedule())
    assert rates[0] == pytest.approx(rates[1], rel=1e-12)


def test_warmup_hands_over_to_another_schedule(paddle: Any) -> None:
    sequences = []
    for lib in (bireme, paddle):
        inner = lib.optimizer.lr.ExponentialDecay(0.5, 0.9)
        schedule = lib.optimizer.lr.LinearWarmup(inner, 3, 0.1, 0.5)
        rates = []
        for _ in range(8):
            rates.append(schedule())
            schedule.step()
        sequences.append(rates)
        assert "LinearWarmup_LR" in schedule.state_dict()
    assert sequences[0] == pytest.approx(sequences[1])


def test_plateau(paddle: Any) -> None:
    losses = [1.0, 0.9, 0.9, 0.9, 0.9, 0.89, 0.5, 0.5, 0.5, 0.5, 0.5]
    sequences = []
    for lib in (bireme, paddle):
        schedule = lib.optimizer.lr.ReduceOnPlateau(1.0, factor=0.5, patience=1, cooldown=1)
        rates = []
        for loss in losses:
            schedule.step(loss)
            rates.append(schedule())
        sequences.append((rates, schedule.state_dict()))
    assert sequences[0] == sequences[1]


def test_state_round_trip() -> None:
    first = bireme.optimizer.lr.StepDecay(0.5, 2)
    for _ in range(3):
        first.step()
    second = bireme.optimizer.lr.StepDecay(0.5, 2)
    second.set_state_dict(first.state_dict())
    first.step()
    second.step()
    assert first() == second()


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="Received: -1"):
        bireme.optimizer.lr.ExponentialDecay(-1, 0.9)
    with pytest.raises(TypeError, match="lr_lambda"):
        bireme.optimizer.lr.LambdaDecay(0.1, 3)  # type: ignore[arg-type]
