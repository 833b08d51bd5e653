"""Activations, softmax and its relatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bireme as paddle
from bireme.convert.onnx.imports import onnx_op
from bireme.convert.onnx.imports.elementwise import dtype_of, number
from bireme.core.tensor import Tensor
from bireme.nn import functional as F

if TYPE_CHECKING:
    from bireme.convert.onnx.interpreter import NodeView, Values


@onnx_op("LeakyRelu")
def leaky_relu(n: NodeView, x: Tensor) -> Tensor:
    return F.leaky_relu(x, n.attr("alpha", 0.01))


@onnx_op("PRelu")
def prelu(n: NodeView, x: Tensor, slope: Tensor) -> Tensor:
    if n.opset < 7 and slope.ndim == 1 and x.ndim > 2:
        slope = slope.reshape([-1, *[1] * (x.ndim - 2)])  # one per channel
    return paddle.where(x < number(0, x), x * slope, x)


@onnx_op("Elu")
def elu(n: NodeView, x: Tensor) -> Tensor:
    return F.elu(x, n.attr("alpha", 1.0))


@onnx_op("Celu")
def celu(n: NodeView, x: Tensor) -> Tensor:
    return F.celu(x, n.attr("alpha", 1.0))


@onnx_op("Selu")
def selu(n: NodeView, x: Tensor) -> Tensor:
    alpha = n.attr("alpha", 1.6732632423543772)
    gamma = n.attr("gamma", 1.0507009873554805)
    return F.elu(x, alpha) * gamma


@onnx_op("HardSigmoid")
def hard_sigmoid(n: NodeView, x: Tensor) -> Tensor:
    return F.hardsigmoid(x, n.attr("alpha", 0.2), n.attr("beta", 0.5))


@onnx_op("HardSwish")
def hard_swish(n: NodeView, x: Tensor) -> Tensor:
    return x * F.hardsigmoid(x, 1 / 6, 0.5)


@onnx_op("Softplus")
def softplus(n: NodeView, x: Tensor) -> Tensor:
    return paddle.logaddexp(x, paddle.zeros_like(x))


@onnx_op("Softsign")
def softsign(n: NodeView, x: Tensor) -> Tensor:
    return F.softsign(x)


@onnx_op("Mish")
def mish(n: NodeView, x: Tensor) -> Tensor:
    return F.mish(x)


@onnx_op("Swish")
def swish(n: NodeView, x: Tensor) -> Tensor:
    return x * F.sigmoid(x * n.attr("alpha", 1.0))


@onnx_op("Gelu")
def gelu(n: NodeView, x: Tensor) -> Tensor:
    return F.gelu(x, approximate=n.attr("approximate", "none") == "tanh")


@onnx_op("ThresholdedRelu")
def thresholded_relu(n: NodeView, x: Tensor) -> Tensor:
    return F.thresholded_relu(x, n.attr("alpha", 1.0))


@onnx_op("Shrink")
def shrink(n: NodeView, x: Tensor) -> Tensor:
    bound, bias = number(n.attr("lambd", 0.5), x), number(n.attr("bias", 0.0), x)
    inner = paddle.where(x > bound, x - bias, paddle.zeros_like(x))
    return paddle.where(x < -bound, x + bias, inner)


def _over_rows(n: NodeView, x: Tensor, function: Any) -> Tensor:
    """Before opset 13 the input is a matrix: `axis` and all after it form one row."""
    if n.opset >= 13:
        return function(x, n.attr("axis", -1))
    axis = n.attr("axis", 1)
    axis += x.ndim if axis < 0 else 0
    if axis == x.ndim - 1:
        return function(x, axis)
    return function(x.flatten(axis) if axis < x.ndim else x.unsqueeze(-1), axis).reshape(x.shape)


@onnx_op("Softmax")
def softmax(n: NodeView, x: Tensor) -> Tensor:
    return _over_rows(n, x, F.softmax)


@onnx_op("LogSoftmax")
def log_softmax(n: NodeView, x: Tensor) -> Tensor:
    return _over_rows(n, x, F.log_softmax)


@onnx_op("Hardmax")
def hardmax(n: NodeView, x: Tensor) -> Tensor:
    def largest(x: Tensor, axis: int) -> Tensor:
        rows = x.moveaxis(axis, -1) if x.ndim else x
        hot = F.one_hot(paddle.argmax(rows, axis=-1), rows.shape[-1])
        return hot.astype(dtype_of(x).name).moveaxis(-1, axis)

    return _over_rows(n, x, largest)


@onnx_op("Dropout")
def dropout(
    n: NodeView, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None
) -> Values:
    """At inference nothing is dropped; a node that asks for training mode drops."""
    mask = paddle.ones_like(x).astype("bool")
    if training is None or not bool(n.known(training)):
        return x, mask
    rate = 0.5 if ratio is None else float(n.known(ratio))
    if rate == 0:
        return x, mask
    mask = paddle.rand(x.shape) >= rate
    return x * mask.astype(x.dtype) / (1 - rate), mask
