"""Boxes of object detectors: priors, their code, YOLO's output and its loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.core.aval import Aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.ops.nn_support import need_float, need_rank, one_of, scatter_add


def _numbers(value: Any) -> tuple[float, ...]:
    return tuple(map(float, value)) if isinstance(value, list | tuple) else (float(value),)


# --- priors -------------------------------------------------------------------------------------


def _prior_sizes(
    smallest: tuple[float, ...],
    largest: tuple[float, ...],
    ratios: tuple[float, ...],
    flip: bool,
    square_first: bool,
) -> list[tuple[float, float]]:
    """(half width, half height) of the priors at every place."""
    shapes = [1.0]
    for ratio in ratios:
        if all(abs(ratio - s) >= 1e-6 for s in shapes):
            shapes += [ratio, 1.0 / ratio] if flip else [ratio]
    sizes: list[tuple[float, float]] = []
    for i, low in enumerate(smallest):
        stretched = [(low * s**0.5 / 2, low / s**0.5 / 2) for s in shapes]
        between = [((low * largest[i]) ** 0.5 / 2,) * 2] if largest else []
        sizes += (
            [stretched[0], *between, *stretched[1:]] if square_first else [*stretched, *between]
        )
    return sizes


def _prior_check(input: Aval, image: Aval, **rest: Any) -> None:
    need_rank("input", input, 4)
    need_rank("image", image, 4)


@op(name="prior_box", differentiable=False, check=_prior_check, takes="if")
def _prior_box(xp, input, image, sizes=(), variance=(), steps=(0.0, 0.0), clip=False, offset=0.5):
    dtype = input.dtype
    height, width = input.shape[2:]
    image_height, image_width = [xp.asarray(d).astype(dtype) for d in image.shape[2:]]
    step_x, step_y = steps
    if step_x == 0 or step_y == 0:
        step_x = image_width / xp.asarray(width).astype(dtype)
        step_y = image_height / xp.asarray(height).astype(dtype)
    x = ((xp.arange(width).astype(dtype) + offset) * step_x)[None, :, None]
    y = ((xp.arange(height).astype(dtype) + offset) * step_y)[:, None, None]
    half = np.asarray(sizes, dtype)
    half_w, half_h = xp.asarray(half[:, 0]), xp.asarray(half[:, 1])
    shape = (height, width, len(sizes))
    sides = [
        (x - half_w) / image_width,
        (y - half_h) / image_height,
        (x + half_w) / image_width,
        (y + half_h) / image_height,
    ]
    boxes = xp.stack([xp.broadcast_to(s, shape) for s in sides], axis=-1).astype(dtype)
    if clip:
        boxes = xp.clip(boxes, 0.0, 1.0)
    return boxes, xp.broadcast_to(xp.asarray(np.asarray(variance, dtype)), (*shape, 4))


def prior_box(
    input: Tensor,
    image: Tensor,
    min_sizes: Sequence[float] | float,
    max_sizes: Sequence[float] | float | None = None,
    aspect_ratios: Sequence[float] | float = [1.0],
    variance: Sequence[float] | float = [0.1, 0.1, 0.2, 0.2],
    flip: bool = False,
    clip: bool = False,
    steps: Sequence[float] | float = [0.0, 0.0],
    offset: float = 0.5,
    min_max_aspect_ratios_order: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """SSD's default boxes for every place of the feature map `input`, and their variances.

    Both are [H, W, priors, 4]; boxes are x1, y1, x2, y2 as fractions of the image.
    """
    strides = _numbers(steps)
    if len(strides) != 2:
        raise InvalidArgument(
            f"[prior_box] steps must be [step_width, step_height]. Received: {steps!r}"
        )
    low, high = _numbers(min_sizes), () if max_sizes is None else _numbers(max_sizes)
    if high and len(high) != len(low):
        raise InvalidArgument(
            "[prior_box] max_sizes must have as many entries as min_sizes. Received: "
            f"{len(low)} and {len(high)}"
        )
    sizes = _prior_sizes(low, high, _numbers(aspect_ratios), flip, min_max_aspect_ratios_order)
    return _prior_box(
        input, image, tuple(sizes), _numbers(variance), strides, bool(clip), float(offset)
    )


# --- the code of boxes --------------------------------------------------------------------------


def _centres(boxes: Any, extra: float) -> tuple[Any, Any, Any, Any]:
    """(centre x, centre y, width, height); `extra` is 1 where sides are whole pixels."""
    width = boxes[..., 2] - boxes[..., 0] + extra
    height = boxes[..., 3] - boxes[..., 1] + extra
    return boxes[..., 0] + width / 2, boxes[..., 1] + height / 2, width, height


def _coder_check(
    prior: Aval,
    target: Aval,
    spread: Aval | None,
    encode: bool,
    extra: float,
    axis: int,
    variance: Any,
) -> None:
    need_rank("prior_box", prior, 2)
    need_rank("target_box", target, 2 if encode else 3)
    if not encode and prior.shape[0] not in (1, target.shape[1 - axis]):
        raise ShapeMismatch(
            f"target_box has {target.shape[1 - axis]} boxes along dimension {1 - axis}, where "
            f"prior_box has {prior.shape[0]}; choose the other axis or transpose"
        )


@op(
    name="box_coder",
    inputs=("prior", "target", "spread"),
    check=_coder_check,
    differentiable=False,
)
def _box_coder(xp, prior, target, spread=None, encode=True, extra=0.0, axis=0, variance=()):
    if spread is None:
        share: Any = xp.asarray(np.asarray(variance or (1.0,) * 4, target.dtype))
    else:
        share = spread if encode or axis == 0 else spread[:, None]
    if encode:
        x, y, width, height = _centres(prior, extra)
        _, _, w, h = [v[:, None] for v in _centres(target, extra)]
        middle_x = ((target[:, 2] + target[:, 0]) / 2)[:, None]
        middle_y = ((target[:, 3] + target[:, 1]) / 2)[:, None]
        sides = [
            (middle_x - x) / width,
            (middle_y - y) / height,
            xp.log(xp.abs(w / width)),
            xp.log(xp.abs(h / height)),
        ]
        return (xp.stack(sides, axis=-1) / share).astype(target.dtype)
    prior = prior[None] if axis == 0 else prior[:, None]
    x, y, width, height = _centres(prior, extra)
    code = target * share
    middle_x, middle_y = code[..., 0] * width + x, code[..., 1] * height + y
    w, h = xp.exp(code[..., 2]) * width / 2, xp.exp(code[..., 3]) * height / 2
    sides = [middle_x - w, middle_y - h, middle_x + w - extra, middle_y + h - extra]
    return xp.stack(sides, axis=-1).astype(target.dtype)


def box_coder(
    prior_box: Tensor,
    prior_box_var: Tensor | Sequence[float] | None,
    target_box: Tensor,
    code_type: str = "encode_center_size",
    box_normalized: bool = True,
    axis: int = 0,
    name: str | None = None,
) -> Tensor:
    """Boxes as offsets from priors (encode), or back (decode).

    Encoding takes targets [M, 4] and priors [N, 4] and gives [M, N, 4]; decoding takes targets
    [M, N, 4] and priors along `axis` 0 (N of them) or 1 (M). `prior_box_var` is a tensor like
    the priors or four numbers.
    """
    one_of("box_coder", "code_type", code_type, ("encode_center_size", "decode_center_size"))
    one_of("box_coder", "axis", axis, (0, 1))
    spread, variance = None, ()
    if isinstance(prior_box_var, Tensor):
        spread = prior_box_var
    elif isinstance(prior_box_var, list | tuple) and len(prior_box_var) == 4:
        variance = _numbers(prior_box_var)
    else:
        raise TypeMismatch(
            "[box_coder] prior_box_var must be a Tensor or four numbers. Received: "
            f"{type(prior_box_var).__name__}"
        )
    encode = code_type == "encode_center_size"
    return _box_coder(
        prior_box, target_box, spread, encode, 0.0 if box_normalized else 1.0, axis, variance
    )


# --- YOLO ---------------------------------------------------------------------------------------


def _sigmoid(xp: Any, x: Any) -> Any:
    return 1.0 / (1.0 + xp.exp(-x))


def _yolo_channels(x: Aval, anchors: tuple[int, ...], each: int) -> None:
    need_float("x", x)
    need_rank("x", x, 4)
    count = len(anchors) // 2
    if not count or len(anchors) % 2:
        raise InvalidArgument("anchors must be pairs of width and height")
    if x.shape[1] != count * each:
        raise ShapeMismatch(
            f"x must have {count} anchors * {each} values = {count * each} channels, "
            f"not {x.shape[1]}"
        )


def _yolo_box_check(
    x: Aval, img_size: Aval, anchors: Any, classes: int, iou_aware: bool, **rest: Any
) -> None:
    _yolo_channels(x, anchors, 5 + classes + bool(iou_aware))
    if img_size.ndim != 2 or img_size.shape[1] != 2:
        raise ShapeMismatch("'img_size' must be [batch, 2]: height and width of each image")


@op(name="yolo_box", check=_yolo_box_check, differentiable=False)
def _yolo_box(
    xp,
    x,
    img_size,
    anchors=(),
    classes=1,
    threshold=0.0,
    ratio=32,
    clip=True,
    scale=1.0,
    iou_aware=False,
    iou_factor=0.5,
):
    n, _, height, width = x.shape
    count = len(anchors) // 2
    dtype = x.dtype
    overlap = None
    if iou_aware:  # one value per anchor in front of everything else
        overlap = _sigmoid(xp, x[:, :count])
        x = x[:, count:]
    x = xp.reshape(x, (n, count, 5 + classes, height, width))
    sure = _sigmoid(xp, x[:, :, 4])
    if overlap is not None:
        sure = sure ** (1.0 - iou_factor) * overlap**iou_factor
    kept = sure >= threshold
    size = img_size.astype(dtype)[:, :, None, None, None]
    rows, cols = xp.asarray(height).astype(dtype), xp.asarray(width).astype(dtype)
    image_h, image_w = size[:, 0], size[:, 1]
    bias = -0.5 * (scale - 1.0)
    across, down = xp.arange(width).astype(dtype), xp.arange(height).astype(dtype)[:, None]
    middle_x = (across + _sigmoid(xp, x[:, :, 0]) * scale + bias) * image_w / cols
    middle_y = (down + _sigmoid(xp, x[:, :, 1]) * scale + bias) * image_h / rows
    shape = np.asarray(anchors, dtype).reshape(count, 2)[:, :, None, None]
    half_w = xp.exp(x[:, :, 2]) * xp.asarray(shape[:, 0]) * image_w / (ratio * cols) / 2
    half_h = xp.exp(x[:, :, 3]) * xp.asarray(shape[:, 1]) * image_h / (ratio * rows) / 2
    sides = [middle_x - half_w, middle_y - half_h, middle_x + half_w, middle_y + half_h]
    if clip:
        sides = [
            xp.maximum(sides[0], 0),
            xp.maximum(sides[1], 0),
            xp.minimum(sides[2], image_w - 1),
            xp.minimum(sides[3], image_h - 1),
        ]
    boxes = xp.where(kept[..., None], xp.stack(sides, axis=-1), 0)
    scores = xp.where(kept[:, :, None], sure[:, :, None] * _sigmoid(xp, x[:, :, 5:]), 0)
    scores = xp.transpose(scores, (0, 1, 3, 4, 2))
    return (
        xp.reshape(boxes, (n, -1, 4)).astype(dtype),
        xp.reshape(scores, (n, -1, classes)).astype(dtype),
    )


def yolo_box(
    x: Tensor,
    img_size: Tensor,
    anchors: Sequence[int],
    class_num: int,
    conf_thresh: float,
    downsample_ratio: int,
    clip_bbox: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
    iou_aware: bool = False,
    iou_aware_factor: float = 0.5,
) -> tuple[Tensor, Tensor]:
    """Boxes [N, anchors * H * W, 4] in pixels and scores [N, ..., classes] from YOLO's output.

    Boxes less sure than `conf_thresh` are all zeros.
    """
    return _yolo_box(
        x, img_size, tuple(anchors), class_num, float(conf_thresh), int(downsample_ratio),
        bool(clip_bbox), float(scale_x_y), bool(iou_aware), float(iou_aware_factor),
    )  # fmt: skip


def _cross_entropy(xp: Any, x: Any, label: Any) -> Any:
    return xp.maximum(x, 0) - x * label + xp.log1p(xp.exp(-xp.abs(x)))


def _overlap(xp: Any, a: Any, b: Any) -> Any:
    """Intersection over union of boxes (centre x, centre y, width, height)."""

    def shared(c1: Any, l1: Any, c2: Any, l2: Any) -> Any:
        return xp.minimum(c1 + l1 / 2, c2 + l2 / 2) - xp.maximum(c1 - l1 / 2, c2 - l2 / 2)

    width, height = shared(a[0], a[2], b[0], b[2]), shared(a[1], a[3], b[1], b[3])
    inter = xp.where((width < 0) | (height < 0), 0.0, width * height)
    return inter / (a[2] * a[3] + b[2] * b[3] - inter)


def _yolo_loss_check(
    x: Aval,
    gt_box: Aval,
    gt_label: Aval,
    gt_score: Aval | None,
    anchors: Any,
    mask: Any,
    classes: int,
    **rest: Any,
) -> None:
    _yolo_channels(x, tuple(mask) * 2, 5 + classes)
    if gt_box.ndim != 3 or gt_box.shape[2] != 4:
        raise ShapeMismatch("'gt_box' must be [batch, boxes, 4]: centre x, y, width, height")
    need_rank("gt_label", gt_label, 2)
    if any(not 0 <= m < len(anchors) // 2 for m in mask):
        raise InvalidArgument(f"anchor_mask {list(mask)} names anchors that are not there")


@op(
    name="yolo_loss",
    inputs=("x", "gt_box", "gt_label", "gt_score"),
    check=_yolo_loss_check,
    numpy=False,
)
def _yolo_loss(
    xp,
    x,
    gt_box,
    gt_label,
    gt_score=None,
    anchors=(),
    mask=(),
    classes=1,
    ignore=0.7,
    ratio=32,
    smooth=True,
    scale=1.0,
):
    from bireme.host import jax_door

    fixed = jax_door.jax().lax.stop_gradient
    n, _, height, width = x.shape
    dtype = x.dtype
    x = xp.reshape(x, (n, len(mask), 5 + classes, height, width))
    truth, boxes = fixed(gt_box).astype(dtype), gt_box.shape[1]
    score = xp.ones((n, boxes), dtype) if gt_score is None else fixed(gt_score).astype(dtype)
    gx, gy, gw, gh = [truth[:, :, i] for i in range(4)]
    valid = (gw > 1e-6) & (gh > 1e-6)
    # Both axes are counted in rows, as in Paddle: the grids of YOLO are square.
    grid = xp.asarray(height).astype(dtype)
    whole = grid * ratio
    shapes = np.asarray(anchors, dtype).reshape(-1, 2)

    # A prediction that meets some true box well is not counted as a mistake.
    guess = fixed(x)
    bias = -0.5 * (scale - 1.0)
    own = shapes[list(mask)][:, :, None, None]
    centre_x = (xp.arange(width).astype(dtype) + _sigmoid(xp, guess[:, :, 0]) * scale + bias) / grid
    centre_y = (
        xp.arange(height).astype(dtype)[:, None] + _sigmoid(xp, guess[:, :, 1]) * scale + bias
    ) / grid
    wide, high = (
        xp.exp(guess[:, :, 2]) * own[:, 0] / whole,
        xp.exp(guess[:, :, 3]) * own[:, 1] / whole,
    )
    found = [v[:, None] for v in (centre_x, centre_y, wide, high)]  # [n, 1, anchors, h, w]
    given = [v[:, :, None, None, None] for v in (gx, gy, gw, gh)]
    iou = xp.where(valid[:, :, None, None, None], _overlap(xp, found, given), 0.0)
    best = xp.max(iou, axis=1, initial=0.0)

    # Each true box belongs to the anchor whose shape is nearest to its own.
    nil = xp.zeros_like(gw)[..., None]
    alike = _overlap(
        xp,
        (nil, nil, gw[..., None], gh[..., None]),
        (nil, nil, shapes[:, 0] / whole, shapes[:, 1] / whole),
    )
    chosen = xp.argmax(alike, axis=-1)
    place = np.full(len(shapes), -1)
    for i in range(len(mask) - 1, -1, -1):
        place[mask[i]] = i
    layer = xp.where(valid, xp.asarray(place)[chosen], -1)
    counted = layer >= 0
    # Kept inside: a centre on the far edge belongs to the last cell.
    column = xp.clip((gx * xp.asarray(width).astype(dtype)).astype(np.int64), 0, width - 1)
    row = xp.clip((gy * grid).astype(np.int64), 0, height - 1)
    slot = xp.maximum(layer, 0)
    image = xp.arange(n)[:, None]
    mine = x[image, slot, :, row, column]  # [n, boxes, 5 + classes]
    shape = xp.asarray(shapes)[chosen]
    safe_w, safe_h = xp.where(counted, gw, 1.0), xp.where(counted, gh, 1.0)
    weight = xp.where(counted, (2.0 - gw * gh) * score, 0.0)
    loss = weight * (
        _cross_entropy(xp, mine[:, :, 0], gx * grid - column.astype(dtype))
        + _cross_entropy(xp, mine[:, :, 1], gy * grid - row.astype(dtype))
        + xp.abs(mine[:, :, 2] - xp.log(safe_w * whole / shape[..., 0]))
        + xp.abs(mine[:, :, 3] - xp.log(safe_h * whole / shape[..., 1]))
    )
    off = min(1.0 / classes, 1.0 / 40) if smooth else 0.0
    right = xp.arange(classes) == gt_label[:, :, None]
    labels = xp.where(right, 1.0 - off, off).astype(dtype)
    named = xp.sum(_cross_entropy(xp, mine[:, :, 5:], labels), axis=-1)
    loss = xp.sum(loss + xp.where(counted, score, 0.0) * named, axis=1)

    # Where several true boxes share a cell the last one counts.
    cell = ((slot * height) + row) * width + column
    later = xp.asarray(np.triu(np.ones((boxes, boxes), bool), 1))
    same = (cell[:, :, None] == cell[:, None, :]) & counted[:, None, :] & later
    last = counted & ~xp.any(same, axis=2)
    start = xp.zeros((n, len(mask) * height * width), dtype)
    objects = scatter_add(xp, start, (image, cell), xp.where(last, score, 0.0))
    taken = scatter_add(xp, start, (image, cell), xp.where(last, 1.0, 0.0).astype(dtype))
    ignored = xp.reshape(best > ignore, objects.shape)
    sure = xp.reshape(x[:, :, 4], objects.shape)
    positive = (taken > 0) & (objects > 1e-5)
    negative = xp.where(taken > 0, ~positive, ~ignored)
    judged = xp.where(positive, _cross_entropy(xp, sure, 1.0) * objects, 0.0)
    judged = judged + xp.where(negative, _cross_entropy(xp, sure, 0.0), 0.0)
    return (loss + xp.sum(judged, axis=1)).astype(dtype)


def yolo_loss(
    x: Tensor,
    gt_box: Tensor,
    gt_label: Tensor,
    anchors: Sequence[int],
    anchor_mask: Sequence[int],
    class_num: int,
    ignore_thresh: float,
    downsample_ratio: int,
    gt_score: Tensor | None = None,
    use_label_smooth: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
) -> Tensor:
    """YOLO v3's loss of each image for the anchors in `anchor_mask`.

    True boxes are centre x, centre y, width and height as fractions of the image; boxes of no
    width are padding.
    """
    return _yolo_loss(
        x, gt_box, gt_label, gt_score, tuple(anchors), tuple(anchor_mask), int(class_num),
        float(ignore_thresh), int(downsample_ratio), bool(use_label_smooth), float(scale_x_y),
    )  # fmt: skip


__all__ = ["box_coder", "prior_box", "yolo_box", "yolo_loss"]
