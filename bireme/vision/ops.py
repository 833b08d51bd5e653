"""paddle.vision.ops: what object detectors need beside plain layers."""

from __future__ import annotations

import os

import numpy as np

from bireme import nn
from bireme.api.types import IntOrPair
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor, constant
from bireme.io.foreign import read_whole
from bireme.nn.attributes import ParamAttrLike
from bireme.nn.initializer import Normal
from bireme.ops.deform import deform_conv2d
from bireme.ops.detection import box_coder, prior_box, yolo_box, yolo_loss
from bireme.ops.nn_support import ints, one_of
from bireme.ops.roi import psroi_pool, roi_align, roi_pool
from bireme.vision.blocks import ConvNormActivation
from bireme.vision.image import read_image
from bireme.vision.proposals import (
    distribute_fpn_proposals,
    generate_proposals,
    matrix_nms,
    nms,
)


class DeformConv2D(nn.Layer):
    """Deformable convolution; version 2 where `forward` gets a mask.

    conv = DeformConv2D(3, 8, 3)
    out = conv(x, offset)  # offset: [N, 18, H, W]
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrPair,
        stride: IntOrPair = 1,
        padding: IntOrPair = 0,
        dilation: IntOrPair = 1,
        deformable_groups: int = 1,
        groups: int = 1,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
    ) -> None:
        super().__init__()
        if weight_attr is False:
            raise InvalidArgument("[DeformConv2D] weight_attr must not be False")
        if in_channels % groups != 0:
            raise InvalidArgument(
                f"[DeformConv2D] {in_channels} channels do not divide into {groups} groups"
            )
        kernel = ints("DeformConv2D", "kernel_size", kernel_size, 2)
        self._stride, self._padding, self._dilation = stride, padding, dilation
        self._deformable_groups = deformable_groups
        self._groups = groups
        spread = (2.0 / (kernel[0] * kernel[1] * in_channels)) ** 0.5
        self.weight = self.create_parameter(
            shape=[out_channels, in_channels // groups, *kernel],
            attr=weight_attr,
            default_initializer=Normal(0.0, spread),
        )
        self.bias = self.create_parameter(shape=[out_channels], attr=bias_attr, is_bias=True)

    def forward(self, x: Tensor, offset: Tensor, mask: Tensor | None = None) -> Tensor:
        return deform_conv2d(
            x,
            offset,
            self.weight,
            self.bias,
            self._stride,
            self._padding,
            self._dilation,
            self._deformable_groups,
            self._groups,
            mask,
        )


class _BoxPooling(nn.Layer):
    """Remembers the size of the output and the scale from boxes to features."""

    def __init__(self, output_size: IntOrPair, spatial_scale: float = 1.0) -> None:
        super().__init__()
        self._output_size = output_size
        self._spatial_scale = spatial_scale

    def extra_repr(self) -> str:
        return f"output_size={self._output_size}, spatial_scale={self._spatial_scale}"


class RoIAlign(_BoxPooling):
    """`roi_align` as a layer."""

    def forward(self, x: Tensor, boxes: Tensor, boxes_num: Tensor, aligned: bool = True) -> Tensor:
        return roi_align(
            x, boxes, boxes_num, self._output_size, self._spatial_scale, aligned=aligned
        )


class RoIPool(_BoxPooling):
    """`roi_pool` as a layer."""

    def forward(self, x: Tensor, boxes: Tensor, boxes_num: Tensor) -> Tensor:
        return roi_pool(x, boxes, boxes_num, self._output_size, self._spatial_scale)


class PSRoIPool(_BoxPooling):
    """`psroi_pool` as a layer."""

    @property
    def output_size(self) -> IntOrPair:
        return self._output_size

    @property
    def spatial_scale(self) -> float:
        return self._spatial_scale

    def forward(self, x: Tensor, boxes: Tensor, boxes_num: Tensor) -> Tensor:
        return psroi_pool(x, boxes, boxes_num, self._output_size, self._spatial_scale)


def read_file(filename: str | os.PathLike[str], name: str | None = None) -> Tensor:
    """The bytes of a file as a uint8 vector."""
    return constant(np.frombuffer(read_whole(filename, "read_file"), np.uint8))


def decode_jpeg(x: Tensor, mode: str = "unchanged", name: str | None = None) -> Tensor:
    """A JPEG file's bytes as pixels [channels, height, width]; needs Pillow.

    image = decode_jpeg(read_file("photo.jpg"), mode="rgb")
    """
    one_of("decode_jpeg", "mode", mode, ("unchanged", "gray", "rgb"))
    data = x.numpy()
    if data.dtype != np.uint8 or data.ndim != 1:
        raise TypeMismatch(
            "[decode_jpeg] x must be a vector of uint8, as read_file gives it. Received: "
            f"{data.dtype} of shape {list(data.shape)}"
        )
    image = read_image(data.tobytes(), "decode_jpeg", "the bytes")
    if mode != "unchanged":
        image = image.convert("L" if mode == "gray" else "RGB")
    pixels = np.asarray(image)
    pixels = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return constant(np.ascontiguousarray(pixels))


__all__ = [
    "ConvNormActivation",
    "DeformConv2D",
    "PSRoIPool",
    "RoIAlign",
    "RoIPool",
    "box_coder",
    "decode_jpeg",
    "deform_conv2d",
    "distribute_fpn_proposals",
    "generate_proposals",
    "matrix_nms",
    "nms",
    "prior_box",
    "psroi_pool",
    "read_file",
    "roi_align",
    "roi_pool",
    "yolo_box",
    "yolo_loss",
]
