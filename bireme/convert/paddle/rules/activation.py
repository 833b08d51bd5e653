"""Activations and plain functions of one tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import bireme
from bireme.convert.paddle.interpreter import Step, rule
from bireme.core.tensor import Tensor
from bireme.nn import functional as F

if TYPE_CHECKING:
    from bireme.convert.paddle.interpreter import Results


_PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    # Paddle's op -> ours, where the op has no attributes that matter
    "relu": F.relu, "sigmoid": F.sigmoid, "tanh": F.tanh, "silu": F.silu, "relu6": F.relu6,
    "softsign": F.softsign, "logsigmoid": F.log_sigmoid, "tanh_shrink": F.tanhshrink,
    "exp": bireme.exp, "expm1": bireme.expm1, "log": bireme.log, "log2": bireme.log2,
    "log10": bireme.log10, "log1p": bireme.log1p, "sqrt": bireme.sqrt, "rsqrt": bireme.rsqrt,
    "square": bireme.square, "abs": bireme.abs, "floor": bireme.floor, "ceil": bireme.ceil,
    "round": bireme.round, "sign": bireme.sign, "sin": bireme.sin, "cos": bireme.cos,
    "tan": bireme.tan, "asin": bireme.asin, "acos": bireme.acos, "atan": bireme.atan,
    "sinh": bireme.sinh, "cosh": bireme.cosh, "asinh": bireme.asinh, "acosh": bireme.acosh,
    "atanh": bireme.atanh, "reciprocal": bireme.reciprocal, "erf": bireme.erf,
    "trunc": bireme.trunc, "isnan_v2": bireme.isnan, "isinf_v2": bireme.isinf,
    "isfinite_v2": bireme.isfinite, "logical_not": bireme.logical_not,
    "bitwise_not": bireme.bitwise_not, "mish": F.mish, "lgamma": bireme.lgamma,
    "digamma": bireme.digamma, "erfinv": bireme.erfinv, "conj": bireme.conj, "real": bireme.real,
    "imag": bireme.imag,
}  # fmt: skip


def _plain(function: Callable[[Tensor], Tensor]) -> Callable[[Step], Any]:
    return lambda step: function(step.need("X"))


for _kind, _function in _PLAIN.items():
    rule(_kind)(_plain(_function))


@rule("leaky_relu")
def leaky_relu(step: Step) -> Results:
    return F.leaky_relu(step.need("X"), step.attr("alpha", 0.02))


@rule("elu")
def elu(step: Step) -> Results:
    return F.elu(step.need("X"), step.attr("alpha", 1.0))


@rule("celu")
def celu(step: Step) -> Results:
    return F.celu(step.need("X"), step.attr("alpha", 1.0))


@rule("selu")
def selu(step: Step) -> Results:
    scale = step.attr("scale", 1.0507009873554805)
    return F.selu(step.need("X"), scale, step.attr("alpha", 1.6732632423543772))


@rule("gelu")
def gelu(step: Step) -> Results:
    return F.gelu(step.need("X"), step.attr("approximate", False))


@rule("hard_swish")
def hard_swish(step: Step) -> Results:
    x = step.need("X")
    limit, scale, offset = [
        step.attr(name, default)
        for name, default in (("threshold", 6.0), ("scale", 6.0), ("offset", 3.0))
    ]
    if (limit, scale, offset) == (6.0, 6.0, 3.0):
        return F.hardswish(x)
    return x * bireme.clip(x + offset, 0.0, limit) / scale


@rule("hard_sigmoid")
def hard_sigmoid(step: Step) -> Results:
    return F.hardsigmoid(step.need("X"), step.attr("slope", 0.2), step.attr("offset", 0.5))


@rule("swish")
def swish(step: Step) -> Results:
    x, beta = step.need("X"), step.attr("beta", 1.0)
    return F.silu(x) if beta == 1.0 else x * F.sigmoid(x * beta)


@rule("softplus")
def softplus(step: Step) -> Results:
    return F.softplus(step.need("X"), step.attr("beta", 1.0), step.attr("threshold", 20.0))


@rule("brelu")
def brelu(step: Step) -> Results:
    return bireme.clip(step.need("X"), step.attr("t_min", 0.0), step.attr("t_max", 24.0))


@rule("hard_shrink")
def hard_shrink(step: Step) -> Results:
    return F.hardshrink(step.need("X"), step.attr("threshold", 0.5))


@rule("softshrink")
def softshrink(step: Step) -> Results:
    return F.softshrink(step.need("X"), step.attr("lambda", 0.5))


@rule("thresholded_relu")
def thresholded_relu(step: Step) -> Results:
    x = step.need("X")
    return bireme.where(x > step.attr("threshold", 1.0), x, step.attr("value", 0.0))


@rule("stanh")
def stanh(step: Step) -> Results:
    return bireme.stanh(step.need("X"), step.attr("scale_a", 0.67), step.attr("scale_b", 1.7159))


@rule("prelu")
def prelu(step: Step) -> Results:
    x, alpha = step.need("X"), step.need("Alpha")
    mode = step.attr("mode", "all")
    if mode == "element":
        return bireme.where(
            x >= 0, x, bireme.reshape(alpha, [1, *alpha.shape[-(x.ndim - 1) :]]) * x
        )
    layout = step.attr("data_format", "NCHW")
    return F.prelu(x, bireme.reshape(alpha, [-1]), "NCHW" if layout == "NCHW" else "NHWC")


@rule("softmax")
def softmax(step: Step) -> Results:
    return F.softmax(step.need("X"), step.attr("axis", -1))


@rule("log_softmax")
def log_softmax(step: Step) -> Results:
    return F.log_softmax(step.need("X"), step.attr("axis", -1))


@rule("maxout")
def maxout(step: Step) -> Results:
    return F.maxout(step.need("X"), step.attr("groups"), step.attr("axis", 1))


@rule("dropout")
def dropout(step: Step) -> Results:
    # A saved model infers; 'downgrade_in_infer' trains unscaled and shrinks afterwards.
    x = step.need("X")
    p = step.number("dropout_prob", "P", default=0.5)
    mode = step.attr("dropout_implementation", "downgrade_in_infer")
    return x * (1.0 - p) if mode == "downgrade_in_infer" else x
