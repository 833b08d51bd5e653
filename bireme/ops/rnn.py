"""Recurrent layers as one op per layer and direction.

    lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, sequence_length=None, reverse=False) -> y, h, c
    gru(x, h0, w_ih, w_hh, b_ih, b_hh, sequence_length=None, reverse=False) -> y, h
    simple_rnn(x, h0, w_ih, w_hh, b_ih, b_hh, activation="tanh", sequence_length=None,
               reverse=False) -> y, h

x is [T, B, I], h0 and c0 [B, H], w_ih [G * H, I], w_hh [G * H, H], the biases [G * H] or None, y
[T, B, H], h and c [B, H]. Gates lie in Paddle's order: i, f, g, o for LSTM (G = 4) and r, z, c for
GRU (G = 3), where r acts on the recurrent product with its bias. `sequence_length` [B] ends each
sequence: the state is held from there on and y is zero. `reverse` runs from the last step to the
first, and y stays in the input's order. The `*_cell` functions take one step: x is [B, I].

How it is fast: the input's product is one matrix product for all steps, before the scan; on the
way back the scan only carries the state's gradient, and the gradients of both weights are one
product each after it. The activated gates are kept for that; XLA drops them where no gradient
follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.core.aval import Aval, aval
from bireme.core.dims import may_be_equal
from bireme.core.errors import ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.requirements import InRange
from bireme.core.tensor import Tensor
from bireme.host import jax_door
from bireme.host.arrays import Array, Namespace
from bireme.ops.activation import sigmoid_of
from bireme.ops.nn_support import need_float, need_integer, one_of

# --- shared -------------------------------------------------------------------------------------


def _scan(xp: Any, step: Callable[..., Any], state: Any, rows: tuple[Any, ...], reverse: bool):
    """(last state, stacked results) of step(state, row) over the first axis of `rows`.

    Rows that are None stay None in every step.
    """
    if xp is not np:
        return jax_door.jax().lax.scan(step, state, rows, reverse=reverse)
    length = rows[0].shape[0]
    order = range(length - 1, -1, -1) if reverse else range(length)
    results: list[Any] = [None] * length
    for t in order:
        state, results[t] = step(state, tuple([None if r is None else r[t] for r in rows]))
    stacked = tuple([np.stack(part) for part in zip(*results, strict=True)])
    return state, stacked


def input_part(xp: Namespace, x: Array, weight: Array, bias: Array) -> Array:
    """x @ weight^T + bias for all steps at once: [T, B, G * H]."""
    steps, batch, width = x.shape
    part = xp.matmul(xp.reshape(x, (steps * batch, width)), weight.T)
    if bias is not None:
        part = part + bias
    return xp.reshape(part, (steps, batch, weight.shape[0]))


def running(xp: Namespace, x: Array, lengths: Any) -> Array | None:
    """[T, B, 1]: whether a sequence still runs at a step; None where all run to the end."""
    if lengths is None:
        return None
    return (xp.arange(x.shape[0], dtype=lengths.dtype)[:, None] < lengths)[:, :, None]


def _hold(xp: Any, runs: Any, new: Any, old: Any) -> Any:
    return new if runs is None else xp.where(runs, new, old)


def _zero(xp: Any, runs: Any, x: Any) -> Any:
    return x if runs is None else xp.where(runs, x, 0)


def _shifted(xp: Any, rows: Any, first: Any, reverse: bool) -> Any:
    """What every step found: the row that the step before it left, `first` for the first."""
    if reverse:
        return xp.concatenate([rows[1:], first[None]], axis=0)
    return xp.concatenate([first[None], rows[:-1]], axis=0)


def previous_outputs(xp: Namespace, y: Array, h0: Any, runs: Any, reverse: bool) -> Array:
    """The hidden state that every running step started from."""
    before = _shifted(xp, y, h0, reverse)
    if runs is None or not reverse:
        return before
    # Backwards, a sequence's first step follows steps that had not begun and left zeros in y.
    begun = _shifted(xp, runs, xp.ones_like(runs[0]), reverse)
    return xp.where(begun, before, h0)


def _sum_rows(xp: Any, rows: Any) -> Any:
    return xp.matmul(xp.ones((1, rows.shape[0]), rows.dtype), rows)[0]


def _flat(xp: Any, x: Any) -> Any:
    return xp.reshape(x, (x.shape[0] * x.shape[1], x.shape[2]))


def weight_grads(
    xp: Namespace, x: Array, before: Any, pulls: Any, w_ih: Any, needs: Any, recurrent: Any = None
) -> tuple[Any, ...]:
    """Gradients of x, w_ih, w_hh, b_ih, b_hh from those of the gates, one product each."""
    rows = _flat(xp, pulls)
    inner = rows if recurrent is None else _flat(xp, recurrent)
    grad_x = xp.reshape(xp.matmul(rows, w_ih), x.shape) if needs[0] else None
    grad_ih = xp.matmul(rows.T, _flat(xp, x)) if needs[1] else None
    grad_hh = xp.matmul(inner.T, _flat(xp, before)) if needs[2] else None
    grad_b_ih = _sum_rows(xp, rows) if needs[3] else None
    grad_b_hh = _sum_rows(xp, inner) if needs[4] else None
    return grad_x, grad_ih, grad_hh, grad_b_ih, grad_b_hh


def _check(gates: int, x: Aval, states: dict[str, Aval], w_ih: Aval, w_hh: Aval,
           biases: dict[str, Aval | None], lengths: Aval | None) -> None:  # fmt: skip
    need_float("x", x)
    if x.ndim != 3:
        raise ShapeMismatch(f"'x' must have 3 dimensions [time, batch, input], not {x.ndim}")
    hidden = w_hh.shape[-1]
    expected: dict[str, tuple[Aval | None, tuple[Any, ...]]] = {
        "w_ih": (w_ih, (gates * hidden, x.shape[2])),
        "w_hh": (w_hh, (gates * hidden, hidden)),
        **{name: (s, (x.shape[1], hidden)) for name, s in states.items()},
        **{name: (b, (gates * hidden,)) for name, b in biases.items()},
    }
    for name, (have, shape) in expected.items():
        if have is None:
            continue
        if len(have.shape) != len(shape) or not all(map(may_be_equal, have.shape, shape)):
            raise ShapeMismatch(f"'{name}' must have shape {list(shape)}, not {list(have.shape)}")
        if have.dtype is not x.dtype:
            raise TypeMismatch(
                f"'{name}' must have x's dtype {x.dtype.name}, not {have.dtype.name}"
            )
    if lengths is not None:
        need_integer("sequence_length", lengths)
        if lengths.shape != (x.shape[1],):
            raise ShapeMismatch(
                f"'sequence_length' must hold one number for each of {x.shape[1]} sequences, not "
                f"have shape {list(lengths.shape)}"
            )


# --- LSTM ---------------------------------------------------------------------------------------


def _lengths_fit(x: Aval, *others: Any, **_: Any) -> list[InRange]:
    return [] if others[-1] is None else [InRange("lengths", 0, x.shape[0])]


def _lstm_check(x, h0, c0, w_ih, w_hh, b_ih, b_hh, lengths, reverse) -> None:
    _check(4, x, {"h0": h0, "c0": c0}, w_ih, w_hh, {"b_ih": b_ih, "b_hh": b_hh}, lengths)


def _lstm_infer(x, h0, c0, w_ih, w_hh, b_ih, b_hh, lengths, reverse) -> tuple[Aval, ...]:
    steps, batch, hidden = x.shape[0], x.shape[1], w_hh.shape[1]
    rows = aval((steps, batch, hidden), x.dtype)
    last = aval((batch, hidden), x.dtype)
    return rows, last, last, aval((steps, batch, 4 * hidden), x.dtype), rows


def _lstm_vjp(
    xp: Any,
    grads: Any,
    x: Any,
    h0: Any,
    c0: Any,
    w_ih: Any,
    w_hh: Any,
    lengths: Any,
    out: Any,
    reverse: bool,
    needs: Any,
) -> tuple[Any, ...]:
    y, _, _, gates, cells = out
    hidden = w_hh.shape[1]
    runs = running(xp, x, lengths)
    cells_before = _shifted(xp, cells, c0, reverse)

    def step(state: Any, row: Any) -> Any:
        grad_h, grad_c = state
        grad_y, gate, before, bent, run = row
        i, f = gate[:, :hidden], gate[:, hidden : 2 * hidden]
        g, o = gate[:, 2 * hidden : 3 * hidden], gate[:, 3 * hidden :]
        new_h = _zero(xp, run, grad_h + grad_y)
        new_c = _zero(xp, run, grad_c) + new_h * o * (1 - bent * bent)
        pull = xp.concatenate(
            [
                new_c * g * i * (1 - i),
                new_c * before * f * (1 - f),
                new_c * i * (1 - g * g),
                new_h * bent * o * (1 - o),
            ],
            axis=1,
        )
        to_h, to_c = xp.matmul(pull, w_hh), new_c * f
        if run is not None:
            to_h, to_c = to_h + xp.where(run, 0, grad_h), xp.where(run, to_c, grad_c)
        return (to_h, to_c), (pull,)

    rows = (grads[0], gates, cells_before, xp.tanh(cells), runs)
    (grad_h0, grad_c0), (pulls,) = _scan(xp, step, (grads[1], grads[2]), rows, not reverse)
    before = previous_outputs(xp, y, h0, runs, reverse)
    wanted = (needs[0], *needs[3:7])
    grad_x, *weights = weight_grads(xp, x, before, pulls, w_ih, wanted)
    return grad_x, grad_h0, grad_c0, *weights, None


@op(
    name="lstm",
    inputs=("x", "h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh", "lengths"),
    vjp=_lstm_vjp,
    infer=_lstm_infer,
    check=_lstm_check,
    requires=_lengths_fit,
    amp="white",
    usual=("ttttttt-",),
)
def _lstm(xp, x, h0, c0, w_ih, w_hh, b_ih, b_hh, lengths, reverse=False):
    """Also returns the activated gates and the cell states of all steps, for the gradient."""
    hidden = w_hh.shape[1]
    bias = b_ih if b_hh is None else (b_hh if b_ih is None else b_ih + b_hh)
    recurrent = w_hh.T

    def step(state: Any, row: Any) -> Any:
        h, c = state
        part, run = row
        total = part + xp.matmul(h, recurrent)
        # One sigmoid over three gates and one tanh beats a call per gate.
        i_f = sigmoid_of(xp, total[:, : 2 * hidden])
        g = xp.tanh(total[:, 2 * hidden : 3 * hidden])
        o = sigmoid_of(xp, total[:, 3 * hidden :])
        new_c = i_f[:, hidden:] * c + i_f[:, :hidden] * g
        new_h = o * xp.tanh(new_c)
        gate = xp.concatenate([i_f, g, o], axis=1)
        state = _hold(xp, run, new_h, h), _hold(xp, run, new_c, c)
        return state, (_zero(xp, run, new_h), gate, state[1])

    rows = (input_part(xp, x, w_ih, bias), running(xp, x, lengths))
    (h, c), (y, gates, cells) = _scan(xp, step, (h0, c0), rows, reverse)
    return y, h, c, gates, cells


def lstm(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
    sequence_length: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """One LSTM layer over a sequence: (y, h, c). See the module's docstring."""
    y, h, c, _, _ = _lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, sequence_length, reverse)
    return y, h, c


