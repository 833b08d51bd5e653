"""TFLite's ops that go element by element, reduce, or multiply."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import bireme as paddle
from bireme.convert import folding
from bireme.convert.errors import UnsupportedModel
from bireme.convert.imported import View
from bireme.convert.nhwc import sizes_of
from bireme.convert.tflite.rules import op, rule
from bireme.convert.tflite.schema import type_name
from bireme.core.tensor import Tensor
from bireme.nn import functional as F


def alike(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Sizes that are open come as int64; files mean their own type."""
    if a.dtype == b.dtype:
        return a, b
    return (a.astype(b.dtype), b) if a.dtype.name == "int64" else (a, b.astype(a.dtype))


for _name, _function, _fold in (
    ("ADD", paddle.add, folding.add),
    ("SUB", paddle.subtract, folding.subtract),
    ("MUL", paddle.multiply, folding.multiply),
    ("MAXIMUM", paddle.maximum, folding.maximum),
    ("MINIMUM", paddle.minimum, folding.minimum),
    ("EQUAL", paddle.equal, folding.equal),
    ("NOT_EQUAL", paddle.not_equal, folding.not_equal),
    ("LESS", paddle.less_than, folding.less),
    ("LESS_EQUAL", paddle.less_equal, folding.less_equal),
    ("GREATER", paddle.greater_than, folding.greater),
    ("GREATER_EQUAL", paddle.greater_equal, folding.greater_equal),
    ("LOGICAL_AND", paddle.logical_and, folding.logical_and),
    ("LOGICAL_OR", paddle.logical_or, folding.logical_or),
    ("FLOOR_DIV", paddle.floor_divide, folding.floor_divide),
    ("FLOOR_MOD", paddle.floor_mod, folding.floor_mod),
    ("POW", paddle.pow, None),
    ("ATAN2", paddle.atan2, None),
    ("SQUARED_DIFFERENCE", lambda a, b: (a - b) * (a - b), None),
):
    op(_name)(lambda n, a, b, function=_function: function(*alike(a, b)))
    if _fold is not None:
        rule.folds(_name)(_fold)

for _name, _single in {
    "FLOOR": paddle.floor,
    "CEIL": paddle.ceil,
    "ROUND": paddle.round,
    "EXP": paddle.exp,
    "LOG": paddle.log,
    "SQRT": paddle.sqrt,
    "RSQRT": paddle.rsqrt,
    "SIN": paddle.sin,
    "COS": paddle.cos,
    "ABS": paddle.abs,
    "NEG": paddle.neg,
    "SIGN": paddle.sign,
    "SQUARE": paddle.square,
    "TANH": paddle.tanh,
    "LOGISTIC": F.sigmoid,
    "RELU": F.relu,
    "RELU6": F.relu6,
    "HARD_SWISH": F.hardswish,
    "ELU": F.elu,
    "LOGICAL_NOT": paddle.logical_not,
    "ZEROS_LIKE": paddle.zeros_like,
}.items():
    op(_name)(lambda n, x, function=_single: function(x))

op("RELU_N1_TO_1")(lambda n, x: paddle.clip(x, -1.0, 1.0))
op("RELU_0_TO_1")(lambda n, x: paddle.clip(x, 0.0, 1.0))
op("LEAKY_RELU")(lambda n, x: F.leaky_relu(x, n.attr("alpha")))
op("GELU")(lambda n, x: F.gelu(x, bool(n.attr("approximate"))))
op("PRELU")(lambda n, x, slope: paddle.where(x > 0, x, x * slope))
op("SOFTMAX")(lambda n, x: F.softmax(x * n.attr("beta") if n.attr("beta") != 1 else x, -1))
op("LOG_SOFTMAX")(lambda n, x: F.log_softmax(x, -1))


@op("DIV")
def divide(n: View, a: Tensor, b: Tensor) -> Tensor:
    if a.dtype.is_floating:
        return paddle.divide(a, b)
    return paddle.trunc(paddle.divide(a.astype("float64"), b.astype("float64"))).astype(a.dtype)


@op("ADD_N")
def add_n(n: View, *xs: Tensor) -> Tensor:
    return paddle.add_n(list(xs))


