"""TensorFlow's ops that move, make or measure elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import bireme as paddle
from bireme.convert import folding, nhwc
from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.imported import View, check_size, to_value
from bireme.convert.nhwc import sizes_of
from bireme.convert.tensorflow.elementwise import kind_attr
from bireme.convert.tensorflow.rules import rule
from bireme.convert.tflite import shapes as lite
from bireme.core.tensor import Tensor

Known = Tensor | np.ndarray

rule(
    "Identity",
    "StopGradient",
    "PreventGradient",
    "CheckNumerics",
    "Snapshot",
    "ReadVariableOp",
    "PlaceholderWithDefault",
    "EnsureShape",
    "Print",
    "LoopCond",
    "RefIdentity",
    as_is=True,
)(lambda n, x, *others: x)
rule("IdentityN", as_is=True)(lambda n, *xs: list(xs))

rule("Reshape", static=(1,))(lite.reshape)
rule.folds("Reshape")(lite.reshape_known)
rule("Squeeze")(lite.squeeze)
rule.folds("Squeeze")(lite.squeeze_known)
rule("ExpandDims", static=(1,))(lambda n, x, axis: paddle.unsqueeze(x, sizes_of(axis)[0]))
rule.folds("ExpandDims")(lambda n, x, axis: np.expand_dims(x, sizes_of(axis)[0]))
rule("Transpose", static=(1,))(lambda n, x, order: paddle.transpose(x, sizes_of(order)))
rule("ConjugateTranspose", static=(1,))(
    lambda n, x, order: paddle.conj(paddle.transpose(x, sizes_of(order)))
)
rule("Pad", static=(1,))(lambda n, x, pairs: nhwc.pad(x, pairs))
rule("PadV2", static=(1, 2))(lambda n, x, pairs, v: nhwc.pad(x, pairs, np.asarray(v).item()))
rule("MirrorPad", static=(1,))(lambda n, x, pairs: nhwc.pad(x, pairs, 0.0, n.attr("mode")))
rule("ReverseV2", static=(1,))(lambda n, x, axes: paddle.flip(x, sizes_of(axes)))
rule("Tile", static=(1,))(lite.tile)
rule("BroadcastTo", static=(1,))(lite.broadcast_to)
rule("Fill", static=(0,))(lite.fill)
rule("Range", static=(0, 1, 2))(lite.range_)
rule("OneHot", static=(1,))(lite.one_hot)
rule("SplitV", static=(1, 2))(lite.split_v)


@rule.folds("Fill")
def fill_known(n: View, sizes: np.ndarray, value: np.ndarray) -> np.ndarray | None:
    wanted = sizes_of(sizes)
    if value.dtype == object or not all(type(s) is int and s >= 0 for s in wanted):
        return None
    return np.full(wanted, value) if math.prod(wanted) <= 1024 else None


@rule.folds("Tile")
def tile_known(n: View, x: np.ndarray, repeats: np.ndarray) -> np.ndarray | None:
    counts = sizes_of(repeats)
    few = all(type(c) is int and 0 <= c <= 1024 for c in counts)
    return np.tile(x, counts) if few and x.size * math.prod(counts) <= 1024 else None


# --- one behind the other -------------------------------------------------------------------


def _joined(values: list[Known], axis: np.ndarray) -> Tensor:
    kinds = {v.dtype.name for v in values if isinstance(v, Tensor)}
    tensors = [to_value(v) for v in values]
    if len({t.dtype.name for t in tensors}) > 1 and len(kinds) == 1:  # open sizes are int64
        tensors = [t.astype(next(iter(kinds))) for t in tensors]
    return paddle.concat(tensors, int(np.asarray(axis).item()))


@rule("ConcatV2", as_is=True)
def concat(n: View, *values: Known) -> Tensor:
    return _joined(list(values[:-1]), _known(values[-1]))


@rule("Concat", as_is=True)
def concat_old(n: View, axis: Known, *values: Known) -> Tensor:
    return _joined(list(values), _known(axis))


rule.folds("ConcatV2")(
    lambda n, *xs: folding.joined(list(xs[:-1]), int(np.asarray(xs[-1]).item()), False)
)


def _known(value: Known) -> np.ndarray:
    return value.numpy() if isinstance(value, Tensor) else np.asarray(value)


@rule("Pack", as_is=True)
def pack(n: View, *values: Known) -> Tensor:
    kinds = {v.dtype.name for v in values if isinstance(v, Tensor)}
    tensors = [to_value(v) for v in values]
    if len({t.dtype.name for t in tensors}) > 1 and len(kinds) == 1:
        tensors = [t.astype(next(iter(kinds))) for t in tensors]
    return paddle.stack(tensors, n.attr("axis", 0))


rule.folds("Pack")(lambda n, *xs: folding.joined(list(xs), n.attr("axis", 0), True))


@rule("Unpack")
def unpack(n: View, x: Tensor) -> list[Tensor]:
    return list(paddle.unbind(x, n.attr("axis", 0)))


@rule.folds("Unpack")
def unpack_known(n: View, x: np.ndarray) -> list[np.ndarray]:
    axis = n.attr("axis", 0)
    return [np.asarray(np.take(x, i, axis)) for i in range(min(x.shape[axis], 1024))]


@rule("Split", static=(0,))
def split(n: View, axis: np.ndarray, x: Tensor) -> list[Tensor]:
    count = n.attr("num_split", 1)
    return list(paddle.split(x, count, sizes_of(axis)[0])) if count > 1 else [x]


# --- parts ----------------------------------------------------------------------------------


@rule("StridedSlice", as_is=True)
def strided_slice(n: View, x: Known, begin: Known, end: Known, strides: Known) -> Tensor:
    x = to_value(x)
    if isinstance(begin, Tensor) and not isinstance(strides, Tensor):
        made = _at_tensors(n, x, begin, sizes_of(strides))
        if made is not None:
            return made
    return lite.strided_slice(n, x, _known(begin), _known(end), _known(strides))


def _at_tensors(n: View, x: Tensor, begin: Tensor, strides: list[int]) -> Tensor | None:
    """x[i] or x[:, i] where only a run knows i; None where slices are asked for, too."""
    masks = {k: n.attr(f"{k}_mask", 0) for k in ("begin", "end", "shrink_axis")}
    if n.attr("ellipsis_mask") or n.attr("new_axis_mask"):
        return None
    chosen = []
    for i, step in enumerate(strides):
        bit = 1 << i
        if masks["shrink_axis"] & bit:
            chosen.append(i)
        elif step != 1 or not (masks["begin"] & bit and masks["end"] & bit):
            return None
    for i in reversed(chosen):
        at, size = begin[i], x.shape[i]
        at = paddle.where(at < 0, at + size, at).reshape([1])
        x = paddle.squeeze(paddle.index_select(x, at, i), i)
    return x


rule.folds("StridedSlice")(lite.strided_known)


@rule("Slice", as_is=True)
def slice_(n: View, x: Known, begin: Known, sizes: Known) -> Tensor:
    x, wanted = to_value(x), sizes_of(_known(sizes))
    if not isinstance(begin, Tensor):
        return lite.slice_(n, x, begin, _known(sizes))
    if -1 in wanted:
        return lite.slice_(n, x, begin.numpy(), _known(sizes))
    for axis, size in enumerate(wanted):
        if size is not x.shape[axis]:
            check_size([size])
            x = paddle.index_select(x, begin[axis] + paddle.arange(size, dtype=begin.dtype), axis)
    return x


@rule.folds("Slice")
def slice_known(n: View, x: np.ndarray, begin: np.ndarray, sizes: np.ndarray) -> np.ndarray | None:
    pairs = list(zip(sizes_of(begin), sizes_of(sizes), strict=True))
    if not all(type(v) is int for pair in pairs for v in pair):
        return None
    return x[tuple([slice(b, None if s == -1 else b + s) for b, s in pairs])]


@rule("ReverseSequence")
def reverse_sequence(n: View, x: Tensor, lengths: Tensor) -> Tensor:
    axis, batch = n.attr("seq_dim", 0), n.attr("batch_dim", 0)
    size = x.shape[axis]
    lengths = lengths.astype("int64").reshape([-1, 1])
    steps = paddle.arange(size, dtype="int64").unsqueeze(0)
    index = paddle.where(steps < lengths, lengths - 1 - steps, steps)
    if batch > axis:
        index = paddle.transpose(index, [1, 0])
    shape: list[Any] = [1] * x.ndim
    shape[axis], shape[batch] = size, x.shape[batch]
    return paddle.take_along_axis(x, paddle.broadcast_to(index.reshape(shape), x.shape), axis)


@rule("Roll", static=(1, 2))
def roll(n: View, x: Tensor, shifts: np.ndarray, axes: np.ndarray) -> Tensor:
    return paddle.roll(x, sizes_of(shifts), sizes_of(axes))


# --- shapes ---------------------------------------------------------------------------------


@rule("Shape")
def shape(n: View, x: Tensor) -> np.ndarray:
    return nhwc.shape_of(x, kind_attr(n, "out_type", "int32"))


rule.folds("Shape")(lambda n, x: np.array(x.shape, kind_attr(n, "out_type", "int32")))


@rule("ShapeN")
def shape_n(n: View, *xs: Tensor) -> list[np.ndarray]:
    return [nhwc.shape_of(x, kind_attr(n, "out_type", "int32")) for x in xs]


@rule("Size")
def size(n: View, x: Tensor) -> np.ndarray:
    made = np.empty((), object)
    made[()] = math.prod(x.shape)
    whole = folding.tidy(made)
    return whole if whole.dtype == object else whole.astype(kind_attr(n, "out_type", "int32"))


rule("Rank")(lambda n, x: np.array(x.ndim, np.int32))


@rule("BroadcastArgs", static=(0, 1))
def broadcast_args(n: View, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.array(np.broadcast_shapes(tuple(sizes_of(a)), tuple(sizes_of(b))), np.int32)


@rule("LinSpace", static=(2,))
def linspace(n: View, start: Tensor, stop: Tensor, count: np.ndarray) -> Tensor:
    (steps,) = sizes_of(count)
    check_size([steps])
    part = np.arange(steps, dtype=np.float32) / max(steps - 1, 1)
    return start + (stop - start) * paddle.to_tensor(part)


@rule("InvertPermutation", static=(0,))
def invert_permutation(n: View, order: np.ndarray) -> np.ndarray:
    return np.argsort(order).astype(order.dtype)


# --- diagonals ------------------------------------------------------------------------------


@rule("MatrixBandPart", static=(1, 2))
def band(n: View, x: Tensor, lower: np.ndarray, upper: np.ndarray) -> Tensor:
    below, above = sizes_of(lower)[0], sizes_of(upper)[0]
    x = x if above < 0 else paddle.tril(x, above)
    return x if below < 0 else paddle.triu(x, -below)


def _main(k: np.ndarray | None) -> None:
    if k is not None and any(sizes_of(k)):
        raise UnsupportedModel("diagonals beside the main one have no rule")


@rule("MatrixDiag", "MatrixDiagV2", "MatrixDiagV3", static=(1, 2, 3))
def diagonal_matrix(
    n: View,
    x: Tensor,
    k: np.ndarray | None = None,
    rows: np.ndarray | None = None,
    columns: np.ndarray | None = None,
    filling: Tensor | None = None,
) -> Tensor:
    _main(k)
    for given in (rows, columns):
        if given is not None and sizes_of(given)[0] not in (-1, x.shape[-1]):
            raise UnsupportedModel("a diagonal in a larger matrix has no rule")
    check_size([*x.shape, x.shape[-1]])
    return paddle.diag_embed(x)


@rule("MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3", static=(1,))
def diagonal(n: View, x: Tensor, k: np.ndarray | None = None, *filling: Tensor) -> Tensor:
    _main(k)
    return paddle.diagonal(x, 0, -2, -1)


@rule("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3", static=(2,))
def with_diagonal(n: View, x: Tensor, row: Tensor, k: np.ndarray | None = None) -> Tensor:
    _main(k)
    rows, columns = x.shape[-2:]
    if rows != columns:
        raise UnsupportedModel("the diagonal of a matrix that is not square has no rule")
    on = paddle.equal(paddle.arange(rows).unsqueeze(1), paddle.arange(columns).unsqueeze(0))
    return paddle.where(on, row.unsqueeze(-1), x)


@rule("Diag")
def diag(n: View, x: Tensor) -> Tensor:
    if x.ndim != 1:
        raise ModelFileError(f"Diag of {x.ndim} dimensions has no rule")
    return paddle.diag_embed(x)
