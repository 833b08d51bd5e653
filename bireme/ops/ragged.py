"""Sequences of different lengths without padding: their rows lie one after the other, and
`offsets` [S + 1] says where each of the S sequences starts.

    ragged_gru(x, weight, bias, offsets, reverse=False, …)       x [N, 3D] -> [N, D]
    ragged_lstm(x, weight, bias, offsets, reverse=False, …)      x [N, 4D] -> [N, D], cells [N, D]
    ragged_viterbi(emission, transition, offsets)                [N, T] -> best path [N]
    ragged_sum(x, offsets), ragged_max(x, offsets)               [N, …] -> [S, …]
    ragged_rows(offsets, rows) -> the sequence of each row, where it starts, where it ends

One scan runs over all rows and forgets its state at every start, so that nothing depends on the
lengths but the contents of `offsets`: one program serves all. These are the recurrences of
Paddle's LoD nets, with its layouts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.op import op
from bireme.ops.activation import sigmoid_of
from bireme.ops.indexing import scatter_into
from bireme.ops.rnn import _scan


def _places(xp: Any, offsets: Any, rows: Any) -> tuple[Any, Any, Any]:
    """Per row: its sequence, where that starts and where it ends."""
    ids = xp.searchsorted(offsets, xp.arange(rows, dtype=offsets.dtype), side="right") - 1
    return ids, offsets[ids], offsets[ids + 1]


def _fresh(xp: Any, offsets: Any, rows: Any, reverse: bool) -> Any:
    """Whether a row is the first of its sequence in running order."""
    at = xp.arange(rows, dtype=offsets.dtype)
    _, starts, ends = _places(xp, offsets, rows)
    return (ends == at + 1) if reverse else (starts == at)


_ACTIVATIONS = {
    "sigmoid": sigmoid_of,
    "tanh": lambda xp, x: xp.tanh(x),
    "relu": lambda xp, x: xp.maximum(x, 0),
    "identity": lambda xp, x: x,
}


def _check(gates: int, x: Aval, weight: Aval, *names: str) -> None:
    for name in names:
        if name not in _ACTIVATIONS:
            raise InvalidArgument(
                f"an activation is one of {', '.join(_ACTIVATIONS)}, not {name!r}"
            )
    width = weight.shape[0]
    if x.ndim != 2 or weight.ndim != 2 or weight.shape[1] != gates * width != 0:
        raise ShapeMismatch(f"'weight' must be [D, {gates}D], not {list(weight.shape)}")
    if x.shape[1] != gates * width:
        raise ShapeMismatch(f"'x' must be [N, {gates * width}], not {list(x.shape)}")


def _gru_check(x, weight, bias, offsets, reverse, gate, activation, origin_mode) -> None:
    _check(3, x, weight, gate, activation)


def _gru_type(x, weight, bias, offsets, reverse, gate, activation, origin_mode) -> Aval:
    return aval((x.shape[0], weight.shape[0]), x.dtype)


@op(inputs=("x", "weight", "bias", "offsets"), check=_gru_check, infer=_gru_type)
def ragged_gru(
    xp,
    x,
    weight,
    bias=None,
    offsets=None,
    reverse=False,
    gate="sigmoid",
    activation="tanh",
    origin_mode=False,
):
    """Update, reset, candidate: the weight holds [D, 2D] for the gates, then [D, D], flat."""
    d = weight.shape[0]
    flat = xp.reshape(weight, (-1,))
    for_gates, for_state = (
        xp.reshape(flat[: 2 * d * d], (d, 2 * d)),
        xp.reshape(flat[2 * d * d :], (d, d)),
    )
    if bias is not None:
        x = x + xp.reshape(bias, (1, 3 * d))
    act, gate_act = _ACTIVATIONS[activation], _ACTIVATIONS[gate]

    def step(h: Any, row: Any) -> Any:
        values, first = row
        h = xp.where(first, xp.zeros_like(h), h)
        both = gate_act(xp, values[: 2 * d] + h @ for_gates)
        update, reset = both[:d], both[d:]
        made = act(xp, values[2 * d :] + (reset * h) @ for_state)
        h = update * h + (1 - update) * made if origin_mode else h + update * (made - h)
        return h, (h,)

    first = _fresh(xp, offsets, x.shape[0], reverse)
    return _run(xp, step, xp.zeros((d,), x.dtype), (x, first), reverse)[0]


def _run(xp: Any, step: Any, state: Any, rows: tuple[Any, ...], reverse: bool) -> Any:
    if xp is np and rows[0].shape[0] == 0:
        width = (state[0] if isinstance(state, tuple) else state).shape[0]
        return tuple([np.zeros((0, width), rows[0].dtype)] * (2 if isinstance(state, tuple) else 1))
    return _scan(xp, step, state, rows, reverse)[1]


def _lstm_check(x, weight, bias, offsets, reverse, gate, cell, candidate, peepholes) -> None:
    _check(4, x, weight, gate, cell, candidate)


def _lstm_type(x, weight, bias, offsets, reverse, gate, cell, candidate, peepholes) -> Any:
    t = aval((x.shape[0], weight.shape[0]), x.dtype)
    return t, t


@op(inputs=("x", "weight", "bias", "offsets"), check=_lstm_check, infer=_lstm_type)
def ragged_lstm(
    xp,
    x,
    weight,
    bias=None,
    offsets=None,
    reverse=False,
    gate="sigmoid",
    cell="tanh",
    candidate="tanh",
    peepholes=False,
):
    """Gates lie as candidate, input, forget, output; the bias ends with three peephole rows."""
    d = weight.shape[0]
    peep = [None, None, None]
    if bias is not None:
        bias = xp.reshape(bias, (-1,))
        x = x + bias[None, : 4 * d]
        if peepholes:
            peep = [bias[k * d : (k + 1) * d] for k in (4, 5, 6)]
    gate_act, cell_act, cand_act = [_ACTIVATIONS[n] for n in (gate, cell, candidate)]

    def look(value: Any, row: Any, c: Any) -> Any:
        return value if row is None else value + row * c

    def step(state: Any, row: Any) -> Any:
        values, first = row
        h, c = [xp.where(first, xp.zeros_like(s), s) for s in state]
        values = values + h @ weight
        made = cand_act(xp, values[:d])
        enter = gate_act(xp, look(values[d : 2 * d], peep[0], c))
        keep = gate_act(xp, look(values[2 * d : 3 * d], peep[1], c))
        c = made * enter + c * keep
        leave = gate_act(xp, look(values[3 * d :], peep[2], c))
        h = leave * cell_act(xp, c)
        return (h, c), (h, c)

    first = _fresh(xp, offsets, x.shape[0], reverse)
    zero = xp.zeros((d,), x.dtype)
    return _run(xp, step, (zero, zero), (x, first), reverse)


@op(
    infer=lambda emission, transition, offsets: aval((emission.shape[0],), dt.as_dtype("int64")),
    differentiable=False,
)
def ragged_viterbi(xp, emission, transition, offsets):
    """The best path; `transition` [T + 2, T] has the weights of starts, of ends, and from-to."""
    rows = emission.shape[0]
    starts, ends, moves = transition[0], transition[1], transition[2:]
    first = _fresh(xp, offsets, rows, False)
    last = _fresh(xp, offsets, rows, True)

    def forward(score: Any, row: Any) -> Any:
        emitted, begins = row
        paths = score[:, None] + moves
        best = xp.where(begins, starts, xp.max(paths, axis=0)) + emitted
        return best, (best, xp.argmax(paths, axis=0))

    def backward(tag: Any, row: Any) -> Any:
        score, came_from, closes = row
        tag = xp.where(closes, xp.argmax(score + ends), tag)
        return came_from[tag], (tag,)

    if xp is np and rows == 0:
        return np.zeros((0,), np.int64)
    _, (scores, came_from) = _scan(
        xp, forward, xp.zeros_like(starts), (emission, first), reverse=False
    )
    came_from = came_from.astype(np.int64)
    zero = xp.zeros((), np.int64)
    _, (tags,) = _scan(xp, backward, zero, (scores, came_from, last), reverse=True)
    return tags.astype(np.int64)


def _rows_type(offsets: Aval, rows: Any) -> Any:
    t = aval((rows,), offsets.dtype)
    return t, t, t


@op(infer=_rows_type, differentiable=False)
def ragged_rows(xp, offsets, rows=0):
    """Per row: its sequence, where that starts, where it ends."""
    return tuple([p.astype(offsets.dtype) for p in _places(xp, offsets, rows)])


def _reduced_type(x: Aval, offsets: Aval) -> Aval:
    return aval((offsets.shape[0] - 1, *x.shape[1:]), x.dtype)


@op(infer=_reduced_type)
def ragged_sum(xp, x, offsets):
    """The sum of each sequence's rows."""
    ids = _places(xp, offsets, x.shape[0])[0]
    out = xp.zeros((offsets.shape[0] - 1, *x.shape[1:]), x.dtype)
    return scatter_into(xp, out, ids, x, "add")


@op(infer=_reduced_type)
def ragged_max(xp, x, offsets):
    """The largest of each sequence's rows."""
    ids = _places(xp, offsets, x.shape[0])[0]
    out = xp.full((offsets.shape[0] - 1, *x.shape[1:]), -np.inf, x.dtype)
    return scatter_into(xp, out, ids, x, "max")
