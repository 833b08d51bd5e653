"""Choosing some classes out of very many."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.api.public import namespace
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.random import next_key
from bireme.core.tensor import Tensor, constant

public = namespace("paddle.nn.functional")


@public
def class_center_sample(
    label: Tensor, num_classes: int, num_samples: int, group: Any = None
) -> tuple[Tensor, Tensor]:
    """The classes that occur in `label` and random others, `num_samples` in all.

    Returns the labels as positions among the sampled classes, and those classes: first the ones
    that occur, in order, which may be more than `num_samples`. How many there are depends on the
    labels, so they are read. The classes of one process are sampled: `group` is None or False.
    """
    if group not in (None, False):
        raise InvalidArgument(
            f"[class_center_sample] group must be None or False. Received: {group!r}"
        )
    if num_samples > num_classes:
        raise InvalidArgument(
            f"[class_center_sample] num_samples must not exceed num_classes = {num_classes}. "
            f"Received: {num_samples}"
        )
    labels = label.numpy()
    if labels.ndim != 1 or not labels.size:
        raise ShapeMismatch(
            f"[class_center_sample] label must be a vector of labels. Received: {label.shape}"
        )
    if labels.min() < 0 or labels.max() >= num_classes:
        raise InvalidArgument(
            f"[class_center_sample] labels must lie in [0, {num_classes}). Received: "
            f"{labels.min()} to {labels.max()}"
        )
    positive, place = np.unique(labels, return_inverse=True)
    missing = num_samples - len(positive)
    sampled = positive
    if missing > 0:
        others = np.setdiff1d(np.arange(num_classes, dtype=labels.dtype), positive)
        drawn = np.random.default_rng(list(next_key())).choice(others, missing, replace=False)
        sampled = np.concatenate([positive, np.sort(drawn)])
    return constant(place.astype(labels.dtype)), constant(sampled.astype(labels.dtype))
