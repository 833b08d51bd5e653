"""Fully connected layers, embeddings and other layers of one weight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bireme.api.types import DTypeLike
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.attributes import ParamAttrLike
from bireme.nn.initializer import Constant
from bireme.nn.layer.norm import SpectralNorm
from bireme.ops.linalg import matmul
from bireme.ops.manipulation import reshape
from bireme.ops.math import add
from bireme.static.nn.helper import Maker, activate, known


def fc(
    x: Tensor | Sequence[Tensor],
    size: int,
    num_flatten_dims: int = 1,
    weight_attr: ParamAttrLike | Sequence[ParamAttrLike] | None = None,
    bias_attr: ParamAttrLike | None = None,
    activation: str | None = None,
    name: str | None = None,
) -> Tensor:
    """activation(x @ weight + bias), with all dimensions from `num_flatten_dims` on flattened.

    Several inputs get a weight each, and their products are added.
    """
    inputs: list[Any] = list(x) if isinstance(x, list | tuple) else [x]
    attrs: list[Any] = list(weight_attr) if isinstance(weight_attr, list | tuple) else [weight_attr]
    if len(attrs) == 1:
        attrs *= len(inputs)
    if len(attrs) != len(inputs):
        raise InvalidArgument(
            f"[fc] needs one weight_attr per input. Received: {len(attrs)} for {len(inputs)}"
        )
    maker = Maker("fc", name, inputs[0].dtype)
    total: Any = None
    for item, attr in zip(inputs, attrs, strict=True):
        ndim = item.ndim
        first = num_flatten_dims if num_flatten_dims >= 0 else ndim + num_flatten_dims
        if not 0 < first < ndim:
            raise InvalidArgument(
                f"[fc] num_flatten_dims must be in [1, {ndim - 1}] for an input of {ndim} "
                f"dimensions. Received: {num_flatten_dims}"
            )
        width = math.prod([known(item, axis, "fc") for axis in range(first, ndim)])
        weight = maker.weight([width, size], attr)
        if ndim > first + 1:
            item = reshape(item, [*item._value.aval.shape[:first], width])
        product = matmul(item, weight)
        total = product if total is None else add(total, product)
    bias = maker.bias([size], bias_attr)
    return activate(total if bias is None else add(total, bias), activation)


def embedding(
    input: Tensor,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: ParamAttrLike | None = None,
    dtype: DTypeLike = "float32",
) -> Tensor:
    """Rows of a new table. The gradient of a table is dense whatever `is_sparse` says."""
    if is_distributed:
        raise InvalidArgument(
            "[embedding] tables on parameter servers are not part of a program here; shard the "
            "parameter with paddle.distributed.shard_tensor instead"
        )
    if input.dtype not in (dt.int64, dt.int32):
        raise TypeMismatch(f"[embedding] ids must be integers. Received: {input.dtype.name}")
    weight = Maker("embedding", None, dtype).weight(list(size), param_attr)
    return F.embedding(input, weight, padding_idx, sparse=is_sparse)


def bilinear_tensor_product(
    x: Tensor,
    y: Tensor,
    size: int,
    act: str | None = None,
    name: str | None = None,
    param_attr: ParamAttrLike | None = None,
    bias_attr: ParamAttrLike | None = None,
) -> Tensor:
    """x W_i y + bias for each of `size` matrices W_i."""
    if x.ndim != 2 or y.ndim != 2:
        raise ShapeMismatch(
            f"[bilinear_tensor_product] inputs must have 2 dimensions. Received: {x._value.aval} "
            f"and {y._value.aval}"
        )
    where = "bilinear_tensor_product"
    maker = Maker(where, name, x.dtype)
    weight = maker.weight([size, known(x, 1, where), known(y, 1, where)], param_attr)
    bias = maker.bias([1, size], bias_attr)
    return activate(F.bilinear(x, y, weight, bias), act)


_LAYOUTS = ("NC", "NCL", "NCHW", "NCDHW", "NLC", "NHWC", "NDHWC")


def prelu(
    x: Tensor,
    mode: str,
    param_attr: ParamAttrLike | None = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Tensor:
    """x where positive, slope * x elsewhere; one slope for 'all', per 'channel' or 'element'."""
    if mode not in ("all", "channel", "element"):
        raise InvalidArgument(
            f"[prelu] mode must be 'all', 'channel' or 'element'. Received: {mode!r}"
        )
    if data_format not in _LAYOUTS:
        raise InvalidArgument(
            f"[prelu] data_format must be one of {_LAYOUTS}. Received: {data_format!r}"
        )
    shape, applied = [1], [1]
    if mode == "channel":
        if x.ndim < 2:
            raise ShapeMismatch(
                f"[prelu] mode 'channel' needs at least 2 dimensions. Received: {x._value.aval}"
            )
        last = data_format[1] != "C"
        channels = known(x, -1 if last else 1, "prelu")
        shape = [1, 1, 1, channels] if last else [1, channels, 1, 1]
        applied = [channels] if last else [channels, *[1] * (x.ndim - 2)]
    elif mode == "element":
        shape = applied = [1, *[known(x, axis, "prelu") for axis in range(1, x.ndim)]]
    slope = Maker("prelu", name, x.dtype).weight(shape, param_attr, Constant(0.25))
    slope = reshape(slope, applied)
    return F.relu(x) - slope * F.relu(-x)


def row_conv(
    input: Tensor,
    future_context_size: int,
    param_attr: ParamAttrLike | None = None,
    act: str | None = None,
) -> Tensor:
    """Each step of [batch, time, width] plus weighted copies of the steps after it."""
    if input.ndim != 3:
        raise ShapeMismatch(
            f"[row_conv] the input must be [batch, time, width]. Received: {input._value.aval}"
        )
    width = known(input, 2, "row_conv")
    weight = Maker("row_conv", None, input.dtype).weight(
        [future_context_size + 1, width], param_attr
    )
    steps = input._value.aval.shape[1]
    padded = F.pad(input, [0, 0, 0, future_context_size, 0, 0])
    total = input * weight[0]
    for ahead in range(1, future_context_size + 1):
        total = total + padded[:, ahead : steps + ahead] * weight[ahead]
    return activate(total, act)


def spectral_norm(
    weight: Tensor, dim: int = 0, power_iters: int = 1, eps: float = 1e-12, name: str | None = None
) -> Tensor:
    """`weight` divided by its largest singular value, by power iteration."""
    if dim not in (0, 1):
        raise InvalidArgument(f"[spectral_norm] dim must be 0 or 1. Received: {dim}")
    shape = [known(weight, axis, "spectral_norm") for axis in range(weight.ndim)]
    return SpectralNorm(shape, dim, power_iters, eps, weight.dtype.name)(weight)
