"""DenseNet: every layer sees what all layers before it made."""

from __future__ import annotations

from os import PathLike
from typing import Any

import bireme
from bireme import nn
from bireme.core.errors import InvalidArgument
from bireme.vision.models.parts import fan_in_uniform, with_weights

# depth: first width, width that each layer adds, layers per block
_SIZES = {
    121: (64, 32, (6, 12, 24, 16)),
    161: (96, 48, (6, 12, 36, 24)),
    169: (64, 32, (6, 12, 32, 32)),
    201: (64, 32, (6, 12, 48, 32)),
    264: (64, 32, (6, 12, 64, 48)),
}


class NormConv(nn.Layer):
    """Batch norm with ReLU, then a convolution that keeps the size."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__()
        self._batch_norm = nn.BatchNorm(inputs, act="relu")
        self._conv = nn.Conv2D(inputs, outputs, kernel, padding=kernel // 2, bias_attr=False)

    def forward(self, input: bireme.Tensor) -> bireme.Tensor:
        return self._conv(self._batch_norm(input))


class ConvNorm(nn.Layer):
    """The first convolution, then batch norm with ReLU."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self._conv = nn.Conv2D(3, outputs, 7, stride=2, padding=3, bias_attr=False)
        self._batch_norm = nn.BatchNorm(outputs, act="relu")

    def forward(self, input: bireme.Tensor) -> bireme.Tensor:
        return self._batch_norm(self._conv(input))


class DenseLayer(nn.Layer):
    """Adds `growth` channels to its input."""

    def __init__(self, inputs: int, growth: int, bn_size: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.bn_ac_func1 = NormConv(inputs, bn_size * growth, 1)
        self.bn_ac_func2 = NormConv(bn_size * growth, growth, 3)
        if dropout:
            self.dropout_func = nn.Dropout(p=dropout, mode="downscale_in_infer")

    def forward(self, input: bireme.Tensor) -> bireme.Tensor:
        new = self.bn_ac_func2(self.bn_ac_func1(input))
        if self.dropout:
            new = self.dropout_func(new)
        return bireme.concat([input, new], axis=1)


class Transition(nn.Layer):
    """Half the channels, half the size."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv_ac_func = NormConv(inputs, outputs, 1)
        self.pool2d_avg = nn.AvgPool2D(kernel_size=2, stride=2)

    def forward(self, input: bireme.Tensor) -> bireme.Tensor:
        return self.pool2d_avg(self.conv_ac_func(input))


class DenseNet(nn.Layer):
    """Four dense blocks; `layers` is the depth: 121, 161, 169, 201 or 264."""

    def __init__(
        self,
        layers: int = 121,
        bn_size: int = 4,
        dropout: float = 0.0,
        num_classes: int = 1000,
        with_pool: bool = True,
    ) -> None:
        super().__init__()
        if layers not in _SIZES:
            raise InvalidArgument(
                f"[DenseNet] layers must be one of {list(_SIZES)}. Received: {layers}"
            )
        self.num_classes = num_classes
        self.with_pool = with_pool
        width, growth, self.block_config = _SIZES[layers]
        self.conv1_func = ConvNorm(width)
        self.pool2d_max = nn.MaxPool2D(kernel_size=3, stride=2, padding=1)
        self._stages: list[str] = []  # the names of the blocks and transitions, in order
        for block, count in enumerate(self.block_config, start=2):
            dense: list[tuple[str, nn.Layer]] = []
            for i in range(1, count + 1):
                dense.append((f"conv{block}_{i}", DenseLayer(width, growth, bn_size, dropout)))
                width += growth
            self._add_stage(f"db_conv_{block}", nn.Sequential(*dense))
            if block != len(self.block_config) + 1:
                self._add_stage(f"tr_conv{block}_blk", Transition(width, width // 2))
                width //= 2
        self.batch_norm = nn.BatchNorm(width, act="relu")
        if with_pool:
            self.pool2d_avg = nn.AdaptiveAvgPool2D(1)
        if num_classes > 0:
            self.out = nn.Linear(width, num_classes, weight_attr=fan_in_uniform(width))

    def _add_stage(self, name: str, stage: nn.Layer) -> None:
        self.add_sublayer(name, stage)
        self._stages.append(name)

    def forward(self, input: bireme.Tensor) -> bireme.Tensor:
        x = self.pool2d_max(self.conv1_func(input))
        for name in self._stages:
            x = self._sub_layers[name](x)
        x = self.batch_norm(x)
        if self.with_pool:
            x = self.pool2d_avg(x)
        return self.out(bireme.flatten(x, 1)) if self.num_classes > 0 else x


def densenet121(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> DenseNet:
    """DenseNet with 121 layers; `pretrained` may be a file of weights, as in all of these."""
    return with_weights(DenseNet(layers=121, **kwargs), pretrained)


def densenet161(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> DenseNet:
    """DenseNet with 161 layers."""
    return with_weights(DenseNet(layers=161, **kwargs), pretrained)


def densenet169(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> DenseNet:
    """DenseNet with 169 layers."""
    return with_weights(DenseNet(layers=169, **kwargs), pretrained)


def densenet201(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> DenseNet:
    """DenseNet with 201 layers."""
    return with_weights(DenseNet(layers=201, **kwargs), pretrained)


def densenet264(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> DenseNet:
    """DenseNet with 264 layers."""
    return with_weights(DenseNet(layers=264, **kwargs), pretrained)
