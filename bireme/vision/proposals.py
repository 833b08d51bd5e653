"""Choosing among boxes. How many remain depends on the numbers, so these read their inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.tensor import Tensor, constant

# A box may grow at most this much in its logarithm, or exp would overflow.
_LARGEST_STEP = math.log(1000.0 / 16.0)


def _pairwise_iou(a: np.ndarray, b: np.ndarray, extra: float = 0.0) -> np.ndarray:
    """Intersection over union of boxes [N, 4] and [M, 4]: [N, M]; no overlap gives 0."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    sides = high - low + extra
    inter = np.where((high < low).any(-1), 0.0, np.maximum(sides, 0).prod(-1)).astype(a.dtype)
    area_a, area_b = [np.prod(c[:, 2:] - c[:, :2] + extra, axis=1) for c in (a, b)]
    with np.errstate(divide="ignore", invalid="ignore"):
        return inter / (area_a[:, None] + area_b[None, :] - inter)


def _descending(scores: np.ndarray) -> np.ndarray:
    return np.argsort(-scores, kind="stable")


def _suppress(
    boxes: np.ndarray, threshold: float, extra: float = 0.0, eta: float = 1.0, limit: int = -1
) -> np.ndarray:
    """Indices of the boxes, best first, that overlap no better one by more than `threshold`.

    With `eta` below 1 the threshold falls after every box kept, while it is above 0.5. Rows of
    overlaps are computed for the kept boxes only.
    """
    if eta < 1 and threshold > 0.5:
        return _suppress_adaptively(boxes, threshold, extra, eta)
    alive = np.ones(len(boxes), bool)
    kept: list[int] = []
    for i in range(len(boxes)):
        if not alive[i]:
            continue
        kept.append(i)
        if len(kept) == limit:
            break
        rest = slice(i + 1, None)
        alive[rest] &= ~(_pairwise_iou(boxes[i : i + 1], boxes[rest], extra)[0] > threshold)
    return np.asarray(kept, np.int64)


def _suppress_adaptively(
    boxes: np.ndarray, threshold: float, extra: float, eta: float
) -> np.ndarray:
    kept: list[int] = []
    for i in range(len(boxes)):
        if kept and (_pairwise_iou(boxes[kept], boxes[i : i + 1], extra) > threshold).any():
            continue
        kept.append(i)
        if threshold > 0.5:
            threshold *= eta
    return np.asarray(kept, np.int64)


def nms(
    boxes: Tensor,
    iou_threshold: float = 0.3,
    scores: Tensor | None = None,
    category_idxs: Tensor | None = None,
    categories: Sequence[int] | None = None,
    top_k: int | None = None,
) -> Tensor:
    """Indices of the boxes [N, 4] that overlap no better one by more than `iou_threshold`.

    Better means earlier, or of a higher score. With `category_idxs` and `categories` boxes of
    different categories do not compete; `top_k` keeps the best of what remains.
    """
    rows = boxes.numpy()
    if rows.ndim != 2 or rows.shape[1] != 4:
        raise ShapeMismatch(f"[nms] boxes must be [boxes, 4]. Received: {list(rows.shape)}")
    if scores is None:
        return constant(_suppress(rows, iou_threshold))
    points = scores.numpy()
    if category_idxs is None:
        order = _descending(points)
        return constant(order[_suppress(rows[order], iou_threshold)])
    if categories is None:
        raise InvalidArgument("[nms] category_idxs needs categories, the list of their ids")
    if top_k is not None and top_k > len(points):
        raise InvalidArgument(
            f"[nms] top_k must not exceed the {len(points)} boxes. Received: {top_k}"
        )
    groups = category_idxs.numpy()
    chosen: list[np.ndarray] = []
    for category in categories:
        member = np.flatnonzero(groups == category)
        member = member[_descending(points[member])]
        chosen.append(member[_suppress(rows[member], iou_threshold)])
    kept = np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, np.int64)
    return constant(kept[_descending(points[kept])][:top_k])


