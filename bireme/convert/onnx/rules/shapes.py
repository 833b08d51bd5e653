"""Shapes, joining, picking, making."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.convert.onnx.rules import rule
from bireme.convert.onnx.writer import Writer
from bireme.core.dtype import as_dtype
from bireme.core.op import Call

if TYPE_CHECKING:
    from bireme.core.dtype import DType


@rule("reshape", "flatten_all", "squeeze", "unsqueeze")
def reshape(w: Writer, call: Call, x: str, **_: Any) -> str:
    return w.reshape(x, call.outs[0].shape)


@rule("transpose")
def transpose(w: Writer, call: Call, x: str, perm: tuple[int, ...]) -> str:
    return w.emit("Transpose", x, perm=list(perm))


@rule("expand")
def expand(w: Writer, call: Call, x: str, shape: Sequence[Any]) -> str:
    return w.emit("Expand", x, w.shape(call.outs[0].shape))


@rule("tile")
def tile(w: Writer, call: Call, x: str, repeat_times: tuple[Any, ...]) -> str:
    rank = call.types[0].ndim  # pyright: ignore[reportOptionalMemberAccess]
    times = (1,) * (rank - len(repeat_times)) + tuple(repeat_times)
    if len(times) > rank:
        shape = (1,) * (len(times) - rank) + call.types[0].shape  # pyright: ignore[reportOptionalMemberAccess]
        x = w.reshape(x, shape)
    return w.emit("Tile", x, w.shape(times))


@rule("concat")
def concat(w: Writer, call: Call, xs: list[str], axis: int) -> str:
    return w.emit("Concat", *xs, axis=axis)


@rule("stack")
def stack(w: Writer, call: Call, xs: list[str], axis: int) -> str:
    axis %= call.outs[0].ndim
    return w.emit("Concat", *[w.emit("Unsqueeze", x, w.ints([axis])) for x in xs], axis=axis)


@rule("split")
def split(w: Writer, call: Call, x: str, sections: Sequence[Any], axis: int) -> list[str]:
    sizes = [t.shape[axis] for t in call.outs]
    made = w.emit("Split", x, w.shape(sizes), outputs=len(sizes), axis=axis)
    return [made] if len(sizes) == 1 else made


@rule("full")
def full(w: Writer, call: Call, value: str, shape: Sequence[Any], dtype: DType) -> str:
    scalar = w.reshape(w.cast(value, as_dtype(dtype)), ())
    return w.emit("Expand", scalar, w.shape(call.outs[0].shape))


@rule("ones_like")
def ones_like(w: Writer, call: Call, x: str) -> str:
    t = call.outs[0]
    return w.emit("Expand", w.constant(np.ones((), t.dtype.numpy)), w.emit("Shape", x))


@rule("arange")
def arange(w: Writer, call: Call, start: str, step: str, count: object, dtype: DType) -> str:
    to = as_dtype(dtype)
    end = w.ints([count]) if type(count) is int else w.dimension(count)
    places = w.emit("Range", w.constant(0, "int64"), w.reshape(end, ()), w.constant(1, "int64"))
    work = as_dtype("int64" if to.is_integer else "float64")
    scaled = w.emit("Mul", w.cast(places, work), w.cast(step, work))
    return w.cast(w.emit("Add", scaled, w.cast(start, work)), to)
