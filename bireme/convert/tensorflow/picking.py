"""TensorFlow's ops that choose elements by their places, or put them there."""

from __future__ import annotations

import numpy as np

import bireme as paddle
from bireme.convert import nhwc
from bireme.convert.errors import UnsupportedModel
from bireme.convert.imported import View, check_size, to_value
from bireme.convert.nhwc import sizes_of
from bireme.convert.program import Rule
from bireme.convert.tensorflow.rules import rule
from bireme.core.tensor import Tensor


@rule("GatherV2", static=(2,))
def gather(n: View, x: Tensor, index: Tensor, axis: np.ndarray) -> Tensor:
    return nhwc.gather(x, index, sizes_of(axis)[0], n.attr("batch_dims", 0))


@rule.folds("GatherV2")
def gather_known(n: View, x: np.ndarray, index: np.ndarray, axis: np.ndarray) -> np.ndarray | None:
    if n.attr("batch_dims", 0) or x.dtype.kind == "f" or index.dtype == object:
        return None
    return np.asarray(np.take(x, index, sizes_of(axis)[0]))


rule("Gather")(lambda n, x, index: nhwc.gather(x, index, 0))


@rule("ResourceGather")
def resource_gather(n: View, x: Tensor, index: Tensor) -> Tensor:
    batch = n.attr("batch_dims", 0)
    return nhwc.gather(x, index, batch, batch)


rule("ResourceGatherNd")(lambda n, x, index: paddle.gather_nd(x, index))


@rule("GatherNd")
def gather_nd(n: View, x: Tensor, index: Tensor) -> Tensor:
    if n.attr("batch_dims", 0):
        raise UnsupportedModel("GatherNd with dimensions of a batch has no rule")
    return paddle.gather_nd(x, index)


@rule("ScatterNd", static=(2,))
def scatter_nd(n: View, index: Tensor, values: Tensor, sizes: np.ndarray) -> Tensor:
    wanted = sizes_of(sizes)
    check_size(wanted)
    return paddle.scatter_nd_add(paddle.zeros(wanted, values.dtype), index, values)


@rule("TensorScatterUpdate")
def scatter_update(n: View, x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    return paddle.index_put(x, tuple(paddle.unbind(index, -1)), values)


@rule("TensorScatterAdd")
def scatter_add(n: View, x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    return paddle.scatter_nd_add(x, index, values)


@rule("TensorScatterSub")
def scatter_sub(n: View, x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    return paddle.scatter_nd_add(x, index, -values)


@rule("SparseToDense", static=(1,))
def sparse_to_dense(
    n: View, index: Tensor, sizes: np.ndarray, values: Tensor, default: Tensor
) -> Tensor:
    wanted = sizes_of(sizes)
    check_size(wanted)
    if index.ndim < 2:
        index = index.reshape([-1, 1])
    made = paddle.broadcast_to(default, wanted)
    values = paddle.broadcast_to(values, [index.shape[0]])
    return paddle.index_put(made, tuple(paddle.unbind(index, -1)), values)


@rule("TopKV2", static=(1,))
def top_k(n: View, x: Tensor, count: np.ndarray) -> list[Tensor]:
    values, places = paddle.topk(x, sizes_of(count)[0], -1)
    return [values, places.astype(n.attr("index_type", "int32"))]


@rule("Where")
def where(n: View, x: Tensor) -> Tensor:
    return paddle.nonzero(x)


@rule("Unique", "UniqueV2", static=(0, 1))
def unique(n: View, x: np.ndarray, axis: np.ndarray | None = None) -> list[np.ndarray]:
    """The elements in the order in which they come first, and which of them each one is."""
    if x.ndim != 1:
        raise UnsupportedModel("unique rows have no rule")
    values, first, back = np.unique(x, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return [values[order], rank[back.reshape(-1)].astype(n.attr("out_idx", "int32"))]


@rule("DynamicStitch", "ParallelDynamicStitch", as_is=True)
def stitch(n: View, *values: Tensor | np.ndarray) -> Tensor:
    """Rows put where the indices say, of which there are as many as rows."""
    half = len(values) // 2
    places = [v.numpy() if isinstance(v, Tensor) else np.asarray(v) for v in values[:half]]
    rows = [
        (t := to_value(v)).reshape([-1, *t.shape[p.ndim :]])
        for v, p in zip(values[half:], places, strict=True)
    ]
    flat = np.concatenate([p.reshape(-1) for p in places]).astype(np.int64)
    count = int(flat.max(initial=-1)) + 1
    if flat.min(initial=0) < 0 or count > len(flat):
        raise UnsupportedModel("a stitch with gaps has no rule")
    order = np.zeros(count, np.int64)
    order[flat] = np.arange(len(flat))  # the last one counts
    return paddle.index_select(paddle.concat(rows, 0), paddle.to_tensor(order), 0)


@rule("UnsortedSegmentSum", static=(2,))
def segment_sum(n: View, x: Tensor, owners: Tensor, count: np.ndarray) -> Tensor:
    groups = sizes_of(count)[0]
    rows = x.reshape([-1, *x.shape[owners.ndim :]])
    check_size([groups, *rows.shape[1:]])
    start = paddle.zeros([groups, *rows.shape[1:]], x.dtype)
    return paddle.scatter_nd_add(start, owners.reshape([-1, 1]), rows)


@rule("SegmentSum")
def sorted_segment_sum(n: View, x: Tensor, owners: Tensor) -> Tensor:
    return paddle.geometric.segment_sum(x, owners)


@rule("SegmentMean")
def sorted_segment_mean(n: View, x: Tensor, owners: Tensor) -> Tensor:
    return paddle.geometric.segment_mean(x, owners)


@rule("Bucketize")
def bucketize(n: View, x: Tensor) -> Tensor:
    edges = np.asarray(n.attr("boundaries") or [], np.float32)
    return paddle.searchsorted(paddle.to_tensor(edges), x.astype("float32"), True, True)


def _bound(right: bool) -> Rule:
    def run(n: View, rows: Tensor, values: Tensor) -> Tensor:
        made = paddle.searchsorted(rows, values, right=right)
        return made.astype(n.attr("out_type", "int32"))

    return run


rule("LowerBound")(_bound(False))
rule("UpperBound")(_bound(True))


@rule("InTopKV2", static=(2,))
def in_top_k(n: View, scores: Tensor, wanted: Tensor, count: np.ndarray) -> Tensor:
    mine = paddle.take_along_axis(scores, wanted.astype("int64").unsqueeze(1), 1)
    better = paddle.sum((scores > mine).astype("int64"), 1)
    return better < sizes_of(count)[0]
