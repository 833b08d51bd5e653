"""`paddle.sparse.nn`: layers for sparse tensors."""

from bireme.sparse.nn import functional
from bireme.sparse.nn.layer.activation import LeakyReLU, ReLU, ReLU6, Softmax
from bireme.sparse.nn.layer.conv import Conv2D, Conv3D, MaxPool3D, SubmConv2D, SubmConv3D
from bireme.sparse.nn.layer.norm import BatchNorm, SyncBatchNorm

__all__ = [
    "BatchNorm", "Conv2D", "Conv3D", "LeakyReLU", "MaxPool3D", "ReLU", "ReLU6", "Softmax",
    "SubmConv2D", "SubmConv3D", "SyncBatchNorm", "functional",
]  # fmt: skip
