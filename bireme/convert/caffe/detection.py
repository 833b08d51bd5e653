"""The layers of SSD: default boxes, and the choice among what was found."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import bireme as paddle
from bireme.convert.caffe.rules import rule
from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.imported import View, check_size
from bireme.core.tensor import Tensor
from bireme.static.nn import while_loop


@rule("PriorBox")
def prior_box(n: View, features: Tensor, image: Tensor) -> np.ndarray:
    """[1, 2, 4 * boxes]: the boxes, as parts of the image, and their variances."""
    sizes = [*features.shape[2:4], *image.shape[2:4]]
    if not all(type(d) is int for d in sizes):
        raise UnsupportedModel("default boxes need the size of the image")
    height, width, image_h, image_w = sizes
    image_h = n.attr("img_h") or n.attr("img_size") or image_h
    image_w = n.attr("img_w") or n.attr("img_size") or image_w
    step_h = n.attr("step_h") or n.attr("step") or image_h / height
    step_w = n.attr("step_w") or n.attr("step") or image_w / width
    boxes = np.array(_sides(n), np.float32).reshape(-1, 2)
    offsets_h = n.attr("offset_h") or [n.attr("offset", 0.5)]
    offsets_w = n.attr("offset_w") or [n.attr("offset", 0.5)]
    if len(offsets_h) != len(offsets_w) or not len(boxes):
        raise ModelFileError("the default boxes are described wrongly")
    check_size([height, width, len(boxes), len(offsets_h), 8], "the default boxes")
    y = (np.arange(height)[:, None] + np.array(offsets_h)) * step_h
    x = (np.arange(width)[:, None] + np.array(offsets_w)) * step_w
    shape = (height, width, len(boxes), len(offsets_h))
    centres = [
        np.broadcast_to(x[None, :, None, :], shape),
        np.broadcast_to(y[:, None, None, :], shape),
    ]
    halves = [np.broadcast_to(boxes[None, None, :, i, None] / 2, shape) for i in (0, 1)]
    sides = [
        (centres[i] + sign * halves[i]) / (image_w, image_h)[i] for sign in (-1, 1) for i in (0, 1)
    ]
    flat = np.stack(sides, -1).reshape(-1).astype(np.float32)
    if n.attr("clip", False):
        flat = np.clip(flat, 0, 1)
    given = n.attr("variance") or [0.1]
    if len(given) not in (1, 4):
        raise ModelFileError(f"there are 1 or 4 variances, not {len(given)}")
    spread = np.array(given if len(given) == 4 else given * 4, np.float32)
    return np.stack([flat, np.tile(spread, len(flat) // 4)])[None]


def _sides(n: View) -> list[tuple[float, float]]:
    """(width, height) of the boxes at each place, in pixels, in Caffe's order."""
    if n.attr("width"):
        heights = n.attr("height") or []
        return list(zip(n.attr("width"), heights, strict=True))
    smallest, largest = n.attr("min_size") or [], n.attr("max_size") or []
    if largest and len(largest) != len(smallest):
        raise ModelFileError("there are as many of max_size as of min_size")
    ratios = [1.0]
    for ratio in n.attr("aspect_ratio") or []:
        if ratio <= 0:
            raise ModelFileError(f"an aspect ratio cannot be {ratio}")
        for r in (ratio, 1 / ratio) if n.attr("flip", True) else (ratio,):
            if all(abs(r - known) >= 1e-6 for known in ratios):
                ratios.append(r)
    made: list[tuple[float, float]] = []
    for i, least in enumerate(smallest):
        made.append((least, least))
        if largest:
            middle = math.sqrt(least * largest[i])
            made.append((middle, middle))
        made += [(least * math.sqrt(r), least / math.sqrt(r)) for r in ratios[1:]]
    return made


