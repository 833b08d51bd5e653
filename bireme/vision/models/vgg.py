"""VGG."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal

import bireme
from bireme import nn
from bireme.vision.models.parts import with_weights

# Convolutions per stage; every stage ends with a pooling layer.
_STAGES = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
_WIDTHS = (64, 128, 256, 512, 512)


class VGG(nn.Layer):
    """`features`, then pooling to 7 x 7 and three linear layers."""

    def __init__(self, features: nn.Layer, num_classes: int = 1000, with_pool: bool = True):
        super().__init__()
        self.features = features
        self.num_classes = num_classes
        self.with_pool = with_pool
        if with_pool:
            self.avgpool = nn.AdaptiveAvgPool2D((7, 7))
        if num_classes > 0:
            self.classifier = nn.Sequential(
                nn.Linear(512 * 7 * 7, 4096),
                nn.ReLU(),
                nn.Dropout(),
                nn.Linear(4096, 4096),
                nn.ReLU(),
                nn.Dropout(),
                nn.Linear(4096, num_classes),
            )

    def forward(self, x: bireme.Tensor) -> bireme.Tensor:
        x = self.features(x)
        if self.with_pool:
            x = self.avgpool(x)
        return self.classifier(bireme.flatten(x, 1)) if self.num_classes > 0 else x


def make_layers(cfg: Sequence[int | Literal["M"]], batch_norm: bool = False) -> nn.Sequential:
    """Features for a `VGG`: a width is a convolution of images with ReLU, "M" a pooling layer."""
    layers: list[nn.Layer] = []
    channels = 3
    for width in cfg:
        if width == "M":
            layers.append(nn.MaxPool2D(kernel_size=2, stride=2))
            continue
        layers.append(nn.Conv2D(channels, width, kernel_size=3, padding=1))
        if batch_norm:
            layers.append(nn.BatchNorm2D(width))
        layers.append(nn.ReLU())
        channels = width
    return nn.Sequential(*layers)


def _features(depth: int, batch_norm: bool) -> nn.Sequential:
    cfg: list[int | Literal["M"]] = []
    for count, width in zip(_STAGES[depth], _WIDTHS, strict=True):
        cfg += [*[width] * count, "M"]
    return make_layers(cfg, batch_norm)


def vgg11(
    pretrained: bool | str | PathLike[str] = False, batch_norm: bool = False, **kwargs: Any
) -> VGG:
    """VGG with 11 layers; `pretrained` may be a file of weights, as in all of these."""
    return with_weights(VGG(_features(11, batch_norm), **kwargs), pretrained)


def vgg13(
    pretrained: bool | str | PathLike[str] = False, batch_norm: bool = False, **kwargs: Any
) -> VGG:
    """VGG with 13 layers."""
    return with_weights(VGG(_features(13, batch_norm), **kwargs), pretrained)


def vgg16(
    pretrained: bool | str | PathLike[str] = False, batch_norm: bool = False, **kwargs: Any
) -> VGG:
    """VGG with 16 layers."""
    return with_weights(VGG(_features(16, batch_norm), **kwargs), pretrained)


def vgg19(
    pretrained: bool | str | PathLike[str] = False, batch_norm: bool = False, **kwargs: Any
) -> VGG:
    """VGG with 19 layers."""
    return with_weights(VGG(_features(19, batch_norm), **kwargs), pretrained)
