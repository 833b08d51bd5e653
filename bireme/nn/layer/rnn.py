"""Recurrent networks over sequences.

A plain cell runs as one fused sequence op per layer and direction; a cell of the user's own is
called step by step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import bireme
from bireme.api.types import TensorTree
from bireme.core.dtype import DType
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor, constant
from bireme.nn import functional as F
from bireme.nn.attributes import ParamAttrLike
from bireme.nn.layer.container import LayerList
from bireme.nn.layer.layer import Layer
from bireme.nn.layer.rnn_cells import GRUCell, LSTMCell, RNNCellBase, SimpleRNNCell
from bireme.nn.layer.rnn_checks import check_sequence, check_states
from bireme.nn.layer.rnn_open import run_open
from bireme.ops import rnn as rnn_ops


def _has_fused_form(cell: Layer) -> bool:
    hooked = cell._forward_pre_hooks or cell._forward_post_hooks
    return not hooked and type(cell) in (SimpleRNNCell, GRUCell, LSTMCell)


def _run_fused(
    cell: Any, x: Tensor, states: Any, sequence_length: Tensor | None, reverse: bool
) -> tuple[Tensor, Any]:
    """(outputs [T, B, H], final states) of one cell over x [T, B, I]."""
    if isinstance(cell, LSTMCell) and cell.proj_size:
        y, h, c = cell._projected(x, states, sequence_length, reverse)
        return y, (h, c)
    weights = cell._weights()
    options = {"sequence_length": sequence_length, "reverse": reverse}
    if isinstance(cell, LSTMCell):
        y, h, c = rnn_ops.lstm(x, *states, *weights, **options)
        return y, (h, c)
    if isinstance(cell, GRUCell):
        y, h = rnn_ops.gru(x, states, *weights, **options)
        return y, h
    y, h = rnn_ops.simple_rnn(x, states, *weights, activation=cell.activation, **options)
    return y, h


def _map(function: Any, *trees: Any) -> Any:
    """`function` on every tensor of nested tuples and lists of one structure."""
    first = trees[0]
    if isinstance(first, list | tuple):
        return type(first)([_map(function, *items) for items in zip(*trees, strict=True)])
    if isinstance(first, dict):
        return {k: _map(function, *[t[k] for t in trees]) for k in first}
    return function(*trees)


def _time_first(x: Tensor) -> Tensor:
    return bireme.transpose(x, (1, 0, *range(2, x.ndim)))


def _first_tensor(tree: Any) -> Tensor:
    while not isinstance(tree, Tensor):
        tree = next(iter(tree.values() if isinstance(tree, dict) else tree))
    return tree


def run_cell(
    cell: Any,
    inputs: Any,
    states: Any,
    sequence_length: Tensor | None,
    time_major: bool,
    reverse: bool,
    kwargs: dict[str, Any],
) -> tuple[Any, Any]:
    """A cell over a sequence: (outputs, final states)."""
    plain = type(cell) in (SimpleRNNCell, GRUCell, LSTMCell)
    if plain:
        name = type(cell).__name__
        check_sequence(name, inputs, cell.input_size, time_major, sequence_length)
    if states is None:
        states = cell.get_initial_states(inputs, batch_dim_idx=1 if time_major else 0)
    elif plain:
        cell.check_states(
            "initial_states", states, inputs._value.aval.shape[1 if time_major else 0]
        )
    if not time_major:
        inputs = _map(_time_first, inputs)
    if sequence_length is None and not kwargs and _has_fused_form(cell):
        outputs, final = _run_fused(cell, inputs, states, None, reverse)
        return outputs if time_major else _time_first(outputs), final
    steps = _first_tensor(inputs).shape[0]
    mask = None
    if sequence_length is not None:
        kind = _first_tensor(states).dtype
        mask = _time_first(F.sequence_mask(sequence_length, maxlen=steps, dtype=kind))

    def step(now: Any, held: Any, runs: Tensor | None) -> tuple[Any, Any]:
        out, new = cell(now, held, **kwargs)
        if runs is not None:
            new = _map(lambda old, made: _held(old, made, runs), held, new)
        return out, new

    if not isinstance(steps, int):
        outputs, final = run_open(step, inputs, states, mask, steps, reverse)
        return outputs if time_major else _map(_time_first, outputs), final
    results = []
    for t in range(steps - 1, -1, -1) if reverse else range(steps):
        runs = None if mask is None else mask[t]
        out, states = step(_map(lambda x, t=t: x[t], inputs), states, runs)
        results.append(out)
    if reverse:
        results.reverse()
    axis = 0 if time_major else 1
    return _map(lambda *each: bireme.stack(list(each), axis=axis), *results), states


def _held(old: Tensor, new: Tensor, keep: Tensor) -> Tensor:
    """`new` where the sequence still runs, `old` where it has ended."""
    keep = bireme.reshape(keep, (-1, *[1] * (new.ndim - 1)))
    return new * keep + old * (1.0 - keep)


class RNN(Layer):
    """Runs a cell over a sequence."""

    def __init__(self, cell: Layer, is_reverse: bool = False, time_major: bool = False) -> None:
        super().__init__()
        self.cell = cell
        self.is_reverse = is_reverse
        self.time_major = time_major

    def forward(
        self,
        inputs: Any,
        initial_states: TensorTree | None = None,
        sequence_length: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Any, Any]:
        return run_cell(
            self.cell,
            inputs,
            initial_states,
            sequence_length,
            self.time_major,
            self.is_reverse,
            kwargs,
        )


class BiRNN(Layer):
    """Runs one cell forwards and one backwards and joins their outputs."""

    def __init__(
        self, cell_fw: RNNCellBase, cell_bw: RNNCellBase, time_major: bool = False
    ) -> None:
        super().__init__()
        if cell_fw.input_size != cell_bw.input_size:
            raise InvalidArgument(
                "[BiRNN] both cells must take inputs of one size. Received: "
                f"{cell_fw.input_size} and {cell_bw.input_size}"
            )
        self.cell_fw = cell_fw
        self.cell_bw = cell_bw
        self.time_major = time_major

    def forward(
        self,
        inputs: Any,
        initial_states: TensorTree | None = None,
        sequence_length: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Any, tuple[Any, Any]]:
        if isinstance(initial_states, list | tuple) and len(initial_states) != 2:
            raise InvalidArgument(
                "[BiRNN] initial_states must be (forward, backward). Received: "
                f"{len(initial_states)} entries"
            )
        forward, backward = (None, None) if initial_states is None else initial_states
        common = (sequence_length, self.time_major)
        out_fw, last_fw = run_cell(self.cell_fw, inputs, forward, *common, False, kwargs)
        out_bw, last_bw = run_cell(self.cell_bw, inputs, backward, *common, True, kwargs)
        joined = _map(lambda a, b: bireme.concat([a, b], axis=-1), out_fw, out_bw)
        return joined, (last_fw, last_bw)


class _RNNStack(LayerList):
    """Layers of one kind of cell, in one or both directions."""

    _cell: Any
    _state_components = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        direction: str,
        time_major: bool,
        dropout: float,
        cell_options: dict[str, Any],
    ) -> None:
        super().__init__()
        if direction not in ("forward", "bidirect", "bidirectional"):
            raise InvalidArgument(
                f"[{type(self).__name__}] direction must be 'forward' or 'bidirect' (or "
                f"'bidirectional'). Received: {direction!r}"
            )
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.num_directions = 1 if direction == "forward" else 2
        self.time_major = time_major
        self.dropout = dropout
        self.proj_size = cell_options.get("proj_size", 0)
        self._last_zeros: list[Any] = [None, None, []]  # batch, dtype, states
        size = input_size
        for _ in range(num_layers):
            cells = [
                self._cell(size, hidden_size, **cell_options) for _ in range(self.num_directions)
            ]
            self.append(
                RNN(cells[0], False, time_major)
                if self.num_directions == 1
                else BiRNN(cells[0], cells[1], time_major)
            )
            size = (self.proj_size or hidden_size) * self.num_directions
        self._name_parameters(cell_options)

    def _name_parameters(self, cell_options: dict[str, Any]) -> None:
        """Show the cells' parameters under the names weight_ih_l0, bias_hh_l1_reverse …"""
        names = []
        for layer in range(self.num_layers):
            for end in ("", "_reverse")[: self.num_directions]:
                kinds = ["weight_ih", "weight_hh"]
                kinds += [
                    k for k in ("bias_ih", "bias_hh") if cell_options[f"{k}_attr"] is not False
                ]
                names += [f"{k}_l{layer}{end}" for k in kinds]
        # Paired in order, as in Paddle: saved files carry these names.
        for name, param in zip(names, self.parameters(), strict=False):
            setattr(self, name, param)

    def _cells(self) -> list[list[Any]]:
        return [
            [layer.cell] if self.num_directions == 1 else [layer.cell_fw, layer.cell_bw]
            for layer in self
        ]

    def forward(
        self,
        inputs: Tensor,
        initial_states: TensorTree | None = None,
        sequence_length: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        name = type(self).__name__
        check_sequence(name, inputs, self.input_size, self.time_major, sequence_length)
        x = inputs if self.time_major else _time_first(inputs)
        states = self._split_states(x, initial_states)
        final: list[Any] = []
        for index, cells in enumerate(self._cells()):
            if index and self.dropout:
                x = F.dropout(x, self.dropout, training=self.training)
            outputs = []
            for side, cell in enumerate(cells):
                state = states[index * self.num_directions + side]
                if _has_fused_form(cell):
                    y, last = _run_fused(cell, x, state, sequence_length, side == 1)
                else:
                    y, last = run_cell(cell, x, state, sequence_length, True, side == 1, {})
                outputs.append(y)
                final.append(last)
            x = outputs[0] if len(outputs) == 1 else bireme.concat(outputs, axis=-1)
        out = x if self.time_major else _time_first(x)
        if self._state_components == 1:
            return out, bireme.stack(final, axis=0)
        return out, tuple(bireme.stack(list(part), axis=0) for part in zip(*final, strict=True))

    def _split_states(self, x: Tensor, given: Any) -> list[Any]:
        """One state per layer and direction."""
        if given is None:
            return self._zeros(x._value.aval.shape[1], x.dtype)
        given = [given] if isinstance(given, Tensor) else list(given)
        count, batch = self.num_layers * self.num_directions, x._value.aval.shape[1]
        sizes = (self.proj_size or self.hidden_size, self.hidden_size)[: self._state_components]
        wanted = [("num_layers * directions, batch, hidden", (count, batch, n)) for n in sizes]
        check_states(type(self).__name__, "initial_states", given, wanted)
        return self._by_layer([bireme.unstack(part, axis=0) for part in given])

    def _zeros(self, batch: Any, dtype: DType) -> list[Any]:
        """The initial states. The last ones are kept: a training loop moves them to the device
        once."""
        for_batch, of_type, states = self._last_zeros
        if of_type is dtype and for_batch == batch and type(batch) is int:
            return states
        sizes = (self.proj_size or self.hidden_size, self.hidden_size)[: self._state_components]
        if type(batch) is int:
            made = {n: constant(np.zeros((batch, n), dtype.numpy)) for n in sizes}
        else:  # symbolic, in a capture
            made = {n: bireme.zeros([batch, n], dtype) for n in sizes}
        count = self.num_layers * self.num_directions
        states = self._by_layer([[made[n]] * count for n in sizes])
        if type(batch) is int:
            self._last_zeros[:] = (batch, dtype, states)  # no attribute is set: see layer_changes
        return states

    def _by_layer(self, parts: list[Any]) -> list[Any]:
        if self._state_components == 1:
            return list(parts[0])
        return list(zip(*parts, strict=True))

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if self.time_major:
            text += f", time_major={self.time_major}"
        if self.dropout != 0:
            text += f", dropout={self.dropout}"
        return text


class SimpleRNN(_RNNStack):
    """Layers of SimpleRNNCell."""

    _cell = SimpleRNNCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        direction: str = "forward",
        time_major: bool = False,
        dropout: float = 0.0,
        activation: str = "tanh",
        weight_ih_attr: ParamAttrLike | None = None,
        weight_hh_attr: ParamAttrLike | None = None,
        bias_ih_attr: ParamAttrLike | None = None,
        bias_hh_attr: ParamAttrLike | None = None,
        name: str | None = None,
    ) -> None:
        options = {
            "activation": activation,
            "weight_ih_attr": weight_ih_attr,
            "weight_hh_attr": weight_hh_attr,
            "bias_ih_attr": bias_ih_attr,
            "bias_hh_attr": bias_hh_attr,
        }
        super().__init__(
            input_size, hidden_size, num_layers, direction, time_major, dropout, options
        )
        self.activation = activation


