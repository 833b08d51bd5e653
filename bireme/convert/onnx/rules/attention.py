"""Scaled dot-product attention, written out."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.convert.onnx.rules import rule
from bireme.convert.onnx.writer import Writer
from bireme.core.op import Call


@rule("attention")
def attention(
    w: Writer,
    call: Call,
    query: str,
    key: str,
    value: str,
    mask: str | None,
    scale: str,
    *dropout: Any,
    causal: bool,
) -> str:
    q_type: Any = call.types[0]
    k_type: Any = call.types[1]
    mask_type: Any = call.types[3]
    heads, dtype = q_type.shape[2], q_type.dtype
    q = w.emit("Transpose", query, perm=[0, 2, 1, 3])
    k = w.emit("Transpose", _repeated(w, key, k_type, heads), perm=[0, 2, 3, 1])
    v = w.emit("Transpose", _repeated(w, value, call.types[2], heads), perm=[0, 2, 1, 3])
    scores = w.emit("Mul", w.emit("MatMul", q, k), w.cast(scale, dtype))
    hidden = w.constant(-np.inf, dtype)
    if causal:
        rows = w.emit("Unsqueeze", _places(w, q_type.shape[1]), w.ints([1]))
        later = w.emit("Greater", _places(w, k_type.shape[1]), rows)
        scores = w.emit("Where", later, hidden, scores)
    elif mask is not None and mask_type.dtype.name == "bool":
        scores = w.emit("Where", mask, scores, hidden)
    elif mask is not None:
        scores = w.emit("Add", scores, mask)
    mixed = w.emit("MatMul", w.emit("Softmax", scores, axis=-1), v)
    return w.emit("Transpose", mixed, perm=[0, 2, 1, 3])


def _repeated(w: Writer, x: str, t: Any, heads: int) -> str:
    """Each head of key or value as often as heads of the query share it."""
    batch, length, own, width = t.shape
    if own == heads:
        return x
    group = heads // own
    apart = w.emit("Unsqueeze", x, w.ints([3]))
    spread = w.emit("Expand", apart, w.shape((batch, length, own, group, width)))
    return w.reshape(spread, (batch, length, heads, width))


def _places(w: Writer, length: Any) -> str:
    end = w.ints([length]) if type(length) is int else w.dimension(length)
    return w.emit("Range", w.constant(0, "int64"), w.reshape(end, ()), w.constant(1, "int64"))