# --- GRU ----------------------------------------------------------------------------------------


def _gru_check(x, h0, w_ih, w_hh, b_ih, b_hh, lengths, reverse) -> None:
    _check(3, x, {"h0": h0}, w_ih, w_hh, {"b_ih": b_ih, "b_hh": b_hh}, lengths)


def _gru_infer(x, h0, w_ih, w_hh, b_ih, b_hh, lengths, reverse) -> tuple[Aval, ...]:
    steps, batch, hidden = x.shape[0], x.shape[1], w_hh.shape[1]
    return (
        aval((steps, batch, hidden), x.dtype),
        aval((batch, hidden), x.dtype),
        aval((steps, batch, 4 * hidden), x.dtype),
    )


def _gru_vjp(
    xp: Any,
    grads: Any,
    x: Any,
    h0: Any,
    w_ih: Any,
    w_hh: Any,
    lengths: Any,
    out: Any,
    reverse: bool,
    needs: Any,
) -> tuple[Any, ...]:
    y, _, gates = out
    hidden = w_hh.shape[1]
    runs = running(xp, x, lengths)
    before = previous_outputs(xp, y, h0, runs, reverse)

    def step(grad_h: Any, row: Any) -> Any:
        grad_y, gate, old, run = row
        r, z = gate[:, :hidden], gate[:, hidden : 2 * hidden]
        c, inner = gate[:, 2 * hidden : 3 * hidden], gate[:, 3 * hidden :]
        new = _zero(xp, run, grad_h + grad_y)
        pull_c = new * (1 - z) * (1 - c * c)
        pull_r = pull_c * inner * r * (1 - r)
        pull_z = new * (old - c) * z * (1 - z)
        to_h = new * z + xp.matmul(xp.concatenate([pull_r, pull_z, pull_c * r], axis=1), w_hh)
        if run is not None:
            to_h = to_h + xp.where(run, 0, grad_h)
        return to_h, (xp.concatenate([pull_r, pull_z, pull_c], axis=1),)

    rows = (grads[0], gates, before, runs)
    grad_h0, (pulls,) = _scan(xp, step, grads[1], rows, not reverse)
    recurrent = xp.concatenate(
        [pulls[..., : 2 * hidden], pulls[..., 2 * hidden :] * gates[..., :hidden]], axis=2
    )
    wanted = (needs[0], *needs[2:6])
    grad_x, *weights = weight_grads(xp, x, before, pulls, w_ih, wanted, recurrent)
    return grad_x, grad_h0, *weights, None


