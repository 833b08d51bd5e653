"""SqueezeNet."""

from __future__ import annotations

from os import PathLike
from typing import Any

import bireme
from bireme import nn
from bireme.core.errors import InvalidArgument
from bireme.nn import functional as F
from bireme.vision.models.parts import with_weights

# version: the first convolution (width, kernel, padding), and the blocks after which a pooling
# layer follows.
_VERSIONS = {"1.0": ((96, 7, 0), (3, 7)), "1.1": ((64, 3, 1), (2, 4))}
_SQUEEZED = (16, 16, 32, 32, 48, 48, 64, 64)


class FireConv(nn.Layer):
    """A convolution and a ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__()
        self._conv = nn.Conv2D(inputs, outputs, kernel, padding=kernel // 2)

    def forward(self, x: bireme.Tensor) -> bireme.Tensor:
        return F.relu(self._conv(x))


class Fire(nn.Layer):
    """Few channels, then four times as many from each of a 1 x 1 and a 3 x 3 convolution."""

    def __init__(self, inputs: int, squeezed: int) -> None:
        super().__init__()
        self._conv = FireConv(inputs, squeezed, 1)
        self._conv_path1 = FireConv(squeezed, 4 * squeezed, 1)
        self._conv_path2 = FireConv(squeezed, 4 * squeezed, 3)

    def forward(self, inputs: bireme.Tensor) -> bireme.Tensor:
        x = self._conv(inputs)
        return bireme.concat([self._conv_path1(x), self._conv_path2(x)], axis=1)


class SqueezeNet(nn.Layer):
    """Eight fire blocks; `version` is "1.0" or "1.1"."""

    def __init__(self, version: str, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__()
        if version not in _VERSIONS:
            raise InvalidArgument(
                f"[SqueezeNet] version must be one of {list(_VERSIONS)}. Received: {version!r}"
            )
        self.version = version
        self.num_classes = num_classes
        self.with_pool = with_pool
        (width, kernel, padding), self._pooled = _VERSIONS[version]
        self._conv = nn.Conv2D(3, width, kernel, stride=2, padding=padding)
        self._pool = nn.MaxPool2D(kernel_size=3, stride=2)
        for i, squeezed in enumerate(_SQUEEZED, start=1):
            self.add_sublayer(f"_conv{i}", Fire(width, squeezed))
            width = 8 * squeezed
        self._drop = nn.Dropout(p=0.5, mode="downscale_in_infer")
        self._conv9 = nn.Conv2D(width, num_classes, 1)
        self._avg_pool = nn.AdaptiveAvgPool2D(1)

    def forward(self, inputs: bireme.Tensor) -> bireme.Tensor:
        x = self._pool(F.relu(self._conv(inputs)))
        for i in range(1, len(_SQUEEZED) + 1):
            x = self._sub_layers[f"_conv{i}"](x)
            if i in self._pooled:
                x = self._pool(x)
        if self.num_classes > 0:
            x = self._conv9(self._drop(x))
        if self.with_pool:
            x = bireme.squeeze(self._avg_pool(F.relu(x)), axis=[2, 3])
        return x


def squeezenet1_0(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> SqueezeNet:
    """SqueezeNet 1.0; `pretrained` may be a file of weights."""
    return with_weights(SqueezeNet("1.0", **kwargs), pretrained)


def squeezenet1_1(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> SqueezeNet:
    """SqueezeNet 1.1, lighter at equal accuracy; `pretrained` may be a file of weights."""
    return with_weights(SqueezeNet("1.1", **kwargs), pretrained)
