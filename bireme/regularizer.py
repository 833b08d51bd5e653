"""Weight penalties that an optimizer adds to the gradients."""

from __future__ import annotations


class WeightDecayRegularizer:
    """Base of the penalties. `kind` is what the update op looks at."""

    kind = ""

    def __init__(self, coeff: float = 0.0):
        self._coeff = float(coeff)

    @property
    def coeff(self) -> float:
        return self._coeff

    def __str__(self) -> str:
        return f"{type(self).__name__}, coeff={self._coeff:f}"


class L1Decay(WeightDecayRegularizer):
    """Adds coeff * sign(weight) to the gradient."""

    kind = "l1"


class L2Decay(WeightDecayRegularizer):
    """Adds coeff * weight to the gradient."""

    kind = "l2"


__all__ = ["L1Decay", "L2Decay"]
