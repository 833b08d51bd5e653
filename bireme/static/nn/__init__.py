"""Layers as functions: each call makes its own parameters."""

from __future__ import annotations

from bireme.static.nn.common import (
    bilinear_tensor_product,
    embedding,
    fc,
    prelu,
    row_conv,
    spectral_norm,
)
from bireme.static.nn.control_flow import case, cond, switch_case, while_loop
from bireme.static.nn.conv import conv2d, conv2d_transpose, conv3d, conv3d_transpose, deform_conv2d
from bireme.static.nn.norm import batch_norm, group_norm, instance_norm, layer_norm
from bireme.static.nn.pylayer import static_pylayer
from bireme.static.nn.sampled import nce
from bireme.static.nn.sparse import sparse_embedding
from bireme.static.python_ops import py_func

__all__ = [
    "batch_norm",
    "bilinear_tensor_product",
    "case",
    "cond",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "deform_conv2d",
    "embedding",
    "fc",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "nce",
    "prelu",
    "py_func",
    "row_conv",
    "sparse_embedding",
    "spectral_norm",
    "static_pylayer",
    "switch_case",
    "while_loop",
]
