"""Convolutions and transposed convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from bireme.api.types import (
    DataFormat1D,
    DataFormat2D,
    DataFormat3D,
    DTypeLike,
    IntOrPair,
    IntOrSingle,
    IntOrTriple,
    Padding,
    PaddingMode,
    PlaceLike,
)
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.attributes import ParamAttrLike
from bireme.nn.initializer import Normal
from bireme.nn.layer.layer import Layer

_FORMATS = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def _per_dimension(value: Any, n: int, name: str) -> list[int]:
    values = [value] * n if isinstance(value, int) else list(value)
    if len(values) == 1:
        values = values * n
    if len(values) != n:
        raise InvalidArgument(f"{name} must be an int or {n} ints. Received: {value!r}")
    return [int(v) for v in values]


class _Conv(Layer):
    """What all convolutions share. Settings are kept as tuples, ready for the op."""

    _dims = 2
    _transposed = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Padding,
        dilation: Any,
        groups: int,
        weight_attr: ParamAttrLike | None,
        bias_attr: ParamAttrLike | None,
        data_format: str,
        *,
        padding_mode: str = "zeros",
        output_padding: Any = 0,
        device: PlaceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(dtype=dtype)
        n = self._dims
        where = type(self).__name__
        if weight_attr is False:
            raise InvalidArgument(f"[{where}] a convolution needs a weight: weight_attr=False")
        if data_format not in _FORMATS[n]:
            raise InvalidArgument(
                f"[{where}] data_format must be one of {_FORMATS[n]}. Received: {data_format!r}"
            )
        if padding_mode not in _PADDING_MODES:
            raise InvalidArgument(
                f"[{where}] padding_mode must be one of {_PADDING_MODES}. Received: "
                f"{padding_mode!r}"
            )
        if padding_mode != "zeros" and not isinstance(padding, int):
            raise TypeMismatch(
                f"[{where}] padding_mode={padding_mode!r} needs an int padding. Received: "
                f"{padding!r}"
            )
        if in_channels % groups or (self._transposed and out_channels % groups):
            raise InvalidArgument(
                f"[{where}] channels must divide into {groups} groups. Received: "
                f"in_channels={in_channels}, out_channels={out_channels}"
            )
        self._in_channels = in_channels
        self._out_channels = out_channels
        self._kernel_size = _per_dimension(kernel_size, n, "kernel_size")
        self._stride = tuple(_per_dimension(stride, n, "stride"))
        self._dilation = tuple(_per_dimension(dilation, n, "dilation"))
        self._groups = groups
        self._data_format = data_format
        self._padding = padding
        self._padding_mode = padding_mode
        self.output_padding = output_padding
        if self._transposed:
            shape = [in_channels, out_channels // groups, *self._kernel_size]
            initializer = None
        else:
            shape = [out_channels, in_channels // groups, *self._kernel_size]
            fan = max(math.prod(self._kernel_size) * in_channels, 1)
            initializer = Normal(0.0, math.sqrt(2.0 / fan))
        self.weight = self.create_parameter(
            shape, weight_attr, dtype, default_initializer=initializer, device=device
        )
        self.bias = self.create_parameter(
            [out_channels], bias_attr, dtype, is_bias=True, device=device
        )
        # What the op gets: `zeros` is the op's own padding, the other modes pad beforehand.
        self._op_padding = padding if padding_mode == "zeros" else 0
        # Modes other than "zeros" take one number of elements for all sides.
        self._pad_first: tuple[Any, ...] = () if padding_mode == "zeros" else (padding,) * (2 * n)

    def extra_repr(self) -> str:
        text = f"{self._in_channels}, {self._out_channels}, kernel_size={self._kernel_size}"
        ones = (1,) * self._dims
        if self._stride != ones:
            text += f", stride={list(self._stride)}"
        if self._padding != 0:
            text += f", padding={self._padding}"
        if self._padding_mode != "zeros":
            text += f", padding_mode={self._padding_mode}"
        if self.output_padding != 0:
            text += f", output_padding={self.output_padding}"
        if self._dilation != ones:
            text += f", dilation={list(self._dilation)}"
        if self._groups != 1:
            text += f", groups={self._groups}"
        return f"{text}, data_format={self._data_format}"


class _PlainConv(_Conv):
    """A convolution; subclasses say which function and how many dimensions."""

    _function: Callable[..., Tensor]

    def forward(self, x: Tensor) -> Tensor:
        if self._pad_first:
            x = F.pad(x, self._pad_first, mode=self._padding_mode, data_format=self._data_format)
        return self._function(
            x,
            self.weight,
            self.bias,
            self._stride,
            self._op_padding,
            self._dilation,
            self._groups,
            self._data_format,
        )


class _TransposedConv(_Conv):
    """A transposed convolution, likewise."""

    _function: Callable[..., Tensor]

    def forward(self, x: Tensor, output_size: Any = None) -> Tensor:
        return self._function(
            x,
            self.weight,
            bias=self.bias,
            stride=self._stride,
            padding=self._padding,
            # A wanted size says how much to pad; both at once would contradict each other.
            output_padding=self.output_padding if output_size is None else 0,
            groups=self._groups,
            dilation=self._dilation,
            output_size=output_size,
            data_format=self._data_format,
        )


class _ConvNd(_Conv):
    """The base that programs derive their own convolutions from: Paddle's order of arguments."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        transposed: bool,
        dims: int,
        stride: Any = 1,
        padding: Padding = 0,
        padding_mode: str = "zeros",
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: str = "NCHW",
        device: PlaceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        # Read by the base while it starts, so they cannot wait for Layer's own attributes.
        self.__dict__.update(_dims=dims, _transposed=transposed)
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            weight_attr,
            bias_attr,
            data_format,
            padding_mode=padding_mode,
            output_padding=output_padding,
            device=device,
            dtype=dtype,
        )


