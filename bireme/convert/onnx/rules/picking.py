"""Slices, gathers, the largest elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.convert.onnx.rules import rule
from bireme.convert.onnx.writer import UnsupportedForm, Writer
from bireme.core.op import Call
from bireme.ops.slice_ops import AT, Run

_FAR = np.iinfo(np.int64)


@rule("getitem", "getitem_at")
def getitem(
    w: Writer, call: Call, x: str, starts: list[str] | None = None, spec: tuple[Any, ...] = ()
) -> str:
    """A basic slice: fixed slices at once, then positions, then new dimensions."""
    given = iter(starts or [])
    slices: list[tuple[int, Any, Any, int]] = []
    positions: list[tuple[int, str]] = []
    fresh: list[int] = []
    axis = made = 0
    for entry in spec:
        if entry is None:
            fresh.append(made)
            made += 1
            continue
        if entry is AT or entry == AT:
            positions.append((axis, w.reshape(next(given), ())))
        elif type(entry) is int:
            positions.append((axis, w.constant(entry, "int64")))
        elif isinstance(entry, Run):
            start = w.reshape(next(given), (1,))
            count = w.ints([int(entry)])
            x = w.emit("Slice", x, start, w.emit("Add", start, count), w.ints([axis]))
            made += 1
        else:
            start, stop, pace = entry
            pace = 1 if pace is None else pace
            if entry != (None, None, None):
                begin = (0 if pace > 0 else _FAR.max) if start is None else start
                end = (_FAR.max if pace > 0 else _FAR.min) if stop is None else stop
                slices.append((axis, begin, end, pace))
            made += 1
        axis += 1
    if slices:
        axes, begins, ends, paces = zip(*slices, strict=True)
        x = w.emit("Slice", x, w.shape(begins), w.shape(ends), w.ints(axes), w.ints(paces))
    for at, place in reversed(positions):  # from behind, so that earlier axes stay where they are
        x = w.emit("Gather", x, place, axis=at)
    return w.emit("Unsqueeze", x, w.ints(fresh)) if fresh else x


@rule("gather")
def gather(w: Writer, call: Call, x: str, index: str, axis: int = 0) -> str:
    shape = call.types[1].shape  # type: ignore[union-attr]
    flat = index if len(shape) <= 1 else w.reshape(index, (-1,))
    return w.emit("Gather", x, flat, axis=axis)


@rule("topk")
def topk(w: Writer, call: Call, x: str, k: int, axis: int, largest: bool) -> list[str]:
    if call.types[0].ndim == 0:  # type: ignore[union-attr]
        raise UnsupportedForm("[topk] of a number has no ONNX form")
    return w.emit("TopK", x, w.ints([k]), outputs=2, axis=axis, largest=int(largest), sorted=1)


@rule("dimensions")
def dimensions(w: Writer, call: Call, dims: tuple[Any, ...], dtype: str) -> str:
    whole = w.shape(dims)
    return whole if dtype == "int64" else w.cast(whole, call.outs[0].dtype)
