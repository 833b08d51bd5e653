"""GoogLeNet (Inception V1)."""

from __future__ import annotations

import math
from os import PathLike
from typing import Any

import bireme
from bireme import nn
from bireme.nn import functional as F
from bireme.nn.attributes import ParamAttr
from bireme.vision.models.parts import uniform, with_weights

# name: input width; the branches 1x1, 3x3 (reduced to, made), 5x5 (reduced to, made), pooled
_BLOCKS = {
    "_ince3a": (192, 64, 96, 128, 16, 32, 32),
    "_ince3b": (256, 128, 128, 192, 32, 96, 64),
    "_ince4a": (480, 192, 96, 208, 16, 48, 64),
    "_ince4b": (512, 160, 112, 224, 24, 64, 64),
    "_ince4c": (512, 128, 128, 256, 24, 64, 64),
    "_ince4d": (512, 112, 144, 288, 32, 64, 64),
    "_ince4e": (528, 256, 160, 320, 32, 128, 128),
    "_ince5a": (832, 256, 160, 320, 32, 128, 128),
    "_ince5b": (832, 384, 192, 384, 48, 128, 128),
}
_POOLED = ("_ince3b", "_ince4e")


def _start(width: int) -> ParamAttr:
    return uniform(math.sqrt(3.0 / width))


class ConvLayer(nn.Layer):
    """A convolution without bias."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self._conv = nn.Conv2D(
            inputs, outputs, kernel, stride, padding=(kernel - 1) // 2, bias_attr=False
        )

    def forward(self, inputs: bireme.Tensor) -> bireme.Tensor:
        return self._conv(inputs)


class Inception(nn.Layer):
    """Four branches side by side."""

    def __init__(
        self, inputs: int, one: int, to_three: int, three: int, to_five: int, five: int, pooled: int
    ) -> None:
        super().__init__()
        self._conv1 = ConvLayer(inputs, one, 1)
        self._conv3r = ConvLayer(inputs, to_three, 1)
        self._conv3 = ConvLayer(to_three, three, 3)
        self._conv5r = ConvLayer(inputs, to_five, 1)
        self._conv5 = ConvLayer(to_five, five, 5)
        self._pool = nn.MaxPool2D(kernel_size=3, stride=1, padding=1)
        self._convprj = ConvLayer(inputs, pooled, 1)

    def forward(self, inputs: bireme.Tensor) -> bireme.Tensor:
        branches = [
            self._conv1(inputs),
            self._conv3(self._conv3r(inputs)),
            self._conv5(self._conv5r(inputs)),
            self._convprj(self._pool(inputs)),
        ]
        return F.relu(bireme.concat(branches, axis=1))


class GoogLeNet(nn.Layer):
    """Nine inception blocks. Returns three outputs: the last and two auxiliary ones."""

    def __init__(self, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.with_pool = with_pool
        self._conv = ConvLayer(3, 64, 7, 2)
        self._pool = nn.MaxPool2D(kernel_size=3, stride=2)
        self._conv_1 = ConvLayer(64, 64, 1)
        self._conv_2 = ConvLayer(64, 192, 3)
        for name, widths in _BLOCKS.items():
            self.add_sublayer(name, Inception(*widths))
        if with_pool:
            self._pool_5 = nn.AdaptiveAvgPool2D(1)
            self._pool_o1 = nn.AvgPool2D(kernel_size=5, stride=3)
            self._pool_o2 = nn.AvgPool2D(kernel_size=5, stride=3)
        if num_classes > 0:
            self._drop = nn.Dropout(p=0.4, mode="downscale_in_infer")
            self._fc_out = nn.Linear(1024, num_classes, weight_attr=_start(1024))
            for i, width in ((1, 512), (2, 528)):
                self.add_sublayer(f"_conv_o{i}", ConvLayer(width, 128, 1))
                self.add_sublayer(f"_fc_o{i}", nn.Linear(1152, 1024, weight_attr=_start(2048)))
                self.add_sublayer(f"_drop_o{i}", nn.Dropout(p=0.7, mode="downscale_in_infer"))
                self.add_sublayer(
                    f"_out{i}", nn.Linear(1024, num_classes, weight_attr=_start(1024))
                )

    def _auxiliary(self, x: bireme.Tensor, i: int, activation: Any) -> bireme.Tensor:
        part = self._sub_layers
        x = part[f"_fc_o{i}"](bireme.flatten(part[f"_conv_o{i}"](x), 1))
        return part[f"_out{i}"](part[f"_drop_o{i}"](activation(x)))

    def forward(self, inputs: bireme.Tensor) -> tuple[bireme.Tensor, bireme.Tensor, bireme.Tensor]:
        x = self._pool(self._conv(inputs))
        x = self._pool(self._conv_2(self._conv_1(x)))
        seen = {}
        for name in _BLOCKS:
            x = seen[name] = self._sub_layers[name](x)
            if name in _POOLED:
                x = self._pool(x)
        out, out1, out2 = x, seen["_ince4a"], seen["_ince4d"]
        if self.with_pool:
            out, out1, out2 = self._pool_5(out), self._pool_o1(out1), self._pool_o2(out2)
        if self.num_classes > 0:
            out = self._fc_out(bireme.squeeze(self._drop(out), axis=[2, 3]))
            out1 = self._auxiliary(out1, 1, F.relu)
            out2 = self._auxiliary(out2, 2, lambda y: y)  # linear in Paddle as well
        return out, out1, out2


def googlenet(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> GoogLeNet:
    """GoogLeNet; `pretrained` may be a file of weights."""
    return with_weights(GoogLeNet(**kwargs), pretrained)
