"""Activations, softmax and its relatives, dropout."""

from __future__ import annotations

import bireme as paddle
from bireme.convert.torch.aten import aten
from bireme.convert.torch.aten.types import Number, cast, floating
from bireme.convert.torch.program import DTypeName, TorchFileError
from bireme.core.tensor import Tensor
from bireme.nn import functional as F

for _name, _function in {
    "relu": F.relu,
    "relu6": F.relu6,
    "silu": F.silu,
    "mish": F.mish,
    "selu": F.selu,
    "hardsigmoid": lambda x: F.relu6(x + 3.0) / 6.0,
    "hardswish": F.hardswish,
    "log_sigmoid": F.log_sigmoid,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
}.items():

    def _rule(self: Tensor, _function=_function) -> Tensor:
        return _function(self)

    aten(_name)(_rule)


@aten("gelu")
def gelu(self: Tensor, approximate: str = "none") -> Tensor:
    return F.gelu(self, approximate=approximate == "tanh")


@aten("leaky_relu")
def leaky_relu(self: Tensor, negative_slope: float = 0.01) -> Tensor:
    return F.leaky_relu(self, negative_slope)


@aten("elu")
def elu(self: Tensor, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Tensor:
    negative = paddle.expm1(paddle.minimum(self, paddle.zeros_like(self)) * input_scale) * alpha
    return paddle.where(self > 0, self, negative) * scale


@aten("celu")
def celu(self: Tensor, alpha: float = 1.0) -> Tensor:
    return F.celu(self, alpha)


@aten("hardtanh")
def hardtanh(self: Tensor, min_val: Number = -1, max_val: Number = 1) -> Tensor:
    return paddle.clip(self, min_val, max_val)


@aten("hardshrink")
def hardshrink(self: Tensor, lambd: float = 0.5) -> Tensor:
    return F.hardshrink(self, lambd)


@aten("softshrink")
def softshrink(self: Tensor, lambd: float = 0.5) -> Tensor:
    return F.softshrink(self, lambd)


@aten("softplus")
def softplus(self: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    return F.softplus(self, float(beta), float(threshold))


@aten("threshold")
def threshold(self: Tensor, threshold: Number, value: Number) -> Tensor:
    return paddle.where(self > threshold, self, paddle.full_like(self, value))


@aten("prelu", "_prelu_kernel")
def prelu(self: Tensor, weight: Tensor) -> Tensor:
    if weight.size > 1 and weight.ndim == 1:
        weight = weight.reshape([-1, *[1] * (self.ndim - 2)])
    return paddle.where(self > 0, self, self * weight)


@aten("glu")
def glu(self: Tensor, dim: int = -1) -> Tensor:
    return F.glu(self, dim)


@aten("softmax", "_softmax", "_safe_softmax", "special_softmax")
def softmax(
    self: Tensor, dim: int, dtype: DTypeName | bool | None = None, half_to_float: bool = False
) -> Tensor:
    return F.softmax(_computed(self, dtype), dim)


@aten("log_softmax", "_log_softmax")
def log_softmax(
    self: Tensor, dim: int, dtype: DTypeName | bool | None = None, half_to_float: bool = False
) -> Tensor:
    return F.log_softmax(_computed(self, dtype), dim)


def _computed(x: Tensor, dtype: DTypeName | bool | None) -> Tensor:
    return floating(x if dtype is None or isinstance(dtype, bool) else cast(x, dtype))


@aten("dropout", "native_dropout")
def dropout(input: Tensor, p: float, train: bool = False) -> Tensor:
    return F.dropout(input, p) if train else input


@aten("feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def other_dropout(input: Tensor, p: float, train: bool = False) -> Tensor:
    if train:
        raise TorchFileError("dropout of features, or to other values than zero, has no rule")
    return input
