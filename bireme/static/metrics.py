"""accuracy and auc as parts of a program."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.ops.manipulation import reshape
from bireme.ops.search import topk
from bireme.static.variables import create_global_var


def accuracy(
    input: Tensor,
    label: Tensor,
    k: int = 1,
    correct: Tensor | None = None,
    total: Tensor | None = None,
) -> Tensor:
    """The share of rows whose label is among the k best classes.

    `correct` and `total`, if given, become the counts.
    """
    _, best = topk(input, k)
    hits = (best == reshape(label, [-1, 1]).astype(best.dtype)).any(axis=-1)
    if correct is not None:
        correct._value = hits.astype("int32").sum(dtype="int32")._value
    if total is not None:
        total._value = (hits | True).astype("int32").sum(dtype="int32")._value
    return hits.astype("float32").mean()


def _counts_infer(scores: Aval, labels: Aval, bins: int) -> tuple[Aval, Aval]:
    t = aval((1, bins + 1), dt.int64)
    return t, t


def _counts_numpy(xp: Any, scores: Any, labels: Any, bins: int) -> tuple[Any, Any]:
    at = np.clip((scores * bins).astype("int64"), 0, bins)
    up, down = at[labels != 0], at[labels == 0]
    return tuple([np.bincount(a, minlength=bins + 1)[None].astype("int64") for a in (up, down)])  # type: ignore[return-value]


@op(name="auc_counts", infer=_counts_infer, numpy=_counts_numpy, differentiable=False)
def _auc_counts(xp, scores, labels, bins=4095):
    """How many positive and negative samples have a score in each bin."""
    at = xp.clip((scores * bins).astype("int64"), 0, bins)
    up = (labels != 0).astype("int64")
    zeros = xp.zeros((bins + 1,), "int64")
    return zeros.at[at].add(up)[None], zeros.at[at].add(1 - up)[None]


def _area_infer(positive: Aval, negative: Aval, curve: str) -> Aval:
    return aval((), dt.float64)


@op(name="auc_area", infer=_area_infer, differentiable=False)
def _auc_area(xp, positive, negative, curve="ROC"):
    """The area under the curve that goes through all thresholds, from the highest down."""
    up = xp.cumsum(positive[0, ::-1]).astype("float64")
    down = xp.cumsum(negative[0, ::-1]).astype("float64")
    zero = xp.zeros((1,), "float64")
    left_up, left_down = xp.concatenate([zero, up[:-1]]), xp.concatenate([zero, down[:-1]])
    if curve == "ROC":
        area = xp.sum((down - left_down) * (up + left_up) / 2)
        whole = up[-1] * down[-1]
        return xp.where(whole > 0, area / xp.where(whole > 0, whole, 1.0), 0.0)
    precision = up / xp.maximum(up + down, 1.0)
    before = xp.where(left_up + left_down > 0, left_up / xp.maximum(left_up + left_down, 1.0), 1.0)
    area = xp.sum((up - left_up) * (precision + before) / 2)
    return xp.where(up[-1] > 0, area / xp.maximum(up[-1], 1.0), 0.0)


def auc(
    input: Tensor,
    label: Tensor,
    curve: str = "ROC",
    num_thresholds: int = 2**12 - 1,
    topk: int = 1,
    slide_steps: int = 1,
    ins_tag_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """(area over all runs, area over the last `slide_steps` runs, the counts behind them).

    `input` holds the probabilities of two classes.
    """
    if curve not in ("ROC", "PR"):
        raise InvalidArgument(f"[auc] curve must be 'ROC' or 'PR'. Received: {curve!r}")
    if topk != 1 or ins_tag_weight is not None:
        raise InvalidArgument("[auc] only topk=1 without ins_tag_weight has a meaning here")
    if input.ndim != 2:
        raise ShapeMismatch(f"[auc] input must be [batch, 2]. Received: {input._value.aval}")
    scores = input[:, -1].astype("float32")
    up, down = _auc_counts(scores, reshape(label, [-1]).astype("int64"), num_thresholds)
    width = num_thresholds + 1
    totals, recents = [], []
    for now in (up, down):
        total = create_global_var([1, width], 0, "int64", persistable=True)
        total._put((total + now)._value)
        totals.append(total)
        if slide_steps:
            past = create_global_var([slide_steps, width], 0, "int64", persistable=True)
            kept = _shift(past, now)
            past._put(kept._value)
            recents.append(past)
    area = _auc_area(*totals, curve)
    if not slide_steps:
        return area, area, totals
    recent = [past.sum(axis=0, keepdim=True) for past in recents]
    return area, _auc_area(*recent, curve), [*recents, *totals]


@op(name="shift_rows", infer=lambda past, now: past, differentiable=False)
def _shift(xp, past, now):
    """`now` as the first row; the last row falls off."""
    return xp.concatenate([now, past[:-1]], axis=0)


def ctr_metric_bundle(
    input: Tensor, label: Tensor, ins_tag_weight: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Sums over all runs, for click-through rates: of squared errors, of absolute errors, of the
    predictions, of their sigmoids, of the labels, and of the samples.

    `ins_tag_weight` [1, 1] multiplies the fourth and the last: 0 for a batch of made-up samples.
    """
    if list(input._value.aval.shape) != list(label._value.aval.shape):
        raise ShapeMismatch(
            "[ctr_metric_bundle] input and label must have one shape. Received: "
            f"{input._value.aval} and {label._value.aval}"
        )
    error = input - label.astype(input.dtype)
    ones = (label * 0 + 1).astype("float32")
    now = [(error * error).sum(), error.abs().sum(), input.sum(), F.sigmoid(input).sum(),
           label.sum(), ones.sum()]  # fmt: skip
    totals = []
    for i, value in enumerate(now):
        part = value
        if ins_tag_weight is not None and i in (3, 5):
            part = part * reshape(ins_tag_weight[:1], [])
        total = create_global_var([1], 0.0, "float32", persistable=True)
        total._put((total + part.astype("float32"))._value)
        totals.append(total)
    return tuple(totals)