def matrix_nms(
    bboxes: Tensor,
    scores: Tensor,
    score_threshold: float,
    post_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    use_gaussian: bool = False,
    gaussian_sigma: float = 2.0,
    background_label: int = 0,
    normalized: bool = True,
    return_index: bool = False,
    return_rois_num: bool = True,
    name: str | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Lower the score of every box by how much better ones overlap it, then keep the best.

    Takes boxes [N, M, 4] and scores [N, C, M]. Returns rows (label, score, x1, y1, x2, y2), the
    number of rows of each image and their indices in [N * M]; the latter two where asked for.
    """
    boxes, points = bboxes.numpy(), scores.numpy()
    if boxes.ndim != 3 or points.ndim != 3 or boxes.shape[1] != points.shape[2]:
        raise ShapeMismatch(
            "[matrix_nms] bboxes must be [N, M, 4] and scores [N, C, M]. Received: "
            f"{list(boxes.shape)} and {list(points.shape)}"
        )
    extra = 0.0 if normalized else 1.0
    decay = (use_gaussian, gaussian_sigma)
    rows, index, counts = [], [], []
    for image, (own, per_class) in enumerate(zip(boxes, points, strict=True)):
        found: list[tuple[int, np.ndarray, np.ndarray]] = []
        for label, score in enumerate(per_class):
            if label != background_label:
                limits = (score_threshold, post_threshold, nms_top_k)
                found.append((label, *_decayed(own, score, limits, decay, extra)))
        labels = np.concatenate([np.full(len(i), label) for label, i, _ in found] or [[]])
        places = np.concatenate([i for _, i, _ in found] or [np.zeros(0, int)]).astype(int)
        values = np.concatenate([s for _, _, s in found] or [[]])
        best = _descending(values)
        if keep_top_k > -1:
            best = best[:keep_top_k]
        chosen = own[places[best]]
        rows.append(np.column_stack([labels[best], values[best], chosen]).reshape(-1, 6))
        index.append(places[best] + image * boxes.shape[1])
        counts.append(len(best))
    out = constant(np.concatenate(rows).astype(boxes.dtype))
    return (
        out,
        constant(np.asarray(counts, np.int32)) if return_rois_num else None,
        constant(np.concatenate(index).astype(np.int32)[:, None]) if return_index else None,
    )


def _decayed(
    boxes: np.ndarray,
    score: np.ndarray,
    limits: tuple[float, float, int],
    decay: tuple[bool, float],
    extra: float,
) -> tuple[np.ndarray, np.ndarray]:
    """One class: the boxes that stay above the second threshold, and their new scores."""
    first, second, top = limits
    order = np.flatnonzero(score > first)
    order = order[_descending(score[order])]
    if top > -1:
        order = order[:top]
    if not len(order):
        return order, score[order]
    iou = np.tril(_pairwise_iou(boxes[order], boxes[order], extra), -1)  # [box, a better one]
    worst = iou.max(axis=1)
    gaussian, sigma = decay
    if gaussian:
        factor = np.exp((worst[None, :] ** 2 - iou**2) * sigma)
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = (1 - iou) / (1 - worst[None, :])
    better = np.tri(len(order), k=-1, dtype=bool)
    value = score[order] * np.where(better, factor, 1.0).min(axis=1)
    stays = value > second
    return order[stays], value[stays]


def distribute_fpn_proposals(
    fpn_rois: Tensor,
    min_level: int,
    max_level: int,
    refer_level: int,
    refer_scale: int,
    pixel_offset: bool = False,
    rois_num: Tensor | None = None,
    name: str | None = None,
) -> tuple[list[Tensor], Tensor, list[Tensor] | None]:
    """Deal boxes out to the levels of a feature pyramid by their size.

    A box of `refer_scale` pixels goes to `refer_level`. Returns the boxes of each level, where
    each original box is in all of those joined, and the boxes per image and level.
    """
    if not 0 < min_level < max_level:
        raise InvalidArgument(
            "[distribute_fpn_proposals] levels must be positive and max_level above min_level. "
            f"Received: {min_level} and {max_level}"
        )
    boxes = fpn_rois.numpy()
    extra = 1.0 if pixel_offset else 0.0
    sides = boxes[:, 2:] - boxes[:, :2]
    area = np.where((sides < 0).any(1), 0.0, (sides + extra).prod(1))
    level = np.floor(np.log2(np.sqrt(area) / refer_scale + 1e-6) + refer_level)
    level = np.clip(level, min_level, max_level).astype(int)
    counts = np.asarray([len(boxes)]) if rois_num is None else rois_num.numpy()
    image = np.repeat(np.arange(len(counts)), counts)
    members = [np.flatnonzero(level == i) for i in range(min_level, max_level + 1)]
    restore = np.empty((len(boxes), 1), np.int32)
    restore[np.concatenate(members), 0] = np.arange(len(boxes))
    per_level = None
    if rois_num is not None:
        per_level = [
            constant(np.bincount(image[m], minlength=len(counts)).astype(np.int32)) for m in members
        ]
    return [constant(boxes[m]) for m in members], constant(restore), per_level


def generate_proposals(
    scores: Tensor,
    bbox_deltas: Tensor,
    img_size: Tensor,
    anchors: Tensor,
    variances: Tensor,
    pre_nms_top_n: float = 6000,
    post_nms_top_n: float = 1000,
    nms_thresh: float = 0.5,
    min_size: float = 0.1,
    eta: float = 1.0,
    pixel_offset: bool = False,
    return_rois_num: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """A region proposal network's boxes: decoded, clipped, filtered by size and overlap.

    Takes scores [N, A, H, W], deltas [N, 4 A, H, W], image sizes [N, 2] and anchors with their
    variances [H, W, A, 4]. Returns boxes [R, 4], scores [R, 1] and boxes per image where asked.
    """
    points, deltas, sizes = scores.numpy(), bbox_deltas.numpy(), img_size.numpy()
    grid = anchors.numpy().reshape(-1, 4), variances.numpy().reshape(-1, 4)
    extra = 1.0 if pixel_offset else 0.0
    chosen, values, counts = [], [], []
    for own, move, size in zip(points, deltas, sizes, strict=True):
        own = own.transpose(1, 2, 0).reshape(-1)
        move = move.transpose(1, 2, 0).reshape(-1, 4)
        best = _descending(own)
        if 0 < pre_nms_top_n < len(best):
            best = best[: int(pre_nms_top_n)]
        boxes = _decode(grid[0][best], grid[1][best], move[best], extra)
        boxes = np.clip(boxes, 0, np.tile(size[::-1] - extra, 2)).astype(points.dtype)
        big = _big_enough(boxes, size, max(min_size, 1.0), pixel_offset)
        boxes, own = boxes[big], own[best][big]
        if not len(boxes):  # one empty box stands for none
            boxes, own = np.zeros((1, 4), points.dtype), np.zeros(1, points.dtype)
        elif nms_thresh > 0:
            keep = _suppress(boxes, nms_thresh, extra, eta, int(post_nms_top_n))
            if post_nms_top_n > 0:
                keep = keep[: int(post_nms_top_n)]
            boxes, own = boxes[keep], own[keep]
        chosen.append(boxes)
        values.append(own)
        counts.append(len(boxes))
    return (
        constant(np.concatenate(chosen)),
        constant(np.concatenate(values)[:, None]),
        constant(np.asarray(counts, np.int32)) if return_rois_num else None,
    )


def _decode(anchors: np.ndarray, variances: np.ndarray, deltas: np.ndarray, extra: float) -> Any:
    sides = anchors[:, 2:] - anchors[:, :2] + extra
    step = variances * deltas
    middle = step[:, :2] * sides + anchors[:, :2] + 0.5 * sides
    half = np.exp(np.minimum(step[:, 2:], _LARGEST_STEP)) * sides / 2
    return np.concatenate([middle - half, middle + half - extra], axis=1)


def _big_enough(boxes: np.ndarray, size: np.ndarray, least: float, pixel_offset: bool) -> Any:
    sides = boxes[:, 2:] - boxes[:, :2] + (1.0 if pixel_offset else 0.0)
    big = (sides >= least).all(1)
    if pixel_offset:
        big &= (boxes[:, :2] + sides / 2 <= size[::-1]).all(1)
    return big
