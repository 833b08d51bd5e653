"""The `rnn` op: stacked LSTM, GRU and simple recurrent layers over padded batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bireme
from bireme.convert.paddle.interpreter import Step, rule
from bireme.convert.paddle.program import ModelFileError
from bireme.core.tensor import Tensor
from bireme.ops import rnn as cells

if TYPE_CHECKING:
    from bireme.convert.paddle.interpreter import Results


def _layer(
    mode: str, x: Tensor, state: list[Tensor], weights: Any, lengths: Any, back: bool
) -> Any:
    """(results in time order, last states) of one layer in one direction."""
    if mode == "LSTM":
        cell: Any = cells.lstm
    else:
        cell = cells.gru if mode == "GRU" else cells.simple_rnn
    extra = {} if mode in ("LSTM", "GRU") else {"activation": mode[4:].lower()}
    y, *last = cell(x, *state, *weights, sequence_length=lengths, reverse=back, **extra)
    return y, last


@rule("rnn")
def rnn(step: Step) -> Results:
    mode, layers = step.attr("mode", "RNN_TANH"), step.attr("num_layers", 1)
    ways = 2 if step.attr("is_bidirec", False) else 1
    weights, states = step.many("WeightList"), step.many("PreState")
    if mode not in ("LSTM", "GRU", "RNN_TANH", "RNN_RELU"):
        raise ModelFileError(f"an rnn of the unknown mode {mode!r:.40}")
    if len(weights) != 4 * layers * ways or len(states) != (2 if mode == "LSTM" else 1):
        raise ModelFileError(f"{len(weights)} weights and {len(states)} states for {mode}")
    x, lengths = step.need("Input"), step("SequenceLength")
    last: list[list[Tensor]] = [[] for _ in states]
    biases = 2 * layers * ways  # all weights come first, then all biases
    for layer in range(layers):
        outs = []
        for way in range(ways):
            at = layer * ways + way
            own = [*weights[2 * at : 2 * at + 2], *weights[biases + 2 * at : biases + 2 * at + 2]]
            y, ends = _layer(mode, x, [s[at] for s in states], own, lengths, way == 1)
            outs.append(y)
            for kept, end in zip(last, ends, strict=True):
                kept.append(end)
        x = outs[0] if ways == 1 else bireme.concat(outs, -1)
    return {"Out": x, "State": [bireme.stack(kept, 0) for kept in last]}