@op(
    name="gru",
    inputs=("x", "h0", "w_ih", "w_hh", "b_ih", "b_hh", "lengths"),
    vjp=_gru_vjp,
    infer=_gru_infer,
    check=_gru_check,
    requires=_lengths_fit,
    amp="white",
    usual=("tttttt-",),
)
def _gru(xp, x, h0, w_ih, w_hh, b_ih, b_hh, lengths, reverse=False):
    """Also returns r, z, c and the candidate's recurrent part of all steps, for the gradient."""
    hidden = w_hh.shape[1]
    weight = w_hh.T

    def step(h: Any, row: Any) -> Any:
        part, run = row
        recurrent = xp.matmul(h, weight)
        if b_hh is not None:
            recurrent = recurrent + b_hh
        r_z = sigmoid_of(xp, part[:, : 2 * hidden] + recurrent[:, : 2 * hidden])
        inner = recurrent[:, 2 * hidden :]
        c = xp.tanh(part[:, 2 * hidden :] + r_z[:, :hidden] * inner)
        new = (h - c) * r_z[:, hidden:] + c
        gate = xp.concatenate([r_z, c, inner], axis=1)
        return _hold(xp, run, new, h), (_zero(xp, run, new), gate)

    rows = (input_part(xp, x, w_ih, b_ih), running(xp, x, lengths))
    h, (y, gates) = _scan(xp, step, h0, rows, reverse)
    return y, h, gates


