"""TFLite's convolutions, pooling, and changes of an image's size."""

from __future__ import annotations

from typing import Any

import numpy as np

import bireme as paddle
from bireme.convert import nhwc
from bireme.convert.errors import ModelFileError
from bireme.convert.imported import View
from bireme.convert.nhwc import sizes_of
from bireme.convert.tflite.rules import op
from bireme.core.tensor import Tensor


def _strides(n: View) -> list[int]:
    return [n.attr("stride_h"), n.attr("stride_w")]


@op("CONV_2D")
def conv(n: View, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    kernel = paddle.transpose(weight, [0, 3, 1, 2])
    holes = [n.attr("dilation_h"), n.attr("dilation_w")]
    return nhwc.conv(x, kernel, bias, _strides(n), n.attr("padding"), holes)


@op("DEPTHWISE_CONV_2D")
def depthwise(n: View, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    kernel = paddle.transpose(weight, [3, 0, 1, 2])
    holes = [n.attr("dilation_h"), n.attr("dilation_w")]
    return nhwc.conv(x, kernel, bias, _strides(n), n.attr("padding"), holes)


@op("TRANSPOSE_CONV", static=(0,))
def transpose_conv(
    n: View, shape: np.ndarray, weight: Tensor, x: Tensor, bias: Tensor | None = None
) -> Tensor:
    kernel = paddle.transpose(weight, [3, 0, 1, 2])
    space = sizes_of(shape)[1:3]
    return nhwc.conv_transpose(x, kernel, bias, space, _strides(n), n.attr("padding"))


@op("custom Convolution2DTransposeBias")
def transpose_conv_bias(n: View, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """MediaPipe's own op; its settings are three integers: padding, and the strides."""
    settings = n.attr("custom", b"")
    if len(settings) < 12:
        raise ModelFileError("the settings of this op are cut off")
    padding, step_w, step_h = [int.from_bytes(settings[i : i + 4], "little") for i in (0, 4, 8)]
    if padding not in (1, 2) or not 0 < step_w < 1 << 16 or not 0 < step_h < 1 << 16:
        raise ModelFileError("the settings of this op are damaged")
    kernel = paddle.transpose(weight, [3, 0, 1, 2])
    pairs = list(zip(x.shape[1:3], (step_h, step_w), weight.shape[1:3], strict=True))
    same = padding == 1
    space = [size * step if same else (size - 1) * step + k for size, step, k in pairs]
    return nhwc.conv_transpose(
        x, kernel, bias, space, [step_h, step_w], "SAME" if same else "VALID"
    )


def _pool(kind: str) -> Any:
    def run(n: View, x: Tensor) -> Tensor:
        window = [n.attr("filter_height"), n.attr("filter_width")]
        if kind == "l2":
            return paddle.sqrt(nhwc.pool("avg", x * x, window, _strides(n), n.attr("padding")))
        return nhwc.pool(kind, x, window, _strides(n), n.attr("padding"))

    return run


op("MAX_POOL_2D")(_pool("max"))
op("AVERAGE_POOL_2D")(_pool("avg"))
op("L2_POOL_2D")(_pool("l2"))


@op("RESIZE_BILINEAR", static=(1,))
def resize_bilinear(n: View, x: Tensor, sizes: np.ndarray) -> Tensor:
    flags = bool(n.attr("align_corners")), bool(n.attr("half_pixel_centers"))
    return nhwc.resize_bilinear(x, sizes_of(sizes), *flags)


@op("RESIZE_NEAREST_NEIGHBOR", static=(1,))
def resize_nearest(n: View, x: Tensor, sizes: np.ndarray) -> Tensor:
    flags = bool(n.attr("align_corners")), bool(n.attr("half_pixel_centers"))
    return nhwc.resize_nearest(x, sizes_of(sizes), *flags)


op("DEPTH_TO_SPACE")(lambda n, x: nhwc.depth_to_space(x, n.attr("block_size")))
op("SPACE_TO_DEPTH")(lambda n, x: nhwc.space_to_depth(x, n.attr("block_size")))
op("SPACE_TO_BATCH_ND", static=(1, 2))(
    lambda n, x, block, pads: nhwc.space_to_batch(x, sizes_of(block), pads)
)
op("BATCH_TO_SPACE_ND", static=(1, 2))(
    lambda n, x, block, crops: nhwc.batch_to_space(x, sizes_of(block), crops)
)
