"""Sums, means, extremes and their positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bireme.convert.onnx.rules import rule
from bireme.convert.onnx.writer import Writer
from bireme.core.op import Call

if TYPE_CHECKING:
    from bireme.core.dtype import DType


def _axes(call: Call, axis: Any) -> list[int]:
    rank = call.types[0].ndim  # pyright: ignore[reportOptionalMemberAccess]
    if axis is None or axis == ():
        return list(range(rank))
    return [a % rank for a in (axis if isinstance(axis, tuple) else (axis,))]


def _reduction(onnx_name: str) -> Any:
    def write(w: Writer, call: Call, x: str, axis: Any, keepdim: bool) -> str:
        axes = _axes(call, axis)
        to = call.outs[0].dtype  # a sum of small integers is a wide one
        if call.types[0].dtype is not to:  # pyright: ignore[reportOptionalMemberAccess]
            x = w.cast(x, to)
        if not axes:
            return w.emit("Identity", x)
        return w.reduce(onnx_name, x, axes, keepdim)

    return write


for _ours, _theirs in {
    "sum": "ReduceSum",
    "mean": "ReduceMean",
    "max": "ReduceMax",
    "min": "ReduceMin",
    "prod": "ReduceProd",
    "logsumexp": "ReduceLogSumExp",
}.items():
    rule(_ours)(_reduction(_theirs))


def _position(onnx_name: str) -> Any:
    def write(w: Writer, call: Call, x: str, axis: Any, keepdim: bool, dtype: DType) -> str:
        if axis is None:
            flat = w.emit("Reshape", x, w.ints([-1]))
            found = w.emit(onnx_name, flat, axis=0, keepdims=0)
            found = w.reshape(found, call.outs[0].shape)
        else:
            found = w.emit(onnx_name, x, axis=axis, keepdims=int(keepdim))
        return w.cast(found, call.outs[0].dtype)

    return write


rule("argmax")(_position("ArgMax"))
rule("argmin")(_position("ArgMin"))
