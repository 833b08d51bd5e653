# ruff: noqa: N999 (the name is Paddle's)
"""paddle._legacy_C_ops: kernels called by name, with attributes as `"name", value, ...`.

Detection programs reach a few kernels this way that have, or had, no public function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bireme.core.tensor import Tensor
from bireme.ops import detection, search
from bireme.ops.creation import to_tensor
from bireme.ops.joining import stack
from bireme.vision import proposals
from bireme.vision.multiclass_nms import multiclass_nms

_Pairs = Any


def _attributes(pairs: tuple[_Pairs, ...]) -> dict[str, Any]:
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def argsort(x: Tensor, *pairs: _Pairs) -> tuple[Tensor, Tensor]:
    """Values in order, and where they were."""
    settings = _attributes(pairs)
    axis, descending = settings.get("axis", -1), settings.get("descending", False)
    return search.sort(x, axis, descending), search.argsort(x, axis, descending)


def multiclass_nms3(
    bboxes: Tensor, scores: Tensor, rois_num: Tensor | None, *pairs: _Pairs
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, their indices, rows per image; see `multiclass_nms`."""
    return multiclass_nms(bboxes, scores, rois_num=rois_num, **_attributes(pairs))


def matrix_nms(bboxes: Tensor, scores: Tensor, *pairs: _Pairs) -> tuple[Any, Any, Any]:
    """Rows, their indices, rows per image; see `paddle.vision.ops.matrix_nms`."""
    rows, counts, index = proposals.matrix_nms(
        bboxes, scores, return_index=True, **_attributes(pairs)
    )
    return rows, index, counts


def distribute_fpn_proposals(
    fpn_rois: Tensor, rois_num: Tensor | None, levels: int, count: int, *pairs: _Pairs
) -> tuple[list[Tensor], Tensor, list[Tensor] | None]:
    """Boxes per level, their places, boxes per image and level."""
    boxes, restore, per_level = proposals.distribute_fpn_proposals(
        fpn_rois, rois_num=rois_num, **_attributes(pairs)
    )
    return boxes, restore, per_level


def generate_proposals_v2(
    scores: Tensor, deltas: Tensor, sizes: Tensor, anchors: Tensor, variances: Tensor, *pairs: Any
) -> tuple[Tensor, Tensor, Any]:
    """A region proposal network's boxes, their scores, boxes per image."""
    names = {"pre_nms_topN": "pre_nms_top_n", "post_nms_topN": "post_nms_top_n"}
    settings = {names.get(k, k): v for k, v in _attributes(pairs).items()}
    return proposals.generate_proposals(
        scores, deltas, sizes, anchors, variances, return_rois_num=True, **settings
    )


def prior_box(input: Tensor, image: Tensor, *pairs: _Pairs) -> tuple[Tensor, Tensor]:
    """SSD's default boxes and their variances."""
    settings = _attributes(pairs)
    steps = [settings.pop("step_w", 0.0), settings.pop("step_h", 0.0)]
    variance = settings.pop("variances", [0.1, 0.1, 0.2, 0.2])
    return detection.prior_box(input, image, steps=steps, variance=variance, **settings)


def box_coder(
    prior_box: Tensor,
    prior_box_var: Tensor | Sequence[float] | None,
    target_box: Tensor,
    *pairs: _Pairs,
) -> Tensor:
    """Boxes as offsets from priors, or back."""
    settings = _attributes(pairs)
    spread = settings.pop("variance", None)
    spread = prior_box_var if prior_box_var is not None else spread or [1.0] * 4
    return detection.box_coder(prior_box, spread, target_box, **settings)


def anchor_generator(input: Tensor, *pairs: _Pairs) -> tuple[Tensor, Tensor]:
    """Boxes of all sizes and ratios at every place of a feature map, and their variances."""
    settings = _attributes(pairs)
    step_x, step_y = settings["stride"]
    offset = settings.get("offset", 0.5)
    height, width = input.shape[-2:]
    sides = []
    for ratio in settings["aspect_ratios"]:
        for size in settings["anchor_sizes"]:
            base_w = round((step_x * step_y / ratio) ** 0.5)
            base_h = round(base_w * ratio)
            sides.append((size / step_x * base_w, size / step_y * base_h))
    kind = input.dtype
    half = (to_tensor(sides, kind) - 1.0) * 0.5  # [anchors, 2]
    x = to_tensor([i * step_x + offset * (step_x - 1) for i in range(width)], kind)
    y = to_tensor([i * step_y + offset * (step_y - 1) for i in range(height)], kind)
    shape = [height, width, len(sides)]
    x, y = x.reshape([1, width, 1]), y.reshape([height, 1, 1])
    corners = [x - half[:, 0], y - half[:, 1], x + half[:, 0], y + half[:, 1]]
    anchors = stack([c.expand(shape) for c in corners], axis=-1)
    variances = to_tensor(settings["variances"], kind).expand([*shape, 4])
    return anchors, variances


__all__ = [
    "anchor_generator",
    "argsort",
    "box_coder",
    "distribute_fpn_proposals",
    "generate_proposals_v2",
    "matrix_nms",
    "multiclass_nms3",
    "prior_box",
]
