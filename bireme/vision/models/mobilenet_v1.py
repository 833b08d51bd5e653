"""MobileNet V1."""

from __future__ import annotations

from os import PathLike
from typing import Any

import bireme
from bireme import nn
from bireme.vision.blocks import ConvNormActivation
from bireme.vision.models.parts import with_weights

# name, input width, output width, stride
_BLOCKS = (
    ("conv2_1", 32, 64, 1),
    ("conv2_2", 64, 128, 2),
    ("conv3_1", 128, 128, 1),
    ("conv3_2", 128, 256, 2),
    ("conv4_1", 256, 256, 1),
    ("conv4_2", 256, 512, 2),
    *[(f"conv5_{i}", 512, 512, 1) for i in range(1, 6)],
    ("conv5_6", 512, 1024, 2),
    ("conv6", 1024, 1024, 1),
)


class DepthwiseSeparable(nn.Layer):
    """A convolution per channel, then one across channels."""

    def __init__(self, in_channels: int, out_channels: int, stride: int):
        super().__init__()
        self._depthwise_conv = ConvNormActivation(
            in_channels, in_channels, 3, stride, groups=in_channels
        )
        self._pointwise_conv = ConvNormActivation(in_channels, out_channels, 1)

    def forward(self, x: bireme.Tensor) -> bireme.Tensor:
        return self._pointwise_conv(self._depthwise_conv(x))


class MobileNetV1(nn.Layer):
    """Thirteen depthwise separable blocks; `scale` sets the width."""

    def __init__(self, scale: float = 1.0, num_classes: int = 1000, with_pool: bool = True):
        super().__init__()
        self.scale = scale
        self.num_classes = num_classes
        self.with_pool = with_pool
        self.conv1 = ConvNormActivation(3, int(32 * scale), 3, stride=2)
        for name, wide_in, wide_out, stride in _BLOCKS:
            block = DepthwiseSeparable(int(wide_in * scale), int(wide_out * scale), stride)
            self.add_sublayer(name, block)
        if with_pool:
            self.pool2d_avg = nn.AdaptiveAvgPool2D(1)
        if num_classes > 0:
            self.fc = nn.Linear(int(1024 * scale), num_classes)

    def forward(self, x: bireme.Tensor) -> bireme.Tensor:
        x = self.conv1(x)
        for name, *_ in _BLOCKS:
            x = getattr(self, name)(x)
        if self.with_pool:
            x = self.pool2d_avg(x)
        return self.fc(bireme.flatten(x, 1)) if self.num_classes > 0 else x


def mobilenet_v1(
    pretrained: bool | str | PathLike[str] = False, scale: float = 1.0, **kwargs: Any
) -> MobileNetV1:
    """MobileNet V1; `pretrained` may be a file of weights."""
    return with_weights(MobileNetV1(scale=scale, **kwargs), pretrained)
