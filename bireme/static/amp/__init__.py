"""paddle.static.amp: training a program in mixed precision."""

from __future__ import annotations

from bireme.static.amp import bf16
from bireme.static.amp.casting import fp16_guard
from bireme.static.amp.decorator import OptimizerWithMixedPrecision, decorate
from bireme.static.amp.lists import AutoMixedPrecisionLists, CustomOpLists
from bireme.static.amp.models import cast_model_to_fp16, cast_parameters_to_fp16

__all__ = [
    "AutoMixedPrecisionLists",
    "CustomOpLists",
    "OptimizerWithMixedPrecision",
    "bf16",
    "cast_model_to_fp16",
    "cast_parameters_to_fp16",
    "decorate",
    "fp16_guard",
]
