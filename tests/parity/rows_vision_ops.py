"""paddle.vision.ops with results of fixed sizes: pooling over boxes, deformations, YOLO."""

import numpy as np

from tests.parity.table import I, T, V, case, case_fn, raises

OPS = "vision.ops."
# Two images; sides of at least one cell, inside and outside the image.
BOXES = V([[1.0, 2.0, 9.0, 12.0], [-6.0, 0.0, 5.0, 7.0], [3.3, 4.2, 18.0, 30.0]])
COUNTS = V([2, 1], "int32")

for aligned in (True, False):
    case(OPS + "roi_align", T(2, 3, 8, 9), BOXES, COUNTS, 2, 0.5, aligned=aligned)
    case(OPS + "roi_align", T(2, 3, 8, 9), BOXES, COUNTS, (3, 2), 1.0, 2, aligned)
case(
    OPS + "roi_align",
    T(2, 3, 8, 9, dtype="float64"),
    V(np.asarray(BOXES.value), "float64"),
    COUNTS,
    3,
)
case(OPS + "roi_pool", T(2, 3, 8, 9), BOXES, COUNTS, (2, 3), 0.5)
case(OPS + "roi_pool", T(2, 3, 8, 9), BOXES, COUNTS, 4)
case(OPS + "psroi_pool", T(2, 12, 8, 9), BOXES, COUNTS, (2, 3), 0.5)
case(OPS + "psroi_pool", T(2, 8, 8, 9), BOXES, COUNTS, 2)
raises(OPS + "psroi_pool", T(2, 7, 8, 9), BOXES, COUNTS, 0)
raises(OPS + "roi_align", T(3, 8, 9), BOXES, COUNTS, 2)

case(OPS + "deform_conv2d", T(2, 3, 6, 5), T(2, 18, 4, 3), T(4, 3, 3, 3), _rtol=1e-4, _atol=1e-4)
case(
    OPS + "deform_conv2d",
    T(2, 3, 6, 5),
    T(2, 18, 4, 3),
    T(4, 3, 3, 3),
    T(4),
    mask=T(2, 9, 4, 3),
    _rtol=1e-4,
    _atol=1e-4,
)
case(
    OPS + "deform_conv2d",
    T(1, 4, 6, 6),
    T(1, 16, 3, 3),
    T(6, 2, 2, 2),
    None,
    2,
    1,
    2,
    2,
    2,
    T(1, 8, 3, 3),
    _rtol=1e-4,
    _atol=1e-4,
)
raises(OPS + "deform_conv2d", T(2, 3, 6, 5), T(2, 17, 4, 3), T(4, 3, 3, 3))

ANCHORS = [10, 13, 16, 30]
SIZES = V([[320, 352], [200, 100]], "int32")
for more in ({}, {"clip_bbox": False, "scale_x_y": 1.2}):
    case(OPS + "yolo_box", T(2, 16, 4, 4), SIZES, ANCHORS, 3, 0.4, 32, **more)
case(
    OPS + "yolo_box",
    T(2, 18, 4, 3),
    SIZES,
    ANCHORS,
    3,
    0.01,
    16,
    iou_aware=True,
    iou_aware_factor=0.6,
)
TRUTH = V([[[0.3, 0.4, 0.2, 0.3], [0.31, 0.41, 0.15, 0.25], [0.0, 0.0, 0.0, 0.0]],
           [[0.7, 0.1, 0.5, 0.1], [0.9, 0.95, 0.1, 0.1], [0.5, 0.5, 0.9, 0.8]]])  # fmt: skip
LABELS = V([[0, 2, 0], [1, 1, 2]], "int32")
SIX = [10, 13, 16, 30, 33, 23]
for more in ({}, {"use_label_smooth": False, "scale_x_y": 1.1}):
    case(
        OPS + "yolo_loss",
        T(2, 16, 4, 4),
        TRUTH,
        LABELS,
        SIX,
        [0, 2],
        3,
        0.5,
        32,
        _rtol=1e-4,
        _finite_difference=False,
        **more,
    )


def _scored(p, x, scores):
    truth, labels = p.to_tensor(TRUTH.value, "float32"), p.to_tensor(LABELS.value, "int32")
    return p.vision.ops.yolo_loss(x, truth, labels, SIX, [0, 2], 3, 0.7, 32, gt_score=scores)


SCORES = T(2, 3, low=0.2, high=1.0, grad=False)
case_fn("yolo-scored", _scored, T(2, 16, 4, 4), SCORES, _rtol=1e-4, _finite_difference=False)

IMAGE = T(1, 3, 32, 48, grad=False)
case(OPS + "prior_box", T(1, 4, 3, 4, grad=False), IMAGE, [4.0])
case(
    OPS + "prior_box",
    T(1, 4, 3, 4, grad=False),
    IMAGE,
    [4.0, 8.0],
    [9.0, 16.0],
    [2.0, 3.0],
    flip=True,
    clip=True,
)
case(
    OPS + "prior_box",
    T(1, 4, 3, 4, grad=False),
    IMAGE,
    [4.0, 8.0],
    [9.0, 16.0],
    [1.0, 2.0],
    [0.1, 0.2, 0.3, 0.4],
    True,
    False,
    [8.0, 9.0],
    0.4,
    True,
)

PRIORS = V([[1.0, 2.0, 9.0, 12.0], [0.0, 0.0, 5.0, 7.0], [3.3, 4.2, 18.0, 30.0]])
SPREAD = V([[0.1, 0.1, 0.2, 0.2], [0.3, 0.1, 0.2, 0.5], [0.1, 0.4, 0.2, 0.2]])
for normal in (True, False):
    case(
        OPS + "box_coder",
        PRIORS,
        SPREAD,
        V([[0.0, 1.0, 4.0, 6.0], [2.0, 2.0, 5.0, 9.0]]),
        box_normalized=normal,
    )
    case(OPS + "box_coder", PRIORS, SPREAD, T(2, 3, 4, grad=False), "decode_center_size", normal)
case(OPS + "box_coder", PRIORS, [0.1, 0.1, 0.2, 0.2], V([[0.0, 1.0, 4.0, 6.0]]))
case(OPS + "box_coder", PRIORS, [0.1, 0.1, 0.2, 0.2], T(2, 3, 4, grad=False), "decode_center_size")
case(OPS + "box_coder", PRIORS, SPREAD, T(3, 2, 4, grad=False), "decode_center_size", axis=1)
raises(OPS + "box_coder", PRIORS, SPREAD, I(2, 3, 4), "decode")
