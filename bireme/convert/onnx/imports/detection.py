"""Picking boxes, and forests of decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import bireme as paddle
from bireme.convert.onnx.imports import onnx_op
from bireme.convert.onnx.imports.shapes import shape_of
from bireme.convert.onnx.reader import OnnxError
from bireme.core.tensor import Tensor

if TYPE_CHECKING:
    from bireme.convert.onnx.interpreter import NodeView, Value


def _corners(boxes: np.ndarray, centred: bool) -> np.ndarray:
    if not centred:
        first, second = boxes[:, :2], boxes[:, 2:]
        return np.concatenate([np.minimum(first, second), np.maximum(first, second)], 1)
    half = boxes[:, 2:] / 2
    return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], 1)


def _overlaps(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    common = np.clip(high - low, 0, None).prod(1)
    area = (others[:, 2:] - others[:, :2]).prod(1) + (box[2:] - box[:2]).prod()
    return common / np.maximum(area - common, 1e-12)


@onnx_op("NonMaxSuppression", host=True)
def non_max_suppression(
    n: NodeView,
    boxes: Value,
    scores: Value,
    most: Value | None = None,
    overlap: Value | None = None,
    least: Value | None = None,
) -> np.ndarray:
    boxes, scores = n.known(boxes).astype(np.float64), n.known(scores)
    limit = 0 if most is None else int(np.ravel(n.known(most))[0])
    bound = 0.0 if overlap is None else float(np.ravel(n.known(overlap))[0])
    floor = -np.inf if least is None else float(np.ravel(n.known(least))[0])
    found: list[tuple[int, int, int]] = []
    for b in range(scores.shape[0]) if limit else ():
        corners = _corners(boxes[b], bool(n.attr("center_point_box", 0)))
        for c in range(scores.shape[1]):
            row = scores[b, c]
            order = np.argsort(-row, kind="stable")
            order = order[row[order] > floor]
            kept = 0
            while len(order) and kept < limit:
                best = order[0]
                found.append((b, c, int(best)))
                kept += 1
                order = order[1:]
                order = order[_overlaps(corners[best], corners[order]) <= bound]
    return np.array(found, np.int64).reshape(-1, 3)


@onnx_op("MaxRoiPool")
def max_roi_pool(n: NodeView, x: Tensor, rois: Tensor) -> Tensor:
    height, width = n.attr("pooled_shape")
    scale = n.attr("spatial_scale", 1.0)
    space = shape_of(x)[2:]
    made = []
    for row in n.known(rois):
        owner = int(row[0])
        x1, y1, x2, y2 = (int(np.floor(v * scale + 0.5)) for v in row[1:])
        spans = []
        for start, end, count, size in ((y1, y2, height, space[0]), (x1, x2, width, space[1])):
            step = max(end - start + 1, 1) / count
            spans.append(
                [
                    (
                        min(max(int(np.floor(i * step)) + start, 0), size),
                        min(max(int(np.ceil((i + 1) * step)) + start, 0), size),
                    )
                    for i in range(count)
                ]
            )
        image = x[owner]
        rows = []
        for top, bottom in spans[0]:
            cells = []
            for left, right in spans[1]:
                if bottom <= top or right <= left:
                    cells.append(paddle.zeros([shape_of(x)[1]], x.dtype))
                else:
                    cells.append(image[:, top:bottom, left:right].max([1, 2]))
            rows.append(paddle.stack(cells, -1))
        made.append(paddle.stack(rows, 1))
    return paddle.stack(made, 0)


_MODES = {
    0: np.less_equal, 1: np.less, 2: np.greater_equal, 3: np.greater, 4: np.equal, 5: np.not_equal,
}  # fmt: skip


@onnx_op("TreeEnsemble", host=True, domain="ai.onnx.ml")
def tree_ensemble(n: NodeView, x: Value) -> np.ndarray:
    x = n.known(x)
    splits, modes = n.attr("nodes_splits"), n.attr("nodes_modes")
    features = n.attr("nodes_featureids")
    yes, no = n.attr("nodes_truenodeids"), n.attr("nodes_falsenodeids")
    yes_leaf, no_leaf = n.attr("nodes_trueleafs"), n.attr("nodes_falseleafs")
    targets, weights = n.attr("leaf_targetids"), n.attr("leaf_weights")
    members = _member_sets(n)
    missing = n.attr("nodes_missing_value_tracks_true") or [0] * len(features)
    out = np.zeros((x.shape[0], n.attr("n_targets")), x.dtype)
    how = n.attr("aggregate_function", 1)
    if how not in (0, 1):
        raise OnnxError("only sums and averages of trees are supported")
    for r, row in enumerate(x):
        for root in n.attr("tree_roots"):
            at, leaf, steps = root, False, 0
            while not leaf:
                steps += 1
                if steps > len(features) + 1:
                    raise OnnxError("the nodes of a tree form a circle")
                value = row[features[at]]
                if modes[at] == 6:
                    goes = float(value) in members[at]
                else:
                    goes = bool(_MODES[int(modes[at])](value, splits[at]))
                goes = goes or bool(missing[at] and np.isnan(value))
                leaf = bool((yes_leaf if goes else no_leaf)[at])
                at = (yes if goes else no)[at]
            out[r, targets[at]] += weights[at]
    if how == 0:
        out /= len(n.attr("tree_roots"))
    if n.attr("post_transform", 0):
        raise OnnxError("a transform after the trees is not supported")
    return out


def _member_sets(n: NodeView) -> dict[int, set[float]]:
    """For nodes that test for membership: their sets, which lie one after the other."""
    values = n.attr("membership_values")
    made: dict[int, set[float]] = {}
    if values is None:
        return made
    at = 0
    listed = np.ravel(values).tolist()
    for i, mode in enumerate(n.attr("nodes_modes")):
        if mode == 6:
            made[i] = set()
            while at < len(listed) and listed[at] == listed[at]:
                made[i].add(float(listed[at]))
                at += 1
            at += 1
    return made
