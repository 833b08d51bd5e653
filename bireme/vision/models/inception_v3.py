"""Inception V3."""

from __future__ import annotations

from os import PathLike
from typing import Any

import bireme
from bireme import nn
from bireme.vision.models.parts import conv_norm_act, fan_in_uniform, with_weights

_ACROSS = ((1, 7), (0, 3))  # kernel and padding
_DOWN = ((7, 1), (3, 0))
_SHORT_ACROSS = ((1, 3), (0, 1))
_SHORT_DOWN = ((3, 1), (1, 0))


def _run(layer: nn.Layer, names: str, x: bireme.Tensor) -> bireme.Tensor:
    """The named sublayers one after another."""
    for name in names.split():
        x = layer._sub_layers[name](x)
    return x


class Branches(nn.Layer):
    """Chains of sublayers side by side; a subclass lists the names in each chain."""

    chains: tuple[str, ...] = ()

    def forward(self, x: bireme.Tensor) -> bireme.Tensor:
        return bireme.concat([_run(self, names, x) for names in self.chains], axis=1)


def _same_pool() -> nn.AvgPool2D:
    return nn.AvgPool2D(kernel_size=3, stride=1, padding=1, exclusive=False)


class InceptionStem(nn.Layer):
    """From 3 channels to 192 at an eighth of the size."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_1a_3x3 = conv_norm_act(3, 32, 3, stride=2)
        self.conv_2a_3x3 = conv_norm_act(32, 32, 3)
        self.conv_2b_3x3 = conv_norm_act(32, 64, 3, 1)
        self.max_pool = nn.MaxPool2D(kernel_size=3, stride=2)
        self.conv_3b_1x1 = conv_norm_act(64, 80, 1)
        self.conv_4a_3x3 = conv_norm_act(80, 192, 3)

    def forward(self, x: bireme.Tensor) -> bireme.Tensor:
        steps = "conv_1a_3x3 conv_2a_3x3 conv_2b_3x3 max_pool conv_3b_1x1 conv_4a_3x3 max_pool"
        return _run(self, steps, x)


class InceptionA(Branches):
    """1 x 1, 5 x 5, two 3 x 3 and a pooled branch."""

    chains = (
        "branch1x1",
        "branch5x5_1 branch5x5_2",
        "branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3",
        "branch_pool branch_pool_conv",
    )

    def __init__(self, inputs: int, pooled: int) -> None:
        super().__init__()
        self.branch1x1 = conv_norm_act(inputs, 64, 1)
        self.branch5x5_1 = conv_norm_act(inputs, 48, 1)
        self.branch5x5_2 = conv_norm_act(48, 64, 5, 2)
        self.branch3x3dbl_1 = conv_norm_act(inputs, 64, 1)
        self.branch3x3dbl_2 = conv_norm_act(64, 96, 3, 1)
        self.branch3x3dbl_3 = conv_norm_act(96, 96, 3, 1)
        self.branch_pool = _same_pool()
        self.branch_pool_conv = conv_norm_act(inputs, pooled, 1)


class InceptionB(Branches):
    """Half the size: 3 x 3, two 3 x 3 and a pooled branch."""

    chains = ("branch3x3", "branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3", "branch_pool")

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch3x3 = conv_norm_act(inputs, 384, 3, stride=2)
        self.branch3x3dbl_1 = conv_norm_act(inputs, 64, 1)
        self.branch3x3dbl_2 = conv_norm_act(64, 96, 3, 1)
        self.branch3x3dbl_3 = conv_norm_act(96, 96, 3, stride=2)
        self.branch_pool = nn.MaxPool2D(kernel_size=3, stride=2)


class InceptionC(Branches):
    """7 x 7 convolutions, taken apart into a row and a column."""

    chains = (
        "branch1x1",
        "branch7x7_1 branch7x7_2 branch7x7_3",
        "branch7x7dbl_1 branch7x7dbl_2 branch7x7dbl_3 branch7x7dbl_4 branch7x7dbl_5",
        "branch_pool branch_pool_conv",
    )

    def __init__(self, inputs: int, inner: int) -> None:
        super().__init__()
        self.branch1x1 = conv_norm_act(inputs, 192, 1)
        self.branch7x7_1 = conv_norm_act(inputs, inner, 1)
        self.branch7x7_2 = conv_norm_act(inner, inner, *_ACROSS)
        self.branch7x7_3 = conv_norm_act(inner, 192, *_DOWN)
        self.branch7x7dbl_1 = conv_norm_act(inputs, inner, 1)
        self.branch7x7dbl_2 = conv_norm_act(inner, inner, *_DOWN)
        self.branch7x7dbl_3 = conv_norm_act(inner, inner, *_ACROSS)
        self.branch7x7dbl_4 = conv_norm_act(inner, inner, *_DOWN)
        self.branch7x7dbl_5 = conv_norm_act(inner, 192, *_ACROSS)
        self.branch_pool = _same_pool()
        self.branch_pool_conv = conv_norm_act(inputs, 192, 1)


class InceptionD(Branches):
    """Half the size again."""

    chains = (
        "branch3x3_1 branch3x3_2",
        "branch7x7x3_1 branch7x7x3_2 branch7x7x3_3 branch7x7x3_4",
        "branch_pool",
    )

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch3x3_1 = conv_norm_act(inputs, 192, 1)
        self.branch3x3_2 = conv_norm_act(192, 320, 3, stride=2)
        self.branch7x7x3_1 = conv_norm_act(inputs, 192, 1)
        self.branch7x7x3_2 = conv_norm_act(192, 192, *_ACROSS)
        self.branch7x7x3_3 = conv_norm_act(192, 192, *_DOWN)
        self.branch7x7x3_4 = conv_norm_act(192, 192, 3, stride=2)
        self.branch_pool = nn.MaxPool2D(kernel_size=3, stride=2)


class InceptionE(nn.Layer):
    """Branches that end in a row and a column side by side."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch1x1 = conv_norm_act(inputs, 320, 1)
        self.branch3x3_1 = conv_norm_act(inputs, 384, 1)
        self.branch3x3_2a = conv_norm_act(384, 384, *_SHORT_ACROSS)
        self.branch3x3_2b = conv_norm_act(384, 384, *_SHORT_DOWN)
        self.branch3x3dbl_1 = conv_norm_act(inputs, 448, 1)
        self.branch3x3dbl_2 = conv_norm_act(448, 384, 3, 1)
        self.branch3x3dbl_3a = conv_norm_act(384, 384, *_SHORT_ACROSS)
        self.branch3x3dbl_3b = conv_norm_act(384, 384, *_SHORT_DOWN)
        self.branch_pool = _same_pool()
        self.branch_pool_conv = conv_norm_act(inputs, 192, 1)

    def forward(self, x: bireme.Tensor) -> bireme.Tensor:
        three = self.branch3x3_1(x)
        double = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        branches = [
            self.branch1x1(x),
            self.branch3x3_2a(three),
            self.branch3x3_2b(three),
            self.branch3x3dbl_3a(double),
            self.branch3x3dbl_3b(double),
            self.branch_pool_conv(self.branch_pool(x)),
        ]
        return bireme.concat(branches, axis=1)


