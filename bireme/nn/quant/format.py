"""Layers of a converted network: to integers and back, with fixed scales."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn.attributes import ParamAttr
from bireme.nn.initializer import Constant
from bireme.nn.layer.layer import Layer
from bireme.ops.creation import to_tensor, zeros_like
from bireme.ops.quant import dequantize_linear, quantize_linear
from bireme.ops.rearrange import repeat_interleave

if TYPE_CHECKING:
    from bireme.nn.quant.protocols import LayerConfig, Quanter


# The bits of exponent and mantissa, the dtype, and its largest number.
FLOAT8: dict[tuple[int, ...], tuple[str, float]] = {
    (4, 3): ("float8_e4m3fn", 448.0),
    (5, 2): ("float8_e5m2", 57344.0),
}


class _Scaled(Layer):
    """Scales, zero points and the number of bits; two-dimensional scales belong to groups."""

    def __init__(
        self,
        scales: Any,
        zero_point: Any = None,
        quant_axis: int | None = None,
        bit_length: int | tuple[int, int] = 8,
        group_size: int = 128,
    ) -> None:
        super().__init__()
        self._small_float = None if isinstance(bit_length, int) else FLOAT8.get(tuple(bit_length))
        if self._small_float is None and not (
            isinstance(bit_length, int) and 2 <= bit_length <= 16
        ):
            raise InvalidArgument(
                f"[{type(self).__name__}] bit_length must be an integer from 2 to 16, or (4, 3) or "
                f"(5, 2) for the bits of a float8. Received: {bit_length!r}"
            )
        scales = to_tensor(scales, dtype="float32")
        zeros = zeros_like(scales) if zero_point is None else to_tensor(zero_point, "float32")
        if np.any(zeros.numpy()):
            raise InvalidArgument(
                f"[{type(self).__name__}] zero points other than 0 are not used by symmetric "
                "quantisation, the only kind that quanters produce"
            )
        self._scales = self._fixed(scales)
        self._zero_point = self._fixed(zeros)
        self._quant_axis = -1 if quant_axis is None else quant_axis
        self._bit_length = bit_length if isinstance(bit_length, int) else 8
        self._group_size = group_size

    def _fixed(self, value: Tensor) -> Tensor:
        attr = ParamAttr(initializer=Constant(0.0), trainable=False)
        parameter = self.create_parameter(shape=value.shape, attr=attr, dtype="float32")
        parameter.set_value(value)
        return parameter

    def _scale_and_axis(self) -> tuple[Tensor, int]:
        if self._scales.ndim < 2:
            return self._scales, self._quant_axis
        return repeat_interleave(self._scales, self._group_size, 0), -1

    def _broadcast_scale(self, ndim: int) -> Tensor:
        """The scales in a shape that multiplies a tensor of `ndim` dimensions."""
        scale, axis = self._scale_and_axis()
        if axis < 0:
            return scale
        return scale.reshape([-1 if d == axis else 1 for d in range(ndim)])

    @classmethod
    def from_quanter(cls, quanter: Quanter) -> Self:
        """The layer with a quanter's (or observer's) findings."""
        return cls(
            quanter.scales(),
            zero_point=quanter.zero_points(),
            quant_axis=quanter.quant_axis(),
            bit_length=quanter.bit_length(),
            group_size=getattr(quanter, "group_size", 128),
        )


class LinearQuanter(_Scaled):
    """Numbers to integers, in the input's dtype."""

    def forward(self, input: Tensor) -> Tensor:
        if self._small_float is not None:
            dtype, largest = self._small_float
            wide = input.astype("float32") * largest / self._broadcast_scale(input.ndim)
            return wide.clip(-largest, largest).astype(dtype).astype(input.dtype)
        scale, axis = self._scale_and_axis()
        wide = quantize_linear(input.astype("float32"), scale, axis, self._bit_length)
        return wide.astype(input.dtype)


class LinearDequanter(_Scaled):
    """Integers back to numbers."""

    def forward(self, input: Tensor) -> Tensor:
        if self._small_float is not None:
            wide = input.astype("float32") / self._small_float[1]
            return (wide * self._broadcast_scale(input.ndim)).astype(input.dtype)
        scale, axis = self._scale_and_axis()
        wide = dequantize_linear(input.astype("float32"), scale, axis, self._bit_length)
        return wide.astype(input.dtype)


class LinearQuanterDequanter(Layer):
    """Both, one after the other; either may be missing."""

    def __init__(self, quanter: Layer | None, dequanter: Layer | None) -> None:
        super().__init__()
        self._quanter = quanter
        self._dequanter = dequanter

    def forward(self, input: Tensor) -> Tensor:
        out = input if self._quanter is None else self._quanter(input)
        return out if self._dequanter is None else self._dequanter(out)

    @staticmethod
    def from_quanter(quanter: Quanter) -> LinearQuanterDequanter:
        return LinearQuanterDequanter(
            LinearQuanter.from_quanter(quanter), LinearDequanter.from_quanter(quanter)
        )


class ConvertibleQuantedLayer(Layer):
    """A layer with quanters that become fixed when the network is converted.

    Subclasses say which weights have which quanters, and which quanters see activations.
    """

    def __init__(self) -> None:
        super().__init__()
        self.converted = False

    def weights_to_quanters(self) -> list[tuple[str, str]]:
        """(weight's name, its quanter's name)."""
        return [("weight", "weight_quanter")]

    def activation_quanters(self) -> list[str]:
        """The names of the activations' quanters."""
        return ["activation_quanter"]

    def _attach_quanters(self, layer: Layer, q_config: LayerConfig) -> None:
        self.weight_quanter = None
        self.activation_quanter = None
        if q_config.weight is not None:
            self.weight_quanter = q_config.weight._instance(layer)
        if q_config.activation is not None:
            self.activation_quanter = q_config.activation._instance(layer)

    def _quantized(self, input: Tensor) -> tuple[Tensor, Tensor]:
        """The input and the weight as their quanters leave them."""
        weight: Any = self.weight
        if self.activation_quanter is not None:
            input = self.activation_quanter(input)
        if self.weight_quanter is not None:
            weight = self.weight_quanter(weight)
        return input, weight

    def _fix(self, name: str) -> LinearQuanterDequanter | None:
        quanter = getattr(self, name, None)
        if quanter is None:
            return None
        fixed = LinearQuanterDequanter.from_quanter(quanter)
        setattr(self, name, fixed)
        return fixed

    def _convert(self, remain_weight: bool = False) -> None:
        if self.converted:
            raise InvalidArgument(f"[{type(self).__name__}] the layer was converted already")
        for weight_name, quanter_name in self.weights_to_quanters():
            fixed = self._fix(quanter_name)
            if fixed is not None and not remain_weight:
                weight = getattr(self, weight_name)
                weight.set_value(fixed._quanter(weight).detach())  # pyright: ignore
                fixed._quanter = None
        for name in self.activation_quanters():
            self._fix(name)
        self.converted = True
