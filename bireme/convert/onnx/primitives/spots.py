"""Gather and scatter.

JAX has one general form of each; ONNX takes or puts whole slices at positions over leading axes.
What fits is everything that indexing makes: each indexed axis is taken one element at a time, and
each other axis whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.convert.onnx.primitives import primitive
from bireme.convert.onnx.primitives.layout import result_shape, shape_of
from bireme.convert.onnx.writer import UnsupportedForm, Writer
from bireme.core.dtype import as_dtype

if TYPE_CHECKING:
    from bireme.convert.onnx.primitives import Equation


def _positions(
    w: Writer,
    index: str,
    shape: Any,
    batch: Any,
    order: list[int],
    given: Any,
    sizes: Any,
    clip: bool,
) -> str:
    """[..., k] int64 positions over the axes in `order`; batch axes count along."""
    index = w.cast(index, as_dtype("int64"))
    lead = list(shape[:-1])
    parts = []
    for axis in order:
        if axis in given:
            at = list(given).index(axis)
            part = w.emit("Gather", index, w.ints([at]), axis=len(shape) - 1)
        else:
            place = batch[axis]
            count = w.reshape(w.shape([lead[place]]), ())
            steps = w.emit("Range", w.constant(0, "int64"), count, w.constant(1, "int64"))
            spread: list[Any] = [1] * (len(lead) + 1)
            spread[place] = lead[place]
            part = w.emit("Expand", w.reshape(steps, spread), w.shape([*lead, 1]))
        parts.append(part)
    joined = parts[0] if len(parts) == 1 else w.emit("Concat", *parts, axis=len(lead))
    if clip:
        top = w.shape([sizes[a] - 1 for a in order])
        joined = w.emit("Max", w.emit("Min", joined, top), w.ints([0]))
    return joined


def _window(w: Writer, eqn: Equation, x: str, index: str) -> str:
    """One window at a run-time position: a slice."""
    d, sizes, shape = eqn.params["dimension_numbers"], eqn.params["slice_sizes"], shape_of(eqn)
    axes = list(d.start_index_map)
    if not axes:
        return w.reshape(x, result_shape(eqn))
    first = w.cast(index, as_dtype("int64"))
    if "CLIP" in str(eqn.params["mode"]).upper():
        room = w.shape([shape[a] - sizes[a] for a in axes])
        first = w.emit("Max", w.emit("Min", first, room), w.ints([0]))
    last = w.emit("Add", first, w.shape([sizes[a] for a in axes]))
    part = w.emit("Slice", x, first, last, w.ints(axes))
    return w.reshape(part, result_shape(eqn))


@primitive("gather")
def gather(w: Writer, eqn: Equation, x: str, index: str) -> str:
    d, sizes, shape = eqn.params["dimension_numbers"], eqn.params["slice_sizes"], shape_of(eqn)
    if len(shape_of(eqn, 1)) == 1:
        return _window(w, eqn, x, index)
    taken = [*d.collapsed_slice_dims, *d.operand_batching_dims]
    whole = [a for a in range(len(shape)) if a not in taken]
    for a in d.start_index_map:
        if a not in taken:
            if not (type(sizes[a]) is int and sizes[a] == 1):
                raise UnsupportedForm("taking windows at run-time positions has no ONNX form")
            taken.append(a)
            whole.remove(a)
    if any(sizes[a] != shape[a] for a in whole):
        raise UnsupportedForm("taking part of an axis that is not indexed has no ONNX form")
    order = sorted(taken)
    batch = dict(zip(d.operand_batching_dims, d.start_indices_batching_dims, strict=True))
    at = shape_of(eqn, 1)
    clip = "CLIP" in str(eqn.params["mode"]).upper()
    spots = _positions(w, index, at, batch, order, d.start_index_map, shape, clip)
    if order != list(range(len(order))):
        x = w.emit("Transpose", x, perm=[*order, *whole])
    out = w.emit("GatherND", x, spots)  # [index axes..., whole axes...]
    lead = len(at) - 1
    kept = [a for a in range(len(shape)) if a not in (*d.collapsed_slice_dims, *batch)]
    if len(kept) != len(whole):  # an indexed axis that stays, with one element
        out = w.reshape(out, [*at[:-1], *[1 if a in taken else shape[a] for a in kept]])
    rank = len(result_shape(eqn))
    places = [a for a in range(rank) if a not in d.offset_dims]
    order_out = [0] * rank
    for i, place in enumerate(places):
        order_out[place] = i
    for i, place in enumerate(d.offset_dims):
        order_out[place] = lead + i
    return out if order_out == list(range(rank)) else w.emit("Transpose", out, perm=order_out)


_REDUCTION = {
    "scatter": "none", "scatter-add": "add", "scatter_add": "add", "scatter-mul": "mul",
    "scatter_mul": "mul", "scatter-min": "min", "scatter_min": "min", "scatter-max": "max",
    "scatter_max": "max",
}  # fmt: skip


@primitive(*_REDUCTION)
def scatter(w: Writer, eqn: Equation, x: str, index: str, updates: str) -> str:
    d, shape = eqn.params["dimension_numbers"], shape_of(eqn)
    batch = dict(zip(d.operand_batching_dims, d.scatter_indices_batching_dims, strict=True))
    put = [*d.inserted_window_dims, *d.operand_batching_dims]
    if any(a not in put for a in d.scatter_dims_to_operand_dims):
        raise UnsupportedForm("writing windows at run-time positions has no ONNX form")
    whole = [a for a in range(len(shape)) if a not in put]
    windows = [shape_of(eqn, 2)[a] for a in d.update_window_dims]
    if windows != [shape[a] for a in whole]:
        raise UnsupportedForm("writing part of an axis that is not indexed has no ONNX form")
    reduction = _REDUCTION[eqn.primitive.name]
    if reduction != "none" and w.opset < (18 if reduction in ("min", "max") else 16):
        raise UnsupportedForm(f"{eqn.primitive.name!r} needs opset_version=18 or later")
    order = sorted(put)
    clip = "CLIP" in str(eqn.params["mode"]).upper()
    at = shape_of(eqn, 1)
    spots = _positions(w, index, at, batch, order, d.scatter_dims_to_operand_dims, shape, clip)
    rank = len(shape_of(eqn, 2))
    lead = [a for a in range(rank) if a not in d.update_window_dims]
    perm = [*lead, *d.update_window_dims]
    if perm != list(range(rank)):
        updates = w.emit("Transpose", updates, perm=perm)
    turned = order != list(range(len(order)))
    if turned:
        x = w.emit("Transpose", x, perm=[*order, *whole])
    dtype = np.dtype(eqn.invars[0].aval.dtype)
    attrs: dict[str, Any] = {} if reduction == "none" else {"reduction": reduction}
    if dtype == np.bool_ and reduction != "none":
        raise UnsupportedForm("combining booleans in place has no ONNX form")
    out = w.emit("ScatterND", x, spots, updates, **attrs)
    back = [int(i) for i in np.argsort([*order, *whole])]
    return w.emit("Transpose", out, perm=back) if turned else out
