"""Convolution and pooling layers for sparse tensors."""

from __future__ import annotations

import math
from typing import Any

from bireme.api.types import IntOrPair, IntOrTriple, Padding
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn.attributes import ParamAttrLike
from bireme.nn.initializer import Normal
from bireme.nn.layer.layer import Layer
from bireme.ops.sparse_tensor import SparseCooTensor
from bireme.sparse.nn import functional as F
from bireme.sparse.nn.functional.conv import convolve, per_axis


class _Conv(Layer):
    """What all sparse convolutions share; the weight is [kernel axes, channels, filters]."""

    _dims = 3
    _submanifold = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Padding,
        dilation: Any,
        groups: int,
        padding_mode: str,
        weight_attr: ParamAttrLike | None,
        bias_attr: ParamAttrLike | None,
        data_format: str,
        key: str | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__()
        n, where = self._dims, type(self).__name__
        layout = "NDHWC" if n == 3 else "NHWC"
        for fine, what, given in (
            (weight_attr is not False, "weight_attr must not be False", weight_attr),
            (padding_mode == "zeros", "padding_mode must be 'zeros'", padding_mode),
            (groups == 1, "groups must be 1", groups),
            (backend in (None, "igemm"), "backend must be None or 'igemm'", backend),
            (data_format == layout, f"data_format must be {layout!r}", data_format),
        ):
            if not fine:
                raise InvalidArgument(f"[sparse.nn.{where}] {what}. Received: {given!r}")
        self._in_channels, self._out_channels = in_channels, out_channels
        self._kernel_size = list(per_axis(where, "kernel_size", kernel_size, n))
        self._stride = list(per_axis(where, "stride", stride, n))
        self._dilation = list(per_axis(where, "dilation", dilation, n))
        self._padding = padding
        self._groups, self._data_format = groups, data_format
        self._key, self._backend = key, backend
        fan_in = math.prod(self._kernel_size) * in_channels
        self.weight = self.create_parameter(
            [*self._kernel_size, in_channels, out_channels],
            weight_attr,
            default_initializer=Normal(0.0, (2.0 / fan_in) ** 0.5),
        )
        self.bias = self.create_parameter([out_channels], bias_attr, is_bias=True)

    def forward(self, x: Tensor) -> SparseCooTensor:
        return convolve(
            type(self).__name__,
            self._dims,
            x,
            self.weight,
            self.bias,
            self._stride,
            self._padding,
            self._dilation,
            self._groups,
            self._data_format,
            self._submanifold,
            self._key,
        )

    def extra_repr(self) -> str:
        text = f"{self._in_channels}, {self._out_channels}, kernel_size={self._kernel_size}"
        ones = [1] * self._dims
        if self._stride != ones:
            text += f", stride={self._stride}"
        if self._padding != 0:
            text += f", padding={self._padding}"
        if self._dilation != ones:
            text += f", dilation={self._dilation}"
        return f"{text}, data_format={self._data_format}"


class Conv3D(_Conv):
    """A convolution of [batch, depth, height, width, channels]."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrTriple,
        stride: IntOrTriple = 1,
        padding: Padding = 0,
        dilation: IntOrTriple = 1,
        groups: int = 1,
        padding_mode: str = "zeros",
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: str = "NDHWC",
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            padding_mode,
            weight_attr,
            bias_attr,
            data_format,
        )


class Conv2D(_Conv):
    """A convolution of [batch, height, width, channels]."""

    _dims = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrPair,
        stride: IntOrPair = 1,
        padding: Padding = 0,
        dilation: IntOrPair = 1,
        groups: int = 1,
        padding_mode: str = "zeros",
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: str = "NHWC",
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            padding_mode,
            weight_attr,
            bias_attr,
            data_format,
        )


class SubmConv3D(_Conv):
    """A convolution with the input's own places as outputs; `key` shares the neighbour search."""

    _submanifold = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrTriple,
        stride: IntOrTriple = 1,
        padding: Padding = 0,
        dilation: IntOrTriple = 1,
        groups: int = 1,
        padding_mode: str = "zeros",
        key: str | None = None,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: str = "NDHWC",
        backend: str | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            padding_mode,
            weight_attr,
            bias_attr,
            data_format,
            key,
            backend,
        )


class SubmConv2D(_Conv):
    """As SubmConv3D, for [batch, height, width, channels]."""

    _dims = 2
    _submanifold = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrPair,
        stride: IntOrPair = 1,
        padding: Padding = 0,
        dilation: IntOrPair = 1,
        groups: int = 1,
        padding_mode: str = "zeros",
        key: str | None = None,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: str = "NHWC",
        backend: str | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            padding_mode,
            weight_attr,
            bias_attr,
            data_format,
            key,
            backend,
        )


class MaxPool3D(Layer):
    """The largest stored value under a moving window."""

    def __init__(
        self,
        kernel_size: IntOrTriple,
        stride: IntOrTriple | None = None,
        padding: Padding = 0,
        return_mask: bool = False,
        ceil_mode: bool = False,
        data_format: str = "NDHWC",
        name: str | None = None,
    ) -> None:
        super().__init__()
        if return_mask:
            raise InvalidArgument(
                "[sparse.nn.MaxPool3D] return_mask=True is not possible: the function has no mask"
            )
        self.ksize, self.stride, self.padding = kernel_size, stride, padding
        self.return_mask, self.ceil_mode = return_mask, ceil_mode
        self.data_format, self.name = data_format, name

    def forward(self, x: Tensor) -> SparseCooTensor:
        return F.max_pool3d(
            x, self.ksize, self.stride, self.padding, self.ceil_mode, self.data_format
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.ksize}, stride={self.stride}, padding={self.padding}"