class InceptionV3(nn.Layer):
    """Eleven inception blocks; `num_classes <= 0` leaves the classifier out."""

    def __init__(self, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.with_pool = with_pool
        self.inception_stem = InceptionStem()
        self.inception_block_list = nn.LayerList(
            [
                InceptionA(192, 32),
                InceptionA(256, 64),
                InceptionA(288, 64),
                InceptionB(288),
                *[InceptionC(768, inner) for inner in (128, 160, 160, 192)],
                InceptionD(768),
                InceptionE(1280),
                InceptionE(2048),
            ]
        )
        if with_pool:
            self.avg_pool = nn.AdaptiveAvgPool2D(1)
        if num_classes > 0:
            self.dropout = nn.Dropout(p=0.2, mode="downscale_in_infer")
            self.fc = nn.Linear(2048, num_classes, weight_attr=fan_in_uniform(2048))

    def forward(self, x: bireme.Tensor) -> bireme.Tensor:
        x = self.inception_stem(x)
        for block in self.inception_block_list:
            x = block(x)
        if self.with_pool:
            x = self.avg_pool(x)
        if self.num_classes > 0:
            x = self.fc(self.dropout(bireme.reshape(x, [-1, 2048])))
        return x


def inception_v3(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> InceptionV3:
    """Inception V3; `pretrained` may be a file of weights."""
    return with_weights(InceptionV3(**kwargs), pretrained)
