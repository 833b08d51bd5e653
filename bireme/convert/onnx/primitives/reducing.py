"""Sums, extremes, running sums, sorting, products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.convert.onnx.primitives import primitive
from bireme.convert.onnx.primitives.layout import result_shape, shape_of
from bireme.convert.onnx.primitives.numbers import type_of
from bireme.convert.onnx.writer import UnsupportedForm, Writer
from bireme.core.dtype import as_dtype

if TYPE_CHECKING:
    from bireme.convert.onnx.primitives import Equation


_REDUCE = {
    "reduce_sum": "ReduceSum",
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
    "reduce_prod": "ReduceProd",
    "reduce_and": "ReduceMin",
    "reduce_or": "ReduceMax",
}


@primitive(*_REDUCE)
def reduce(w: Writer, eqn: Equation, x: str) -> str:
    axes = list(eqn.params["axes"])
    if not axes:
        return w.emit("Identity", x)
    if type_of(eqn) == np.bool_:
        x = w.cast(x, as_dtype("int32"))
    out = w.reduce(_REDUCE[eqn.primitive.name], x, axes, False)
    return w.cast(out, as_dtype("bool")) if type_of(eqn) == np.bool_ else out


@primitive("argmax", "argmin")
def position(w: Writer, eqn: Equation, x: str) -> str:
    name = "ArgMax" if eqn.primitive.name == "argmax" else "ArgMin"
    (axis,) = eqn.params["axes"]
    if type_of(eqn) == np.bool_:
        x = w.cast(x, as_dtype("int32"))
    return w.cast(w.emit(name, x, axis=axis, keepdims=0), as_dtype(eqn.params["index_dtype"]))


@primitive("cumsum")
def cumsum(w: Writer, eqn: Equation, x: str) -> str:
    return w.emit(
        "CumSum", x, w.constant(eqn.params["axis"], "int64"), reverse=int(eqn.params["reverse"])
    )


@primitive("cumprod", "cummax", "cummin", "cumlogsumexp")
def cumulate(w: Writer, eqn: Equation, x: str) -> str:
    """By doubling: combine with what lies 1, 2, 4 … places before."""
    name, axis, shape = eqn.primitive.name, eqn.params["axis"], shape_of(eqn)
    size, dtype = shape[axis], type_of(eqn)
    if type(size) is not int:
        raise UnsupportedForm(f"{name!r} along an open size has no ONNX form")
    lowest = np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf
    highest = np.iinfo(dtype).max if dtype.kind in "iu" else np.inf
    neutral = {"cumprod": 1, "cummax": lowest, "cummin": highest, "cumlogsumexp": -np.inf}[name]
    back = eqn.params["reverse"]
    reach = 1
    while reach < size:
        pads = [0] * (2 * len(shape))
        pads[axis + (len(shape) if back else 0)] = reach
        padded = w.emit("Pad", x, w.ints(pads), w.constant(neutral, dtype))
        start = reach if back else 0
        moved = w.emit("Slice", padded, w.ints([start]), w.ints([start + size]), w.ints([axis]))
        if name == "cumlogsumexp":
            x = _log_add(w, x, moved, dtype)
        else:
            x = w.emit({"cumprod": "Mul", "cummax": "Max", "cummin": "Min"}[name], x, moved)
        reach *= 2
    return x


def _log_add(w: Writer, x: str, y: str, dtype: Any) -> str:
    top = w.emit("Max", x, y)
    low = w.emit("Min", x, y)
    gap = w.emit("Sub", low, top)
    return w.emit(
        "Add", top, w.emit("Log", w.emit("Add", w.emit("Exp", gap), w.constant(1, dtype)))
    )


@primitive("sort")
def sort(w: Writer, eqn: Equation, *xs: str) -> list[str]:
    axis, size = eqn.params["dimension"], shape_of(eqn)[eqn.params["dimension"]]
    if eqn.params["num_keys"] > 1:
        raise UnsupportedForm("sorting by several keys has no ONNX form")
    dtype = type_of(eqn)
    keys = w.cast(xs[0], as_dtype("int32")) if dtype == np.bool_ else xs[0]
    values, order = w.emit("TopK", keys, w.shape([size]), outputs=2, axis=axis, largest=0, sorted=1)
    values = w.cast(values, as_dtype("bool")) if dtype == np.bool_ else values
    return [values, *[w.emit("GatherElements", x, order, axis=axis) for x in xs[1:]]]


@primitive("top_k")
def top_k(w: Writer, eqn: Equation, x: str) -> list[str]:
    axis = eqn.params.get("axis", len(shape_of(eqn)) - 1)
    made = w.emit("TopK", x, w.shape([eqn.params["k"]]), outputs=2, axis=axis)
    return [made[0], w.cast(made[1], as_dtype(eqn.outvars[1].aval.dtype))]


@primitive("dot_general")
def dot_general(w: Writer, eqn: Equation, x: str, y: str) -> str:
    """As one batched matrix product: [batch, free, contracted] times [batch, contracted, free]."""
    ((cx, cy), (bx, by)) = eqn.params["dimension_numbers"]
    sides = []
    for i, (name, contracted, batch) in enumerate(((x, cx, bx), (y, cy, by))):
        shape = shape_of(eqn, i)
        free = [d for d in range(len(shape)) if d not in contracted and d not in batch]
        order = [*batch, *free, *contracted] if i == 0 else [*batch, *contracted, *free]
        if order != list(range(len(shape))):
            name = w.emit("Transpose", name, perm=order)
        inner = _product([shape[d] for d in contracted])
        outer = _product([shape[d] for d in free])
        lead = [shape[d] for d in batch]
        target = [*lead, outer, inner] if i == 0 else [*lead, inner, outer]
        if len(free) != 1 or len(contracted) != 1:
            name = w.reshape(name, target)
        sides.append(name)
    dtype = np.dtype(eqn.outvars[0].aval.dtype)
    sides = [
        s if type_of(eqn, i) == dtype else w.cast(s, as_dtype(dtype)) for i, s in enumerate(sides)
    ]
    out = w.emit("MatMul", *sides)
    fx = len(shape_of(eqn, 0)) - len(cx) - len(bx)
    fy = len(shape_of(eqn, 1)) - len(cy) - len(by)
    return out if fx == 1 and fy == 1 else w.reshape(out, result_shape(eqn))


def _product(sizes: Any) -> Any:
    total: Any = 1
    for s in sizes:
        total = total * s
    return total


@primitive("conv_general_dilated")
def conv(w: Writer, eqn: Equation, x: str, weight: str) -> str:
    p = eqn.params
    numbers = p["dimension_numbers"]
    if p["batch_group_count"] != 1:
        raise UnsupportedForm("a convolution grouped by batch has no ONNX form")
    x = _ordered(w, x, numbers.lhs_spec)
    weight = _ordered(w, weight, numbers.rhs_spec)
    pads = [q[0] for q in p["padding"]] + [q[1] for q in p["padding"]]
    if any(d != 1 for d in p["lhs_dilation"]):
        x = _stretched(w, eqn, x, numbers.lhs_spec, p["lhs_dilation"])
    if any(q < 0 for q in pads):
        d = len(pads) // 2
        axes = list(range(2, 2 + d))
        first = [max(-q, 0) for q in pads[:d]]
        last = [-max(-q, 0) or 1 << 62 for q in pads[d:]]
        x = w.emit("Slice", x, w.ints(first), w.ints(last), w.ints(axes))
        pads = [max(q, 0) for q in pads]
    out = w.emit(
        "Conv",
        x,
        weight,
        strides=list(p["window_strides"]),
        pads=pads,
        dilations=list(p["rhs_dilation"]),
        group=p["feature_group_count"],
    )
    back = list(np.argsort(numbers.out_spec))
    return out if back == sorted(back) else w.emit("Transpose", out, perm=[int(b) for b in back])


def _ordered(w: Writer, x: str, spec: Any) -> str:
    return x if list(spec) == sorted(spec) else w.emit("Transpose", x, perm=list(spec))


def _stretched(w: Writer, eqn: Equation, x: str, spec: Any, steps: Any) -> str:
    """Zeros between the elements of the spatial axes."""
    from bireme.convert.onnx.primitives.layout import _spread

    shape: list[Any] = [shape_of(eqn)[s] for s in spec]
    zero = w.constant(0, type_of(eqn))
    for axis, step in enumerate(steps, 2):
        if step != 1:
            x, shape = _spread(w, eqn, x, zero, shape, axis, step - 1)
    return x
