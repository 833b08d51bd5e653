"""Rules of ops that Bireme Lite has kernels for; all others go by their lowering.

    @rule("softmax")
    def softmax(g, call, x, axis, dtype): ...

A rule gets the graph in the making, the Call, and the op's inputs, grouped as the op takes them:
operands, Python numbers, None for a missing one. Attributes come as keywords. It returns the
result, or None where this form is better left to the lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.op import Call
from bireme.lite.primitives import elementwise
from bireme.lite.writer import Dim, GraphWriter, Operand

if TYPE_CHECKING:
    from bireme.core.dtype import DType

Rule = Callable[..., Operand | None]
RULES: dict[str, Rule] = {}

# The functions that may follow a product; numbers as in lite/kernels/kernels.h.
_FUNCTIONS = {
    "": 0, "relu": 1, "relu6": 2, "leaky_relu": 3, "hardsigmoid": 4, "hardswish": 5, "sigmoid": 6,
    "silu": 7, "gelu": 8,
}  # fmt: skip
_FAR = 4096  # the largest stride, padding or dilation of depthwise kernels and pooling


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for these ops."""

    def add(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return add


def _shape(call: Call) -> tuple[Dim, ...]:
    return tuple(call.outs[0].shape)


def _function(g: GraphWriter, x: Operand, name: str, numbers: Sequence[float]) -> Operand:
    """One of `_FUNCTIONS` as an op."""
    op = {"sigmoid": "logistic"}.get(name, name)
    pair = [*numbers, 0.0, 0.0][:2] if numbers else []
    return elementwise(g, op, [x], x.full, x.dtype, numbers=pair)


def _unary(op: str) -> Rule:
    def write(g: GraphWriter, call: Call, x: Operand, *numbers: float, **attrs: Any) -> Any:
        if x.dtype != np.float32 or any(attrs.values()):
            return None
        return _function(g, x, op, [float(n) for n in numbers])

    return write


for _name in ("relu", "relu6", "leaky_relu", "hardsigmoid", "hardswish", "sigmoid", "silu"):
    rule(_name)(_unary(_name))


@rule("gelu")
def gelu(g: GraphWriter, call: Call, x: Operand, approximate: bool) -> Operand | None:
    if x.dtype != np.float32:
        return None
    return elementwise(g, "gelu_tanh" if approximate else "gelu", [x], x.full, x.dtype)


# --- products -----------------------------------------------------------------------------------

Then = tuple[str, tuple[float, ...], float, float]
_NOTHING: Then = ("", (), 1.0, 0.0)


def _numbers(then: Then) -> list[float]:
    _, numbers, factor, shift = then
    return [*[*numbers, 0.0, 0.0][:2], factor, shift]


@rule("linear", "fused_linear")
def linear(
    g: GraphWriter,
    call: Call,
    x: Operand,
    weight: Operand,
    bias: Operand | None,
    added: Operand | None = None,
    then: Then = _NOTHING,
    kernel: tuple[Any, ...] = (),
) -> Operand | None:
    if x.dtype != np.float32 or weight.rank != 2 or kernel or then[0] not in _FUNCTIONS:
        return None
    given = [g.whole(x), g.weight(g.whole(weight))]
    given += [o and g.whole(o) for o in (bias, added)]  # type: ignore[list-item]
    return g.emit("linear", given, _shape(call), np.float32, [_FUNCTIONS[then[0]]], _numbers(then))


@rule("matmul")
def matmul(
    g: GraphWriter, call: Call, x: Operand, y: Operand, transpose_x: bool, transpose_y: bool
) -> Operand | None:
    shape = _shape(call)
    if x.dtype != np.float32 or y.dtype != np.float32 or x.rank < 2 or y.rank < 2:
        return None
    if y.rank == 2 and not transpose_x and g.array(y) is not None:
        return linear(g, call, x, g.transpose(y, [1, 0]) if transpose_y else y, None)
    rank = len(shape)
    x, y = (g.whole(o) for o in (x, y))
    x, y = (g.reshape(o, [*[1] * (rank - o.rank), *o.shape]) for o in (x, y))
    return g.emit("matmul", [x, y], shape, np.float32, [int(transpose_x), int(transpose_y)])


@rule("conv", "fused_conv")
def conv(
    g: GraphWriter,
    call: Call,
    x: Operand,
    weight: Operand,
    bias: Operand | None,
    added: Operand | None = None,
    stride: Sequence[Any] = (),
    pads: Sequence[Any] = (),
    dilation: Sequence[Any] = (),
    groups: int = 1,
    last: bool = False,
    then: Then = _NOTHING,
    kernel: tuple[Any, ...] = (),
) -> Operand | None:
    if x.dtype != np.float32 or kernel or then[0] not in _FUNCTIONS or not 3 <= x.rank <= 5:
        return None
    rank = x.rank
    first = [0, rank - 1, *range(1, rank - 1)]
    shape = tuple([_shape(call)[a] for a in first]) if last else _shape(call)
    x, added = (o and g.whole(g.transpose(o, first) if last else o) for o in (x, added))  # type: ignore[assignment]
    weight = g.weight(g.whole(weight))
    bias = bias and g.whole(bias)
    given = (x, weight, bias, added)
    if _is_depthwise(x, weight, stride, pads, dilation, groups):
        out = _depthwise(g, given, shape, [*stride, *[p[0] for p in pads], *dilation], then)
    elif groups == 1 and all(type(d) is int and d == 1 for d in (*shape[2:], *x.full[2:])):
        out = _of_one_place(g, given, shape, then)
        out = out or _conv(g, given, shape, stride, pads, dilation, groups, then)
    else:
        out = _conv(g, given, shape, stride, pads, dilation, groups, then)
    return g.transpose(out, [0, *range(2, rank), 1]) if last else out


_Given = tuple[Operand, Operand, Operand | None, Operand | None]


def _conv(
    g: GraphWriter,
    given: _Given,
    shape: Any,
    stride: Any,
    pads: Any,
    dilation: Any,
    groups: int,
    then: Then,
) -> Operand:
    attrs: list[Dim] = [_FUNCTIONS[then[0]], groups]
    for s, (low, _), d in zip(stride, pads, dilation, strict=True):
        attrs += [s, low, d, 1]
    return g.emit("conv", given, shape, np.float32, attrs, _numbers(then))


def _is_depthwise(
    x: Operand, weight: Operand, stride: Any, pads: Any, dilation: Any, groups: int
) -> bool:
    sizes = [*stride, *[p[0] for p in pads], *dilation]
    return (
        x.rank == 4
        and groups > 1
        and weight.full[:2] == (groups, 1)
        and x.full[1] == groups
        and all(type(n) is int and 0 <= n < _FAR for n in sizes)
        and stride[0] * stride[1] <= 64
    )


def _depthwise(g: GraphWriter, given: _Given, shape: Any, places: Any, then: Then) -> Operand:
    x, weight, bias, added = given
    own = _NOTHING if added is not None else then
    out = g.emit(
        "depthwise",
        [x, weight, bias],
        shape,
        np.float32,
        [_FUNCTIONS[own[0]], *places],
        _numbers(own),
    )
    if added is None:
        return out
    out = elementwise(g, "add", [out, added], shape, np.float32)
    if then[0]:
        out = _function(g, out, then[0], then[1])
    for op, number, nothing in (("mul", then[2], 1.0), ("add", then[3], 0.0)):
        if number != nothing:
            other = g.constant(np.asarray(number, np.float32))
            out = elementwise(g, op, [out, other], shape, np.float32)
    return out


def _of_one_place(g: GraphWriter, given: _Given, shape: Any, then: Then) -> Operand | None:
    """A convolution of one place into one place: a linear layer of the channels."""
    x, weight, bias, added = given
    kernel = g.array(weight)
    if kernel is None or kernel.shape[2:] != (1,) * (x.rank - 2):
        return None
    flat = g.weight(g.constant(np.ascontiguousarray(kernel.reshape(kernel.shape[:2]).T)))
    rows: Any = shape[0]
    made = [g.reshape(x, (rows, kernel.shape[1])), flat, bias]
    made.append(added and g.reshape(added, (rows, kernel.shape[0])))
    out = g.emit(
        "linear", made, (rows, kernel.shape[0]), np.float32, [_FUNCTIONS[then[0]]], _numbers(then)
    )
    return g.reshape(out, shape)


# --- norms and softmax --------------------------------------------------------------------------


@rule("softmax", "log_softmax")
def softmax(g: GraphWriter, call: Call, x: Operand, axis: int, dtype: DType) -> Operand | None:
    if x.dtype != np.float32 or call.outs[0].dtype.name != "float32" or x.rank == 0:
        return None
    return g.emit(call.op.name, [g.whole(x)], x.full, np.float32, [axis % x.rank])


@rule("layer_norm", "rms_norm")
def norm(
    g: GraphWriter,
    call: Call,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None = None,
    dims: int = 1,
    epsilon: float = 0.0,
) -> Operand | None:
    types = [o.dtype for o in (x, weight, bias) if o is not None]
    if any(t != np.float32 for t in types) or len(call.outs) != 1:
        return None
    given = [o and g.whole(o) for o in (x, weight, bias)]
    return g.emit(call.op.name, given, x.full, np.float32, [dims], [epsilon])


# --- pooling, sums, shapes


@rule("max_pool", "avg_pool")
def pool(
    g: GraphWriter,
    call: Call,
    x: Operand,
    axes: Sequence[int],
    plans: Sequence[Any],
    pads: Sequence[Any],
    divisor: Any = ((0, 0), (0, 0)),
) -> Operand | None:
    full: Any = x.full
    if x.dtype != np.float32 or list(axes) != [x.rank - 2, x.rank - 1]:
        return None
    average = call.op.name == "avg_pool"
    if average and not isinstance(divisor, tuple):
        return None
    sizes, strides, before, whole = [], [], [], True
    for axis, plan, (low, high) in zip(axes, plans, pads, strict=True):
        if isinstance(plan[0], tuple):
            return None
        size, step, count = plan
        n = full[axis]
        whole &= bool(size == n and count == 1 and low == 0)
        if average and not all(tuple(d) == (0, 0) for d in divisor):
            known = all(type(v) is int for v in (n, size, step, count, low, high))
            if divisor != tuple(pads) or not known or (count - 1) * step + size > n + low + high:
                return None
        sizes.append(size)
        strides.append(step)
        before.append(low)
    if whole:
        op = "mean" if average else "reduce_max"
        return g.emit(op, [g.whole(x)], _shape(call), np.float32, list(axes))
    numbers = [*sizes, *strides, *before]
    if not all(type(n) is int and 0 <= n < _FAR for n in numbers) or strides[0] * strides[1] > 64:
        return None
    counted = average and any(tuple(d) != (0, 0) for d in divisor)
    kind = 0 if not average else 1 if counted else 2
    attrs = [kind, *sizes, *strides, *before, 1, 1]
    return g.emit("pool", [g.whole(x)], _shape(call), np.float32, attrs)


@rule("mean")
def mean(g: GraphWriter, call: Call, x: Operand, axis: Any, keepdim: bool) -> Operand | None:
    if x.dtype != np.float32:
        return None
    given = range(x.rank) if axis is None or axis == () else axis
    axes = [a % x.rank for a in (given if isinstance(given, tuple | range) else (given,))]
    return g.emit("mean", [g.whole(x)], _shape(call), np.float32, axes) if axes else x


@rule("reshape", "flatten", "squeeze", "unsqueeze")
def reshape(g: GraphWriter, call: Call, x: Operand, **attrs: Any) -> Operand:
    return g.reshape(g.whole(x), _shape(call))


@rule("transpose")
def transpose(g: GraphWriter, call: Call, x: Operand, perm: Sequence[int]) -> Operand:
    return g.transpose(x, [p % x.rank for p in perm])


_MODES = {"nearest": 0, "linear": 1, "bilinear": 1, "trilinear": 1, "bicubic": 2}


@rule("interpolate")
def interpolate(
    g: GraphWriter,
    call: Call,
    x: Operand,
    axes: Sequence[int],
    sizes: Sequence[Dim],
    scales: Sequence[float],
    mode: str,
    align_corners: bool,
    align_mode: int,
    antialias: bool,
) -> Operand | None:
    if x.dtype != np.float32 or antialias or mode not in _MODES:
        return None
    centres = int(align_mode == 0)
    for axis, size, scale in zip(axes, sizes, scales, strict=True):
        x = g.whole(x)
        shape = [size if a == axis else d for a, d in enumerate(x.shape)]
        attrs = [axis, _MODES[mode], int(align_corners), centres]
        x = g.emit("resize", [x], shape, np.float32, attrs, [float(scale)])
    return x


# --- attention ----------------------------------------------------------------------------------


@rule("attention")
def attention(
    g: GraphWriter,
    call: Call,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    scale: float,
    *dropout: Any,
    causal: bool,
) -> Operand | None:
    """As products and a softmax, where heads of the query have keys of their own."""
    if query.dtype != np.float32 or causal or query.full[2] != key.full[2] or len(call.outs) != 1:
        return None
    if isinstance(scale, Operand):
        return None
    batch, length, heads, _ = query.full
    q, k, v = (g.whole(g.transpose(o, [0, 2, 1, 3])) for o in (query, key, value))
    shape = (batch, heads, length, key.full[1])
    scores = g.emit("matmul", [q, k], shape, np.float32, [0, 1])
    factor = g.constant(np.asarray(scale, np.float32))
    scores = elementwise(g, "mul", [scores, factor], shape, np.float32)
    if mask is not None and mask.dtype == np.bool_:
        hidden = g.constant(np.asarray(-np.inf, np.float32))
        scores = elementwise(g, "where", [mask, scores, hidden], shape, np.float32)
    elif mask is not None:
        scores = elementwise(g, "add", [scores, mask], shape, np.float32)
    chosen = g.emit("softmax", [g.whole(scores)], shape, np.float32, [3])
    made = (batch, heads, length, v.full[3])
    return g.transpose(g.emit("matmul", [chosen, v], made, np.float32, [0, 0]), [0, 2, 1, 3])
