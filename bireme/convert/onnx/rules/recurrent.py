"""LSTM, GRU and simple recurrent layers: ONNX has them whole, with its gates in another order."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.convert.onnx.rules import rule
from bireme.convert.onnx.writer import Writer
from bireme.core.dtype import as_dtype
from bireme.core.op import Call

_ORDER = {"lstm": [0, 3, 1, 2], "gru": [1, 0, 2], "simple_rnn": [0]}  # ONNX's gates by our numbers


def _sorted(w: Writer, x: str, call: Call, hidden: int) -> str:
    """The rows of each gate in ONNX's order."""
    order = _ORDER[call.op.name]
    if len(order) == 1:
        return x
    cuts = [
        w.emit("Slice", x, w.ints([g * hidden]), w.ints([(g + 1) * hidden]), w.ints([0]))
        for g in order
    ]
    return w.emit("Concat", *cuts, axis=0)


def _layer(
    w: Writer,
    call: Call,
    kind: str,
    x: str,
    states: list[str],
    weights: tuple[str, str],
    biases: tuple[str | None, str | None],
    lengths: str | None,
    reverse: bool,
    **attrs: Any,
) -> list[str]:
    """[y, h] or [y, h, c] of one direction."""
    t: Any = call.types[0]
    recurrent: Any = call.types[1 + len(states) + 1]
    hidden = recurrent.shape[1]
    gates = len(_ORDER[call.op.name]) * hidden
    lead = w.ints([0])
    w_in, w_out = (w.emit("Unsqueeze", _sorted(w, v, call, hidden), lead) for v in weights)
    bias = None
    if any(b is not None for b in biases):
        zero = w.constant(np.zeros(gates), t.dtype)
        parts = [zero if b is None else _sorted(w, b, call, hidden) for b in biases]
        bias = w.emit("Unsqueeze", w.emit("Concat", *parts, axis=0), lead)
    made = w.emit(
        kind, x, w_in, w_out, bias, None if lengths is None else w.cast(lengths, as_dtype("int32")),
        *[w.emit("Unsqueeze", s, lead) for s in states], outputs=1 + len(states),
        hidden_size=hidden, direction="reverse" if reverse else "forward", **attrs,
    )  # fmt: skip
    y, *last = made
    return [w.emit("Squeeze", y, w.ints([1])), *[w.emit("Squeeze", v, lead) for v in last]]


def _unused(w: Writer, call: Call, made: list[str]) -> list[str]:
    """What only the gradient asks for has no ONNX form; nothing may read it."""
    return [*made, *[w.fresh("unused") for _ in call.outs[len(made) :]]]


@rule("lstm")
def lstm(
    w: Writer,
    call: Call,
    x: str,
    h0: str,
    c0: str,
    w_ih: str,
    w_hh: str,
    b_ih: str | None,
    b_hh: str | None,
    lengths: str | None,
    reverse: bool,
) -> list[str]:
    made = _layer(w, call, "LSTM", x, [h0, c0], (w_ih, w_hh), (b_ih, b_hh), lengths, reverse)
    return _unused(w, call, made)


@rule("gru")
def gru(
    w: Writer,
    call: Call,
    x: str,
    h0: str,
    w_ih: str,
    w_hh: str,
    b_ih: str | None,
    b_hh: str | None,
    lengths: str | None,
    reverse: bool,
) -> list[str]:
    made = _layer(
        w, call, "GRU", x, [h0], (w_ih, w_hh), (b_ih, b_hh), lengths, reverse,
        linear_before_reset=1,
    )  # fmt: skip
    return _unused(w, call, made)


@rule("simple_rnn")
def simple_rnn(
    w: Writer,
    call: Call,
    x: str,
    h0: str,
    w_ih: str,
    w_hh: str,
    b_ih: str | None,
    b_hh: str | None,
    lengths: str | None,
    activation: str,
    reverse: bool,
) -> list[str]:
    made = _layer(
        w, call, "RNN", x, [h0], (w_ih, w_hh), (b_ih, b_hh), lengths, reverse,
        activations=["Tanh" if activation == "tanh" else "Relu"],
    )  # fmt: skip
    return _unused(w, call, made)
