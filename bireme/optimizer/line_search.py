"""A line search for the strong Wolfe conditions, on host numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

_ENOUGH_DECREASE = 1e-4
_ENOUGH_CURVATURE = 0.9
_MOST_TRIALS = 25


@dataclass
class Trial:
    """A point on the line: its position, loss, gradient, and slope along the line."""

    at: float
    loss: float
    grad: Any
    slope: float


def cubic_minimum(a: Trial, b: Trial, low: float, high: float) -> float:
    """The minimum of the cubic through two trials, kept in [low, high]."""
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.at - b.at)
    square = d1 * d1 - a.slope * b.slope
    if square < 0:
        return (low + high) / 2.0
    d2 = math.sqrt(square)
    if a.at <= b.at:
        at = b.at - (b.at - a.at) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
    else:
        at = a.at - (a.at - b.at) * ((a.slope + d2 - d1) / (a.slope - b.slope + 2 * d2))
    return min(max(at, low), high)


def strong_wolfe(
    evaluate: Callable[[float], tuple[float, Any]],
    step: float,
    direction: np.ndarray,
    loss: float,
    grad: np.ndarray,
    slope: float,
    tolerance: float = 1e-9,
    most_trials: int = _MOST_TRIALS,
) -> tuple[Trial, int]:
    """The accepted trial and how many evaluations it took."""

    def attempt(at: float) -> Trial:
        value, gradient = evaluate(at)
        return Trial(at, value, gradient, float(np.dot(gradient, direction)))

    def too_high(trial: Trial) -> bool:
        return trial.loss > loss + _ENOUGH_DECREASE * trial.at * slope

    def flat_enough(trial: Trial) -> bool:
        return abs(trial.slope) <= -_ENOUGH_CURVATURE * slope

    start = Trial(0.0, loss, grad, slope)
    before, trial = start, attempt(step)
    count, rounds = 1, 0
    bracket: tuple[Trial, Trial] | None = None
    while rounds < most_trials:
        if too_high(trial) or (rounds > 1 and trial.loss >= before.loss) or trial.slope >= 0:
            if not too_high(trial) and flat_enough(trial):
                return trial, count
            bracket = (before, trial)
            break
        if flat_enough(trial):
            return trial, count
        nearest = trial.at + 0.01 * (trial.at - before.at)
        following = cubic_minimum(before, trial, nearest, trial.at * 10)
        before, trial = trial, attempt(following)
        count += 1
        rounds += 1
    low, high = bracket if bracket is not None else (start, trial)
    if high.loss < low.loss:
        low, high = high, low
    spent = (count, rounds, most_trials)
    return _narrow(attempt, too_high, flat_enough, low, high, direction, tolerance, spent)


def _narrow(
    attempt: Callable[[float], Trial],
    too_high: Callable[[Trial], bool],
    flat_enough: Callable[[Trial], bool],
    low: Trial,
    high: Trial,
    direction: np.ndarray,
    tolerance: float,
    spent: tuple[int, int, int],
) -> tuple[Trial, int]:
    """Shrink the bracket around a minimum; `low` is its better end."""
    count, rounds, most_trials = spent
    size = float(np.max(np.abs(direction)))
    stuck = False
    while rounds < most_trials and abs(high.at - low.at) * size >= tolerance:
        left, right = min(low.at, high.at), max(low.at, high.at)
        at = cubic_minimum(low, high, left, right)
        margin = 0.1 * (right - left)
        if min(right - at, at - left) < margin:
            # Too near an end twice in a row: move away from it, or the search stalls.
            if stuck or at >= right or at <= left:
                at = right - margin if abs(at - right) < abs(at - left) else left + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        trial = attempt(at)
        count += 1
        rounds += 1
        if too_high(trial) or trial.loss >= low.loss:
            high = trial
            if high.loss < low.loss:
                low, high = high, low
            continue
        if flat_enough(trial):
            return trial, count
        if trial.slope * (high.at - low.at) >= 0:
            high = low
        low = trial
    return low, count
