"""MobileNet V3."""

from __future__ import annotations

from functools import partial
from os import PathLike
from typing import Any, NamedTuple

import bireme
from bireme import nn
from bireme.vision.blocks import ConvNormActivation
from bireme.vision.models.parts import make_divisible, with_weights


class Block(NamedTuple):
    """One row of the paper's tables; `swish` chooses hard swish over ReLU."""

    inputs: int
    kernel: int
    expanded: int
    outputs: int
    squeeze: bool
    swish: bool
    stride: int

    def scaled(self, scale: float) -> Block:
        widths = (self.inputs, self.expanded, self.outputs)
        inputs, expanded, outputs = (make_divisible(w * scale) for w in widths)
        return self._replace(inputs=inputs, expanded=expanded, outputs=outputs)


_SMALL = (
    Block(16, 3, 16, 16, True, False, 2),
    Block(16, 3, 72, 24, False, False, 2),
    Block(24, 3, 88, 24, False, False, 1),
    Block(24, 5, 96, 40, True, True, 2),
    Block(40, 5, 240, 40, True, True, 1),
    Block(40, 5, 240, 40, True, True, 1),
    Block(40, 5, 120, 48, True, True, 1),
    Block(48, 5, 144, 48, True, True, 1),
    Block(48, 5, 288, 96, True, True, 2),
    Block(96, 5, 576, 96, True, True, 1),
    Block(96, 5, 576, 96, True, True, 1),
)
_LARGE = (
    Block(16, 3, 16, 16, False, False, 1),
    Block(16, 3, 64, 24, False, False, 2),
    Block(24, 3, 72, 24, False, False, 1),
    Block(24, 5, 72, 40, True, False, 2),
    Block(40, 5, 120, 40, True, False, 1),
    Block(40, 5, 120, 40, True, False, 1),
    Block(40, 3, 240, 80, False, True, 2),
    Block(80, 3, 200, 80, False, True, 1),
    Block(80, 3, 184, 80, False, True, 1),
    Block(80, 3, 184, 80, False, True, 1),
    Block(80, 3, 480, 112, True, True, 1),
    Block(112, 3, 672, 112, True, True, 1),
    Block(112, 5, 672, 160, True, True, 2),
    Block(160, 5, 960, 160, True, True, 1),
    Block(160, 5, 960, 160, True, True, 1),
)
_norm = partial(nn.BatchNorm2D, epsilon=0.001, momentum=0.99)
_conv = partial(ConvNormActivation, norm_layer=_norm)


class SqueezeExcitation(nn.Layer):
    """Scales each channel by a factor computed from all channels' means."""

    def __init__(self, input_channels: int, squeeze_channels: int):
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2D(1)
        self.fc1 = nn.Conv2D(input_channels, squeeze_channels, 1)
        self.fc2 = nn.Conv2D(squeeze_channels, input_channels, 1)
        self.activation = nn.ReLU()
        self.scale_activation = nn.Hardsigmoid()

    def forward(self, input: bireme.Tensor) -> bireme.Tensor:
        factor = self.activation(self.fc1(self.avgpool(input)))
        return self.scale_activation(self.fc2(factor)) * input


class InvertedResidual(nn.Layer):
    """Widen, convolve per channel, perhaps squeeze, narrow; with a shortcut where it fits."""

    def __init__(self, block: Block):
        super().__init__()
        activation = nn.Hardswish if block.swish else nn.ReLU
        wide = block.expanded
        self.expand = block.inputs != wide
        self.use_se = block.squeeze
        self.use_res_connect = block.stride == 1 and block.inputs == block.outputs
        if self.expand:
            self.expand_conv = _conv(block.inputs, wide, 1, activation_layer=activation)
        self.bottleneck_conv = _conv(
            wide, wide, block.kernel, block.stride, groups=wide, activation_layer=activation
        )
        if self.use_se:
            self.mid_se = SqueezeExcitation(wide, make_divisible(wide // 4))
        self.linear_conv = _conv(wide, block.outputs, 1, activation_layer=None)

    def forward(self, x: bireme.Tensor) -> bireme.Tensor:
        out = self.expand_conv(x) if self.expand else x
        out = self.bottleneck_conv(out)
        if self.use_se:
            out = self.mid_se(out)
        out = self.linear_conv(out)
        return x + out if self.use_res_connect else out


class MobileNetV3(nn.Layer):
    """The common body of the small and the large network."""

    def __init__(
        self,
        blocks: tuple[Block, ...],
        last_channel: int,
        scale: float = 1.0,
        num_classes: int = 1000,
        with_pool: bool = True,
    ):
        super().__init__()
        config = [b.scaled(scale) for b in blocks]
        self.scale = scale
        self.num_classes = num_classes
        self.with_pool = with_pool
        last_in = config[-1].inputs
        self.conv = _conv(3, config[0].inputs, 3, 2, activation_layer=nn.Hardswish)
        self.blocks = nn.Sequential(*[InvertedResidual(b) for b in config])
        self.lastconv = _conv(last_in, last_in * 6, 1, activation_layer=nn.Hardswish)
        if with_pool:
            self.avgpool = nn.AdaptiveAvgPool2D(1)
        if num_classes > 0:
            width = make_divisible(last_channel * scale)
            self.classifier = nn.Sequential(
                nn.Linear(last_in * 6, width),
                nn.Hardswish(),
                nn.Dropout(p=0.2),
                nn.Linear(width, num_classes),
            )

    def forward(self, x: bireme.Tensor) -> bireme.Tensor:
        x = self.lastconv(self.blocks(self.conv(x)))
        if self.with_pool:
            x = self.avgpool(x)
        return self.classifier(bireme.flatten(x, 1)) if self.num_classes > 0 else x


class MobileNetV3Small(MobileNetV3):
    """The small network; `scale` sets the width."""

    def __init__(self, scale: float = 1.0, num_classes: int = 1000, with_pool: bool = True):
        super().__init__(_SMALL, 1024, scale, num_classes, with_pool)


class MobileNetV3Large(MobileNetV3):
    """The large network; `scale` sets the width."""

    def __init__(self, scale: float = 1.0, num_classes: int = 1000, with_pool: bool = True):
        super().__init__(_LARGE, 1280, scale, num_classes, with_pool)


def mobilenet_v3_small(
    pretrained: bool | str | PathLike[str] = False, scale: float = 1.0, **kwargs: Any
) -> MobileNetV3Small:
    """MobileNet V3, small; `pretrained` may be a file of weights."""
    return with_weights(MobileNetV3Small(scale=scale, **kwargs), pretrained)


def mobilenet_v3_large(
    pretrained: bool | str | PathLike[str] = False, scale: float = 1.0, **kwargs: Any
) -> MobileNetV3Large:
    """MobileNet V3, large; `pretrained` may be a file of weights."""
    return with_weights(MobileNetV3Large(scale=scale, **kwargs), pretrained)
