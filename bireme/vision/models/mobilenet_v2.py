"""MobileNet V2."""

from __future__ import annotations

from os import PathLike
from typing import Any

import bireme
from bireme import nn
from bireme.vision.blocks import ConvNormActivation
from bireme.vision.models.parts import make_divisible, with_weights

# expansion, width, blocks, stride of the first block
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class InvertedResidual(nn.Layer):
    """Widen, convolve per channel, narrow; with a shortcut where the sizes agree."""

    def __init__(self, inp: int, oup: int, stride: int, expand_ratio: int):
        super().__init__()
        hidden = inp * expand_ratio
        layers: list[nn.Layer] = []
        if expand_ratio != 1:
            layers.append(ConvNormActivation(inp, hidden, 1, activation_layer=nn.ReLU6))
        layers += [
            ConvNormActivation(
                hidden, hidden, stride=stride, groups=hidden, activation_layer=nn.ReLU6
            ),
            nn.Conv2D(hidden, oup, 1, bias_attr=False),
            nn.BatchNorm2D(oup),
        ]
        self.conv = nn.Sequential(*layers)
        self.use_res_connect = stride == 1 and inp == oup

    def forward(self, x: bireme.Tensor) -> bireme.Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Layer):
    """Seven stages of inverted residuals; `scale` sets the width."""

    def __init__(self, scale: float = 1.0, num_classes: int = 1000, with_pool: bool = True):
        super().__init__()
        self.num_classes = num_classes
        self.with_pool = with_pool
        self.last_channel = make_divisible(1280 * max(1.0, scale))
        channels = make_divisible(32 * scale)
        features: list[nn.Layer] = [
            ConvNormActivation(3, channels, stride=2, activation_layer=nn.ReLU6)
        ]
        for expansion, width, count, first_stride in _STAGES:
            out = make_divisible(width * scale)
            for i in range(count):
                stride = first_stride if i == 0 else 1
                features.append(InvertedResidual(channels, out, stride, expansion))
                channels = out
        features.append(
            ConvNormActivation(channels, self.last_channel, 1, activation_layer=nn.ReLU6)
        )
        self.features = nn.Sequential(*features)
        if with_pool:
            self.pool2d_avg = nn.AdaptiveAvgPool2D(1)
        if num_classes > 0:
            self.classifier = nn.Sequential(
                nn.Dropout(0.2), nn.Linear(self.last_channel, num_classes)
            )

    def forward(self, x: bireme.Tensor) -> bireme.Tensor:
        x = self.features(x)
        if self.with_pool:
            x = self.pool2d_avg(x)
        return self.classifier(bireme.flatten(x, 1)) if self.num_classes > 0 else x


def mobilenet_v2(
    pretrained: bool | str | PathLike[str] = False, scale: float = 1.0, **kwargs: Any
) -> MobileNetV2:
    """MobileNet V2; `pretrained` may be a file of weights."""
    return with_weights(MobileNetV2(scale=scale, **kwargs), pretrained)
