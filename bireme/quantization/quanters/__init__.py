"""Quanters: tensors pass through them as their integers would represent them."""

from __future__ import annotations

from typing import Any

from bireme.api.types import DTypeLike
from bireme.core.tensor import Tensor
from bireme.nn import Layer, naming
from bireme.nn.attributes import ParamAttr
from bireme.nn.initializer import Constant
from bireme.ops.manipulation import reshape
from bireme.ops.math_unary import abs as absolute
from bireme.ops.quant import fake_quantize
from bireme.ops.reduction import max as largest
from bireme.quantization.base import BaseQuanter
from bireme.quantization.factory import QuanterFactory


class FakeQuanterWithAbsMaxObserver(QuanterFactory):
    """Rounds to `bit_length`-bit integers; the scale is a moving average of the largest magnitude.

    Gradients pass straight through the rounding.
    """

    def __init__(
        self,
        moving_rate: float = 0.9,
        bit_length: int = 8,
        dtype: DTypeLike = "float32",
        name: str | None = None,
    ) -> None:
        super().__init__(name=name, moving_rate=moving_rate, bit_length=bit_length, dtype=dtype)

    def _get_class(self) -> Any:
        return FakeQuanterWithAbsMaxObserverLayer


class FakeQuanterWithAbsMaxObserverLayer(BaseQuanter):
    """See `FakeQuanterWithAbsMaxObserver`."""

    def __init__(
        self,
        layer: Layer,
        name: str | None = None,
        moving_rate: float = 0.9,
        bit_length: int = 8,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__()
        self._moving_rate = moving_rate
        self._bit_length = bit_length
        prefix = name or "quant_dequant"
        self._scale = self._number(f"{prefix}.scale", 0.001, dtype)
        self._state = self._number(f"{prefix}.state", 1.0, dtype)
        self._accum = self._number(f"{prefix}.accum", 1.0, dtype)

    def _number(self, name: str, value: float, dtype: DTypeLike) -> Tensor:
        attr = ParamAttr(naming.generate(name), initializer=Constant(value), trainable=False)
        return self.create_parameter(shape=[1], attr=attr, dtype=dtype)

    def forward(self, input: Tensor) -> Tensor:
        if self.training:
            seen = largest(absolute(input.detach())).astype(self._accum.dtype)
            state = self._state.detach() * self._moving_rate + 1.0
            accum = self._accum.detach() * self._moving_rate + seen
            self._state._put(state._value)
            self._accum._put(accum._value)
            self._scale._put((accum / state)._value)
        scale = reshape(self._scale.detach(), []).astype(input.dtype)
        return fake_quantize(input, scale, self._bit_length)

    def bit_length(self) -> int:
        return self._bit_length

    def quant_axis(self) -> int:
        return -1

    def scales(self) -> Tensor:
        return self._scale

    def zero_points(self) -> None:
        return None


__all__ = ["FakeQuanterWithAbsMaxObserver"]
