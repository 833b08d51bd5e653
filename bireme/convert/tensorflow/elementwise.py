"""TensorFlow's ops that go element by element, reduce, or multiply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import bireme as paddle
from bireme.convert import folding
from bireme.convert.errors import UnsupportedModel
from bireme.convert.imported import View
from bireme.convert.nhwc import sizes_of
from bireme.convert.tensorflow.arrays import dtype_of
from bireme.convert.tensorflow.rules import rule
from bireme.convert.tflite import elementwise as lite
from bireme.core.tensor import Tensor
from bireme.nn import functional as F

_SMALL = 64  # elements of real numbers that stay known: sizes are computed with them


def _pair(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda n, a, b: function(*lite.alike(a, b))


def _divide_no_nan(a: Tensor, b: Tensor) -> Tensor:
    zero = b == 0
    return paddle.where(zero, paddle.zeros_like(a / b), a / paddle.where(zero, b + 1, b))


def _multiply_no_nan(a: Tensor, b: Tensor) -> Tensor:
    made = a * b
    return paddle.where(paddle.broadcast_to(b == 0, made.shape), paddle.zeros_like(made), made)


def _xlogy(a: Tensor, b: Tensor) -> Tensor:
    return a * paddle.log(paddle.where(a == 0, paddle.ones_like(b), b))


_PAIRS: dict[tuple[str, ...], tuple[Callable[..., Any], Callable[..., Any] | None]] = {
    ("Add", "AddV2"): (paddle.add, folding.add),
    ("Sub",): (paddle.subtract, folding.subtract),
    ("Mul",): (paddle.multiply, folding.multiply),
    ("Maximum",): (paddle.maximum, folding.maximum),
    ("Minimum",): (paddle.minimum, folding.minimum),
    ("Equal",): (paddle.equal, folding.equal),
    ("NotEqual",): (paddle.not_equal, folding.not_equal),
    ("Less",): (paddle.less_than, folding.less),
    ("LessEqual",): (paddle.less_equal, folding.less_equal),
    ("Greater",): (paddle.greater_than, folding.greater),
    ("GreaterEqual",): (paddle.greater_equal, folding.greater_equal),
    ("LogicalAnd",): (paddle.logical_and, folding.logical_and),
    ("LogicalOr",): (paddle.logical_or, folding.logical_or),
    ("FloorDiv",): (paddle.floor_divide, folding.floor_divide),
    ("FloorMod",): (paddle.floor_mod, folding.floor_mod),
    ("Pow",): (paddle.pow, None),
    ("Atan2",): (paddle.atan2, None),
    ("SquaredDifference",): (lambda a, b: (a - b) * (a - b), None),
    ("DivNoNan",): (_divide_no_nan, None),
    ("MulNoNan",): (_multiply_no_nan, None),
    ("Xlogy",): (_xlogy, None),
    ("BitwiseAnd",): (paddle.bitwise_and, None),
    ("BitwiseOr",): (paddle.bitwise_or, None),
    ("BitwiseXor",): (paddle.bitwise_xor, None),
}

# Real numbers of sizes: `int(height * 0.5)`.
_REAL: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Less": np.less,
    "LessEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "FloorDiv": np.floor_divide,
    "Equal": np.equal,
    "NotEqual": np.not_equal,
}


def _known(op: str, whole: Callable[..., Any]) -> Callable[..., Any]:
    real = _REAL.get(op)

    def fold(n: View, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
        if real is None or a.dtype.kind != "f" or b.dtype.kind != "f":
            return whole(n, a, b)
        return _small(real, a, b)

    return fold


def _small(function: Callable[..., Any], *values: np.ndarray) -> np.ndarray | None:
    if any(v.size > _SMALL or v.dtype.kind not in "fiub" for v in values):
        return None
    with np.errstate(all="ignore"):
        made = np.asarray(function(*values))
    return made if made.dtype.kind == "b" else made.astype(values[0].dtype)


for _names, (_function, _fold) in _PAIRS.items():
    rule(*_names)(_pair(_function))
    if _fold is not None:
        for _name in _names:
            rule.folds(_name)(_known(_name, _fold))

_SAME_NAMES = """
Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Digamma Erf Erfinv Exp Expm1 Floor IsFinite
IsInf IsNan Lgamma Log Log1p Neg Reciprocal Round Rsqrt Sign Sin Sinh Sqrt Square Tan Tanh Real Imag
Conj Angle
"""
_OTHER_NAMES = {
    "Inv": paddle.reciprocal,
    "Rint": paddle.round,
    "ComplexAbs": paddle.abs,
    "Invert": paddle.bitwise_not,
    "LogicalNot": paddle.logical_not,
    "OnesLike": paddle.ones_like,
    "ZerosLike": paddle.zeros_like,
    "Elu": F.elu,
    "Relu": F.relu,
    "Relu6": F.relu6,
    "Selu": F.selu,
    "Sigmoid": F.sigmoid,
    "Softplus": F.softplus,
    "Softsign": F.softsign,
}
for _name, _single in {
    **{name: getattr(paddle, name.lower()) for name in _SAME_NAMES.split()},
    **_OTHER_NAMES,
}.items():
    rule(_name)(lambda n, x, function=_single: function(x))

for _name, _plain in {
    "Ceil": np.ceil,
    "Floor": np.floor,
    "Round": np.round,
    "Rint": np.round,
    "Sqrt": np.sqrt,
    "Neg": np.negative,
    "Abs": np.abs,
    "Exp": np.exp,
    "Log": np.log,
    "Square": np.square,
    "ZerosLike": np.zeros_like,
    "OnesLike": np.ones_like,
    "LogicalNot": np.logical_not,
}.items():
    rule.folds(_name)(lambda n, x, function=_plain: _small(function, x))

rule("LeakyRelu")(lambda n, x: F.leaky_relu(x, n.attr("alpha", 0.2)))
rule("Prelu")(lambda n, x, slope: paddle.where(x > 0, x, x * slope))
rule("Softmax")(lambda n, x: F.softmax(x, -1))
rule("LogSoftmax")(lambda n, x: F.log_softmax(x, -1))
rule("Erfc")(lambda n, x: 1.0 - paddle.erf(x))
rule("Complex")(lambda n, a, b: paddle.complex(a, b))
rule("L2Loss")(lambda n, x: paddle.sum(x * x) / 2)
rule("AddN", "AccumulateNV2")(lite.add_n)


@rule("RealDiv", "Div", "TruncateDiv")
def divide(n: View, a: Tensor, b: Tensor) -> Tensor:
    return lite.divide(n, *lite.alike(a, b))


@rule.folds("RealDiv", "Div")
def divide_known(n: View, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    return _small(np.divide, a, b) if a.dtype.kind == b.dtype.kind == "f" else None


@rule("Mod", "TruncateMod")
def truncate_mod(n: View, a: Tensor, b: Tensor) -> Tensor:
    whole = paddle.trunc(a / b) if a.dtype.is_floating else lite.divide(n, a, b)
    return a - b * whole


@rule("ClipByValue")
def clip(n: View, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return paddle.minimum(paddle.maximum(x, low), high)


rule("SelectV2")(lite.select)


@rule("Select")
def select(n: View, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    if condition.ndim == 1 and a.ndim > 1:  # one for each row
        condition = condition.reshape([-1, *[1] * (a.ndim - 1)])
    return lite.select(n, condition, a, b)


@rule.folds("Select", "SelectV2")
def select_known(n: View, condition: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    if condition.size == 1 and condition.dtype.kind == "b" and a.shape == b.shape:
        return a if condition.ravel()[0] else b
    return folding.select(n, condition, a, b)


def kind_attr(n: View, name: str, default: str) -> str:
    kind = n.attr(name, default)
    if kind in ("string", "resource", "variant") or kind.startswith("q"):
        raise UnsupportedModel(f"elements of the kind {kind!r:.40} have no tensors")
    return dtype_of(kind).name


@rule("Cast")
def cast(n: View, x: Tensor) -> Tensor:
    return x.astype(kind_attr(n, "DstT", "float32"))


@rule.folds("Cast")
def cast_known(n: View, x: np.ndarray) -> np.ndarray | None:
    kind = kind_attr(n, "DstT", "float32")
    if x.dtype != object and x.size <= _SMALL and kind != "bfloat16":
        with np.errstate(all="ignore"):
            return x.astype(kind)
    return folding.cast(x, kind)


# --- reductions -----------------------------------------------------------------------------

for _name, _reduce in {
    "Mean": paddle.mean,
    "Sum": paddle.sum,
    "Max": paddle.max,
    "Min": paddle.min,
    "Prod": paddle.prod,
    "Any": paddle.any,
    "All": paddle.all,
    "EuclideanNorm": lambda x, axes, keepdim: paddle.sqrt(paddle.sum(x * x, axes, keepdim=keepdim)),
}.items():

    @rule(_name, static=(1,))
    def reduce(n: View, x: Tensor, axes: np.ndarray, function: Any = _reduce) -> Tensor:
        chosen = sizes_of(axes)
        if not chosen or x.ndim == 0:
            return x
        made = function(x, chosen, keepdim=bool(n.attr("keep_dims")))
        return made if made.dtype.name == "bool" else made.astype(x.dtype)


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    def fold(n: View, x: np.ndarray, axes: np.ndarray) -> np.ndarray | None:
        chosen = tuple(sizes_of(axes))
        keep = bool(n.attr("keep_dims"))
        return _small(lambda v: function(v, axis=chosen, keepdims=keep), x)

    return fold


for _name, _plain in {
    "Max": np.max,
    "Min": np.min,
    "Sum": np.sum,
    "All": np.all,
    "Any": np.any,
}.items():
    rule.folds(_name)(_reduced(_plain))


@rule.folds("Prod")
def product_known(n: View, x: np.ndarray, axes: np.ndarray) -> np.ndarray | None:
    return folding.product(x, sizes_of(axes), bool(n.attr("keep_dims")))


def _best(function: Any) -> Any:
    def run(n: View, x: Tensor, axis: np.ndarray | None = None) -> Tensor:
        at = 0 if axis is None else sizes_of(axis)[0]
        return function(x, at).astype(kind_attr(n, "output_type", "int64"))

    return run


rule("ArgMax", static=(1,))(_best(paddle.argmax))
rule("ArgMin", static=(1,))(_best(paddle.argmin))
rule("Cumsum", static=(1,))(lite.cumsum)


@rule("Cumprod", static=(1,))
def cumprod(n: View, x: Tensor, axis: np.ndarray) -> Tensor:
    at = sizes_of(axis)[0]
    given = paddle.flip(x, [at]) if n.attr("reverse") else x
    if n.attr("exclusive"):
        ones = paddle.ones_like(given.slice([at], [0], [1]))
        size = given.shape[at]
        given = paddle.concat([ones, given.slice([at], [0], [size - 1])], at)
    made = paddle.cumprod(given, at)
    return paddle.flip(made, [at]) if n.attr("reverse") else made


@rule("LRN")
def local_response(n: View, x: Tensor) -> Tensor:
    radius, channels = n.attr("depth_radius", 5), x.shape[-1]
    if type(channels) is not int or channels > 1 << 14:
        raise UnsupportedModel(f"{channels} channels are too many, or not known")
    at = np.arange(channels)
    near = (np.abs(at[:, None] - at[None]) <= radius).astype(np.float32)
    total = paddle.matmul(x * x, paddle.to_tensor(near))
    base = n.attr("bias", 1.0) + n.attr("alpha", 1.0) * total
    return x * paddle.pow(base, -n.attr("beta", 0.5))
