"""Building blocks that networks and `paddle.vision.ops` share."""

from __future__ import annotations

from collections.abc import Callable

from bireme import nn
from bireme.api.types import IntOrPair, Padding


class ConvNormActivation(nn.Sequential):
    """Convolution, normalisation, activation; sizes stay as they are by default.

    `norm_layer` and `activation_layer` are called with the width and with nothing; None leaves
    the piece out. The convolution has a bias only where nothing normalises it.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrPair = 3,
        stride: IntOrPair = 1,
        padding: Padding | None = None,
        groups: int = 1,
        norm_layer: Callable[..., nn.Layer] | None = nn.BatchNorm2D,
        activation_layer: Callable[..., nn.Layer] | None = nn.ReLU,
        dilation: int = 1,
        bias: bool | None = None,
    ) -> None:
        if padding is None:
            padding = (kernel_size - 1) // 2 * dilation  # pyright: ignore[reportOperatorIssue]
        if bias is None:
            bias = norm_layer is None
        layers: list[nn.Layer] = [
            nn.Conv2D(
                in_channels,
                out_channels,
                kernel_size,
                stride,
                padding,
                dilation=dilation,
                groups=groups,
                bias_attr=None if bias else False,
            )
        ]
        if norm_layer is not None:
            layers.append(norm_layer(out_channels))
        if activation_layer is not None:
            layers.append(activation_layer())
        super().__init__(*layers)
