"""TensorFlow's ops that keep the best of overlapping boxes. How many are kept only a run knows,
so a model with one of them runs eagerly, unless the op fills up to a fixed number."""

from __future__ import annotations

import numpy as np

from bireme.convert.errors import ModelFileError
from bireme.convert.imported import View
from bireme.convert.tensorflow.rules import rule

_MOST = 1 << 20  # boxes


def _corners(boxes: np.ndarray) -> np.ndarray:
    """(y1, x1, y2, x2), whichever corners were given."""
    first, second = boxes[:, :2].astype(np.float64), boxes[:, 2:].astype(np.float64)
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], 1)


def _overlaps(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    common = np.clip(high - low, 0, None).prod(1)
    areas = (others[:, 2:] - others[:, :2]).prod(1)
    area = (box[2:] - box[:2]).prod()
    made = common / np.maximum(areas + area - common, 1e-300)
    return np.where((areas <= 0) | (area <= 0), 0.0, made)


def _kept(
    boxes: np.ndarray, scores: np.ndarray, most: int, bound: float, least: float
) -> np.ndarray:
    if boxes.ndim != 2 or boxes.shape[1] != 4 or len(boxes) != len(scores) or len(boxes) > _MOST:
        raise ModelFileError(f"{boxes.shape} are no boxes for {scores.shape} scores")
    corners = _corners(boxes)
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > least]
    kept = []
    while len(order) and len(kept) < most:
        best, order = order[0], order[1:]
        kept.append(best)
        order = order[_overlaps(corners[best], corners[order]) <= bound]
    return np.array(kept, np.int32)


def _one(value: np.ndarray | None, default: float) -> float:
    return default if value is None else float(np.asarray(value).reshape(()))


def _softened(
    boxes: np.ndarray, scores: np.ndarray, most: int, bound: float, least: float, sigma: float
) -> tuple[np.ndarray, np.ndarray]:
    """What overlaps a better box loses some of its score, instead of all."""
    if boxes.ndim != 2 or boxes.shape[1] != 4 or len(boxes) != len(scores) or len(boxes) > 1 << 14:
        raise ModelFileError(f"{boxes.shape} are no boxes for {scores.shape} scores")
    corners, now = _corners(boxes), scores.astype(np.float64).copy()
    free = np.ones(len(now), bool)
    kept: list[int] = []
    while len(kept) < most and free.any():
        best = int(np.argmax(np.where(free, now, -np.inf)))
        if now[best] <= least:
            break
        free[best] = False
        kept.append(best)
        overlap = _overlaps(corners[best], corners)
        factor = np.where(overlap <= bound, np.exp(-0.5 * overlap**2 / sigma), 0.0)
        now = np.where(free, now * factor, now)
    at = np.array(kept, np.int32)
    return at, now[at].astype(scores.dtype) if len(at) else np.zeros(0, scores.dtype)


@rule("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3", static=(-1,))
def suppress(
    n: View,
    boxes: np.ndarray,
    scores: np.ndarray,
    most: np.ndarray,
    bound: np.ndarray | None = None,
    least: np.ndarray | None = None,
) -> np.ndarray:
    limit = _one(bound, n.attr("iou_threshold", 0.5))
    return _kept(boxes, scores, int(_one(most, 0)), limit, _one(least, -np.inf))


def _filled(n: View, at: np.ndarray, most: int) -> np.ndarray:
    return np.pad(at, (0, most - len(at))) if n.attr("pad_to_max_output_size") else at


@rule("NonMaxSuppressionV4", static=(-1,))
def suppress_filled(
    n: View,
    boxes: np.ndarray,
    scores: np.ndarray,
    most: np.ndarray,
    bound: np.ndarray,
    least: np.ndarray,
) -> list[np.ndarray]:
    count = min(int(_one(most, 0)), _MOST)
    at = _kept(boxes, scores, count, _one(bound, 0.5), _one(least, -np.inf))
    return [_filled(n, at, count), np.array(len(at), np.int32)]


@rule("NonMaxSuppressionV5", static=(-1,))
def suppress_soft(
    n: View,
    boxes: np.ndarray,
    scores: np.ndarray,
    most: np.ndarray,
    bound: np.ndarray,
    least: np.ndarray,
    sigma: np.ndarray,
) -> list[np.ndarray]:
    count = min(int(_one(most, 0)), _MOST)
    limit, floor, width = _one(bound, 0.5), _one(least, -np.inf), _one(sigma, 0.0)
    if width > 0:
        at, left = _softened(boxes, scores, count, limit, floor, width)
    else:
        at = _kept(boxes, scores, count, limit, floor)
        left = scores[at]
    return [_filled(n, at, count), _filled(n, left, count), np.array(len(at), np.int32)]


@rule("CombinedNonMaxSuppression", static=(-1,))
def suppress_classes(
    n: View,
    boxes: np.ndarray,
    scores: np.ndarray,
    each: np.ndarray,
    total: np.ndarray,
    bound: np.ndarray,
    least: np.ndarray,
) -> list[np.ndarray]:
    """Boxes [images, boxes, 1 or classes, 4]: the best of all classes, up to a fixed number."""
    most, whole = min(int(_one(each, 0)), _MOST), min(int(_one(total, 0)), _MOST)
    images, _, classes = scores.shape
    size = min(whole, most * classes) if n.attr("pad_per_class") else whole
    out = [
        np.zeros((images, size, 4), np.float32),
        np.zeros((images, size), np.float32),
        np.zeros((images, size), np.float32),
        np.zeros(images, np.int32),
    ]
    for b in range(images):
        found: list[tuple[float, int, np.ndarray]] = []
        for c in range(classes):
            mine = boxes[b, :, c if boxes.shape[2] > 1 else 0]
            row = scores[b, :, c]
            for i in _kept(mine, row, most, _one(bound, 0.5), _one(least, -np.inf)):
                found.append((float(row[i]), c, mine[i]))
        found = sorted(found, key=lambda f: -f[0])[:size]
        for i, (score, c, box) in enumerate(found):
            out[0][b, i] = np.clip(box, 0, 1) if n.attr("clip_boxes", True) else box
            out[1][b, i], out[2][b, i] = score, c
        out[3][b] = len(found)
    return out
