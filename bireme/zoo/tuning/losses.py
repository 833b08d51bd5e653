"""Losses of fine-tuning, as sums over tokens. A step divides once, by all tokens of its batches."""

from __future__ import annotations

import bireme as paddle
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.layer.layer import Layer
from bireme.zoo.tuning.samples import NONE, Rows


def scores_of(model: Layer, rows: Rows) -> Tensor:
    """The model's scores [rows, tokens, vocabulary] of the next tokens.

    Padding stands on the right, where no token sees it. Packed samples are kept apart by a mask of
    the keys that each query sees, [rows, tokens, tokens].
    """
    ids = paddle.to_tensor(rows.ids)
    if rows.samples is None or rows.places is None:  # packed rows have both
        return model(ids)
    number = paddle.to_tensor(rows.samples)
    mask = number.unsqueeze(2) == number.unsqueeze(1)
    return model(ids, mask, paddle.to_tensor(rows.places))


def sum_of_losses(model: Layer, rows: Rows) -> Tensor:
    """The sum of -log p over the learned tokens, in float32."""
    scores = scores_of(model, rows).astype("float32")
    targets = paddle.to_tensor(rows.targets)
    return F.cross_entropy(scores, targets, ignore_index=NONE, reduction="sum")


def log_probabilities(model: Layer, rows: Rows) -> Tensor:
    """The sum of log p over the learned tokens of each row: float32 [rows]."""
    return token_log_probabilities(model, rows).sum(1)


def token_log_probabilities(model: Layer, rows: Rows) -> Tensor:
    """log p of each learned token where it is predicted, 0 elsewhere: float32 [rows, tokens]."""
    scores = scores_of(model, rows).astype("float32")
    targets = paddle.to_tensor(rows.targets)
    losses = F.cross_entropy(scores, targets, ignore_index=NONE, reduction="none")
    return -losses.reshape(targets.shape)


def dpo_losses(
    chosen: Tensor,
    rejected: Tensor,
    reference_chosen: Tensor,
    reference_rejected: Tensor,
    beta: float = 0.1,
    smoothing: float = 0.0,
) -> Tensor:
    """Direct preference optimisation: -log sigmoid(beta * how much more the model prefers the
    chosen text to the rejected one than the reference does), for each pair.

    All four are sums of log-probabilities [pairs]. `smoothing` is the share of pairs that are
    expected to be the wrong way round.
    """
    margin = beta * ((chosen - rejected) - (reference_chosen - reference_rejected))
    return -F.log_sigmoid(margin) * (1 - smoothing) - F.log_sigmoid(-margin) * smoothing
