"""Convolutions."""

from __future__ import annotations

import math
from typing import Any

from bireme.api.types import IntOrPair, IntOrTriple, Padding
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.attributes import ParamAttrLike
from bireme.nn.initializer import Normal
from bireme.static.nn.helper import Maker, activate, known


def _sizes(value: Any, n: int, what: str) -> list[int]:
    sizes = [value] * n if isinstance(value, int) else list(value)
    if len(sizes) == 1:
        sizes *= n
    if len(sizes) != n or not all(isinstance(s, int) for s in sizes):
        raise InvalidArgument(f"{what} must be an int or {n} ints. Received: {value!r}")
    return sizes


def _conv(
    function: Any,
    kind: str,
    n: int,
    input: Tensor,
    num_filters: int,
    filter_size: IntOrPair,
    stride: IntOrPair,
    padding: Padding,
    dilation: IntOrPair,
    groups: int | None,
    param_attr: ParamAttrLike | None,
    bias_attr: ParamAttrLike | None,
    act: str | None,
    name: str | None,
    data_format: str,
) -> Tensor:
    last = data_format.endswith("C")
    channels = known(input, -1 if last else 1, kind)
    groups = groups or 1
    if param_attr is False:
        raise InvalidArgument(f"[{kind}] needs a weight: param_attr must not be False")
    if channels % groups or num_filters % groups:
        raise InvalidArgument(
            f"[{kind}] channels must divide into {groups} groups. Received: {channels} input "
            f"channels and {num_filters} filters"
        )
    window = _sizes(filter_size, n, f"[{kind}] filter_size")
    deviation = math.sqrt(2.0 / (math.prod(window) * channels))
    maker = Maker(kind, name, input.dtype)
    weight = maker.weight(
        [num_filters, channels // groups, *window], param_attr, Normal(0.0, deviation)
    )
    bias = maker.bias([num_filters], bias_attr)
    out = function(
        input,
        weight,
        bias,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        data_format=data_format,
    )
    return activate(out, act)


def conv2d(
    input: Tensor,
    num_filters: int,
    filter_size: IntOrPair,
    stride: IntOrPair = 1,
    padding: Padding = 0,
    dilation: IntOrPair = 1,
    groups: int | None = None,
    param_attr: ParamAttrLike | None = None,
    bias_attr: ParamAttrLike | None = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Tensor:
    """A 2-D convolution. The compiler chooses the kernel, whatever `use_cudnn` says."""
    return _conv(
        F.conv2d,
        "conv2d",
        2,
        input,
        num_filters,
        filter_size,
        stride,
        padding,
        dilation,
        groups,
        param_attr,
        bias_attr,
        act,
        name,
        data_format,
    )


def conv3d(
    input: Tensor,
    num_filters: int,
    filter_size: IntOrTriple,
    stride: IntOrTriple = 1,
    padding: Padding = 0,
    dilation: IntOrTriple = 1,
    groups: int | None = None,
    param_attr: ParamAttrLike | None = None,
    bias_attr: ParamAttrLike | None = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCDHW",
) -> Tensor:
    """A 3-D convolution. The compiler chooses the kernel, whatever `use_cudnn` says."""
    return _conv(
        F.conv3d,
        "conv3d",
        3,
        input,
        num_filters,
        filter_size,
        stride,
        padding,
        dilation,
        groups,
        param_attr,
        bias_attr,
        act,
        name,
        data_format,
    )


def deform_conv2d(
    x: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    num_filters: int,
    filter_size: IntOrPair,
    stride: IntOrPair = 1,
    padding: IntOrPair = 0,
    dilation: IntOrPair = 1,
    groups: int = 1,
    deformable_groups: int = 1,
    im2col_step: int = 1,
    weight_attr: ParamAttrLike | None = None,
    bias_attr: ParamAttrLike | None = None,
    name: str | None = None,
) -> Tensor:
    """A convolution that looks where `offset` says, weighted by `mask` if there is one.

    `im2col_step` is how many images Paddle's kernel takes at a time; here it takes them all.
    """
    from bireme.vision.ops import deform_conv2d as convolve

    channels = known(x, 1, "deform_conv2d")
    window = _sizes(filter_size, 2, "[deform_conv2d] filter_size")
    maker = Maker("deform_conv2d", name, x.dtype)
    deviation = math.sqrt(2.0 / (math.prod(window) * channels))
    weight = maker.weight(
        [num_filters, channels // groups, *window], weight_attr, Normal(0.0, deviation)
    )
    bias = maker.bias([num_filters], bias_attr)
    return convolve(
        x, offset, weight, bias, stride, padding, dilation, deformable_groups, groups, mask
    )


def _window(
    kind: str,
    n: int,
    input: Tensor,
    output_size: IntOrPair | None,
    stride: IntOrPair,
    padding: Padding,
    dilation: IntOrPair,
    last: bool,
) -> list[int]:
    """The filter's size that gives `output_size`."""
    if output_size is None or isinstance(padding, str):
        raise InvalidArgument(
            f"[{kind}] needs filter_size, or output_size with explicit padding to work it out"
        )
    wanted = _sizes(output_size, n, f"[{kind}] output_size")
    steps = _sizes(stride, n, f"[{kind}] stride")
    spread = _sizes(dilation, n, f"[{kind}] dilation")
    pads = _sizes(padding, n, f"[{kind}] padding")
    have = [known(input, axis + (1 if last else 2), kind) for axis in range(n)]
    return [
        (o - (h - 1) * s + 2 * p - 1) // d + 1
        for o, h, s, p, d in zip(wanted, have, steps, pads, spread, strict=True)
    ]


def _transposed(
    function: Any,
    kind: str,
    n: int,
    input: Tensor,
    num_filters: int,
    output_size: IntOrPair | None,
    filter_size: IntOrPair | None,
    padding: Padding,
    stride: IntOrPair,
    dilation: IntOrPair,
    groups: int | None,
    param_attr: ParamAttrLike | None,
    bias_attr: ParamAttrLike | None,
    act: str | None,
    name: str | None,
    data_format: str,
) -> Tensor:
    last = data_format.endswith("C")
    channels = known(input, -1 if last else 1, kind)
    groups = groups or 1
    if param_attr is False:
        raise InvalidArgument(f"[{kind}] needs a weight: param_attr must not be False")
    if filter_size is None:
        window = _window(kind, n, input, output_size, stride, padding, dilation, last)
    else:
        window = _sizes(filter_size, n, f"[{kind}] filter_size")
    maker = Maker(kind, name, input.dtype)
    weight = maker.weight([channels, num_filters // groups, *window], param_attr)
    bias = maker.bias([num_filters], bias_attr)
    out = function(
        input,
        weight,
        bias,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        output_size=output_size,
        data_format=data_format,
    )
    return activate(out, act)


def conv2d_transpose(
    input: Tensor,
    num_filters: int,
    output_size: IntOrPair | None = None,
    filter_size: IntOrPair | None = None,
    padding: Padding = 0,
    stride: IntOrPair = 1,
    dilation: IntOrPair = 1,
    groups: int | None = None,
    param_attr: ParamAttrLike | None = None,
    bias_attr: ParamAttrLike | None = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Tensor:
    """A transposed 2-D convolution; the filter's size may follow from `output_size`."""
    return _transposed(
        F.conv2d_transpose,
        "conv2d_transpose",
        2,
        input,
        num_filters,
        output_size,
        filter_size,
        padding,
        stride,
        dilation,
        groups,
        param_attr,
        bias_attr,
        act,
        name,
        data_format,
    )


def conv3d_transpose(
    input: Tensor,
    num_filters: int,
    output_size: IntOrTriple | None = None,
    filter_size: IntOrTriple | None = None,
    padding: Padding = 0,
    stride: IntOrTriple = 1,
    dilation: IntOrTriple = 1,
    groups: int | None = None,
    param_attr: ParamAttrLike | None = None,
    bias_attr: ParamAttrLike | None = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCDHW",
) -> Tensor:
    """A transposed 3-D convolution; the filter's size may follow from `output_size`."""
    return _transposed(
        F.conv3d_transpose,
        "conv3d_transpose",
        3,
        input,
        num_filters,
        output_size,
        filter_size,
        padding,
        stride,
        dilation,
        groups,
        param_attr,
        bias_attr,
        act,
        name,
        data_format,
    )
