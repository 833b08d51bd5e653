"""Arithmetic, comparison, products and reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import bireme
from bireme.convert.paddle.interpreter import Step, rule
from bireme.convert.paddle.program import ModelFileError, UnsupportedModel
from bireme.core.tensor import Tensor
from bireme.nn import functional as F

if TYPE_CHECKING:
    from bireme.convert.paddle.interpreter import Results


# --- two tensors ----------------------------------------------------------------------------------

_BINARY: dict[str, Callable[[Any, Any], Tensor]] = {
    "elementwise_add": bireme.add, "elementwise_sub": bireme.subtract,
    "elementwise_mul": bireme.multiply, "elementwise_max": bireme.maximum,
    "elementwise_min": bireme.minimum, "elementwise_mod": bireme.remainder,
    "elementwise_floordiv": bireme.floor_divide, "elementwise_pow": bireme.pow,
    "elementwise_fmax": bireme.fmax, "elementwise_fmin": bireme.fmin,
    "equal": bireme.equal, "not_equal": bireme.not_equal, "less_than": bireme.less_than,
    "less_equal": bireme.less_equal, "greater_than": bireme.greater_than,
    "greater_equal": bireme.greater_equal, "logical_and": bireme.logical_and,
    "logical_or": bireme.logical_or, "logical_xor": bireme.logical_xor,
    "bitwise_and": bireme.bitwise_and, "bitwise_or": bireme.bitwise_or,
    "bitwise_xor": bireme.bitwise_xor, "atan2": bireme.atan2, "dot": bireme.dot, "mv": bireme.mv,
    "bmm": bireme.bmm, "kron": bireme.kron,
}  # fmt: skip
_NO_AXIS = {"atan2", "dot", "mv", "bmm", "kron"}


def aligned(x: Tensor, y: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """`y` with its dimensions at `axis` and after of `x`, as the fluid ops align them."""
    if axis == -1 or x.ndim == y.ndim:
        return x, y
    if x.ndim < y.ndim:
        y, x = aligned(y, x, axis)
        return x, y
    shape = list(y._value.aval.shape)
    while shape and type(shape[-1]) is int and shape[-1] == 1 and axis + len(shape) > x.ndim:
        shape.pop()
    trailing = x.ndim - axis - len(shape)
    return x, bireme.reshape(y, shape + [1] * trailing) if trailing > 0 else y


def _binary(kind: str, function: Callable[[Any, Any], Tensor]) -> Callable[[Step], Any]:
    slots = ("X", "Vec") if kind == "mv" else ("X2", "X1") if kind == "atan2" else ("X", "Y")

    def run(step: Step) -> Any:
        x, y = step.need(slots[0]), step.need(slots[1])
        if kind == "atan2":
            x, y = y, x
        if kind not in _NO_AXIS:
            x, y = aligned(x, y, step.attr("axis", -1))
        return function(x, y)

    return run


for _kind, _function in _BINARY.items():
    rule(_kind)(_binary(_kind, _function))


@rule("elementwise_div")
def divide(step: Step) -> Results:
    x, y = aligned(step.need("X"), step.need("Y"), step.attr("axis", -1))
    if x.dtype.is_integer and y.dtype.is_integer:
        return bireme.cast(bireme.trunc(bireme.divide(x, y)), x.dtype)
    return bireme.divide(x, y)


@rule("scale")
def scale(step: Step) -> Results:
    factor = step.number("scale", "ScaleTensor", default=1.0)
    x, bias = step.need("X"), step.attr("bias", 0.0)
    if isinstance(factor, int | float) and factor == 1.0 and bias == 0.0:
        return x
    if isinstance(factor, Tensor):
        factor = bireme.cast(factor, x.dtype)
    return bireme.scale(x, factor, bias, step.attr("bias_after_scale", True))


@rule("pow")
def power(step: Step) -> Results:
    return bireme.pow(step.need("X"), step.number("factor", "FactorTensor", default=1.0))


@rule("clip")
def clip(step: Step) -> Results:
    return bireme.clip(step.need("X"), step.number("min", "Min"), step.number("max", "Max"))


@rule("cast")
def cast(step: Step) -> Results:
    to = step.dtype("out_dtype")
    if to is None:
        raise ModelFileError("a cast does not say to which element type")
    return bireme.cast(step.need("X"), to)


@rule("sum")
def add_n(step: Step) -> Results:
    return bireme.add_n(step.many("X"))


@rule("increment")
def increment(step: Step) -> Results:
    return step.need("X") + step.attr("step", 1.0)


@rule("where")
def where(step: Step) -> Results:
    return bireme.where(step.need("Condition"), step.need("X"), step.need("Y"))


@rule("cumsum")
def cumsum(step: Step) -> Results:
    x = step.need("X")
    if step.attr("exclusive", False) or step.attr("reverse", False):
        raise UnsupportedModel("cumsum that is exclusive or reversed")
    if step.attr("flatten", False):
        return bireme.cumsum(x)
    return bireme.cumsum(x, step.axis("axis", "AxisTensor", default=-1))


@rule("p_norm")
def p_norm(step: Step) -> Results:
    axis = None if step.attr("asvector", False) else step.attr("axis", -1)
    return bireme.norm(step.need("X"), step.attr("porder", 2.0), axis, step.attr("keepdim", False))


@rule("norm")
def normalize(step: Step) -> Results:
    x, axis = step.need("X"), step.attr("axis", -1)
    total = bireme.sum(x * x, axis, keepdim=True) + step.attr("epsilon", 1e-10)
    length = bireme.sqrt(total)
    return {"Out": x / length, "Norm": length}


# --- products -------------------------------------------------------------------------------------


@rule("matmul_v2")
def matmul_v2(step: Step) -> Results:
    return bireme.matmul(
        step.need("X"), step.need("Y"), step.attr("trans_x", False), step.attr("trans_y", False)
    )


@rule("matmul")
def matmul(step: Step) -> Results:
    out = bireme.matmul(
        step.need("X"),
        step.need("Y"),
        step.attr("transpose_X", False),
        step.attr("transpose_Y", False),
    )
    alpha = step.attr("alpha", 1.0)
    return out if alpha == 1.0 else out * alpha


def product(x: Tensor, y: Tensor, columns_x: int, columns_y: int = 1) -> Tensor:
    """x as a matrix (its first `columns_x` axes are rows) times y."""
    rows, width = list(x._value.aval.shape[:columns_x]), list(y._value.aval.shape[columns_y:])
    left = x if x.ndim == 2 and columns_x == 1 else bireme.flatten(x, columns_x)
    if columns_x > 1:
        left = bireme.flatten(left, 0, columns_x - 1)
    right = y if y.ndim == 2 else bireme.flatten(y, columns_y)
    if columns_y > 1:
        right = bireme.flatten(right, 0, columns_y - 1)
    out = bireme.matmul(left, right)
    return (
        out
        if [*rows, *width] == list(out._value.aval.shape)
        else bireme.reshape(out, [*rows, *width])
    )


@rule("mul")
def mul(step: Step) -> Results:
    columns = step.attr("x_num_col_dims", 1), step.attr("y_num_col_dims", 1)
    return product(step.need("X"), step.need("Y"), *columns)


@rule("fc")
def fc(step: Step) -> Results:
    out = product(step.need("Input"), step.need("W"), step.attr("in_num_col_dims", 1))
    bias = step("Bias")
    if bias is not None:
        out = out + bireme.reshape(bias, [-1])
    kind = step.attr("activation_type", "")
    if kind not in ("", "identity", "relu"):
        raise UnsupportedModel(f"fc with the activation {kind!r}")
    return F.relu(out) if kind == "relu" else out


@rule("addmm")
def addmm(step: Step) -> Results:
    alpha, beta = step.attr("Alpha", 1.0), step.attr("Beta", 1.0)
    return bireme.addmm(step.need("Input"), step.need("X"), step.need("Y"), beta, alpha)


@rule("einsum")
def einsum(step: Step) -> Results:
    return bireme.einsum(step.attr("equation"), *step.many("Operands"))


# --- reductions -----------------------------------------------------------------------------------

_REDUCE: dict[str, Callable[..., Tensor]] = {
    "reduce_sum": bireme.sum, "reduce_mean": bireme.mean, "reduce_max": bireme.max,
    "reduce_min": bireme.min, "reduce_prod": bireme.prod, "reduce_all": bireme.all,
    "reduce_any": bireme.any, "reduce_amax": bireme.amax, "reduce_amin": bireme.amin,
    "logsumexp": bireme.logsumexp,
}  # fmt: skip


def _reduce(function: Callable[..., Tensor]) -> Callable[[Step], Any]:
    def run(step: Step) -> Any:
        x = step.need("X")
        name = "dim" if "dim" in step.op.attrs else "axis"
        axes: Any = [int(a) for a in step.ints(name, "AxisTensor")] or None
        if step.attr("reduce_all", False) or (axes and len(axes) == x.ndim):
            axes = None
        keep = step.attr("keep_dim", step.attr("keepdim", False))
        out = function(x, axes, keepdim=keep)
        to = step.dtype("out_dtype")
        return out if to is None or out.dtype.name == to else bireme.cast(out, to)

    return run


for _kind, _function in _REDUCE.items():
    rule(_kind)(_reduce(_function))


@rule("mean")
def mean(step: Step) -> Results:
    return bireme.mean(step.need("X"))


@rule("squared_l2_norm")
def squared_l2_norm(step: Step) -> Results:
    x = step.need("X")
    return bireme.reshape(bireme.sum(x * x), [1])


@rule("arg_max", "arg_min")
def arg_max(step: Step) -> Results:
    find = bireme.argmax if step.op.type == "arg_max" else bireme.argmin
    axis = None if step.attr("flatten", False) else step.axis("axis", "AxisTensor", default=-1)
    to = step.dtype("dtype", "int64")
    return find(step.need("X"), axis, step.attr("keepdims", False), to)


@rule("argsort")
def argsort(step: Step) -> Results:
    x, axis = step.need("X"), step.attr("axis", -1)
    order = bireme.argsort(x, axis, step.attr("descending", False), step.attr("stable", False))
    return {"Out": bireme.take_along_axis(x, order, axis), "Indices": order}


@rule("top_k", "top_k_v2")
def top_k(step: Step) -> Results:
    values, places = bireme.topk(
        step.need("X"),
        int(step.axis("k", "K", default=1)),
        step.attr("axis", -1),
        step.attr("largest", True),
        step.attr("sorted", True),
    )
    return {"Out": values, "Indices": places}


@rule("kthvalue")
def kthvalue(step: Step) -> Results:
    found, at = bireme.kthvalue(
        step.need("X"), step.attr("k", 1), step.attr("axis", -1), step.attr("keepdim", False)
    )
    return {"Out": found, "Indices": at}
