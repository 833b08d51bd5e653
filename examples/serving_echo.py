"""A model in Python for `bireme serve echo=examples/serving_echo.py:Echo`."""

from __future__ import annotations

from typing import ClassVar

import numpy as np


class Echo:
    """Gives back what it is given."""

    inputs: ClassVar = {"x": ("FP32", [-1, 2])}
    outputs: ClassVar = {"y": ("FP32", [-1, 2])}
    batched = True

    def predict(self, x: np.ndarray) -> dict[str, np.ndarray]:
        return {"y": x}
