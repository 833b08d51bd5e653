"""One step of a recurrent network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import bireme
from bireme.api.types import DTypeLike, TensorTree
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn.attributes import ParamAttrLike
from bireme.nn.initializer import Constant, Uniform
from bireme.nn.layer import rnn_checks
from bireme.nn.layer.layer import Layer
from bireme.ops import rnn as rnn_ops
from bireme.ops.rnn_projected import projected_lstm

StateShape = Sequence[int] | Sequence[Sequence[int]]  # of one state, or of each of several


class RNNCellBase(Layer):
    """Base of cells: `state_shape` says what a cell remembers, without the batch dimension."""

    def get_initial_states(
        self,
        batch_ref: TensorTree,
        shape: StateShape | None = None,
        dtype: DTypeLike | None = None,
        init_value: float = 0.0,
        batch_dim_idx: int = 0,
    ) -> TensorTree:
        """States filled with `init_value`, for as many sequences as `batch_ref` holds."""
        first: Any = batch_ref
        while isinstance(first, list | tuple):
            first = first[0]
        batch = first.shape[batch_dim_idx]
        kind = dt.get_default_dtype() if dtype is None else dtype
        wanted = self.state_shape if shape is None else shape
        return _filled(wanted, batch, kind, init_value)

    @property
    def state_shape(self) -> StateShape:
        raise NotImplementedError(f"{type(self).__name__} does not define state_shape")


def _filled(shape: Any, batch: int, dtype: DTypeLike, value: float) -> Any:
    if all(isinstance(d, int) for d in shape):
        sizes = list(shape[1:]) if shape and shape[0] == -1 else list(shape)
        kind = dtype[0] if isinstance(dtype, list | tuple) else dtype
        return bireme.full([batch, *sizes], value, kind)
    kinds = dtype if isinstance(dtype, list | tuple) else [dtype] * len(shape)
    made = [_filled(s, batch, k, value) for s, k in zip(shape, kinds, strict=True)]
    return tuple(made) if isinstance(shape, tuple) else made


class _GatedCell(RNNCellBase):
    """The parameters of a cell with `_gates` gates."""

    _gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        attrs: tuple[Any, Any, Any, Any],
        state_size: int | None = None,
    ) -> None:
        super().__init__()
        if hidden_size <= 0:
            raise InvalidArgument(
                f"[{type(self).__name__}] hidden_size must be positive. Received: {hidden_size}"
            )
        rows = self._gates * hidden_size
        shapes = ((rows, input_size), (rows, state_size or hidden_size), (rows,), (rows,))
        bound = 1.0 / math.sqrt(hidden_size)
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        for name, shape, attr in zip(names, shapes, attrs, strict=True):
            is_bias = name.startswith("bias")
            # False does not leave the parameter out: it fixes weights at one, biases at zero.
            fixed = Constant(0.0 if is_bias else 1.0)
            made: Any = self.create_parameter(
                shape,
                None if attr is False else attr,
                is_bias=is_bias,
                default_initializer=fixed if attr is False else Uniform(-bound, bound),
            )
            if attr is False:
                made.stop_gradient = True
            setattr(self, name, made)
        self.input_size = input_size
        self.hidden_size = hidden_size

    def _weights(self) -> tuple[Any, Any, Any, Any]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def check_states(self, name: str, states: Any, batch: Any) -> None:
        """Raise if what was given as `name` are not this cell's states for `batch` sequences."""
        shape: Any = self.state_shape
        sizes = shape if isinstance(shape[0], tuple) else (shape,)
        wanted = [("batch, hidden", (batch, *size)) for size in sizes]
        rnn_checks.check_states(type(self).__name__, name, states, wanted)

    def _started(self, inputs: Tensor, states: Any) -> Any:
        """The states of one step, when all that was given fits."""
        rnn_checks.check_step(type(self).__name__, inputs, self.input_size)
        if states is None:
            return self.get_initial_states(inputs, self.state_shape)
        self.check_states("states", states, inputs._value.aval.shape[0])
        return states

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


