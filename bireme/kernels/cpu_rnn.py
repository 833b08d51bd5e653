"""Recurrences on the CPU by the native kernels: LSTM, GRU and the plain recurrent layer.

Products over all steps (the input projection, the weights' gradients) stay XLA's, as in the plain
lowering; a kernel replaces the scan. In half precision it computes in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.kernels import native
from bireme.kernels.native.calling import Result, ffi_call, in_dtype, namespace
from bireme.ops import rnn
from bireme.ops.nn_support import wide

_COLUMNS = 16  # hidden units come in registers; a multiple of every build's width
_DTYPES = (dt.float32, dt.bfloat16, dt.float16)


def _accepts(call: Call) -> bool:
    x, out = call.types[0], call.outs[0]
    return (
        isinstance(x, Aval)
        and x.is_static
        and x.size > 0
        and out.dtype in _DTYPES
        and out.shape[2] % _COLUMNS == 0
    )


def _register(op: str, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
    """`forward` and `backward` on float32 arrays as kernels for `op` and its gradient."""
    name = f"native_{op}"

    def run(call: Call, *arrays: Any) -> tuple[Any, ...]:
        xp = namespace(arrays[0])
        found = forward(call, *(wide(xp, a) for a in arrays))
        return tuple(in_dtype(a, t.dtype.numpy) for a, t in zip(found, call.outs, strict=True))

    def run_grad(call: Call, *arrays: Any) -> tuple[Any, ...]:
        made: Call = call.attrs["forward"]
        xp = namespace(next(a for a in arrays if a is not None))
        needs, count = call.attrs["needs"], len(made.outs)
        grads = [
            xp.zeros(t.shape, np.float32) if g is None else wide(xp, g)
            for g, t in zip(arrays[:count], made.outs, strict=True)
        ]
        saved = dict(zip(made.saved_at, arrays[count:], strict=True))
        inputs = made.cast(xp, [saved.get(i) for i in range(len(made.types))])
        inputs = [wide(xp, a) for a in inputs]
        outs = [wide(xp, saved[-1 - i]) for i in range(count)]
        found = backward(made, needs, grads, inputs, outs)
        types = [made.types[i] for i in needs]
        return tuple(
            in_dtype(found[i], t.dtype.numpy)
            for i, t in zip(needs, types, strict=True)
            if isinstance(t, Aval)
        )

    kernel(
        op,
        name=name,
        platform="cpu",
        accepts=_accepts,
        ready=native.available,
        direct=native.arrived,
    )(run)
    kernel(
        f"{op}_grad",
        name=name,
        platform="cpu",
        accepts=lambda call: _accepts(call.attrs["forward"]),
        ready=native.available,
        direct=native.arrived,
    )(run_grad)


def _call(target: str, shapes: tuple[tuple[int, ...], ...], *arrays: Any, **flags: bool) -> Any:
    run = ffi_call(target, tuple(Result(s) for s in shapes))
    return run(*arrays, **{k: np.bool_(v) for k, v in flags.items()})


def _ends(x: Any, lengths: Any) -> Any:
    """Where every sequence ends, as the kernels read it."""
    if lengths is None:
        return namespace(x).full(x.shape[1], x.shape[0], np.int32)
    return lengths.astype(np.int32)


def _sum(b_ih: Any, b_hh: Any) -> Any:
    return b_ih if b_hh is None else (b_hh if b_ih is None else b_ih + b_hh)


# --- LSTM ---------------------------------------------------------------------------------------


def _lstm(
    call: Call, x: Any, h0: Any, c0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, lengths: Any
) -> Any:
    steps, batch, hidden = call.outs[0].shape
    projected = rnn.input_part(namespace(x), x, w_ih, _sum(b_ih, b_hh))
    rows, reverse = (steps, batch, hidden), call.attrs["reverse"]
    shapes = (rows, (batch, hidden), rows, (steps, batch, 4 * hidden))
    ends = _ends(x, lengths)
    y, h, cells, gates = _call(
        "bireme_lstm_forward", shapes, projected, w_hh, h0, c0, ends, reverse=reverse
    )
    return y, h, cells[0 if reverse else -1], gates, cells


def _lstm_grad(call: Call, needs: Any, grads: Any, inputs: Any, outs: Any) -> Any:
    x, h0, c0, w_ih, w_hh, _, _, lengths = inputs
    xp = namespace(x)
    y, _, _, gates, cells = outs
    reverse = call.attrs["reverse"]
    pulls, grad_h0, grad_c0 = _call(
        "bireme_lstm_backward", (gates.shape, h0.shape, c0.shape), *grads[:3], gates, cells, c0,
        w_hh, _ends(x, lengths), reverse=reverse,
    )  # fmt: skip
    before = rnn.previous_outputs(xp, y, h0, rnn.running(xp, x, lengths), reverse)
    wanted = [i in needs for i in (0, 3, 4, 5, 6)]
    grad_x, *weights = rnn.weight_grads(xp, x, before, pulls, w_ih, wanted)
    return grad_x, grad_h0, grad_c0, *weights


# --- GRU ----------------------------------------------------------------------------------------


def _gru(
    call: Call, x: Any, h0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, lengths: Any
) -> Any:
    xp = namespace(x)
    steps, batch, hidden = call.outs[0].shape
    projected = rnn.input_part(xp, x, w_ih, b_ih)
    if b_hh is None:
        b_hh = xp.zeros(3 * hidden, np.float32)
    shapes = ((steps, batch, hidden), (batch, hidden), (steps, batch, 4 * hidden))
    ends, reverse = _ends(x, lengths), call.attrs["reverse"]
    return _call("bireme_gru_forward", shapes, projected, w_hh, b_hh, h0, ends, reverse=reverse)


def _gru_grad(call: Call, needs: Any, grads: Any, inputs: Any, outs: Any) -> Any:
    x, h0, w_ih, w_hh, _, _, lengths = inputs
    xp = namespace(x)
    y, _, gates = outs
    reverse = call.attrs["reverse"]
    before = rnn.previous_outputs(xp, y, h0, rnn.running(xp, x, lengths), reverse)
    rows = (*y.shape[:2], 3 * y.shape[2])
    pulls, recurrent, grad_h0 = _call(
        "bireme_gru_backward", (rows, rows, h0.shape), *grads[:2], gates, before, w_hh,
        _ends(x, lengths), reverse=reverse,
    )  # fmt: skip
    wanted = [i in needs for i in (0, 2, 3, 4, 5)]
    grad_x, *weights = rnn.weight_grads(xp, x, before, pulls, w_ih, wanted, recurrent)
    return grad_x, grad_h0, *weights


# --- simple -------------------------------------------------------------------------------------


def _flags(call: Call) -> dict[str, bool]:
    return {"reverse": call.attrs["reverse"], "relu": call.attrs["activation"] == "relu"}


def _simple(
    call: Call, x: Any, h0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, lengths: Any
) -> Any:
    projected = rnn.input_part(namespace(x), x, w_ih, _sum(b_ih, b_hh))
    shapes = (call.outs[0].shape, call.outs[1].shape)
    ends = _ends(x, lengths)
    return _call("bireme_simple_rnn_forward", shapes, projected, w_hh, h0, ends, **_flags(call))


def _simple_grad(call: Call, needs: Any, grads: Any, inputs: Any, outs: Any) -> Any:
    x, h0, w_ih, w_hh, _, _, lengths = inputs
    xp = namespace(x)
    y = outs[0]
    pulls, grad_h0 = _call(
        "bireme_simple_rnn_backward", (y.shape, h0.shape), *grads, y, w_hh, _ends(x, lengths),
        **_flags(call),
    )  # fmt: skip
    runs = rnn.running(xp, x, lengths)
    before = rnn.previous_outputs(xp, y, h0, runs, call.attrs["reverse"])
    wanted = [i in needs for i in (0, 2, 3, 4, 5)]
    grad_x, *weights = rnn.weight_grads(xp, x, before, pulls, w_ih, wanted)
    return grad_x, grad_h0, *weights


_register("lstm", _lstm, _lstm_grad)
_register("gru", _gru, _gru_grad)
_register("simple_rnn", _simple, _simple_grad)
