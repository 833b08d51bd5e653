"""Pooling layers: each holds its settings and calls its function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bireme.api.keywords import second_names
from bireme.api.types import IntOrPair, IntOrSingle, IntOrTriple, Padding
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.layer.shown import ShownLayer


def _fixed(value: Any) -> Any:
    """Lists as tuples, so that a call reaches the op without converting them again."""
    return tuple(_fixed(v) for v in value) if isinstance(value, list | tuple) else value


class _Pool(ShownLayer):
    _shown = ("kernel_size", "stride", "padding")


class AvgPool1D(_Pool):
    """The mean of each window."""

    def __init__(
        self,
        kernel_size: IntOrSingle,
        stride: IntOrSingle | None = None,
        padding: Padding = 0,
        exclusive: bool = True,
        ceil_mode: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = _fixed(kernel_size)
        self.stride = _fixed(stride)
        self.padding = _fixed(padding)
        self.exclusive = exclusive
        self.ceil_mode = ceil_mode
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool1d(
            x, self.kernel_size, self.stride, self.padding, self.exclusive, self.ceil_mode
        )


class MaxPool1D(_Pool):
    """The largest of each window."""

    def __init__(
        self,
        kernel_size: IntOrSingle,
        stride: IntOrSingle | None = None,
        padding: Padding = 0,
        return_mask: bool = False,
        ceil_mode: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = _fixed(kernel_size)
        self.stride = _fixed(stride)
        self.padding = _fixed(padding)
        self.return_mask = return_mask
        self.ceil_mode = ceil_mode
        self.name = name

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return F.max_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.return_mask, self.ceil_mode
        )


class AvgPool2D(_Pool):
    """The mean of each window."""

    def __init__(
        self,
        kernel_size: IntOrPair,
        stride: IntOrPair | None = None,
        padding: Padding = 0,
        ceil_mode: bool = False,
        exclusive: bool = True,
        divisor_override: float | None = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = _fixed(kernel_size)
        self.stride = _fixed(stride)
        self.padding = _fixed(padding)
        self.ceil_mode = ceil_mode
        self.exclusive = exclusive
        self.divisor_override = divisor_override
        self.data_format = data_format
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(
            x,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.exclusive,
            self.divisor_override,
            self.data_format,
        )


class MaxPool2D(_Pool):
    """The largest of each window."""

    def __init__(
        self,
        kernel_size: IntOrPair,
        stride: IntOrPair | None = None,
        padding: Padding = 0,
        return_mask: bool = False,
        ceil_mode: bool = False,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = _fixed(kernel_size)
        self.stride = _fixed(stride)
        self.padding = _fixed(padding)
        self.return_mask = return_mask
        self.ceil_mode = ceil_mode
        self.data_format = data_format
        self.name = name

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return F.max_pool2d(
            x,
            self.kernel_size,
            self.stride,
            self.padding,
            return_mask=self.return_mask,
            ceil_mode=self.ceil_mode,
            data_format=self.data_format,
        )


class AvgPool3D(_Pool):
    """The mean of each window."""

    def __init__(
        self,
        kernel_size: IntOrTriple,
        stride: IntOrTriple | None = None,
        padding: Padding = 0,
        ceil_mode: bool = False,
        exclusive: bool = True,
        divisor_override: float | None = None,
        data_format: str = "NCDHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = _fixed(kernel_size)
        self.stride = _fixed(stride)
        self.padding = _fixed(padding)
        self.ceil_mode = ceil_mode
        self.exclusive = exclusive
        self.divisor_override = divisor_override
        self.data_format = data_format
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool3d(
            x,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.exclusive,
            self.divisor_override,
            self.data_format,
        )


class MaxPool3D(_Pool):
    """The largest of each window."""

    def __init__(
        self,
        kernel_size: IntOrTriple,
        stride: IntOrTriple | None = None,
        padding: Padding = 0,
        return_mask: bool = False,
        ceil_mode: bool = False,
        data_format: str = "NCDHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = _fixed(kernel_size)
        self.stride = _fixed(stride)
        self.padding = _fixed(padding)
        self.return_mask = return_mask
        self.ceil_mode = ceil_mode
        self.data_format = data_format
        self.name = name

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return F.max_pool3d(
            x,
            self.kernel_size,
            self.stride,
            self.padding,
            return_mask=self.return_mask,
            ceil_mode=self.ceil_mode,
            data_format=self.data_format,
        )


class LPPool1D(_Pool):
    """The p-norm of each window."""

    _shown = ("norm_type", "kernel_size", "stride", "padding")

    def __init__(
        self,
        norm_type: float,
        kernel_size: IntOrSingle,
        stride: IntOrSingle | None = None,
        padding: Padding = 0,
        ceil_mode: bool = False,
        data_format: str = "NCL",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.norm_type = float(norm_type)
        self.kernel_size = _fixed(kernel_size)
        self.stride = _fixed(stride)
        self.padding = _fixed(padding)
        self.ceil_mode = ceil_mode
        self.data_format = data_format
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.lp_pool1d(
            x,
            self.norm_type,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.data_format,
        )


class LPPool2D(_Pool):
    """The p-norm of each window."""

    _shown = ("norm_type", "kernel_size", "stride", "padding")

    def __init__(
        self,
        norm_type: float,
        kernel_size: IntOrPair,
        stride: IntOrPair | None = None,
        padding: Padding = 0,
        ceil_mode: bool = False,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.norm_type = float(norm_type)
        self.kernel_size = _fixed(kernel_size)
        self.stride = _fixed(kernel_size if stride is None else stride)
        self.padding = _fixed(padding)
        self.ceil_mode = ceil_mode
        self.data_format = data_format
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.lp_pool2d(
            x,
            self.norm_type,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.data_format,
        )


class _AdaptivePool(ShownLayer):
    """Models that replace or export a pooling layer read its setting by Paddle's inner name."""

    output_size: Any
    data_format: str

    @property
    def _output_size(self) -> Any:
        return self.output_size

    @property
    def _data_format(self) -> str:
        return self.data_format


