"""`paddle.sparse.nn.functional`: the functions behind the layers."""

from bireme.ops.sparse_math import softmax
from bireme.sparse.nn.functional.activation import attention, leaky_relu, relu, relu6
from bireme.sparse.nn.functional.conv import (
    conv2d,
    conv3d,
    max_pool3d,
    subm_conv2d,
    subm_conv2d_igemm,
    subm_conv3d,
    subm_conv3d_igemm,
)

__all__ = [
    "attention", "conv2d", "conv3d", "leaky_relu", "max_pool3d", "relu", "relu6", "softmax",
    "subm_conv2d", "subm_conv2d_igemm", "subm_conv3d", "subm_conv3d_igemm",
]  # fmt: skip
