"""Sequences (lists of values) and optional values (None where there is none)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import bireme as paddle
from bireme.convert.onnx.imports import onnx_op
from bireme.convert.onnx.imports.control import run_body
from bireme.convert.onnx.imports.shapes import cut, shape_of, sizes
from bireme.convert.onnx.reader import OnnxError
from bireme.core.tensor import Tensor

if TYPE_CHECKING:
    from bireme.convert.onnx.interpreter import NodeView, Value, Values


@onnx_op("SequenceEmpty", host=True)
def sequence_empty(n: NodeView) -> list[Any]:
    return []


@onnx_op("SequenceConstruct", host=True)
def sequence_construct(n: NodeView, *items: Any) -> list[Any]:
    return list(items)


def _place(n: NodeView, items: list[Any], at: Any, extra: int = 0) -> int:
    place = int(np.ravel(n.known(at))[0])
    place += len(items) if place < 0 else 0
    if not 0 <= place < len(items) + extra:
        raise OnnxError(f"position {place} is not in a sequence of {len(items)}")
    return place


@onnx_op("SequenceAt", host=True)
def sequence_at(n: NodeView, items: list[Any], at: Value) -> Values:
    return items[_place(n, items, at)]


@onnx_op("SequenceInsert", host=True)
def sequence_insert(
    n: NodeView, items: list[Any], item: object, at: Value | None = None
) -> list[Any]:
    place = len(items) if at is None else _place(n, items, at, 1)
    return [*items[:place], item, *items[place:]]


@onnx_op("SequenceErase", host=True)
def sequence_erase(n: NodeView, items: list[Any], at: Value | None = None) -> list[Any]:
    place = len(items) - 1 if at is None else _place(n, items, at)
    return [*items[:place], *items[place + 1 :]]


@onnx_op("SequenceLength", host=True)
def sequence_length(n: NodeView, items: list[Any]) -> np.ndarray:
    return np.asarray(len(items), np.int64)


def _tensors(items: list[Any]) -> list[Tensor]:
    from bireme.convert.onnx.interpreter import to_value

    return [to_value(i) for i in items]


@onnx_op("ConcatFromSequence", host=True)
def concat_from_sequence(n: NodeView, items: list[Any]) -> Tensor:
    if n.attr("new_axis", 0):
        return paddle.stack(_tensors(items), n.attr("axis"))
    return paddle.concat(_tensors(items), n.attr("axis"))


@onnx_op("SplitToSequence", host=True)
def split_to_sequence(n: NodeView, x: Value, split: Value | None = None) -> list[Any]:
    (x,) = _tensors([x])
    axis = n.attr("axis", 0) % x.ndim
    size = shape_of(x)[axis]
    if split is None:
        lengths = [1] * size
    else:
        split = n.known(split)
        if split.ndim == 0:
            step = int(split)
            lengths = [min(step, size - i) for i in range(0, size, step)]
        else:
            lengths = sizes(split)
    made, at = [], 0
    for length in lengths:
        part = cut(x, axis, at, at + length)
        at += length
        drop = split is None and not n.attr("keepdims", 1)
        made.append(paddle.squeeze(part, axis) if drop else part)
    return made


@onnx_op("SequenceMap", host=True)
def sequence_map(n: NodeView, items: list[Any], *others: Any) -> Values:
    body = n.attr("body")
    rows = [
        run_body(n, body, [item, *[o[i] if isinstance(o, list) else o for o in others]])
        for i, item in enumerate(items)
    ]
    return tuple([list(column) for column in zip(*rows, strict=True)])


@onnx_op("Optional", host=True)
def optional(n: NodeView, x: Value | None = None) -> Values:
    return x


@onnx_op("OptionalHasElement", host=True)
def optional_has_element(n: NodeView, x: Value | None = None) -> np.ndarray:
    return np.asarray(x is not None)


@onnx_op("OptionalGetElement", host=True)
def optional_get_element(n: NodeView, x: Value) -> Values:
    if x is None:
        raise OnnxError("the optional value is empty")
    return x
