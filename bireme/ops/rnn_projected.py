"""An LSTM whose hidden state is a projection of its output, as one op per layer and direction.

Shapes are those of `rnn.lstm`, except that h and y have P columns, w_hh is [4 * H, P], and w_ho
[H, P] projects. As in Paddle, y goes on after the end of a sequence, from the state that is held.
The gradient is the derived one.
"""

from __future__ import annotations

from typing import Any

from bireme.core.aval import Aval, aval
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.ops.activation import sigmoid_of
from bireme.ops.nn_support import need_float
from bireme.ops.rnn import _hold, _lengths_fit, _scan, input_part, running


def _infer(x, h0, c0, w_ih, w_hh, w_ho, b_ih, b_hh, lengths, reverse) -> tuple[Aval, ...]:
    steps, batch = x.shape[:2]
    hidden, out = w_ho.shape
    need_float("x", x)
    return (
        aval((steps, batch, out), x.dtype),
        aval((batch, out), x.dtype),
        aval((batch, hidden), x.dtype),
    )


@op(
    name="projected_lstm",
    inputs=("x", "h0", "c0", "w_ih", "w_hh", "w_ho", "b_ih", "b_hh", "lengths"),
    infer=_infer,
    requires=_lengths_fit,
    amp="white",
)
def _projected_lstm(xp, x, h0, c0, w_ih, w_hh, w_ho, b_ih, b_hh, lengths, reverse=False):
    hidden = w_ho.shape[0]
    bias = b_ih if b_hh is None else (b_hh if b_ih is None else b_ih + b_hh)
    recurrent = w_hh.T

    def step(state: Any, row: Any) -> Any:
        h, c = state
        part, run = row
        total = part + xp.matmul(h, recurrent)
        i_f = sigmoid_of(xp, total[:, : 2 * hidden])
        g = xp.tanh(total[:, 2 * hidden : 3 * hidden])
        o = sigmoid_of(xp, total[:, 3 * hidden :])
        new_c = i_f[:, hidden:] * c + i_f[:, :hidden] * g
        new_h = xp.matmul(o * xp.tanh(new_c), w_ho)
        state = _hold(xp, run, new_h, h), _hold(xp, run, new_c, c)
        return state, (new_h,)

    rows = (input_part(xp, x, w_ih, bias), running(xp, x, lengths))
    (h, c), (y,) = _scan(xp, step, (h0, c0), rows, reverse)
    return y, h, c


def projected_lstm(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    w_ho: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
    sequence_length: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """One LSTM layer with projections over a sequence: (y, h, c)."""
    return _projected_lstm(x, h0, c0, w_ih, w_hh, w_ho, b_ih, b_hh, sequence_length, reverse)
