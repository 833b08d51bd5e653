"""AlexNet."""

from __future__ import annotations

from os import PathLike
from typing import Any

import bireme
from bireme import nn
from bireme.nn import functional as F
from bireme.vision.models.parts import fan_in_uniform, with_weights


def _conv(inputs: int, outputs: int, kernel: int, stride: int, padding: int) -> nn.Conv2D:
    start = fan_in_uniform(inputs * kernel * kernel)
    return nn.Conv2D(inputs, outputs, kernel, stride, padding, weight_attr=start, bias_attr=start)


class ConvPoolLayer(nn.Layer):
    """Convolution, ReLU and pooling to half the size."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, padding: int) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self._conv = _conv(inputs, outputs, kernel, stride, padding)
        self._pool = nn.MaxPool2D(kernel_size=3, stride=2)

    def forward(self, inputs: bireme.Tensor) -> bireme.Tensor:
        return self._pool(self.relu(self._conv(inputs)))


class AlexNet(nn.Layer):
    """Five convolutions and three linear layers; `num_classes <= 0` leaves the latter out."""

    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        self.num_classes = num_classes
        self._conv1 = ConvPoolLayer(3, 64, 11, 4, 2)
        self._conv2 = ConvPoolLayer(64, 192, 5, 1, 2)
        self._conv3 = _conv(192, 384, 3, 1, 1)
        self._conv4 = _conv(384, 256, 3, 1, 1)
        self._conv5 = ConvPoolLayer(256, 256, 3, 1, 1)
        if num_classes > 0:
            start = fan_in_uniform(256 * 6 * 6)
            self._drop1 = nn.Dropout(p=0.5, mode="downscale_in_infer")
            self._fc6 = nn.Linear(256 * 6 * 6, 4096, start, start)
            self._drop2 = nn.Dropout(p=0.5, mode="downscale_in_infer")
            self._fc7 = nn.Linear(4096, 4096, start, start)
            self._fc8 = nn.Linear(4096, num_classes, start, start)

    def forward(self, inputs: bireme.Tensor) -> bireme.Tensor:
        x = self._conv2(self._conv1(inputs))
        x = F.relu(self._conv4(F.relu(self._conv3(x))))
        x = self._conv5(x)
        if self.num_classes <= 0:
            return x
        x = F.relu(self._fc6(self._drop1(bireme.flatten(x, 1))))
        return self._fc8(F.relu(self._fc7(self._drop2(x))))


def alexnet(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> AlexNet:
    """AlexNet; `pretrained` may be a file of weights."""
    return with_weights(AlexNet(**kwargs), pretrained)
