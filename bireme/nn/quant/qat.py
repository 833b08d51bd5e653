"""Layers that train as if their weights and inputs were quantised."""

from __future__ import annotations

from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.layer.common import Linear
from bireme.nn.layer.conv import Conv2D
from bireme.nn.quant.format import ConvertibleQuantedLayer
from bireme.nn.quant.protocols import LayerConfig


class QuantedLinear(ConvertibleQuantedLayer):
    """What `nn.Linear` becomes."""

    def __init__(self, layer: Linear, q_config: LayerConfig) -> None:
        super().__init__()
        self.weight = layer.weight
        self.bias = layer.bias
        self._attach_quanters(layer, q_config)

    def forward(self, input: Tensor) -> Tensor:
        x, weight = self._quantized(input)
        return F.linear(x, weight, self.bias)


class QuantedConv2D(ConvertibleQuantedLayer):
    """What `nn.Conv2D` becomes."""

    def __init__(self, layer: Conv2D, q_config: LayerConfig) -> None:
        super().__init__()
        self.weight = layer.weight
        self.bias = layer.bias
        self._attach_quanters(layer, q_config)
        self._pad_first = layer._pad_first
        self._padding_mode = layer._padding_mode
        self._data_format = layer._data_format
        self._settings = (
            layer._stride,
            layer._op_padding,
            layer._dilation,
            layer._groups,
            layer._data_format,
        )

    def forward(self, input: Tensor) -> Tensor:
        x, weight = self._quantized(input)
        if self._pad_first:
            x = F.pad(x, self._pad_first, mode=self._padding_mode, data_format=self._data_format)
        return F.conv2d(x, weight, self.bias, *self._settings)
