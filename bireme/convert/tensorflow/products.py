"""TensorFlow's products, transforms to frequencies, and rounding to grids."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

import bireme as paddle
from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.imported import View
from bireme.convert.nhwc import sizes_of
from bireme.convert.tensorflow.rules import rule
from bireme.convert.tflite import elementwise as lite
from bireme.core.tensor import Tensor
from bireme.nn import functional as F


@rule("MatMul")
def matmul(n: View, a: Tensor, b: Tensor) -> Tensor:
    return paddle.matmul(a, b, bool(n.attr("transpose_a")), bool(n.attr("transpose_b")))


@rule("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(n: View, a: Tensor, b: Tensor) -> Tensor:
    if a.dtype.name.startswith("complex") and (n.attr("adj_x") or n.attr("adj_y")):
        raise UnsupportedModel("the adjoint of complex numbers has no rule")
    return paddle.matmul(a, b, bool(n.attr("adj_x")), bool(n.attr("adj_y")))


@rule("Einsum")
def einsum(n: View, *xs: Tensor) -> Tensor:
    return paddle.einsum(n.attr("equation"), *xs)


@rule("Cross")
def cross(n: View, a: Tensor, b: Tensor) -> Tensor:
    return paddle.cross(a, b, axis=-1)


@rule("BiasAdd", "BiasAddV1")
def bias_add(n: View, x: Tensor, bias: Tensor) -> Tensor:
    if n.attr("data_format") in ("NCHW", "NCDHW"):
        bias = bias.reshape([-1, *[1] * (x.ndim - 2)])
    return x + bias


@rule("_FusedMatMul")
def fused_matmul(n: View, a: Tensor, b: Tensor, *more: Tensor) -> Tensor:
    return after(n, matmul(n, a, b), more)


def after(n: View, x: Tensor, more: tuple[Tensor, ...]) -> Tensor:
    """What a fused op does with its product: its `fused_ops`, one after the other."""
    left = list(more)
    for op in n.attr("fused_ops") or []:
        if op == "BiasAdd":
            x = bias_add(n, x, left.pop(0))
        elif op == "LeakyRelu":
            x = F.leaky_relu(x, n.attr("leakyrelu_alpha", 0.2))
        elif op == "Prelu":
            x = paddle.where(x > 0, x, x * left.pop(0))
        elif op == "Add":
            x = x + left.pop(0)
        elif op in _AFTER:
            x = _AFTER[op](x)
        elif op == "FusedBatchNorm":
            scale, offset, mean, variance = left[:4]
            del left[:4]
            x = (x - mean) * (paddle.rsqrt(variance + n.attr("epsilon", 1e-4)) * scale) + offset
        else:
            raise UnsupportedModel(f"the fused op {op!r:.60} has no rule")
    if left:
        raise ModelFileError(f"{len(left)} inputs of a fused op are left over")
    return x


_AFTER: dict[str, Callable[[Tensor], Tensor]] = {
    "Relu": F.relu,
    "Relu6": F.relu6,
    "Elu": F.elu,
    "Sigmoid": F.sigmoid,
    "Tanh": paddle.tanh,
    "GeluApproximate": lambda x: F.gelu(x, True),
    "GeluExact": F.gelu,
}


# --- frequencies ----------------------------------------------------------------------------


@rule("RFFT", static=(1,))
def rfft(n: View, x: Tensor, size: np.ndarray) -> Tensor:
    return paddle.fft.rfft(x, _length(size))


@rule("IRFFT", static=(1,))
def irfft(n: View, x: Tensor, size: np.ndarray) -> Tensor:
    return paddle.fft.irfft(x, _length(size))


rule("RFFT2D", static=(1,))(lite.rfft2d)
rule("FFT")(lambda n, x: paddle.fft.fft(x))
rule("IFFT")(lambda n, x: paddle.fft.ifft(x))


def _length(size: np.ndarray) -> int:
    (length,) = sizes_of(size)
    if not 0 < length <= 1 << 24:
        raise UnsupportedModel(f"a transform of {length} is too large")
    return length


# --- numbers on grids -----------------------------------------------------------------------


@rule("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel")
def fake_quant(n: View, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """x rounded to a grid whose ends are moved so that zero is on it. Gradients go through."""
    least, most = (1 if n.attr("narrow_range") else 0), (1 << n.attr("num_bits", 8)) - 1
    scale = (high - low) / float(most - least)
    zero = paddle.clip(paddle.round(least - low / scale), float(least), float(most))
    first, last = (least - zero) * scale, (most - zero) * scale
    inside = paddle.minimum(paddle.maximum(x, first), last)
    rounded = paddle.floor((inside - first) / scale + 0.5) * scale + first
    return inside + (rounded - inside).detach()


@rule("FakeQuantWithMinMaxArgs")
def fake_quant_known(n: View, x: Tensor) -> Tensor:
    low, high = n.attr("min", -6.0), n.attr("max", 6.0)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ModelFileError(f"a grid from {low} to {high} is impossible")
    return fake_quant(n, x, paddle.to_tensor(low), paddle.to_tensor(high))