@rule("DetectionOutput")
def detection_output(n: View, where: Tensor, scores: Tensor, priors: Tensor, *_: Any) -> Tensor:
    """[1, 1, images * most, 7]: image, class, score and corners of what was found, an image after
    the other, best first (Caffe sorts by class, OpenCV as here). Rows that are left over have -1
    for the image, as Caffe has for an empty result."""
    classes, nms = n.attr("num_classes", 0), n.attr("nms_param") or {}
    background, keep = n.attr("background_label_id", 0), n.attr("keep_top_k", -1)
    if nms.get("eta", 1.0) != 1.0:
        raise UnsupportedModel("suppression that adapts its threshold (eta) has no rule")
    count = priors.shape[2] // 4
    shared = n.attr("share_location", True)
    boxes = _decoded(
        n, where.reshape([-1, count, 1 if shared else classes, 4]), priors.reshape([2, count, 4])
    )
    boxes = paddle.transpose(boxes, [0, 2, 1, 3])  # image, class, box, side
    points = paddle.transpose(scores.reshape([-1, count, classes]), [0, 2, 1])
    wanted = [c for c in range(classes) if c != background]
    if len(wanted) < classes:
        index = paddle.to_tensor(wanted, "int64")
        points = paddle.index_select(points, index, 1)
        boxes = boxes if shared else paddle.index_select(boxes, index, 1)
    top = nms.get("top_k", -1)
    top = count if top < 0 else min(top, count)
    best, places = paddle.topk(points, top, 2)
    if shared:
        boxes = paddle.expand(boxes, [points.shape[0], len(wanted), count, 4])
    chosen = paddle.take_along_axis(boxes, places.unsqueeze(-1), 2, broadcast=True)
    kept = _suppressed(
        chosen,
        best > n.attr("confidence_threshold", -math.inf),
        nms.get("nms_threshold", 0.3),
        0.0 if n.attr("normalized_bbox", True) else 1.0,
    )
    return _rows(chosen, best, kept, wanted, keep)


def _rows(boxes: Tensor, scores: Tensor, kept: Tensor, labels: list[int], keep: int) -> Tensor:
    """The best of all classes of an image, best first."""
    images, _, top, _ = boxes.shape
    total = len(labels) * top
    most = total if keep < 0 else min(keep, total)
    floor = paddle.full([], -math.inf, scores.dtype)
    flat = paddle.where(kept, scores, floor).reshape([images, total])
    best, places = paddle.topk(flat, most, 1)
    valid = (best > floor).unsqueeze(-1)
    sides = paddle.take_along_axis(
        boxes.reshape([images, total, 4]), places.unsqueeze(-1), 1, broadcast=True
    )
    score = paddle.take_along_axis(scores.reshape([images, total]), places, 1).unsqueeze(-1)
    label = paddle.gather(paddle.to_tensor(labels, "float32"), (places // top).reshape([-1]))
    label = label.reshape([images, most, 1])
    image = paddle.expand(
        paddle.arange(images, dtype="float32").reshape([images, 1, 1]), [images, most, 1]
    )
    rows = paddle.concat([image, label, score, sides], -1)
    empty = paddle.to_tensor([-1.0, *[0.0] * 6], "float32")
    rows = paddle.where(valid, rows, empty)
    return rows.reshape([1, 1, -1, 7])


def _decoded(n: View, code: Tensor, priors: Tensor) -> Tensor:
    """Corners of boxes from their offsets to default boxes: [images, boxes, classes, 4]."""
    prior, variance = priors[0].unsqueeze(1), priors[1].unsqueeze(1)
    if not n.attr("variance_encoded_in_target", False):
        code = code * variance
    kind = n.attr("code_type", "CORNER")
    low, high = prior[:, :, :2], prior[:, :, 2:]
    size = high - low
    if kind == "CORNER":
        return code + prior
    if kind == "CORNER_SIZE":
        return code * paddle.concat([size, size], -1) + prior
    centre = code[:, :, :, :2] * size + (low + high) / 2
    half = paddle.exp(code[:, :, :, 2:]) * size / 2
    return paddle.concat([centre - half, centre + half], -1)


def _suppressed(boxes: Tensor, valid: Tensor, threshold: float, extra: float) -> Tensor:
    """Which boxes, sorted by score, remain: those that overlap with no better one that remains."""
    low, high = boxes[:, :, :, :2], boxes[:, :, :, 2:]
    area = paddle.prod(high - low + extra, -1)
    corner = paddle.minimum(high.unsqueeze(3), high.unsqueeze(2))
    common = corner - paddle.maximum(low.unsqueeze(3), low.unsqueeze(2)) + extra
    shared = paddle.prod(paddle.clip(common, min=0.0), -1)
    union = area.unsqueeze(3) + area.unsqueeze(2) - shared
    close = (shared > threshold * union).astype("float32")
    count = boxes.shape[2]
    later = paddle.triu(paddle.ones([count, count], "float32"), 1)

    def turn(i: Tensor, kept: Tensor) -> list[Tensor]:
        row = paddle.index_select(close * later, i.reshape([1]), 2).squeeze(2)
        own = paddle.index_select(kept, i.reshape([1]), 2)
        return [i + 1, kept * (1.0 - row * own)]

    start = [paddle.zeros([], "int64"), valid.astype("float32")]
    _, kept = while_loop(lambda i, kept: i < count, turn, start)
    return kept > 0