class AdaptiveAvgPool1D(ShownLayer):
    """The mean of windows chosen to give `output_size`."""

    _shown = ("output_size",)

    def __init__(
        self,
        output_size: IntOrSingle,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.output_size = _fixed(output_size)
        self._name = name

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveMaxPool1D(ShownLayer):
    """The largest of windows chosen to give `output_size`."""

    _shown = ("output_size", "return_mask")

    @second_names(return_indices="return_mask")
    def __init__(
        self,
        output_size: IntOrSingle,
        return_mask: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.output_size = _fixed(output_size)
        self.return_mask = return_mask
        self._name = name

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_mask)


class AdaptiveAvgPool2D(_AdaptivePool):
    """The mean of windows chosen to give `output_size`."""

    _shown = ("output_size",)

    def __init__(
        self,
        output_size: IntOrPair,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.output_size = _fixed(output_size)
        self.data_format = data_format
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(x, self.output_size, self.data_format)


class AdaptiveMaxPool2D(_AdaptivePool):
    """The largest of windows chosen to give `output_size`."""

    _shown = ("output_size", "return_mask")

    @second_names(return_indices="return_mask")
    def __init__(
        self,
        output_size: IntOrPair,
        return_mask: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.output_size = _fixed(output_size)
        self.return_mask = return_mask
        self._name = name

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return F.adaptive_max_pool2d(x, self.output_size, self.return_mask)


class AdaptiveAvgPool3D(_AdaptivePool):
    """The mean of windows chosen to give `output_size`."""

    _shown = ("output_size",)

    def __init__(
        self,
        output_size: IntOrTriple,
        data_format: str = "NCDHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.output_size = _fixed(output_size)
        self.data_format = data_format
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(x, self.output_size, self.data_format)


class AdaptiveMaxPool3D(_AdaptivePool):
    """The largest of windows chosen to give `output_size`."""

    _shown = ("output_size", "return_mask")

    @second_names(return_indices="return_mask")
    def __init__(
        self,
        output_size: IntOrTriple,
        return_mask: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.output_size = _fixed(output_size)
        self.return_mask = return_mask
        self._name = name

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return F.adaptive_max_pool3d(x, self.output_size, self.return_mask)


class MaxUnPool1D(ShownLayer):
    """Puts the results of MaxPool1D back where they came from."""

    _shown = ("output_size",)

    def __init__(
        self,
        kernel_size: IntOrSingle,
        stride: IntOrSingle | None = None,
        padding: Padding = 0,
        data_format: str = "NCL",
        output_size: IntOrSingle | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = _fixed(kernel_size)
        self.stride = _fixed(stride)
        self.padding = _fixed(padding)
        self.data_format = data_format
        self.output_size = output_size
        self._name = name

    def forward(
        self, x: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        return F.max_unpool1d(
            x,
            indices,
            kernel_size=self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            data_format=self.data_format,
            output_size=output_size or self.output_size,
        )


class MaxUnPool2D(ShownLayer):
    """Puts the results of MaxPool2D back where they came from."""

    _shown = ("output_size",)

    def __init__(
        self,
        kernel_size: IntOrPair,
        stride: IntOrPair | None = None,
        padding: Padding = 0,
        data_format: str = "NCHW",
        output_size: IntOrPair | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = _fixed(kernel_size)
        self.stride = _fixed(stride)
        self.padding = _fixed(padding)
        self.data_format = data_format
        self.output_size = output_size
        self._name = name

    def forward(
        self, x: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        return F.max_unpool2d(
            x,
            indices,
            kernel_size=self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            data_format=self.data_format,
            output_size=output_size or self.output_size,
        )


class MaxUnPool3D(ShownLayer):
    """Puts the results of MaxPool3D back where they came from."""

    _shown = ("output_size",)

    def __init__(
        self,
        kernel_size: IntOrTriple,
        stride: IntOrTriple | None = None,
        padding: Padding = 0,
        data_format: str = "NCDHW",
        output_size: IntOrTriple | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = _fixed(kernel_size)
        self.stride = _fixed(stride)
        self.padding = _fixed(padding)
        self.data_format = data_format
        self.output_size = output_size
        self._name = name

    def forward(
        self, x: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        return F.max_unpool3d(
            x,
            indices,
            kernel_size=self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            data_format=self.data_format,
            output_size=output_size or self.output_size,
        )


class FractionalMaxPool2D(ShownLayer):
    """The largest of windows of pseudo-random size."""

    _shown = ("output_size", "return_mask")

    def __init__(
        self,
        output_size: IntOrPair,
        kernel_size: IntOrPair | None = None,
        random_u: float | None = None,
        return_mask: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.output_size = _fixed(output_size)
        self.kernel_size = _fixed(kernel_size)
        self.random_u = random_u
        self.return_mask = return_mask
        self._name = name

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return F.fractional_max_pool2d(
            x, self.output_size, self.kernel_size, self.random_u, self.return_mask
        )


class FractionalMaxPool3D(ShownLayer):
    """The largest of windows of pseudo-random size."""

    _shown = ("output_size", "return_mask")

    def __init__(
        self,
        output_size: IntOrTriple,
        kernel_size: IntOrTriple | None = None,
        random_u: float | None = None,
        return_mask: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.output_size = _fixed(output_size)
        self.kernel_size = _fixed(kernel_size)
        self.random_u = random_u
        self.return_mask = return_mask
        self._name = name

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return F.fractional_max_pool3d(
            x, self.output_size, self.kernel_size, self.random_u, self.return_mask
        )


AdaptiveMaxPool1d = AdaptiveMaxPool1D
AdaptiveMaxPool2d = AdaptiveMaxPool2D
AdaptiveMaxPool3d = AdaptiveMaxPool3D
LPPool1d = LPPool1D
LPPool2d = LPPool2D

__all__ = [
    "AdaptiveAvgPool1D",
    "AdaptiveAvgPool2D",
    "AdaptiveAvgPool3D",
    "AdaptiveMaxPool1D",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2D",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3D",
    "AdaptiveMaxPool3d",
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "FractionalMaxPool2D",
    "FractionalMaxPool3D",
    "LPPool1D",
    "LPPool1d",
    "LPPool2D",
    "LPPool2d",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "MaxUnPool1D",
    "MaxUnPool2D",
    "MaxUnPool3D",
]
