"""Mixtures of experts: gates, the layer, and clipping for experts on several processes."""

from bireme.incubate.distributed.models.moe.gate import (
    BaseGate,
    GShardGate,
    NaiveGate,
    SwitchGate,
)
from bireme.incubate.distributed.models.moe.grad_clip import ClipGradForMOEByGlobalNorm
from bireme.incubate.distributed.models.moe.moe_layer import MoELayer, StackedExperts

ClipGradByGlobalNorm = ClipGradForMOEByGlobalNorm

__all__ = [
    "BaseGate",
    "ClipGradByGlobalNorm",
    "ClipGradForMOEByGlobalNorm",
    "GShardGate",
    "MoELayer",
    "NaiveGate",
    "StackedExperts",
    "SwitchGate",
]
