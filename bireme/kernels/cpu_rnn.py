"""The LSTM recurrence on the CPU by the native kernel.

Products over all steps (the input projection, the weights' gradients) stay XLA's, as in the plain
lowering; the kernel replaces the scan.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core import jax_door
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.kernels import native
from bireme.ops import rnn

_COLUMNS = 64  # the kernel's panels; a multiple of every build's width


def _accepts(call: Call) -> bool:
    x, w_hh, lengths = call.types[0], call.types[4], call.types[7]
    return (
        lengths is None
        and isinstance(x, Aval)
        and isinstance(w_hh, Aval)
        and x.dtype is dt.float32
        and x.is_static
        and x.size > 0
        and w_hh.shape[1] % _COLUMNS == 0
        and all(c is None for c in call.casts)
    )


def _struct(*shape: int) -> Any:
    return jax_door.jax().ShapeDtypeStruct(shape, np.float32)


@kernel("lstm", name="native_lstm", platform="cpu", accepts=_accepts, ready=native.available)
def _lstm(
    call: Call, x: Any, h0: Any, c0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, lengths: Any
) -> Any:
    jax = jax_door.jax()
    steps, batch, hidden = call.outs[0].shape
    bias = b_ih if b_hh is None else (b_hh if b_ih is None else b_ih + b_hh)
    projected = rnn.input_part(jax.numpy, x, w_ih, bias)
    rows = _struct(steps, batch, hidden)
    run = jax.ffi.ffi_call("bireme_lstm_forward", (rows, rows, _struct(steps, batch, 4 * hidden)))
    reverse = call.attrs["reverse"]
    y, cells, gates = run(projected, w_hh, h0, c0, reverse=np.bool_(reverse))
    last = 0 if reverse else -1
    return y, y[last], cells[last], gates, cells


@kernel(
    "lstm_grad",
    name="native_lstm",
    platform="cpu",
    accepts=lambda call: _accepts(call.attrs["forward"]),
    ready=native.available,
)
def _lstm_grad(call: Call, *arrays: Any) -> Any:
    jax = jax_door.jax()
    jnp = jax.numpy
    forward: Call = call.attrs["forward"]
    needs, reverse = call.attrs["needs"], forward.attrs["reverse"]
    grads = [
        jnp.zeros(t.shape, t.dtype.numpy) if g is None else g
        for g, t in zip(arrays[:3], forward.outs, strict=False)
    ]
    saved = dict(zip(forward.saved_at, arrays[len(forward.outs) :], strict=True))
    x, h0, c0, w_ih, w_hh = (saved[i] for i in range(5))
    y, gates, cells = saved[-1], saved[-4], saved[-5]
    steps, batch, hidden = y.shape
    state = _struct(batch, hidden)
    run = jax.ffi.ffi_call(
        "bireme_lstm_backward", (_struct(steps, batch, 4 * hidden), state, state)
    )
    pulls, grad_h0, grad_c0 = run(*grads, gates, cells, c0, w_hh, reverse=np.bool_(reverse))
    before = rnn.previous_outputs(jnp, y, h0, None, reverse)
    wanted = [i in needs for i in (0, 3, 4, 5, 6)]
    grad_x, *weights = rnn.weight_grads(jnp, x, before, pulls, w_ih, wanted)
    by_input = (grad_x, grad_h0, grad_c0, *weights)
    return tuple(by_input[i] for i in needs)