def gru(
    x: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
    sequence_length: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """One GRU layer over a sequence: (y, h). See the module's docstring."""
    y, h, _ = _gru(x, h0, w_ih, w_hh, b_ih, b_hh, sequence_length, reverse)
    return y, h


# --- simple -------------------------------------------------------------------------------------


def _simple_check(x, h0, w_ih, w_hh, b_ih, b_hh, lengths, activation, reverse) -> None:
    _check(1, x, {"h0": h0}, w_ih, w_hh, {"b_ih": b_ih, "b_hh": b_hh}, lengths)


def _simple_infer(x, h0, w_ih, w_hh, b_ih, b_hh, lengths, activation, reverse) -> tuple[Aval, Aval]:
    hidden = w_hh.shape[1]
    return aval((*x.shape[:2], hidden), x.dtype), aval((x.shape[1], hidden), x.dtype)


def _simple_vjp(
    xp: Any,
    grads: Any,
    x: Any,
    h0: Any,
    w_ih: Any,
    w_hh: Any,
    lengths: Any,
    out: Any,
    activation: str,
    reverse: bool,
    needs: Any,
) -> tuple[Any, ...]:
    y = out[0]
    runs = running(xp, x, lengths)
    slopes = 1 - y * y if activation == "tanh" else (y > 0).astype(y.dtype)

    def step(grad_h: Any, row: Any) -> Any:
        grad_y, slope, run = row
        pull = _zero(xp, run, grad_h + grad_y) * slope
        to_h = xp.matmul(pull, w_hh)
        if run is not None:
            to_h = to_h + xp.where(run, 0, grad_h)
        return to_h, (pull,)

    grad_h0, (pulls,) = _scan(xp, step, grads[1], (grads[0], slopes, runs), not reverse)
    before = previous_outputs(xp, y, h0, runs, reverse)
    wanted = (needs[0], *needs[2:6])
    grad_x, *weights = weight_grads(xp, x, before, pulls, w_ih, wanted)
    return grad_x, grad_h0, *weights, None


@op(
    name="simple_rnn",
    inputs=("x", "h0", "w_ih", "w_hh", "b_ih", "b_hh", "lengths"),
    vjp=_simple_vjp,
    infer=_simple_infer,
    check=_simple_check,
    requires=_lengths_fit,
    amp="white",
    usual=("tttttt-",),
)
def _simple_rnn(xp, x, h0, w_ih, w_hh, b_ih, b_hh, lengths, activation="tanh", reverse=False):
    bias = b_ih if b_hh is None else (b_hh if b_ih is None else b_ih + b_hh)
    weight = w_hh.T

    def step(h: Any, row: Any) -> Any:
        part, run = row
        total = part + xp.matmul(h, weight)
        new = xp.tanh(total) if activation == "tanh" else xp.maximum(total, 0)
        return _hold(xp, run, new, h), (_zero(xp, run, new),)

    rows = (input_part(xp, x, w_ih, bias), running(xp, x, lengths))
    h, (y,) = _scan(xp, step, h0, rows, reverse)
    return y, h


def simple_rnn(
    x: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
    activation: str = "tanh",
    sequence_length: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """One layer h = activation(W x + U h) over a sequence: (y, h)."""
    one_of("simple_rnn", "activation", activation, ("tanh", "relu"))
    y, h = _simple_rnn(x, h0, w_ih, w_hh, b_ih, b_hh, sequence_length, activation, reverse)
    return y, h


# --- one step -----------------------------------------------------------------------------------


@op(
    vjp=lambda xp, grad: (grad[0],),
    infer=lambda x: aval((1, *x.shape), x.dtype),
)
def _as_sequence(xp, x):
    return xp.expand_dims(x, 0)


def lstm_cell(
    x: Tensor,
    h: Tensor,
    c: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM on x [B, I]: the new (h, c)."""
    _, h, c = lstm(_as_sequence(x), h, c, w_ih, w_hh, b_ih, b_hh)
    return h, c


def gru_cell(
    x: Tensor,
    h: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """One step of a GRU on x [B, I]: the new h."""
    return gru(_as_sequence(x), h, w_ih, w_hh, b_ih, b_hh)[1]


def simple_rnn_cell(
    x: Tensor,
    h: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
    activation: str = "tanh",
) -> Tensor:
    """One step of a simple RNN on x [B, I]: the new h."""
    return simple_rnn(_as_sequence(x), h, w_ih, w_hh, b_ih, b_hh, activation)[1]


# The layers use these by module; paddle.nn.functional has no such names.