class LSTM(_RNNStack):
    """Layers of LSTMCell."""

    _cell = LSTMCell
    _state_components = 2

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        direction: str = "forward",
        time_major: bool = False,
        dropout: float = 0.0,
        weight_ih_attr: ParamAttrLike | None = None,
        weight_hh_attr: ParamAttrLike | None = None,
        bias_ih_attr: ParamAttrLike | None = None,
        bias_hh_attr: ParamAttrLike | None = None,
        proj_size: int = 0,
        name: str | None = None,
    ) -> None:
        options = {
            "weight_ih_attr": weight_ih_attr,
            "weight_hh_attr": weight_hh_attr,
            "bias_ih_attr": bias_ih_attr,
            "bias_hh_attr": bias_hh_attr,
            "proj_size": proj_size,
        }
        super().__init__(
            input_size, hidden_size, num_layers, direction, time_major, dropout, options
        )


class GRU(_RNNStack):
    """Layers of GRUCell."""

    _cell = GRUCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        direction: str = "forward",
        time_major: bool = False,
        dropout: float = 0.0,
        weight_ih_attr: ParamAttrLike | None = None,
        weight_hh_attr: ParamAttrLike | None = None,
        bias_ih_attr: ParamAttrLike | None = None,
        bias_hh_attr: ParamAttrLike | None = None,
        name: str | None = None,
    ) -> None:
        options = {
            "weight_ih_attr": weight_ih_attr,
            "weight_hh_attr": weight_hh_attr,
            "bias_ih_attr": bias_ih_attr,
            "bias_hh_attr": bias_hh_attr,
        }
        super().__init__(
            input_size, hidden_size, num_layers, direction, time_major, dropout, options
        )


__all__ = ["GRU", "LSTM", "RNN", "BiRNN", "SimpleRNN"]