class SimpleRNNCell(_GatedCell):
    """h = act(W_ih x + b_ih + W_hh h + b_hh)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        activation: str = "tanh",
        weight_ih_attr: ParamAttrLike | None = None,
        weight_hh_attr: ParamAttrLike | None = None,
        bias_ih_attr: ParamAttrLike | None = None,
        bias_hh_attr: ParamAttrLike | None = None,
        name: str | None = None,
    ) -> None:
        if activation not in ("tanh", "relu"):
            raise InvalidArgument(
                f"[SimpleRNNCell] activation must be 'tanh' or 'relu'. Received: {activation!r}"
            )
        attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        super().__init__(input_size, hidden_size, attrs)
        self.activation = activation

    def forward(self, inputs: Tensor, states: Tensor | None = None) -> tuple[Tensor, Tensor]:
        h = self._started(inputs, states)
        h = rnn_ops.simple_rnn_cell(inputs, h, *self._weights(), self.activation)
        return h, h

    @property
    def state_shape(self) -> tuple[int]:
        return (self.hidden_size,)

    def extra_repr(self) -> str:
        text = super().extra_repr()
        return text if self.activation == "tanh" else f"{text}, activation={self.activation}"


class LSTMCell(_GatedCell):
    """Long short-term memory, with an optional projection of the hidden state."""

    _gates = 4

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        weight_ih_attr: ParamAttrLike | None = None,
        weight_hh_attr: ParamAttrLike | None = None,
        bias_ih_attr: ParamAttrLike | None = None,
        bias_hh_attr: ParamAttrLike | None = None,
        proj_size: int = 0,
        name: str | None = None,
    ) -> None:
        if proj_size < 0 or (proj_size and proj_size >= hidden_size):
            raise InvalidArgument(
                "[LSTMCell] proj_size must be 0 or smaller than hidden_size. Received: "
                f"proj_size={proj_size}, hidden_size={hidden_size}"
            )
        attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        super().__init__(input_size, hidden_size, attrs, proj_size or hidden_size)
        self.proj_size = proj_size
        if proj_size:
            bound = 1.0 / math.sqrt(hidden_size)
            self.weight_ho = self.create_parameter(
                (hidden_size, proj_size),
                weight_hh_attr,
                default_initializer=Uniform(-bound, bound),
            )

    def forward(
        self, inputs: Tensor, states: Sequence[Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, c = self._started(inputs, states)
        if self.proj_size:
            _, h, c = self._projected(bireme.unsqueeze(inputs, 0), (h, c), None, False)
        else:
            h, c = rnn_ops.lstm_cell(inputs, h, c, *self._weights())
        return h, (h, c)

    def _projected(
        self, x: Tensor, states: Any, sequence_length: Tensor | None, reverse: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(y, h, c) over a sequence; the hidden state is smaller than the cell's."""
        h, c = states
        w_ih, w_hh, b_ih, b_hh = self._weights()
        return projected_lstm(
            x, h, c, w_ih, w_hh, self.weight_ho, b_ih, b_hh, sequence_length, reverse
        )

    @property
    def state_shape(self) -> tuple[tuple[int], tuple[int]]:
        return ((self.proj_size or self.hidden_size,), (self.hidden_size,))


class GRUCell(_GatedCell):
    """Gated recurrent unit."""

    _gates = 3

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        weight_ih_attr: ParamAttrLike | None = None,
        weight_hh_attr: ParamAttrLike | None = None,
        bias_ih_attr: ParamAttrLike | None = None,
        bias_hh_attr: ParamAttrLike | None = None,
        name: str | None = None,
    ) -> None:
        attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        super().__init__(input_size, hidden_size, attrs)

    def forward(self, inputs: Tensor, states: Tensor | None = None) -> tuple[Tensor, Tensor]:
        h = self._started(inputs, states)
        h = rnn_ops.gru_cell(inputs, h, *self._weights())
        return h, h

    @property
    def state_shape(self) -> tuple[int]:
        return (self.hidden_size,)


__all__ = ["GRUCell", "LSTMCell", "RNNCellBase", "SimpleRNNCell"]