class Conv1D(_PlainConv):
    """Convolution over sequences."""

    _dims = 1
    _function = staticmethod(F.conv1d)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrSingle,
        stride: IntOrSingle = 1,
        padding: Padding = 0,
        dilation: IntOrSingle = 1,
        groups: int = 1,
        *,
        bias: bool = True,
        padding_mode: PaddingMode = "zeros",
        device: PlaceLike | None = None,
        dtype: DTypeLike | None = None,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: DataFormat1D = "NCL",
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            weight_attr,
            bias_attr if bias else False,
            data_format,
            padding_mode=padding_mode,
            device=device,
            dtype=dtype,
        )


class Conv2D(_PlainConv):
    """Convolution over images."""

    _dims = 2
    _function = staticmethod(F.conv2d)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrPair,
        stride: IntOrPair = 1,
        padding: Padding = 0,
        dilation: IntOrPair = 1,
        groups: int = 1,
        *,
        bias: bool = True,
        padding_mode: PaddingMode = "zeros",
        device: PlaceLike | None = None,
        dtype: DTypeLike | None = None,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: DataFormat2D = "NCHW",
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            weight_attr,
            bias_attr if bias else False,
            data_format,
            padding_mode=padding_mode,
            device=device,
            dtype=dtype,
        )


class Conv3D(_PlainConv):
    """Convolution over volumes."""

    _dims = 3
    _function = staticmethod(F.conv3d)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrTriple,
        stride: IntOrTriple = 1,
        padding: Padding = 0,
        dilation: IntOrTriple = 1,
        groups: int = 1,
        *,
        bias: bool = True,
        padding_mode: PaddingMode = "zeros",
        device: PlaceLike | None = None,
        dtype: DTypeLike | None = None,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: DataFormat3D = "NCDHW",
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            weight_attr,
            bias_attr if bias else False,
            data_format,
            padding_mode=padding_mode,
            device=device,
            dtype=dtype,
        )


class Conv1DTranspose(_TransposedConv):
    """Transposed convolution over sequences."""

    _dims = 1
    _function = staticmethod(F.conv1d_transpose)
    _transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrSingle,
        stride: IntOrSingle = 1,
        padding: Padding = 0,
        output_padding: IntOrSingle = 0,
        groups: int = 1,
        dilation: IntOrSingle = 1,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: DataFormat1D = "NCL",
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            weight_attr,
            bias_attr,
            data_format,
            output_padding=output_padding,
        )


class Conv2DTranspose(_TransposedConv):
    """Transposed convolution over images."""

    _dims = 2
    _function = staticmethod(F.conv2d_transpose)
    _transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrPair,
        stride: IntOrPair = 1,
        padding: Padding = 0,
        output_padding: IntOrPair = 0,
        dilation: IntOrPair = 1,
        groups: int = 1,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: DataFormat2D = "NCHW",
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            weight_attr,
            bias_attr,
            data_format,
            output_padding=output_padding,
        )


class Conv3DTranspose(_TransposedConv):
    """Transposed convolution over volumes."""

    _dims = 3
    _function = staticmethod(F.conv3d_transpose)
    _transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrTriple,
        stride: IntOrTriple = 1,
        padding: Padding = 0,
        output_padding: IntOrTriple = 0,
        dilation: IntOrTriple = 1,
        groups: int = 1,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: DataFormat3D = "NCDHW",
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            weight_attr,
            bias_attr,
            data_format,
            output_padding=output_padding,
        )


Conv1d = Conv1D
Conv2d = Conv2D
Conv3d = Conv3D

__all__ = [
    "Conv1D",
    "Conv1DTranspose",
    "Conv1d",
    "Conv2D",
    "Conv2DTranspose",
    "Conv2d",
    "Conv3D",
    "Conv3DTranspose",
    "Conv3d",
]
