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
from bireme.incubate.nn.stack import FusedMultiTransformer

__all__ = [
    "FusedBiasDropoutResidualLayerNorm", "FusedDropoutAdd", "FusedFeedForward", "FusedLinear",
    "FusedMultiHeadAttention", "FusedMultiTransformer", "FusedTransformerEncoderLayer",
    "functional",
]  # fmt: skip
