"""Losses over alignments: connectionist temporal classification."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core import jax_door
from bireme.core.aval import Aval, aval
from bireme.core.errors import ShapeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.ops.activation import log_softmax_of
from bireme.ops.nn_support import check_reduction, need_float, need_integer

# The logarithm of "impossible": finite, so that differences and gradients stay finite.
_NEVER = -1e30


def _ctc_check(
    log_probs: Aval, labels: Aval, input_lengths: Aval, label_lengths: Aval, **rest: Any
) -> None:
    need_float("log_probs", log_probs)
    for name, x in (
        ("labels", labels), ("input_lengths", input_lengths), ("label_lengths", label_lengths),
    ):  # fmt: skip
        need_integer(name, x)
    if log_probs.ndim != 3 or labels.ndim != 2 or labels.shape[0] != log_probs.shape[1]:
        raise ShapeMismatch(
            "log_probs must be [time, batch, classes] and labels [batch, longest label]"
        )


def _log_add(xp: Any, *terms: Any) -> Any:
    total = terms[0]
    for t in terms[1:]:
        total = xp.logaddexp(total, t)
    return total


def _ctc_states(xp: Any, labels: Any, blank: int) -> tuple[Any, Any]:
    """The label with blanks around every symbol, and where a blank may be skipped."""
    batch, length = labels.shape
    states = xp.full((batch, 2 * length + 1), blank, labels.dtype)
    if xp is np:
        states[:, 1::2] = labels
    else:
        states = states.at[:, 1::2].set(labels)
    before = xp.concatenate([xp.full((batch, 2), blank, labels.dtype), states[:, :-2]], axis=1)
    return states, (states != blank) & (states != before)


def _ctc_step(xp: Any, alpha: Any, scores: Any, skips: Any) -> Any:
    """One frame of the forward recursion; `scores` are log-probabilities per state."""
    edge = xp.full((alpha.shape[0], 1), _NEVER, alpha.dtype)
    one = xp.concatenate([edge, alpha[:, :-1]], axis=1)
    two = xp.concatenate([edge, edge, alpha[:, :-2]], axis=1)
    return _log_add(xp, alpha, one, xp.where(skips, two, _NEVER)) + scores


def _ctc_loss(
    xp: Any, scores: Any, skips: Any, input_lengths: Any, label_lengths: Any, scan: Any
) -> Any:
    """-log of the probability of all alignments, per sample; `scores` is [time, batch, state]."""
    start = xp.where(xp.arange(scores.shape[2]) < 2, scores[0], _NEVER)

    def step(alpha: Any, frame: Any) -> Any:
        t, row = frame
        return xp.where((t < input_lengths)[:, None], _ctc_step(xp, alpha, row, skips), alpha)

    alpha = scan(step, start, (xp.arange(1, scores.shape[0]), scores[1:]))
    last = 2 * label_lengths[:, None].astype(np.int64)
    end = xp.take_along_axis(alpha, last, axis=1)
    inner = xp.take_along_axis(alpha, xp.maximum(last - 1, 0), axis=1)
    inner = xp.where(last > 0, inner, _NEVER)
    return -xp.squeeze(xp.logaddexp(end, inner), axis=1)


def _numpy_scan(step: Any, state: Any, frames: Any) -> Any:
    for frame in zip(*frames, strict=True):
        state = step(state, frame)
    return state


def _jax_scan(step: Any, state: Any, frames: Any) -> Any:
    return jax_door.jax().lax.scan(lambda s, f: (step(s, f), None), state, frames)[0]


@op(
    name="ctc_loss",
    inputs=("log_probs", "labels", "input_lengths", "label_lengths"),
    check=_ctc_check,
    infer=lambda log_probs, labels, input_lengths, label_lengths, **rest: aval(
        log_probs.shape[1:2], log_probs.dtype
    ),
    amp="black",
)
def _ctc(xp, log_probs, labels, input_lengths, label_lengths, blank=0, norm_by_times=False):
    log_p = log_softmax_of(xp, log_probs, 2)
    states, skips = _ctc_states(xp, labels.astype(np.int64), blank)
    scores = xp.take_along_axis(log_p, states[None], axis=2)
    scan = _numpy_scan if xp is np else _jax_scan
    loss = _ctc_loss(xp, scores, skips, input_lengths, label_lengths, scan)
    loss = xp.where(loss > -_NEVER / 2, xp.inf, loss).astype(log_probs.dtype)
    if norm_by_times and xp is not np:
        # Only the gradient is divided by the number of frames; the value stays.
        fixed = jax_door.jax().lax.stop_gradient(loss)
        loss = fixed + (loss - fixed) / input_lengths.astype(loss.dtype)
    return loss


@op(inputs=("loss", "lengths"), amp="black")
def _reduce_ctc(xp, loss, lengths, reduction="mean", zero_infinity=False):
    if zero_infinity:
        loss = xp.where(xp.isinf(loss), 0, loss)
    if reduction == "mean":
        return xp.mean(loss / lengths.astype(loss.dtype))
    return xp.sum(loss) if reduction == "sum" else loss


def ctc_loss(
    log_probs: Tensor,
    labels: Tensor,
    input_lengths: Tensor,
    label_lengths: Tensor,
    blank: int = 0,
    reduction: str = "mean",
    norm_by_times: bool = False,
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability that frames spell the label, over all alignments.

    `log_probs` is [time, batch, classes] and is normalised with softmax here, as in Paddle;
    'mean' divides every sample by its label's length first.
    """
    check_reduction("ctc_loss", reduction)
    loss = _ctc(log_probs, labels, input_lengths, label_lengths, blank, norm_by_times)
    return _reduce_ctc(loss, label_lengths, reduction, zero_infinity)


__all__ = ["ctc_loss"]
