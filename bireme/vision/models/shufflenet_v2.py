"""ShuffleNet V2."""

from __future__ import annotations

from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

import bireme
from bireme import nn
from bireme.core.errors import InvalidArgument
from bireme.nn import functional as F
from bireme.vision.blocks import ConvNormActivation
from bireme.vision.models.parts import with_weights

if TYPE_CHECKING:
    from bireme.nn.layer.layer import Layer


# scale: widths of the three stages and of the last convolution
_WIDTHS = {
    0.25: (24, 48, 96, 512),
    0.33: (32, 64, 128, 512),
    0.5: (48, 96, 192, 1024),
    1.0: (116, 232, 464, 1024),
    1.5: (176, 352, 704, 1024),
    2.0: (224, 488, 976, 2048),
}
_BLOCKS = (4, 8, 4)
_ACTIVATIONS = {"relu": nn.ReLU, "swish": nn.Swish, None: None}


def _depthwise(width: int, stride: int) -> ConvNormActivation:
    return ConvNormActivation(width, width, 3, stride, groups=width, activation_layer=None)


def _mixed(left: bireme.Tensor, right: bireme.Tensor) -> bireme.Tensor:
    """The channels of both in turn."""
    return F.channel_shuffle(bireme.concat([left, right], axis=1), 2)


class InvertedResidual(nn.Layer):
    """Half the channels pass by, the other half through three convolutions."""

    def __init__(self, width: int, activation: type[Layer]) -> None:
        super().__init__()
        pointwise = partial(ConvNormActivation, kernel_size=1, activation_layer=activation)
        self._conv_pw = pointwise(width // 2, width // 2)
        self._conv_dw = _depthwise(width // 2, 1)
        self._conv_linear = pointwise(width // 2, width // 2)

    def forward(self, inputs: bireme.Tensor) -> bireme.Tensor:
        left, right = bireme.split(inputs, 2, axis=1)
        return _mixed(left, self._conv_linear(self._conv_dw(self._conv_pw(right))))


class InvertedResidualDS(nn.Layer):
    """The first block of a stage: both halves at half the size."""

    def __init__(self, inputs: int, outputs: int, activation: type[Layer]) -> None:
        super().__init__()
        half = outputs // 2
        pointwise = partial(ConvNormActivation, kernel_size=1, activation_layer=activation)
        self._conv_dw_1 = _depthwise(inputs, 2)
        self._conv_linear_1 = pointwise(inputs, half)
        self._conv_pw_2 = pointwise(inputs, half)
        self._conv_dw_2 = _depthwise(half, 2)
        self._conv_linear_2 = pointwise(half, half)

    def forward(self, inputs: bireme.Tensor) -> bireme.Tensor:
        left = self._conv_linear_1(self._conv_dw_1(inputs))
        right = self._conv_linear_2(self._conv_dw_2(self._conv_pw_2(inputs)))
        return _mixed(left, right)


class ShuffleNetV2(nn.Layer):
    """Three stages; `scale` sets the width, `act` is "relu", "swish" or None."""

    def __init__(
        self,
        scale: float = 1.0,
        act: str | None = "relu",
        num_classes: int = 1000,
        with_pool: bool = True,
    ) -> None:
        super().__init__()
        if scale not in _WIDTHS:
            raise InvalidArgument(
                f"[ShuffleNetV2] scale must be one of {list(_WIDTHS)}. Received: {scale}"
            )
        if act not in _ACTIVATIONS:
            raise InvalidArgument(
                f"[ShuffleNetV2] act must be 'relu', 'swish' or None. Received: {act!r}"
            )
        self.scale = scale
        self.num_classes = num_classes
        self.with_pool = with_pool
        activation = _ACTIVATIONS[act]
        *stages, last = _WIDTHS[scale]
        width = 24
        self._conv1 = ConvNormActivation(3, width, 3, 2, activation_layer=activation)
        self._max_pool = nn.MaxPool2D(kernel_size=3, stride=2, padding=1)
        self._block_names: list[str] = []
        for stage, (outputs, count) in enumerate(zip(stages, _BLOCKS, strict=True), start=2):
            for i in range(1, count + 1):
                first = i == 1
                block = (
                    InvertedResidualDS(width, outputs, activation)
                    if first
                    else InvertedResidual(outputs, activation)
                )
                self.add_sublayer(f"{stage}_{i}", block)
                self._block_names.append(f"{stage}_{i}")
                width = outputs
        self._last_conv = ConvNormActivation(width, last, 1, activation_layer=activation)
        if with_pool:
            self._pool2d_avg = nn.AdaptiveAvgPool2D(1)
        if num_classes > 0:
            self._fc = nn.Linear(last, num_classes)

    def forward(self, inputs: bireme.Tensor) -> bireme.Tensor:
        x = self._max_pool(self._conv1(inputs))
        for name in self._block_names:
            x = self._sub_layers[name](x)
        x = self._last_conv(x)
        if self.with_pool:
            x = self._pool2d_avg(x)
        return self._fc(bireme.flatten(x, 1)) if self.num_classes > 0 else x


def shufflenet_v2_x0_25(
    pretrained: bool | str | PathLike[str] = False, **kwargs: Any
) -> ShuffleNetV2:
    """A quarter of the width; `pretrained` may be a file of weights, as in all of these."""
    return with_weights(ShuffleNetV2(scale=0.25, **kwargs), pretrained)


def shufflenet_v2_x0_33(
    pretrained: bool | str | PathLike[str] = False, **kwargs: Any
) -> ShuffleNetV2:
    """A third of the width."""
    return with_weights(ShuffleNetV2(scale=0.33, **kwargs), pretrained)


def shufflenet_v2_x0_5(
    pretrained: bool | str | PathLike[str] = False, **kwargs: Any
) -> ShuffleNetV2:
    """Half the width."""
    return with_weights(ShuffleNetV2(scale=0.5, **kwargs), pretrained)


def shufflenet_v2_x1_0(
    pretrained: bool | str | PathLike[str] = False, **kwargs: Any
) -> ShuffleNetV2:
    """The plain width."""
    return with_weights(ShuffleNetV2(scale=1.0, **kwargs), pretrained)


def shufflenet_v2_x1_5(
    pretrained: bool | str | PathLike[str] = False, **kwargs: Any
) -> ShuffleNetV2:
    """One and a half times the width."""
    return with_weights(ShuffleNetV2(scale=1.5, **kwargs), pretrained)


def shufflenet_v2_x2_0(
    pretrained: bool | str | PathLike[str] = False, **kwargs: Any
) -> ShuffleNetV2:
    """Twice the width."""
    return with_weights(ShuffleNetV2(scale=2.0, **kwargs), pretrained)


def shufflenet_v2_swish(
    pretrained: bool | str | PathLike[str] = False, **kwargs: Any
) -> ShuffleNetV2:
    """The plain width with swish instead of ReLU."""
    return with_weights(ShuffleNetV2(scale=1.0, act="swish", **kwargs), pretrained)
