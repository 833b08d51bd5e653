"""Resizing images and moving data between channels and positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.layer.layer import Layer

_FORMAT_BY_RANK = {3: "NCW", 4: "NCHW", 5: "NCDHW"}


class Upsample(Layer):
    """Resizes sequences, images or volumes by interpolation."""

    def __init__(
        self,
        size: int | Sequence[int | Tensor] | Tensor | None = None,
        scale_factor: float | Sequence[float] | Tensor | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
        align_mode: int = 0,
        data_format: str | None = None,
        recompute_scale_factor: bool | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.size = size
        self.scale_factor = scale_factor
        self.mode = mode.lower()
        self.align_corners = align_corners
        self.align_mode = align_mode
        self.data_format = data_format
        self.recompute_scale_factor = recompute_scale_factor
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        data_format = self.data_format or _FORMAT_BY_RANK.get(x.ndim)
        if data_format is None:
            raise ShapeMismatch(
                f"[Upsample] needs an input of 3, 4 or 5 dimensions. Received: shape {x.shape}"
            )
        return F.interpolate(
            x,
            size=self.size,
            scale_factor=self.scale_factor,
            mode=self.mode,
            align_corners=self.align_corners,
            align_mode=self.align_mode,
            data_format=data_format,
            recompute_scale_factor=self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        name = f", name={self.name}" if self.name else ""
        return (
            f"{_target(self)}, mode={self.mode}, align_corners={self.align_corners}, "
            f"align_mode={self.align_mode}, data_format={self.data_format}{name}"
        )


def _target(layer: Any) -> str:
    if layer.scale_factor is not None:
        return f"scale_factor={layer.scale_factor}"
    return f"size={layer.size}"


class _Upsampling2D(Layer):
    _mode = "nearest"
    _align_corners = False

    def __init__(
        self,
        size: int | Sequence[int | Tensor] | Tensor | None = None,
        scale_factor: float | Sequence[float] | Tensor | None = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.size = [size, size] if isinstance(size, int) else size
        self.scale_factor = scale_factor
        self.data_format = data_format
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(
            x,
            size=self.size,
            scale_factor=self.scale_factor,
            mode=self._mode,
            align_corners=self._align_corners,
            data_format=self.data_format,
        )

    def extra_repr(self) -> str:
        name = f", name={self.name}" if self.name else ""
        return f"{_target(self)}, data_format={self.data_format}{name}"


class UpsamplingNearest2D(_Upsampling2D):
    """Resizes images by repeating pixels."""


class UpsamplingBilinear2D(_Upsampling2D):
    """Resizes images bilinearly, corners aligned."""

    _mode = "bilinear"
    _align_corners = True


class _Shuffle(Layer):
    """One positive whole number and a data format."""

    _what = ""

    def __init__(self, number: int, data_format: str, name: str | None) -> None:
        super().__init__()
        if not isinstance(number, int):
            raise TypeMismatch(
                f"[{type(self).__name__}] {self._what} must be an int. Received: {number!r}"
            )
        if number <= 0:
            raise InvalidArgument(
                f"[{type(self).__name__}] {self._what} must be positive. Received: {number}"
            )
        if data_format not in ("NCHW", "NHWC"):
            raise InvalidArgument(
                f"[{type(self).__name__}] data_format must be 'NCHW' or 'NHWC'. Received: "
                f"{data_format!r}"
            )
        setattr(self, f"_{self._what}", number)
        self._data_format = data_format
        self._name = name

    def extra_repr(self) -> str:
        text = f"{self._what}={getattr(self, f'_{self._what}')}"
        if self._data_format != "NCHW":
            text += f", data_format={self._data_format}"
        return text if self._name is None else f"{text}, name={self._name}"


class PixelShuffle(_Shuffle):
    """Channels become pixels: [N, C*r*r, H, W] to [N, C, H*r, W*r]."""

    _what = "upscale_factor"

    def __init__(
        self, upscale_factor: int, data_format: str = "NCHW", name: str | None = None
    ) -> None:
        super().__init__(upscale_factor, data_format, name)

    def forward(self, x: Tensor) -> Tensor:
        return F.pixel_shuffle(x, self._upscale_factor, self._data_format)


class PixelUnshuffle(_Shuffle):
    """Pixels become channels: the inverse of PixelShuffle."""

    _what = "downscale_factor"

    def __init__(
        self, downscale_factor: int, data_format: str = "NCHW", name: str | None = None
    ) -> None:
        super().__init__(downscale_factor, data_format, name)

    def forward(self, x: Tensor) -> Tensor:
        return F.pixel_unshuffle(x, self._downscale_factor, self._data_format)


class ChannelShuffle(_Shuffle):
    """Mixes the channels of `groups`."""

    _what = "groups"

    def __init__(self, groups: int, data_format: str = "NCHW", name: str | None = None) -> None:
        super().__init__(groups, data_format, name)

    def forward(self, x: Tensor) -> Tensor:
        return F.channel_shuffle(x, self._groups, self._data_format)


__all__ = [
    "ChannelShuffle",
    "PixelShuffle",
    "PixelUnshuffle",
    "Upsample",
    "UpsamplingBilinear2D",
    "UpsamplingNearest2D",
]
