"""Boxes of many classes: suppression per class, then the best of all."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core.errors import ShapeMismatch
from bireme.core.tensor import Tensor, constant
from bireme.vision.proposals import _descending, _suppress


def multiclass_nms(
    bboxes: Tensor,
    scores: Tensor,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = -1,
    rois_num: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows (label, score, x1, y1, x2, y2), the rows' indices and the number of rows per image.

    Takes boxes [N, M, 4] with scores [N, C, M], or, where every class has its own boxes, boxes
    [R, C, 4] with scores [R, C] and `rois_num`, the number of boxes of each image.
    """
    boxes, points = bboxes.numpy(), scores.numpy()
    if points.ndim == 2 and rois_num is not None and boxes.ndim == 3:
        cuts = np.cumsum(rois_num.numpy())[:-1]
        images = list(zip(np.split(boxes, cuts), np.split(points, cuts), strict=True))
        views = [([b[:, c] for c in range(b.shape[1])], p.T) for b, p in images]
        starts = [0, *cuts.tolist()]
    elif points.ndim == 3 and boxes.ndim == 3 and boxes.shape[1] == points.shape[2]:
        views = [([b] * len(p), p) for b, p in zip(boxes, points, strict=True)]
        starts = [i * boxes.shape[1] for i in range(len(boxes))]
    else:
        raise ShapeMismatch(
            "[multiclass_nms] takes bboxes [N, M, 4] with scores [N, C, M], or bboxes [R, C, 4] "
            f"with scores [R, C] and rois_num. Received: {list(boxes.shape)} and "
            f"{list(points.shape)}"
        )
    limits = (score_threshold, nms_top_k, nms_threshold, nms_eta, 0.0 if normalized else 1.0)
    own_boxes = points.ndim == 2
    rows, index, counts = [np.zeros((0, 6), boxes.dtype)], [np.zeros(0, int)], []
    for (per_class, score), start in zip(views, starts, strict=True):
        labels, places = _of_image(per_class, score, limits, keep_top_k, background_label)
        if own_boxes:  # in their order instead of by score, as the kernel has it
            order = np.lexsort((places, labels))
            labels, places = labels[order], places[order]
        chosen = [per_class[c][i] for c, i in zip(labels, places, strict=True)]
        found = np.asarray(chosen, boxes.dtype).reshape(-1, 4)
        rows.append(np.column_stack([labels, score[labels, places], found]).reshape(-1, 6))
        at = places + start
        index.append(at * len(per_class) + labels if own_boxes else at)
        counts.append(len(labels))
    return (
        constant(np.concatenate(rows).astype(boxes.dtype)),
        constant(np.concatenate(index).astype(np.int32)[:, None]),
        constant(np.asarray(counts, np.int32)),
    )


def _of_image(
    boxes: list[np.ndarray], scores: np.ndarray, limits: Any, keep: int, background: int
) -> tuple[np.ndarray, np.ndarray]:
    """Class and place of what remains of one image, class by class, best first."""
    least, top, threshold, eta, extra = limits
    labels, places = [np.zeros(0, int)], [np.zeros(0, int)]
    for label, score in enumerate(scores):
        if label == background:
            continue
        order = np.flatnonzero(score > least)
        order = order[_descending(score[order])]
        order = order[:top] if top > -1 else order
        order = order[_suppress(boxes[label][order], threshold, extra, eta)]
        labels.append(np.full(len(order), label))
        places.append(order)
    label, place = np.concatenate(labels), np.concatenate(places)
    if -1 < keep < len(label):
        best = np.sort(_descending(scores[label, place])[:keep])
        label, place = label[best], place[best]
    return label, place


__all__ = ["multiclass_nms"]