@op("SELECT", "SELECT_V2")
def select(n: View, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    if n.node.op == "SELECT" and condition.ndim == 1 and a.ndim > 1:
        condition = condition.reshape([-1, *[1] * (a.ndim - 1)])
    return paddle.where(condition, *alike(a, b))


rule.folds("SELECT", "SELECT_V2")(folding.select)


@op("CAST")
def cast(n: View, x: Tensor) -> Tensor:
    kind = n.attr("dtypes")[0]
    if kind is None:
        raise UnsupportedModel("a cast to a type without tensors has no rule")
    return x.astype(kind)


@rule.folds("CAST")
def cast_known(n: View, x: np.ndarray) -> np.ndarray | None:
    return folding.cast(x, n.attr("dtypes")[0] or "")


# --- reductions -----------------------------------------------------------------------------

for _name, _reduce in {
    "MEAN": paddle.mean,
    "SUM": paddle.sum,
    "REDUCE_MAX": paddle.max,
    "REDUCE_MIN": paddle.min,
    "REDUCE_PROD": paddle.prod,
    "REDUCE_ANY": paddle.any,
    "REDUCE_ALL": paddle.all,
}.items():

    @op(_name, static=(1,))
    def reduce(n: View, x: Tensor, axes: np.ndarray, function: Any = _reduce) -> Tensor:
        chosen = sizes_of(axes)
        if not chosen:
            return x
        made = function(x, chosen, keepdim=bool(n.attr("keep_dims")))
        return made if made.dtype.name == "bool" else made.astype(x.dtype)


@rule.folds("REDUCE_PROD")
def product_known(n: View, x: np.ndarray, axes: np.ndarray) -> np.ndarray | None:
    return folding.product(x, sizes_of(axes), bool(n.attr("keep_dims")))


def _best(function: Any) -> Any:
    def run(n: View, x: Tensor, axis: np.ndarray) -> Tensor:
        return function(x, sizes_of(axis)[0]).astype(type_name(n.attr("out_type")) or "int64")

    return run


op("ARG_MAX", static=(1,))(_best(paddle.argmax))
op("ARG_MIN", static=(1,))(_best(paddle.argmin))


@op("TOPK_V2", static=(1,))
def top_k(n: View, x: Tensor, count: np.ndarray) -> list[Tensor]:
    values, places = paddle.topk(x, sizes_of(count)[0], -1)
    return [values, places.astype("int32")]


@op("CUMSUM", static=(1,))
def cumsum(n: View, x: Tensor, axis: np.ndarray) -> Tensor:
    at = sizes_of(axis)[0]
    given = paddle.flip(x, [at]) if n.attr("reverse") else x
    made = paddle.cumsum(given, at)
    made = made - given if n.attr("exclusive") else made
    return paddle.flip(made, [at]) if n.attr("reverse") else made


@op("L2_NORMALIZATION")
def l2_normalization(n: View, x: Tensor) -> Tensor:
    total = paddle.sum(x * x, -1, keepdim=True)
    return x / paddle.sqrt(paddle.clip(total, min=1e-6**2))


@op("LOCAL_RESPONSE_NORMALIZATION")
def local_response(n: View, x: Tensor) -> Tensor:
    radius, channels = n.attr("radius"), x.shape[-1]
    at = np.arange(channels)
    near = (np.abs(at[:, None] - at[None]) <= radius).astype(np.float32)
    total = paddle.matmul(x * x, paddle.to_tensor(near))
    return x * paddle.pow(n.attr("bias") + n.attr("alpha") * total, -n.attr("beta"))


# --- products -------------------------------------------------------------------------------


@op("FULLY_CONNECTED")
def fully_connected(n: View, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if n.attr("weights_format"):
        raise UnsupportedModel("shuffled weights have no rule")
    taken = weight.shape[-1]
    if not n.attr("keep_num_dims") and (x.ndim != 2 or x.shape[-1] != taken):
        x = x.reshape([-1, taken])
    made = paddle.matmul(x, weight, transpose_y=True)
    return made if bias is None else made + bias


@op("BATCH_MATMUL")
def batch_matmul(n: View, a: Tensor, b: Tensor) -> Tensor:
    return paddle.matmul(a, b, bool(n.attr("adj_x")), bool(n.attr("adj_y")))


@op("DEQUANTIZE", "QUANTIZE", "DENSIFY")
def between_grids(n: View, x: Tensor) -> Tensor:
    return x.astype("float32") if x.dtype.name == "float16" else x


@op("COMPLEX_ABS", "REAL", "IMAG")
def of_complex(n: View, x: Tensor) -> Tensor:
    kinds = {"COMPLEX_ABS": paddle.abs, "REAL": paddle.real, "IMAG": paddle.imag}
    return kinds[n.node.op](x)


@op("RFFT2D", static=(1,))
def rfft2d(n: View, x: Tensor, sizes: np.ndarray) -> Tensor:
    wanted = sizes_of(sizes)
    if math.prod(wanted) > 1 << 24:
        raise UnsupportedModel(f"a transform of {wanted} is too large")
    return paddle.fft.rfft2(x, wanted)
