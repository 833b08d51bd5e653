"""Recurrent layers and cells: PyTorch's gates lie in the order of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import bireme as paddle
from bireme.convert.torch.aten import aten
from bireme.convert.torch.program import TorchFileError
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.ops import rnn as cells
from bireme.ops.rnn_projected import projected_lstm


def _one_way(
    kind: str, x: Tensor, state: list[Tensor], weights: list[Any], back: bool
) -> tuple[Tensor, list[Tensor]]:
    """(outputs in the order of time, last states) of one layer in one direction."""
    if kind == "lstm":
        if len(weights) == 5:  # with a projection
            (h, c), (w_ih, w_hh, b_ih, b_hh, w_ho) = state, weights
            w_ho = paddle.transpose(w_ho, [1, 0])  # ours has inputs first
            y, *last = projected_lstm(x, h, c, w_ih, w_hh, w_ho, b_ih, b_hh, None, back)
        else:
            y, *last = cells.lstm(x, *state, *weights, reverse=back)
    elif kind == "gru":
        y, *last = cells.gru(x, *state, *weights, reverse=back)
    else:
        y, *last = cells.simple_rnn(x, *state, *weights, activation=kind, reverse=back)
    return y, last


def _with_biases(weights: Sequence[Tensor], biased: bool) -> list[Tensor | None]:
    return list(weights) if biased else [*weights[:2], None, None, *weights[2:]]


def _layers(
    kind: str,
    x: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> list[Tensor]:
    if isinstance(states, Tensor | bool) or isinstance(params, bool):
        raise TorchFileError(f"{kind} of packed sequences has no rule")
    ways = 2 if bidirectional else 1
    each = len(params) // (num_layers * ways)
    if each * num_layers * ways != len(params) or each - (4 if has_biases else 2) not in (0, 1):
        raise TorchFileError(f"{kind} has {len(params)} weights for {num_layers} layers")
    if batch_first:
        x = paddle.transpose(x, [1, 0, 2])
    last: list[list[Tensor]] = [[] for _ in states]
    for layer in range(num_layers):
        outs = []
        for way in range(ways):
            at = layer * ways + way
            weights = _with_biases(params[at * each : (at + 1) * each], has_biases)
            y, ends = _one_way(kind, x, [s[at] for s in states], weights, way == 1)
            outs.append(y)
            for kept, end in zip(last, ends, strict=True):
                kept.append(end)
        x = outs[0] if ways == 1 else paddle.concat(outs, -1)
        if dropout and train and layer + 1 < num_layers:
            x = F.dropout(x, dropout)
    if batch_first:
        x = paddle.transpose(x, [1, 0, 2])
    return [x, *[paddle.stack(kept, 0) for kept in last]]


@aten("lstm")
def lstm(
    input: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool = False,
) -> list[Tensor]:
    return _layers(
        "lstm",
        input,
        hx,
        params,
        has_biases,
        num_layers,
        dropout,
        train,
        bidirectional,
        batch_first,
    )


def _simple(kind: str) -> Any:
    def rule(
        input: Tensor,
        hx: Tensor,
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool = False,
    ) -> list[Tensor]:
        if not isinstance(hx, Tensor):
            raise TorchFileError(f"{kind} of packed sequences has no rule")
        return _layers(
            kind,
            input,
            [hx],
            params,
            has_biases,
            num_layers,
            dropout,
            train,
            bidirectional,
            batch_first,
        )

    return rule


for _op, _kind in (("gru", "gru"), ("rnn_tanh", "tanh"), ("rnn_relu", "relu")):
    aten(_op)(_simple(_kind))


def _cell(kind: str) -> Any:
    def rule(
        input: Tensor,
        hx: Tensor | Sequence[Tensor],
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Tensor | list[Tensor]:
        states = [hx] if isinstance(hx, Tensor) else list(hx)
        whole = input.ndim == 2
        rows = input if whole else paddle.unsqueeze(input, 0)
        given = [s if whole else paddle.unsqueeze(s, 0) for s in states]
        _, last = _one_way(kind, paddle.unsqueeze(rows, 0), given, [w_ih, w_hh, b_ih, b_hh], False)
        made = [m if whole else paddle.squeeze(m, 0) for m in last]
        return made if kind == "lstm" else made[0]

    return rule


for _op, _kind in (
    ("lstm_cell", "lstm"),
    ("gru_cell", "gru"),
    ("rnn_tanh_cell", "tanh"),
    ("rnn_relu_cell", "relu"),
):
    aten(_op)(_cell(_kind))
