"""What networks are made of: products, convolution, pooling, normalisation, attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bireme.convert.onnx.rules import rule
from bireme.convert.onnx.writer import UnsupportedForm, Writer
from bireme.core.op import Call

if TYPE_CHECKING:
    from bireme.core.dtype import DType


@rule("linear")
def linear(w: Writer, call: Call, x: str, weight: str, bias: str | None) -> str:
    out = w.emit("MatMul", x, weight)
    return out if bias is None else w.emit("Add", out, bias)


@rule("matmul")
def matmul(w: Writer, call: Call, x: str, y: str, transpose_x: bool, transpose_y: bool) -> str:
    return w.emit(
        "MatMul",
        _turned(w, x, call.types[0].ndim, transpose_x),  # pyright: ignore[reportOptionalMemberAccess]
        _turned(w, y, call.types[1].ndim, transpose_y),  # pyright: ignore[reportOptionalMemberAccess]
    )


def _turned(w: Writer, x: str, rank: int, turn: bool) -> str:
    if not turn or rank < 2:
        return x
    return w.emit("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])


@rule("softmax")
def softmax(w: Writer, call: Call, x: str, axis: int, dtype: DType) -> str:
    return _last_axis(w, "Softmax", _wide(w, call, x), axis, call.outs[0].ndim)


@rule("log_softmax")
def log_softmax(w: Writer, call: Call, x: str, axis: int, dtype: DType) -> str:
    return _last_axis(w, "LogSoftmax", _wide(w, call, x), axis, call.outs[0].ndim)


def _last_axis(w: Writer, kind: str, x: str, axis: int, rank: int) -> str:
    """Before opset 13 softmax took all axes from `axis` on as one: only the last is the same."""
    if rank == 0:
        raise UnsupportedForm(f"{kind} of a scalar")
    axis %= rank
    if w.opset >= 13 or axis == rank - 1:
        return w.emit(kind, x, axis=axis)
    order = [i for i in range(rank) if i != axis] + [axis]
    out = w.emit(kind, w.emit("Transpose", x, perm=order), axis=rank - 1)
    return w.emit("Transpose", out, perm=[order.index(i) for i in range(rank)])


def _wide(w: Writer, call: Call, x: str) -> str:
    """The input in the type of the result (softmax may be asked to compute in another)."""
    to = call.outs[0].dtype
    return x if call.types[0].dtype is to else w.cast(x, to)  # pyright: ignore[reportOptionalMemberAccess]


@rule("embedding")
def embedding(
    w: Writer, call: Call, x: str, weight: str, padding_idx: int, by_frequency: bool
) -> str:
    rows = w.emit("Gather", weight, x, axis=0)
    if padding_idx < 0:
        return rows
    index = call.types[0]
    real = w.emit("Not", w.emit("Equal", x, w.constant(padding_idx, index.dtype)))  # pyright: ignore[reportArgumentType, reportOptionalMemberAccess]
    keep = w.emit("Unsqueeze", w.cast(real, call.outs[0].dtype), w.ints([-1]))
    return w.emit("Mul", rows, keep)


@rule("conv")
def conv(
    w: Writer,
    call: Call,
    x: str,
    weight: str,
    bias: str | None,
    stride: Sequence[Any],
    pads: Sequence[Any],
    dilation: Sequence[Any],
    groups: int,
    last: bool,
) -> str:
    out = w.emit(
        "Conv",
        _channels_first(w, x, call) if last else x,
        weight,
        bias,
        strides=list(stride),
        dilations=list(dilation),
        pads=_onnx_pads(pads),
        group=groups,
    )
    return _channels_last(w, out, call) if last else out


def _onnx_pads(pads: Sequence[Any]) -> list[int]:
    """((top, bottom), (left, right)) as ONNX's starts and then ends."""
    return [p[0] for p in pads] + [p[1] for p in pads]


def _channels_first(w: Writer, x: str, call: Call) -> str:
    rank = call.types[0].ndim  # pyright: ignore[reportOptionalMemberAccess]
    return w.emit("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])


def _channels_last(w: Writer, x: str, call: Call) -> str:
    rank = call.outs[0].ndim
    return w.emit("Transpose", x, perm=[0, *range(2, rank), 1])
