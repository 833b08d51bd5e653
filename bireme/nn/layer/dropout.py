"""Dropout layers. They do nothing in eval mode."""

from __future__ import annotations

from bireme.api.types import Axis
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.layer.layer import Layer
from bireme.nn.layer.shown import ShownLayer


class Dropout(Layer):
    """Zeroes elements with probability `p` in training."""

    def __init__(
        self,
        p: float = 0.5,
        inplace: bool = False,
        axis: Axis | None = None,
        mode: str = "upscale_in_train",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.p = p
        self.inplace = inplace
        self.axis = axis
        self.mode = mode
        self.name = name

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(
            input, self.p, self.axis, self.training, mode=self.mode, inplace=self.inplace
        )

    def extra_repr(self) -> str:
        name = f", name={self.name}" if self.name else ""
        return f"p={self.p}, axis={self.axis}, mode={self.mode}{name}, inplace={self.inplace}"


class Dropout2D(ShownLayer):
    """Zeroes whole channels of images with probability `p` in training."""

    _shown = ("p", "data_format")

    def __init__(self, p: float = 0.5, data_format: str = "NCHW", name: str | None = None) -> None:
        super().__init__()
        self.p = p
        self.data_format = data_format
        self._name = name

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout2d(input, self.p, self.training, self.data_format)


class Dropout3D(ShownLayer):
    """Zeroes whole channels of volumes with probability `p` in training."""

    _shown = ("p", "data_format")

    def __init__(self, p: float = 0.5, data_format: str = "NCDHW", name: str | None = None) -> None:
        super().__init__()
        self.p = p
        self.data_format = data_format
        self._name = name

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout3d(input, self.p, self.training, self.data_format)


class AlphaDropout(ShownLayer):
    """Dropout that keeps mean and variance, for SELU networks."""

    _shown = ("p",)

    def __init__(self, p: float = 0.5, name: str | None = None) -> None:
        super().__init__()
        self.p = p
        self._name = name

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(AlphaDropout):
    """AlphaDropout of whole channels."""

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training)


__all__ = ["AlphaDropout", "Dropout", "Dropout2D", "Dropout3D", "FeatureAlphaDropout"]
