"""paddle.nn.quant: linear layers on quantised weights, and the marker for activations."""

from __future__ import annotations

from bireme.nn.quant import format, qat, stub
from bireme.nn.quant.stub import QuanterStub, Stub
from bireme.ops.quant import (
    llm_int8_linear,
    weight_dequantize,
    weight_only_linear,
    weight_quantize,
)

__all__ = [
    "QuanterStub",
    "Stub",
    "format",
    "llm_int8_linear",
    "qat",
    "stub",
    "weight_dequantize",
    "weight_only_linear",
    "weight_quantize",
]
