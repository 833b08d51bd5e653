"""Pieces that several networks share."""

from __future__ import annotations

import math
import os
from os import PathLike
from typing import TypeVar

from bireme import nn
from bireme.api.types import IntOrPair, Padding
from bireme.core.errors import InvalidArgument
from bireme.io.serialization import load
from bireme.nn.attributes import ParamAttr
from bireme.vision.blocks import ConvNormActivation

Net = TypeVar("Net", bound=nn.Layer)


def make_divisible(value: float, divisor: int = 8) -> int:
    """The nearest multiple of `divisor` that is not more than a tenth below `value`."""
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded if rounded >= 0.9 * value else rounded + divisor


def with_weights(model: Net, pretrained: bool | str | PathLike[str]) -> Net:
    """Load `pretrained` (a file of weights) into `model`; False leaves it as it is."""
    if isinstance(pretrained, str | os.PathLike):
        model.set_state_dict(load(pretrained))
    elif pretrained:
        raise InvalidArgument(
            "pretrained=True would download weights, which Bireme does not do; give the path of "
            "a file with weights instead. Received: pretrained=True"
        )
    return model


def uniform(bound: float) -> ParamAttr:
    """A parameter drawn evenly from [-bound, bound]."""
    return ParamAttr(initializer=nn.initializer.Uniform(-bound, bound))


def fan_in_uniform(fan_in: int) -> ParamAttr:
    """A parameter drawn evenly from [-1, 1] / sqrt(fan_in)."""
    return uniform(1.0 / math.sqrt(fan_in))


def conv_norm_act(
    in_channels: int, out_channels: int, kernel: IntOrPair, padding: Padding = 0, stride: int = 1
) -> ConvNormActivation:
    """Convolution without bias, batch norm, ReLU, with explicit padding."""
    return ConvNormActivation(in_channels, out_channels, kernel, stride, padding)
