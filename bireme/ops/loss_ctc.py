"""Losses over alignments: connectionist temporal classification and transducers."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.api.public import namespace
from bireme.core.aval import Aval, aval
from bireme.core.errors import ShapeMismatch
from bireme.core.op import op
from bireme.core.requirements import InRange
from bireme.core.tensor import Tensor
from bireme.host import jax_door
from bireme.ops.nn_support import check_reduction, need_float, need_integer
from bireme.ops.softmax import log_softmax_of

public = namespace("paddle.nn.functional")

# The logarithm of "impossible": finite, so that differences and gradients stay finite.
_NEVER = -1e30


def _ctc_check(
    log_probs: Aval, labels: Aval, input_lengths: Aval, label_lengths: Aval, **rest: Any
) -> None:
    need_float("log_probs", log_probs)
    for name, x in (
        ("labels", labels),
        ("input_lengths", input_lengths),
        ("label_lengths", label_lengths),
    ):
        need_integer(name, x)
    if log_probs.ndim != 3 or labels.ndim != 2 or labels.shape[0] != log_probs.shape[1]:
        raise ShapeMismatch(
            "log_probs must be [time, batch, classes] and labels [batch, longest label]"
        )


def _in_range(name: str, classes: int, longest: int, frames: int) -> list[InRange]:
    """What the labels, which `name` holds, and the lengths must be. Labels behind the end of a row
    are padding."""
    return [
        InRange(name, 0, classes - 1, lengths="label_lengths"),
        InRange("label_lengths", 0, longest),
        InRange("input_lengths", 0, frames),
    ]


def _symbols(xp: Any, labels: Any, classes: int) -> Any:
    """Labels as positions of classes, also those that are padding."""
    return xp.clip(labels.astype(np.int64), 0, classes - 1)


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
    requires=lambda log_probs, labels, *_, **__: _in_range(
        "labels", log_probs.shape[2], labels.shape[1], log_probs.shape[0]
    ),
)
def _ctc(xp, log_probs, labels, input_lengths, label_lengths, blank=0, norm_by_times=False):
    log_p = log_softmax_of(xp, log_probs, 2)
    states, skips = _ctc_states(xp, _symbols(xp, labels, log_probs.shape[2]), blank)
    scores = xp.take_along_axis(log_p, states[None], axis=2)
    scan = _numpy_scan if xp is np else _jax_scan
    loss = _ctc_loss(xp, scores, skips, input_lengths, label_lengths, scan)
    # Paddle's answer for a label that the frames are too few to spell.
    loss = xp.where(loss > -_NEVER / 2, 0, loss).astype(log_probs.dtype)
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


@public
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


# --- transducers --------------------------------------------------------------------------------


def _rnnt_check(
    input: Aval,
    label: Aval,
    input_lengths: Aval,
    label_lengths: Aval,
    emit_lambda: Any,
    blank: int,
) -> None:
    need_float("input", input)
    for name, x in (
        ("label", label),
        ("input_lengths", input_lengths),
        ("label_lengths", label_lengths),
    ):
        need_integer(name, x)
    if input.ndim != 4 or label.shape != (input.shape[0], input.shape[2] - 1):
        raise ShapeMismatch(
            "input must be [batch, time, label + 1, classes] and label [batch, longest label]"
        )


def _rnnt_row(xp: Any, entry: Any, emit: Any, scan: Any) -> Any:
    """A frame's row of the lattice: entered from the frame before, or by emitting a symbol."""

    def step(left: Any, column: Any) -> Any:
        above, cost = column
        now = xp.logaddexp(above, left + cost)
        return now, (now,)

    _, (rest,) = scan(step, entry[:, 0], (entry[:, 1:].T, emit.T))
    return xp.concatenate([entry[:, :1], rest.T], axis=1)


@op(
    name="rnnt_loss",
    inputs=("input", "label", "input_lengths", "label_lengths", "emit_lambda"),
    check=_rnnt_check,
    infer=lambda input, label, input_lengths, label_lengths, emit_lambda, blank: aval(
        input.shape[:1], input.dtype
    ),
    amp="black",
    requires=lambda input, label, *_, **__: _in_range(
        "label", input.shape[3], label.shape[1], input.shape[1]
    ),
)
def _rnnt(xp, input, label, input_lengths, label_lengths, emit_lambda, blank=0):
    scan = _numpy_scan_rows if xp is np else jax_door.jax().lax.scan
    log_p = log_softmax_of(xp, input, 3)
    stay = log_p[..., blank]
    symbols = _symbols(xp, label, input.shape[3])[:, None, :, None]
    emit = xp.squeeze(xp.take_along_axis(log_p[:, :, :-1], symbols, axis=3), axis=3)
    if xp is not np:
        # FastEmit: the gradient of emissions counts (1 + lambda) times, their value once.
        emit = emit + emit_lambda * (emit - jax_door.jax().lax.stop_gradient(emit))
    start = xp.concatenate(
        [xp.zeros_like(stay[:, 0, :1]), xp.full_like(stay[:, 0, 1:], _NEVER)], axis=1
    )
    first = _rnnt_row(xp, start, emit[:, 0], scan)

    def frame(before: Any, row: Any) -> Any:
        left, cost = row
        now = _rnnt_row(xp, before + left, cost, scan)
        return now, (now,)

    rows = (xp.swapaxes(stay, 0, 1)[:-1], xp.swapaxes(emit, 0, 1)[1:])
    _, (others,) = scan(frame, first, rows)
    lattice = xp.swapaxes(xp.concatenate([first[None], others], axis=0), 0, 1) + stay
    last = (input_lengths.astype(np.int64) - 1)[:, None, None]
    ends = xp.squeeze(xp.take_along_axis(lattice, last, axis=1), axis=1)
    place = label_lengths.astype(np.int64)[:, None]
    return -xp.squeeze(xp.take_along_axis(ends, place, axis=1), axis=1)


def _numpy_scan_rows(step: Any, state: Any, rows: Any) -> Any:
    results = []
    for row in zip(*rows, strict=True):
        state, (made,) = step(state, row)
        results.append(made)
    shape = (0, *state.shape)
    return state, (np.stack(results) if results else np.zeros(shape, state.dtype),)


@op(inputs=("loss",), amp="black")
def _reduce_rnnt(xp, loss, reduction="mean"):
    return xp.mean(loss) if reduction == "mean" else xp.sum(loss)


@public
def rnnt_loss(
    input: Tensor,
    label: Tensor,
    input_lengths: Tensor,
    label_lengths: Tensor,
    blank: int = 0,
    fastemit_lambda: float = 0.001,
    reduction: str = "mean",
    name: str | None = None,
) -> Tensor:
    """-log of the probability that a transducer emits the label, over all alignments.

    `input` is [batch, time, label + 1, classes] and is normalised with softmax here.
    """
    check_reduction("rnnt_loss", reduction)
    loss = _rnnt(input, label, input_lengths, label_lengths, float(fastemit_lambda), blank)
    return loss if reduction == "none" else _reduce_rnnt(loss, reduction)
