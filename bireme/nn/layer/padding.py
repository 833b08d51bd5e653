"""Padding layers."""

from __future__ import annotations

from collections.abc import Sequence

from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.layer.shown import ShownLayer


class _Pad(ShownLayer):
    _shown = ("padding", "_mode", "value", "_data_format")
    _spatial = 1

    def __init__(
        self,
        padding: int | Sequence[int] | Tensor,
        mode: str,
        value: float,
        data_format: str,
        name: str | None,
    ) -> None:
        super().__init__()
        if isinstance(padding, int):
            padding = [padding] * (2 * self._spatial)
        self.padding = padding
        self._mode = mode
        self.value = value
        self._data_format = data_format
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(
            x,
            self.padding,
            mode=self._mode,
            value=self.value,
            data_format=self._data_format,
        )


class Pad1D(_Pad):
    """Pads the last 1 dimension by `mode`."""

    _spatial = 1

    def __init__(
        self,
        padding: int | Sequence[int] | Tensor,
        mode: str = "constant",
        value: float = 0.0,
        data_format: str = "NCL",
        name: str | None = None,
    ) -> None:
        super().__init__(padding, mode, value, data_format, name)


class ConstantPad1D(Pad1D):
    """Pads with `value`."""

    def __init__(
        self,
        padding: int | Sequence[int] | Tensor,
        value: float,
        data_format: str = "NCL",
        name: str | None = None,
    ) -> None:
        super().__init__(padding, "constant", value, data_format, name)


class ZeroPad1D(Pad1D):
    """Pads with zeros."""

    def __init__(
        self,
        padding: int | Sequence[int] | Tensor,
        data_format: str = "NCL",
        name: str | None = None,
    ) -> None:
        super().__init__(padding, "constant", 0.0, data_format, name)


class ReplicationPad1D(Pad1D):
    """Pads with the border's values."""

    def __init__(
        self,
        padding: int | Sequence[int] | Tensor,
        data_format: str = "NCL",
        name: str | None = None,
    ) -> None:
        super().__init__(padding, "replicate", 0.0, data_format, name)


class ReflectionPad1D(Pad1D):
    """Pads with the mirror image."""

    def __init__(
        self,
        padding: int | Sequence[int] | Tensor,
        data_format: str = "NCL",
        name: str | None = None,
    ) -> None:
        super().__init__(padding, "reflect", 0.0, data_format, name)


class CircularPad1D(Pad1D):
    """Pads with the other side."""

    def __init__(
        self,
        padding: int | Sequence[int] | Tensor,
        data_format: str = "NCL",
        name: str | None = None,
    ) -> None:
        super().__init__(padding, "circular", 0.0, data_format, name)


class Pad2D(_Pad):
    """Pads the last 2 dimensions by `mode`."""

    _spatial = 2

    def __init__(
        self,
        padding: int | Sequence[int] | Tensor,
        mode: str = "constant",
        value: float = 0.0,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__(padding, mode, value, data_format, name)


class ConstantPad2D(Pad2D):
    """Pads with `value`."""

    def __init__(
        self,
        padding: int | Sequence[int] | Tensor,
        value: float,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__(padding, "constant", value, data_format, name)


class ZeroPad2D(Pad2D):
    """Pads with zeros."""

    def __init__(
        self,
        padding: int | Sequence[int] | Tensor,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__(padding, "constant", 0.0, data_format, name)


class ReplicationPad2D(Pad2D):
    """Pads with the border's values."""

    def __init__(
        self,
        padding: int | Sequence[int] | Tensor,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__(padding, "replicate", 0.0, data_format, name)


class ReflectionPad2D(Pad2D):
    """Pads with the mirror image."""

    def __init__(
        self,
        padding: int | Sequence[int] | Tensor,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__(padding, "reflect", 0.0, data_format, name)


class CircularPad2D(Pad2D):
    """Pads with the other side."""

    def __init__(
        self,
        padding: int | Sequence[int] | Tensor,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__(padding, "circular", 0.0, data_format, name)


class Pad3D(_Pad):
    """Pads the last 3 dimensions by `mode`."""

    _spatial = 3

    def __init__(
        self,
        padding: int | Sequence[int] | Tensor,
        mode: str = "constant",
        value: float = 0.0,
        data_format: str = "NCDHW",
        name: str | None = None,
    ) -> None:
        super().__init__(padding, mode, value, data_format, name)


class ConstantPad3D(Pad3D):
    """Pads with `value`."""

    def __init__(
        self,
        padding: int | Sequence[int] | Tensor,
        value: float,
        data_format: str = "NCDHW",
        name: str | None = None,
    ) -> None:
        super().__init__(padding, "constant", value, data_format, name)


class ZeroPad3D(Pad3D):
    """Pads with zeros."""

    def __init__(
        self,
        padding: int | Sequence[int] | Tensor,
        data_format: str = "NCDHW",
        name: str | None = None,
    ) -> None:
        super().__init__(padding, "constant", 0.0, data_format, name)


class ReplicationPad3D(Pad3D):
    """Pads with the border's values."""

    def __init__(
        self,
        padding: int | Sequence[int] | Tensor,
        data_format: str = "NCDHW",
        name: str | None = None,
    ) -> None:
        super().__init__(padding, "replicate", 0.0, data_format, name)


class ReflectionPad3D(Pad3D):
    """Pads with the mirror image."""

    def __init__(
        self,
        padding: int | Sequence[int] | Tensor,
        data_format: str = "NCDHW",
        name: str | None = None,
    ) -> None:
        super().__init__(padding, "reflect", 0.0, data_format, name)


class CircularPad3D(Pad3D):
    """Pads with the other side."""

    def __init__(
        self,
        padding: int | Sequence[int] | Tensor,
        data_format: str = "NCDHW",
        name: str | None = None,
    ) -> None:
        super().__init__(padding, "circular", 0.0, data_format, name)


ConstantPad1d = ConstantPad1D
ReplicationPad1d = ReplicationPad1D
ReflectionPad1d = ReflectionPad1D
CircularPad1d = CircularPad1D
ConstantPad2d = ConstantPad2D
ReplicationPad2d = ReplicationPad2D
ReflectionPad2d = ReflectionPad2D
CircularPad2d = CircularPad2D
ConstantPad3d = ConstantPad3D
ReplicationPad3d = ReplicationPad3D
ReflectionPad3d = ReflectionPad3D
CircularPad3d = CircularPad3D

__all__ = [
    "CircularPad1D",
    "CircularPad1d",
    "CircularPad2D",
    "CircularPad2d",
    "CircularPad3D",
    "CircularPad3d",
    "ConstantPad1D",
    "ConstantPad1d",
    "ConstantPad2D",
    "ConstantPad2d",
    "ConstantPad3D",
    "ConstantPad3d",
    "Pad1D",
    "Pad2D",
    "Pad3D",
    "ReflectionPad1D",
    "ReflectionPad1d",
    "ReflectionPad2D",
    "ReflectionPad2d",
    "ReflectionPad3D",
    "ReflectionPad3d",
    "ReplicationPad1D",
    "ReplicationPad1d",
    "ReplicationPad2D",
    "ReplicationPad2d",
    "ReplicationPad3D",
    "ReplicationPad3d",
    "ZeroPad1D",
    "ZeroPad2D",
    "ZeroPad3D",
]
