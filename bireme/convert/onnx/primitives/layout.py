"""Shapes, slices, padding, joining."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.convert.onnx.primitives import primitive
from bireme.convert.onnx.writer import UnsupportedForm, Writer
from bireme.core.dtype import as_dtype

if TYPE_CHECKING:
    from bireme.convert.onnx.primitives import Equation


def shape_of(eqn: Equation, i: int = 0) -> tuple[Any, ...]:
    return tuple(eqn.invars[i].aval.shape)


def result_shape(eqn: Equation, i: int = 0) -> tuple[Any, ...]:
    return tuple(eqn.outvars[i].aval.shape)


@primitive("reshape", "squeeze", "expand_dims")
def reshape(w: Writer, eqn: Equation, x: str, *rest: str) -> str:
    return w.reshape(x, result_shape(eqn))


@primitive("broadcast_in_dim")
def broadcast_in_dim(w: Writer, eqn: Equation, x: str, *rest: str) -> str:
    target, at = result_shape(eqn), eqn.params["broadcast_dimensions"]
    spread: list[Any] = [1] * len(target)
    for size, place in zip(shape_of(eqn), at, strict=True):
        spread[place] = size
    if tuple(spread) != shape_of(eqn):
        x = w.reshape(x, spread)
    return x if tuple(spread) == target else w.emit("Expand", x, w.shape(target))


@primitive("transpose")
def transpose(w: Writer, eqn: Equation, x: str) -> str:
    return w.emit("Transpose", x, perm=list(eqn.params["permutation"]))


@primitive("rev")
def rev(w: Writer, eqn: Equation, x: str) -> str:
    axes = list(eqn.params["dimensions"])
    return _slice(w, x, axes, w.ints([-1] * len(axes)), w.ints([-(1 << 62)] * len(axes)), -1)


def _slice(w: Writer, x: str, axes: list[int], starts: str, ends: str, steps: Any) -> str:
    by = w.ints(steps if isinstance(steps, list) else [steps] * len(axes))
    return w.emit("Slice", x, starts, ends, w.ints(axes), by)


@primitive("concatenate")
def concatenate(w: Writer, eqn: Equation, *xs: str) -> str:
    return w.emit("Concat", *xs, axis=eqn.params["dimension"])


@primitive("stack")
def stack(w: Writer, eqn: Equation, *xs: str) -> str:
    axis = eqn.params.get("axis", eqn.params.get("dimension", 0))
    wide = [w.emit("Unsqueeze", x, w.ints([axis])) for x in xs]
    return w.emit("Concat", *wide, axis=axis)


@primitive("split")
def split(w: Writer, eqn: Equation, x: str) -> list[str]:
    sizes = eqn.params["sizes"]
    made = w.emit("Split", x, w.shape(sizes), outputs=len(sizes), axis=eqn.params["axis"])
    return [made] if len(sizes) == 1 else made


@primitive("slice")
def slice_(w: Writer, eqn: Equation, x: str) -> str:
    p = eqn.params
    axes = list(range(len(p["start_indices"])))
    steps = list(p["strides"] or [1] * len(axes))
    return _slice(w, x, axes, w.shape(p["start_indices"]), w.shape(p["limit_indices"]), steps)


def starts(w: Writer, eqn: Equation, names: Sequence[Any], sizes: Sequence[Any], first: int) -> str:
    """Run-time positions as a vector, moved back into the array as XLA does."""
    parts = [w.reshape(w.cast(n, as_dtype("int64")), (1,)) for n in names]
    wanted = w.emit("Concat", *parts, axis=0)
    room = w.shape([d - s for d, s in zip(shape_of(eqn, 0), sizes, strict=True)])
    return w.emit("Max", w.emit("Min", wanted, room), w.ints([0] * len(sizes)))


@primitive("dynamic_slice")
def dynamic_slice(w: Writer, eqn: Equation, x: str, *at: str) -> str:
    sizes = eqn.params["slice_sizes"]
    first = starts(w, eqn, at[: len(sizes)], sizes, 1)
    ends = w.emit("Add", first, w.shape(sizes))
    return _slice(w, x, list(range(len(sizes))), first, ends, 1)


@primitive("dynamic_update_slice")
def dynamic_update_slice(w: Writer, eqn: Equation, x: str, update: str, *at: str) -> str:
    """Place the update and a mask with padding, then choose."""
    shape, size = shape_of(eqn, 0), shape_of(eqn, 1)
    if not shape:
        return w.emit("Identity", update)
    first = starts(w, eqn, at[: len(shape)], size, 2)
    after = w.emit("Sub", w.shape([d - s for d, s in zip(shape, size, strict=True)]), first)
    pads = w.emit("Concat", first, after, axis=0)
    # Not every runtime pads booleans.
    dtype = np.dtype(eqn.invars[0].aval.dtype)
    plain = as_dtype(dtype if dtype != np.bool_ else "int32")
    inner = update if dtype != np.bool_ else w.cast(update, plain)
    ones = w.emit("Expand", w.constant(1.0, "float32"), w.shape(size))
    mask = w.cast(w.emit("Pad", ones, pads), as_dtype("bool"))
    placed = w.emit("Pad", inner, pads)
    return w.emit(
        "Where", mask, placed if dtype != np.bool_ else w.cast(placed, as_dtype("bool")), x
    )


@primitive("pad")
def pad(w: Writer, eqn: Equation, x: str, value: str) -> str:
    config, shape = eqn.params["padding_config"], list(shape_of(eqn))
    for axis, (_, _, inside) in enumerate(config):
        if inside:
            x, shape = _spread(w, eqn, x, value, shape, axis, inside)
    if not shape:
        return x
    low, high = [max(c[0], 0) for c in config], [max(c[1], 0) for c in config]
    dtype = np.dtype(eqn.invars[0].aval.dtype)
    if any(low) or any(high):
        if dtype == np.bool_:
            x, value = w.cast(x, as_dtype("int32")), w.cast(value, as_dtype("int32"))
        x = w.emit("Pad", x, w.shape([*low, *high]), value)
        x = w.cast(x, as_dtype("bool")) if dtype == np.bool_ else x
    axes = [i for i, c in enumerate(config) if _negative(c[0]) or _negative(c[1])]
    if axes:
        first = w.shape([-min(config[i][0], 0) for i in axes])
        last = w.shape([config[i][1] if _negative(config[i][1]) else 1 << 62 for i in axes])
        x = _slice(w, x, axes, first, last, 1)
    return x


def _negative(n: Any) -> bool:
    return type(n) is int and n < 0


def _spread(
    w: Writer, eqn: Equation, x: str, value: str, shape: list[Any], axis: int, gap: int
) -> Any:
    """`gap` fill elements between each two of an axis."""
    fill = w.emit("Expand", value, w.shape([*shape[: axis + 1], gap, *shape[axis + 1 :]]))
    wide = w.reshape(x, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
    joined = w.emit("Concat", wide, fill, axis=axis + 1)
    grown = shape[axis] * (gap + 1)
    flat = w.reshape(joined, [*shape[:axis], grown, *shape[axis + 1 :]])
    shape = [*shape[:axis], grown - gap, *shape[axis + 1 :]]
    return _slice(w, flat, [axis], w.ints([0]), w.shape([grown - gap]), 1), shape


@primitive("iota")
def iota(w: Writer, eqn: Equation, *rest: str) -> str:
    shape, axis = result_shape(eqn), eqn.params["dimension"]
    count = shape[axis]
    to = as_dtype(eqn.outvars[0].aval.dtype)
    if all(type(d) is int for d in shape) and np.prod(shape) <= 1 << 16:
        spread = [1] * len(shape)
        spread[axis] = count
        steps = np.arange(count).reshape(spread)
        return w.constant(np.broadcast_to(steps, shape), to)
    end = w.reshape(w.ints([count]) if type(count) is int else w.dimension(count), ())
    steps = w.emit("Range", w.constant(0, "int64"), end, w.constant(1, "int64"))
    spread = [1] * len(shape)
    spread[axis] = count
    return w.cast(w.emit("Expand", w.reshape(steps, spread), w.shape(shape)), to)


@primitive("bitcast_convert_type")
def bitcast(w: Writer, eqn: Equation, x: str) -> str:
    raise UnsupportedForm("reading the bits of a number has no ONNX form")
