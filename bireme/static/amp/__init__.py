"""paddle.static.amp: training a program in mixed precision."""

from __future__ import annotations

from bireme.static.amp.casting import fp16_guard
from bireme.static.amp.decorator import OptimizerWithMixedPrecision, decorate
from bireme.static.amp.lists import AutoMixedPrecisionLists, CustomOpLists

__all__ = [
    "AutoMixedPrecisionLists",
    "CustomOpLists",
    "OptimizerWithMixedPrecision",
    "decorate",
    "fp16_guard",
]
