"""`paddle.incubate.nn`: fused layers."""

from __future__ import annotations

from bireme.incubate.nn import functional
from bireme.incubate.nn.layer import (
    FusedBiasDropoutResidualLayerNorm,
    FusedDropoutAdd,
    FusedFeedForward,
    FusedLinear,
    FusedMultiHeadAttention,
    FusedTransformerEncoderLayer,
)

__all__ = [
    "FusedBiasDropoutResidualLayerNorm", "FusedDropoutAdd", "FusedFeedForward", "FusedLinear",
    "FusedMultiHeadAttention", "FusedTransformerEncoderLayer", "functional",
]  # fmt: skip
