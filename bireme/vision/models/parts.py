"""Pieces that several networks share."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from bireme import nn
from bireme.core.errors import InvalidArgument
from bireme.io.serialization import load

Net = TypeVar("Net", bound=nn.Layer)


class ConvNormActivation(nn.Sequential):
    """Convolution without bias, normalisation, activation; sizes stay as they are by default."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        stride: int = 1,
        groups: int = 1,
        norm_layer: Callable[[int], nn.Layer] = nn.BatchNorm2D,
        activation_layer: Callable[[], nn.Layer] | None = nn.ReLU,
    ):
        layers = [
            nn.Conv2D(
                in_channels,
                out_channels,
                kernel_size,
                stride,
                padding=(kernel_size - 1) // 2,
                groups=groups,
                bias_attr=False,
            ),
            norm_layer(out_channels),
        ]
        if activation_layer is not None:
            layers.append(activation_layer())
        super().__init__(*layers)


def make_divisible(value: float, divisor: int = 8) -> int:
    """The nearest multiple of `divisor` that is not more than a tenth below `value`."""
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded if rounded >= 0.9 * value else rounded + divisor


def with_weights(model: Net, pretrained: Any) -> Net:
    """Load `pretrained` (a file of weights) into `model`; False leaves it as it is."""
    if isinstance(pretrained, str | os.PathLike):
        model.set_state_dict(load(pretrained))
    elif pretrained:
        raise InvalidArgument(
            "pretrained=True would download weights, which Bireme does not do; give the path of "
            "a file with weights instead. Received: pretrained=True"
        )
    return model
