"""Taking and putting elements by position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import bireme as paddle
from bireme.convert.onnx.imports import onnx_op
from bireme.convert.onnx.imports.elementwise import dtype_of
from bireme.convert.onnx.imports.shapes import in_tensors, shape_of, sizes
from bireme.convert.onnx.reader import OnnxError
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.ops.indexing import _gather, _put_along, _take_along

if TYPE_CHECKING:
    from bireme.convert.onnx.interpreter import NodeView, Value, Values


def from_end(index: Tensor, size: int | Tensor) -> Tensor:
    """Negative positions counted from the end."""
    index = index.astype("int64")
    return paddle.where(index < 0, index + in_tensors(size), index)


@onnx_op("Gather")
def gather(n: NodeView, x: Tensor, index: Tensor) -> Tensor:
    axis = n.attr("axis", 0) % x.ndim
    return _gather(x, from_end(index, shape_of(x)[axis]), axis)


@onnx_op("GatherElements")
def gather_elements(n: NodeView, x: Tensor, index: Tensor) -> Tensor:
    axis = n.attr("axis", 0) % x.ndim
    index = from_end(index, shape_of(x)[axis])
    for i, (have, want) in enumerate(zip(shape_of(x), shape_of(index), strict=True)):
        if i != axis and have != want:
            x = x[(*[slice(None)] * i, slice(0, want))]
    return _take_along(x, index, axis)


def _flat_positions(index: Tensor, sizes_: list[Any]) -> Tensor:
    """Row numbers, in a flattened array, of positions in the last dimension of `index`."""
    parts = [from_end(index[..., i], d) for i, d in enumerate(sizes_)]
    flat = parts[0]
    for d, part in zip(sizes_[1:], parts[1:], strict=True):
        flat = flat * in_tensors(d) + part
    return flat


@onnx_op("GatherND")
def gather_nd(n: NodeView, x: Tensor, index: Tensor) -> Tensor:
    batch, depth = n.attr("batch_dims", 0), shape_of(index)[-1]
    shape = list(shape_of(x))
    lead, picked, rest = shape[:batch], shape[batch : batch + depth], shape[batch + depth :]
    flat = _flat_positions(index, picked)
    if batch:
        rows = int(np.prod(picked))
        count = int(np.prod(lead))
        spots = flat.reshape([count, -1]) + paddle.arange(count).unsqueeze(-1) * rows
        table = x.reshape([count * rows, *rest])
        return _gather(table, spots, 0).reshape([*shape_of(flat), *rest])
    table = x.reshape([-1, *rest]) if depth > 1 else x
    return _gather(table, flat, 0)


_REDUCE = {"none": "assign", "add": "add", "mul": "mul", "max": "amax", "min": "amin"}


@onnx_op("ScatterElements", "Scatter")
def scatter_elements(n: NodeView, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    axis = n.attr("axis", 0) % x.ndim
    reduce = _REDUCE[n.attr("reduction", "none")]
    index = from_end(index, shape_of(x)[axis])
    return _put_along(x, index, updates, axis, reduce, True)


@onnx_op("ScatterND")
def scatter_nd(n: NodeView, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    depth, shape = shape_of(index)[-1], list(shape_of(x))
    rest = shape[depth:]
    flat = _flat_positions(index, shape[:depth]).reshape([-1])
    table = x.reshape([-1, *rest]) if depth > 1 else x
    width = int(np.prod(rest)) if all(type(d) is int for d in rest) else -1
    table = table.reshape([-1, width]) if rest else table.unsqueeze(-1)
    values = updates.reshape([-1, width]) if rest else updates.reshape([-1, 1])
    spots = paddle.expand(flat.unsqueeze(-1), shape_of(values))
    reduce = _REDUCE[n.attr("reduction", "none")]
    return _put_along(table, spots, values, 0, reduce, True).reshape(shape)


@onnx_op("TensorScatter")
def tensor_scatter(
    n: NodeView, past: Tensor, update: Tensor, starts: Tensor | None = None
) -> Tensor:
    axis = n.attr("axis", -2) % past.ndim
    size, length = shape_of(past)[axis], shape_of(update)[axis]
    batch = shape_of(past)[0]
    if starts is None:
        starts = paddle.zeros([batch], "int64")
    spots = starts.reshape([-1, 1]).astype("int64") + paddle.arange(length)
    if n.attr("mode", "linear") == "circular":
        spots = spots % size
    spots = spots.reshape([batch, *[length if i == axis else 1 for i in range(1, past.ndim)]])
    return _put_along(past, paddle.expand(spots, shape_of(update)), update, axis, "assign", True)


@onnx_op("OneHot", static=(1,))
def one_hot(n: NodeView, index: Tensor, depth: Value, values: Tensor) -> Tensor:
    count = int(np.ravel(depth)[0])
    axis = n.attr("axis", -1)
    places = from_end(index, count)
    hot = paddle.equal(places.unsqueeze(-1), paddle.arange(count)).moveaxis(-1, axis)
    return paddle.where(hot, values[1], values[0])


@onnx_op("TopK", static=(1,))
def top_k(n: NodeView, x: Tensor, k: Value | None = None) -> Values:
    count = n.attr("k") if k is None else int(np.ravel(k)[0])
    axis = n.attr("axis", -1) % x.ndim
    largest = bool(n.attr("largest", 1))
    # A stable sort gives equal elements in their order.
    order = paddle.argsort(x, axis=axis, descending=largest, stable=True)
    picked = order[(*[slice(None)] * axis, slice(0, count))]
    return _take_along(x, picked, axis), picked


@onnx_op("Trilu", static=(1,))
def trilu(n: NodeView, x: Tensor, k: Value | None = None) -> Tensor:
    offset = 0 if k is None else int(np.ravel(k)[0])
    rows, columns = shape_of(x)[-2:]
    if type(rows) is int and type(columns) is int:
        offset = max(min(offset, columns + 1), -rows - 1)
    distance = paddle.arange(columns) - paddle.arange(rows).unsqueeze(-1)
    keep = distance >= offset if n.attr("upper", 1) else distance <= offset
    return paddle.where(keep, x, paddle.zeros_like(x))


@onnx_op("NonZero")
def nonzero(n: NodeView, x: Tensor) -> np.ndarray:
    found = np.nonzero(np.atleast_1d(n.known(x)))
    return np.stack(found).astype(np.int64) if x.ndim else np.zeros((0, len(found[0])), np.int64)


@onnx_op("Compress", static=(1,))
def compress(n: NodeView, x: Tensor, condition: Value) -> Tensor:
    places = np.nonzero(condition)[0]
    if n.attr("axis") is None:
        return _gather(x.reshape([-1]), paddle.to_tensor(places), 0)
    return _gather(x, paddle.to_tensor(places), n.attr("axis") % x.ndim)


@onnx_op("Unique", host=True)
def unique(n: NodeView, x: Value) -> Values:
    x = n.known(x)
    axis = n.attr("axis")
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.ravel()
    if not n.attr("sorted", 1):
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], place[inverse]
    return (values, *(a.astype(np.int64) for a in (first, inverse, counts)))


@onnx_op("ReverseSequence")
def reverse_sequence(n: NodeView, x: Tensor, lengths: Tensor) -> Tensor:
    time, batch = n.attr("time_axis", 0), n.attr("batch_axis", 1)
    steps = paddle.arange(shape_of(x)[time]).unsqueeze(0)
    ends = lengths.astype("int64").unsqueeze(-1)
    source = paddle.where(steps < ends, ends - 1 - steps, steps)  # [batch, time]
    if time < batch:
        source = source.transpose([1, 0])
    if x.ndim > 2:
        source = source.reshape([*shape_of(source), *[1] * (x.ndim - 2)])
    return _take_along(x, paddle.expand(source, shape_of(x)), time)


@onnx_op("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(n: NodeView, x: Tensor, index: Tensor) -> Tensor:
    picked = _gather(x, index.reshape([-1]), x.ndim - 1)
    return picked.reshape([1, -1]) if x.ndim == 1 else picked


@onnx_op("Binarizer", domain="ai.onnx.ml")
def binarizer(n: NodeView, x: Tensor) -> Tensor:
    return (x > n.attr("threshold", 0.0)).astype(x.dtype)


@onnx_op("LabelEncoder", host=True, domain="ai.onnx.ml")
def label_encoder(n: NodeView, x: Value) -> np.ndarray:
    def listed(what: str) -> Any:
        for kind in ("tensor", "strings", "int64s", "floats"):
            value = n.attr(f"{what}_{kind}")
            if value is not None:
                return kind, value
        raise OnnxError(f"the attribute {what}_* is missing")

    _, keys = listed("keys")
    kind, values = listed("values")
    array = values if kind == "tensor" else None
    dtype: Any = {"strings": object, "int64s": np.int64, "floats": np.float32}.get(kind)
    if array is not None:
        dtype = array.dtype
    default = n.attr("default_tensor")
    if default is None:
        default = {
            "O": n.attr("default_string", "_Unused"),
            "i": n.attr("default_int64", -1),
            "f": n.attr("default_float", -0.0),
        }[np.dtype(dtype).kind]
    default = np.ravel(default)[0]
    nan = next((v for k, v in zip(keys, values, strict=True) if k != k), default)
    table = dict(zip(np.ravel(keys).tolist(), np.ravel(values).tolist(), strict=True))
    x = n.known(x)
    made = [nan if k != k else table.get(k, default) for k in x.ravel().tolist()]
    return np.array(made, dtype).reshape(x.shape)


@onnx_op("Col2Im", static=(1, 2))
def col2im(n: NodeView, x: Tensor, image: Value, block: Value) -> Tensor:
    """Adds up windows where they came from, by a scatter over the flattened image."""
    space, kernel = sizes(image), sizes(block)
    d = len(space)
    dilation = n.attr("dilations") or [1] * d
    stride = n.attr("strides") or [1] * d
    pads = n.attr("pads") or [0] * 2 * d
    padded = [s + pads[i] + pads[i + d] for i, s in enumerate(space)]
    counts = [
        (p - e * (k - 1) - 1) // s + 1
        for p, e, k, s in zip(padded, dilation, kernel, stride, strict=True)
    ]
    flat = np.zeros((1, 1), np.int64)
    for i in range(d):
        places = (
            np.arange(kernel[i])[:, None] * dilation[i] + np.arange(counts[i])[None] * stride[i]
        )
        grown = flat[:, None, :, None] * padded[i] + places[None, :, None, :]
        flat = grown.reshape(flat.shape[0] * kernel[i], flat.shape[1] * counts[i])
    batch, rows, _ = shape_of(x)
    window = int(np.prod(kernel))
    channels = rows // window
    values = x.reshape([batch * channels, window * int(np.prod(counts))])
    spots = paddle.expand(paddle.to_tensor(flat.reshape(1, -1)), shape_of(values))
    canvas = paddle.zeros([batch * channels, int(np.prod(padded))], dtype_of(x).name)
    full = _put_along(canvas, spots, values, 1, "add", True).reshape([batch, channels, *padded])
    inner = [slice(pads[i], pads[i] + s) for i, s in enumerate(space)]
    return full[(slice(None), slice(None), *inner)]


@onnx_op("MaxUnpool", static=(2,))
def max_unpool(n: NodeView, x: Tensor, index: Tensor, output_shape: Value | None = None) -> Tensor:
    d = x.ndim - 2
    kernel, stride = n.attr("kernel_shape"), n.attr("strides") or [1] * d
    pads = n.attr("pads") or [0] * 2 * d
    shape = list(shape_of(x))
    space = [
        (s - 1) * t - pads[i] - pads[i + d] + k
        for i, (s, t, k) in enumerate(zip(shape[2:], stride, kernel, strict=True))
    ]
    natural = [*shape[:2], *space]
    target = natural if output_shape is None else sizes(output_shape)
    # Positions count through the natural shape, whatever the output's.
    canvas = paddle.zeros([int(np.prod(natural))], dtype_of(x).name)
    spots = index.reshape([-1])
    if target != natural:
        places = np.arange(int(np.prod(natural))).reshape(natural)
        grid = np.unravel_index(places, natural)
        moved = paddle.to_tensor(np.ravel_multi_index(grid, target).reshape(-1))
        spots = _gather(moved, spots, 0)
        canvas = paddle.zeros([int(np.prod(target))], dtype_of(x).name)
    return _put_along(canvas, spots, x.reshape([-1]), 0, "assign", True).reshape(target)


@onnx_op("NegativeLogLikelihoodLoss")
def nll_loss(n: NodeView, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    classes = shape_of(x)[1]
    ignored = n.attr("ignore_index")
    safe = from_end(target, classes)
    keep = paddle.ones_like(x[:, 0])
    if ignored is not None:
        keep = (target != ignored).astype(x.dtype)
        safe = paddle.where(target != ignored, safe, paddle.zeros_like(safe))
    picked = _take_along(x, safe.unsqueeze(1), 1).squeeze(1)
    share = keep if weight is None else keep * _gather(weight, safe, 0)
    loss = -picked * share
    reduction = n.attr("reduction", "mean")
    if reduction == "none":
        return loss
    return loss.sum() / share.sum() if reduction == "mean" else loss.sum()


@onnx_op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    n: NodeView, x: Tensor, target: Tensor, weight: Value | None = None
) -> Values:
    chances = F.log_softmax(x, 1)
    return nll_loss(n, chances, target, weight), chances
