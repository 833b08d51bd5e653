"""Rules over JAX's primitives: how the lowering of any op is written in Bireme Lite's ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from bireme.lite.writer import Dim, GraphWriter, Operand, UnsupportedForm


class Equation(Protocol):
    """What a rule reads of JAX's equations."""

    primitive: Any
    invars: list[Any]
    outvars: list[Any]
    params: dict[str, Any]


Rule = Callable[..., Operand | Sequence[Operand]]
PRIMITIVES: dict[str, Rule] = {}


def primitive(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for these primitives."""

    def add(function: Rule) -> Rule:
        PRIMITIVES.update(dict.fromkeys(names, function))
        return function

    return add


def result(eqn: Equation, i: int = 0) -> tuple[tuple[Dim, ...], np.dtype]:
    t = eqn.outvars[i].aval
    return tuple(t.shape), np.dtype(t.dtype)


# --- element by element -----------------------------------------------------------------------

_UNARY = {n: n for n in (
    "neg", "abs", "floor", "ceil", "exp", "log", "tanh", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "sqrt", "rsqrt", "logistic", "erf", "erfc",
    "erf_inv", "lgamma", "sign", "square", "exp2", "expm1", "log1p", "cbrt", "not", "is_finite",
)}  # fmt: skip
_BINARY = {n: n for n in (
    "add", "sub", "mul", "div", "max", "min", "pow", "rem", "atan2", "and", "or", "xor",
    "shift_left", "shift_right_logical", "shift_right_arithmetic", "eq", "ne", "lt", "le", "gt",
    "ge",
)}  # fmt: skip
_BINARY.update({"add_any": "add", "le_to": "le", "lt_to": "lt"})
_SAME = ("copy", "copy_p", "stop_gradient", "optimization_barrier")


def elementwise(
    g: GraphWriter,
    op: str,
    xs: Sequence[Operand],
    full: tuple[Dim, ...],
    dtype: object,
    attrs: Sequence[Dim] = (),
    numbers: Sequence[float] = (),
) -> Operand:
    """An op whose operands repeat their axes of 1: axes that all repeat stay unwritten."""
    stored: list[Dim] = []
    for back in range(1, len(full) + 1):
        own = [x.shape[-back] for x in xs if back <= len(x.shape)]
        wide = [d for d in own if not (type(d) is int and d == 1)]
        stored.insert(0, wide[0] if wide else 1)
    if not any(len(x.shape) == len(full) for x in xs):
        stored = stored[len(full) - max(len(x.shape) for x in xs) :]
    made = g.emit(op, xs, stored, dtype, attrs, numbers)
    return Operand(made.index, made.shape, full, made.dtype)


def _elementwise(op: str) -> Rule:
    def write(g: GraphWriter, eqn: Equation, *xs: Operand) -> Operand:
        shape, dtype = result(eqn)
        return elementwise(g, op, xs, shape, dtype)

    return write


for _ours, _op in {**_UNARY, **_BINARY}.items():
    primitive(_ours)(_elementwise(_op))


@primitive(*_SAME)
def same(g: GraphWriter, eqn: Equation, *xs: Operand) -> Sequence[Operand]:
    return xs


@primitive("reduce_precision")
def reduce_precision(g: GraphWriter, eqn: Equation, x: Operand) -> Operand:
    if eqn.params["exponent_bits"] < 8 or eqn.params["mantissa_bits"] < 23:
        raise UnsupportedForm("rounding to fewer bits has no form in Bireme Lite")
    return x


@primitive("integer_pow")
def integer_pow(g: GraphWriter, eqn: Equation, x: Operand) -> Operand:
    y = eqn.params["y"]
    shape, dtype = result(eqn)
    if y == 2:
        return elementwise(g, "square", [x], shape, dtype)
    return elementwise(g, "integer_pow", [x], shape, dtype, [y])


@primitive("round")
def round_(g: GraphWriter, eqn: Equation, x: Operand) -> Operand:
    even = int(eqn.params["rounding_method"]) == 1
    return elementwise(g, "round_even" if even else "round", [x], *result(eqn))


@primitive("clamp")
def clamp(g: GraphWriter, eqn: Equation, low: Operand, x: Operand, high: Operand) -> Operand:
    shape, dtype = result(eqn)
    above = elementwise(g, "max", [x, low], shape, dtype)
    return elementwise(g, "min", [above, high], shape, dtype)


@primitive("select_n")
def select_n(g: GraphWriter, eqn: Equation, which: Operand, *cases: Operand) -> Operand:
    shape, dtype = result(eqn)
    if which.dtype == np.bool_:
        return elementwise(g, "where", [which, cases[1], cases[0]], shape, dtype)
    out = cases[0]
    for i, case in enumerate(cases[1:], 1):
        number = g.constant(np.asarray(i, which.dtype))
        is_it = elementwise(g, "eq", [which, number], which.full, np.bool_)
        out = elementwise(g, "where", [is_it, case, out], shape, dtype)
    return out


@primitive("convert_element_type")
def convert(g: GraphWriter, eqn: Equation, x: Operand) -> Operand:
    shape, dtype = result(eqn)
    return x if dtype == x.dtype else elementwise(g, "cast", [x], shape, dtype)


@primitive("bitcast_convert_type")
def bitcast(g: GraphWriter, eqn: Equation, x: Operand) -> Operand:
    shape, dtype = result(eqn)
    if dtype.itemsize != x.dtype.itemsize:
        raise UnsupportedForm("reading bits as numbers of another size has no form")
    return g.emit("bits", [g.whole(x)], shape, dtype)


# --- shapes -------------------------------------------------------------------------------------


@primitive("reshape", "squeeze", "expand_dims")
def reshape(g: GraphWriter, eqn: Equation, x: Operand, *rest: Operand) -> Operand:
    shape, _ = result(eqn)
    if len(x.shape) == 0:
        return Operand(x.index, (), shape, x.dtype)  # a number, however often
    if eqn.primitive.name != "reshape" and x.shape != x.full:
        # Axes of 1 go or come; repeated ones stay so.
        own = iter([d for d in x.full if d != 1])
        stored = iter(
            [
                s
                for s, d in zip((1,) * (x.rank - len(x.shape)) + x.shape, x.full, strict=True)
                if d != 1
            ]
        )
        spread = tuple([d if d == 1 else (next(own), next(stored))[1] for d in shape])
        made = g.reshape(x, spread)
        return Operand(made.index, spread, shape, x.dtype)
    return g.reshape(g.whole(x), shape)


@primitive("broadcast_in_dim")
def broadcast_in_dim(g: GraphWriter, eqn: Equation, x: Operand, *rest: Operand) -> Operand:
    shape, dtype = result(eqn)
    at = eqn.params["broadcast_dimensions"]
    spread: list[Dim] = [1] * len(shape)
    stored = (1,) * (x.rank - len(x.shape)) + x.shape
    for size, place in zip(stored, at, strict=True):
        spread[place] = size
    while spread and type(spread[0]) is int and spread[0] == 1 and len(spread) > len(x.shape):
        spread = spread[1:]
    made = g.reshape(x, spread) if tuple(spread) != x.shape else x
    return Operand(made.index, tuple(spread), shape, dtype)


@primitive("transpose")
def transpose(g: GraphWriter, eqn: Equation, x: Operand) -> Operand:
    return g.transpose(x, list(eqn.params["permutation"]))


@primitive("concatenate")
def concatenate(g: GraphWriter, eqn: Equation, *xs: Operand) -> Operand:
    return g.emit("concat", [g.whole(x) for x in xs], *result(eqn), [eqn.params["dimension"]])


@primitive("stack")
def stack(g: GraphWriter, eqn: Equation, *xs: Operand) -> Operand:
    shape, dtype = result(eqn)
    axis = eqn.params.get("axis", eqn.params.get("dimension", 0))
    one = tuple([1 if i == axis else d for i, d in enumerate(shape)])
    return g.emit("concat", [g.reshape(g.whole(x), one) for x in xs], shape, dtype, [axis])


@primitive("tile")
def tile(g: GraphWriter, eqn: Equation, x: Operand) -> Operand:
    x = g.whole(x)
    for axis, times in enumerate(eqn.params["reps"]):
        if type(times) is int and times == 1:
            continue
        shape: list[Any] = list(x.shape)
        wide = [*shape[:axis], 1, *shape[axis:]]
        repeated = [*shape[:axis], times, *shape[axis:]]
        made = g.emit("expand", [g.reshape(x, wide)], repeated, x.dtype)
        x = g.reshape(made, [*shape[:axis], times * shape[axis], *shape[axis + 1 :]])
    return x


def slice_of(
    g: GraphWriter, x: Operand, starts: Sequence[Dim], steps: Sequence[int], shape: Sequence[Dim]
) -> Operand:
    attrs = [v for pair in zip(starts, steps, strict=True) for v in pair]
    return g.emit("slice", [g.whole(x)], shape, x.dtype, attrs)


@primitive("slice")
def slice_(g: GraphWriter, eqn: Equation, x: Operand) -> Operand:
    p = eqn.params
    shape, _ = result(eqn)
    return slice_of(g, x, p["start_indices"], p["strides"] or [1] * x.rank, shape)


@primitive("split")
def split(g: GraphWriter, eqn: Equation, x: Operand) -> list[Operand]:
    axis, made = eqn.params["axis"], []
    at: Any = 0
    for i, size in enumerate(eqn.params["sizes"]):
        starts = [at if a == axis else 0 for a in range(x.rank)]
        made.append(slice_of(g, x, starts, [1] * x.rank, result(eqn, i)[0]))
        at = at + size
    return made


@primitive("rev")
def rev(g: GraphWriter, eqn: Equation, x: Operand) -> Operand:
    axes = eqn.params["dimensions"]
    array = g.array(x)
    if array is not None and x.shape == x.full:
        return g.constant(np.ascontiguousarray(np.flip(array, axes)))
    shape: Any = x.full
    starts = [shape[a] - 1 if a in axes else 0 for a in range(x.rank)]
    return slice_of(g, x, starts, [-1 if a in axes else 1 for a in range(x.rank)], shape)


@primitive("pad")
def pad(g: GraphWriter, eqn: Equation, x: Operand, value: Operand) -> Operand:
    attrs = [v for low, _, inside in eqn.params["padding_config"] for v in (low, inside + 1)]
    return g.emit("pad", [g.whole(x), value], *result(eqn), attrs)


@primitive("iota")
def iota(g: GraphWriter, eqn: Equation, *rest: Operand) -> Operand:
    shape, dtype = result(eqn)
    axis = eqn.params["dimension"]
    stored = (shape[axis],) + (1,) * (len(shape) - axis - 1)
    made = g.emit("iota", [], stored, dtype, [0])
    return Operand(made.index, stored, shape, dtype)


@primitive("dim_as_value")
def dim_as_value(g: GraphWriter, eqn: Equation) -> Operand:
    return g.emit("size", [], *result(eqn), [eqn.params["dim"]])


@primitive("dynamic_slice")
def dynamic_slice(g: GraphWriter, eqn: Equation, x: Operand, *at: Operand) -> Operand:
    return g.emit("dynamic_slice", [g.whole(x), *at[: x.rank]], *result(eqn))


@primitive("dynamic_update_slice")
def dynamic_update_slice(
    g: GraphWriter, eqn: Equation, x: Operand, update: Operand, *at: Operand
) -> Operand:
    given = [g.whole(x), g.whole(update), *at[: x.rank]]
    return g.emit("dynamic_update", given, *result(eqn))


# --- sums, extremes, sorting --------------------------------------------------------------------


@primitive(
    "reduce_sum",
    "reduce_max",
    "reduce_min",
    "reduce_prod",
    "reduce_and",
    "reduce_or",
)
def reduce(g: GraphWriter, eqn: Equation, x: Operand) -> Operand:
    name, axes = eqn.primitive.name, list(eqn.params["axes"])
    shape, dtype = result(eqn)
    if not axes:
        return x
    if x.dtype == np.bool_ and name in ("reduce_max", "reduce_min"):
        name = "reduce_or" if name == "reduce_max" else "reduce_and"
    return g.emit(name, [g.whole(x)], shape, dtype, axes)


@primitive("argmax", "argmin")
def position(g: GraphWriter, eqn: Equation, x: Operand) -> Operand:
    shape, dtype = result(eqn)
    (axis,) = eqn.params["axes"]
    made = g.emit(eqn.primitive.name, [g.whole(x)], shape, np.int64, [axis])
    return made if dtype == np.int64 else g.emit("cast", [made], shape, dtype)


@primitive("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def running(g: GraphWriter, eqn: Equation, x: Operand) -> Operand:
    attrs = [eqn.params["axis"], int(eqn.params["reverse"])]
    return g.emit(eqn.primitive.name, [g.whole(x)], *result(eqn), attrs)


@primitive("reduce_window_sum", "reduce_window_max", "reduce_window_min")
def windows(g: GraphWriter, eqn: Equation, x: Operand) -> Operand:
    p = eqn.params
    if any(d != 1 for d in p["base_dilation"]):
        raise UnsupportedForm("windows over spread elements have no form in Bireme Lite")
    attrs: list[Dim] = []
    for size, stride, (low, _), step in zip(
        p["window_dimensions"],
        p["window_strides"],
        p["padding"],
        p["window_dilation"],
        strict=True,
    ):
        attrs += [size, stride, low, step]
    name = eqn.primitive.name.replace("reduce_window", "window")
    return g.emit(name, [g.whole(x)], *result(eqn), attrs)


@primitive("sort")
def sort(g: GraphWriter, eqn: Equation, *xs: Operand) -> list[Operand]:
    if eqn.params["num_keys"] > 1:
        raise UnsupportedForm("sorting by several keys has no form in Bireme Lite")
    results = [result(eqn, i) for i in range(len(xs))]
    return g.emit_many("sort", [g.whole(x) for x in xs], results, [eqn.params["dimension"]])


@primitive("top_k")
def top_k(g: GraphWriter, eqn: Equation, x: Operand) -> list[Operand]:
    axis = eqn.params.get("axis", -1) % x.rank
    (shape, dtype), (_, index) = result(eqn, 0), result(eqn, 1)
    order = [a for a in range(x.rank) if a != axis] + [axis]
    last = [shape[a] for a in order]
    moved = g.whole(g.transpose(x, order))
    made = g.emit_many("top_k", [moved], [(last, dtype), (last, np.int32)])
    back = [order.index(a) for a in range(x.rank)]
    values, places = (g.transpose(m, back) for m in made)
    return [values, places if index == np.int32 else g.emit("cast", [places], shape, index)]


# --- products -----------------------------------------------------------------------------------


@primitive("dot_general")
def dot_general(g: GraphWriter, eqn: Equation, x: Operand, y: Operand) -> Operand:
    """As one product of batches of matrices; those that lie transposed stay so."""
    ((cx, cy), (bx, by)) = eqn.params["dimension_numbers"]
    shape, dtype = result(eqn)
    sides, turned = [], []
    for i, (one, contracted, batch) in enumerate(((x, cx, bx), (y, cy, by))):
        if one.dtype != dtype:
            one = elementwise(g, "cast", [one], one.full, dtype)
        free = [d for d in range(one.rank) if d not in contracted and d not in batch]
        plain = [*batch, *free, *contracted] if i == 0 else [*batch, *contracted, *free]
        other = [*batch, *contracted, *free] if i == 0 else [*batch, *free, *contracted]
        turn = other == list(range(one.rank)) and other != plain
        order = other if turn else plain
        full: Any = one.full
        inner, outer = _product([full[d] for d in contracted]), _product([full[d] for d in free])
        lead = [full[d] for d in batch]
        one = g.whole(g.transpose(one, order))
        target = [*lead, inner, outer] if turn == (i == 0) else [*lead, outer, inner]
        sides.append(g.reshape(one, target))
        turned.append(int(turn))
    free_x = _product([d for i, d in enumerate(x.full) if i not in cx and i not in bx])
    free_y = _product([d for i, d in enumerate(y.full) if i not in cy and i not in by])
    batch_shape = [x.full[d] for d in bx]
    out = g.emit("matmul", sides, [*batch_shape, free_x, free_y], dtype, turned)
    return g.reshape(out, shape)


def _product(sizes: Sequence[Any]) -> Any:
    total: Any = 1
    for s in sizes:
        total = total * s
    return total


@primitive("conv_general_dilated")
def conv(g: GraphWriter, eqn: Equation, x: Operand, weight: Operand) -> Operand:
    p, (shape, dtype) = eqn.params, result(eqn)
    numbers = p["dimension_numbers"]
    if p["batch_group_count"] != 1:
        raise UnsupportedForm("a convolution grouped by batch has no form in Bireme Lite")
    if not 1 <= x.rank - 2 <= 3:
        raise UnsupportedForm(f"a convolution over {x.rank - 2} axes has no form in Bireme Lite")
    x = g.whole(g.transpose(x, list(numbers.lhs_spec)))
    weight = g.weight(g.whole(g.transpose(weight, list(numbers.rhs_spec))))
    attrs: list[Dim] = [0, p["feature_group_count"]]
    for stride, (low, _), step, gap in zip(
        p["window_strides"], p["padding"], p["rhs_dilation"], p["lhs_dilation"], strict=True
    ):
        attrs += [stride, low, step, gap]
    made = [shape[a] for a in numbers.out_spec]
    out = g.emit("conv", [x, weight], made, dtype, attrs, [0, 0, 1, 0])
    return g.transpose(out, [int(b) for b in np.argsort(numbers.out_spec)])


# --- gather and scatter --------------------------------------------------------------------------


def _spots(eqn: Equation, window: Any, lacking: Any, batch: Any, mapped: Any, sizes: Any) -> Any:
    mode = str(eqn.params["mode"]).upper()
    attrs: list[Dim] = [int("FILL" not in mode)]
    for group in (window, lacking, batch[0], batch[1], mapped, sizes):
        attrs += [len(group), *group]
    return attrs


@primitive("gather")
def gather(g: GraphWriter, eqn: Equation, x: Operand, index: Operand) -> Operand:
    d, p = eqn.params["dimension_numbers"], eqn.params
    shape, dtype = result(eqn)
    batch = (d.operand_batching_dims, d.start_indices_batching_dims)
    attrs = _spots(
        eqn, d.offset_dims, d.collapsed_slice_dims, batch, d.start_index_map, p["slice_sizes"]
    )
    fill = p["fill_value"]
    if fill is None:
        least = dtype.kind == "i" and np.iinfo(dtype).min
        most = dtype.kind == "u" and np.iinfo(dtype).max
        fill = np.nan if dtype.kind == "f" else float(least or most or dtype.kind == "b")
    given = [g.weight(g.whole(x)), g.whole(index)]
    return g.emit("gather", given, shape, dtype, attrs, [float(fill)])


@primitive(
    "scatter",
    "scatter-add",
    "scatter_add",
    "scatter-mul",
    "scatter_mul",
    "scatter-min",
    "scatter_min",
    "scatter-max",
    "scatter_max",
)
def scatter(g: GraphWriter, eqn: Equation, x: Operand, index: Operand, updates: Operand) -> Operand:
    d = eqn.params["dimension_numbers"]
    batch = (d.operand_batching_dims, d.scatter_indices_batching_dims)
    lacking = (*d.inserted_window_dims, *d.operand_batching_dims)
    own = iter(d.update_window_dims)
    sizes = [1 if a in lacking else updates.full[next(own)] for a in range(x.rank)]
    attrs = _spots(
        eqn,
        d.update_window_dims,
        d.inserted_window_dims,
        batch,
        d.scatter_dims_to_operand_dims,
        sizes,
    )
    name = eqn.primitive.name.replace("-", "_")
    if x.dtype == np.bool_ and name != "scatter":
        raise UnsupportedForm("combining booleans in place has no form in Bireme Lite")
    given = [g.whole(x), g.whole(index), g.whole(updates)]
    return g.emit(name, given, *result(eqn), attrs)
