"""One step of a recurrent network."""

from __future__ import annotations

import math
from typing import Any

import bireme
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn.initializer import Constant, Uniform
from bireme.nn.layer.layer import Layer
from bireme.ops import rnn as rnn_ops


class RNNCellBase(Layer):
    """Base of cells: `state_shape` says what a cell remembers, without the batch dimension."""

    def get_initial_states(
        self,
        batch_ref: Any,
        shape: Any = None,
        dtype: Any = None,
        init_value: float = 0.0,
        batch_dim_idx: int = 0,
    ) -> Any:
        """States filled with `init_value`, for as many sequences as `batch_ref` holds."""
        while isinstance(batch_ref, list | tuple):
            batch_ref = batch_ref[0]
        batch = batch_ref.shape[batch_dim_idx]
        kind = dt.get_default_dtype() if dtype is None else dtype
        wanted = self.state_shape if shape is None else shape
        return _filled(wanted, batch, kind, init_value)

    @property
    def state_shape(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define state_shape")


def _filled(shape: Any, batch: int, dtype: Any, value: float) -> Any:
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

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


class SimpleRNNCell(_GatedCell):
    """h = act(W_ih x + b_ih + W_hh h + b_hh)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        activation: str = "tanh",
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        if activation not in ("tanh", "relu"):
            raise InvalidArgument(
                f"[SimpleRNNCell] activation must be 'tanh' or 'relu'. Received: {activation!r}"
            )
        attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        super().__init__(input_size, hidden_size, attrs)
        self.activation = activation

    def forward(self, inputs: Tensor, states: Any = None) -> tuple[Tensor, Tensor]:
        if states is None:
            states = self.get_initial_states(inputs, self.state_shape)
        h = rnn_ops.simple_rnn_cell(inputs, states, *self._weights(), self.activation)
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
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
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

    def forward(self, inputs: Tensor, states: Any = None) -> Any:
        if states is None:
            states = self.get_initial_states(inputs, self.state_shape)
        h, c = states
        if self.proj_size:
            h, c = self._projected(inputs, h, c)
        else:
            h, c = rnn_ops.lstm_cell(inputs, h, c, *self._weights())
        return h, (h, c)

    def _projected(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """One step whose hidden state is smaller than the cell's."""
        w_ih, w_hh, b_ih, b_hh = self._weights()
        gates = bireme.matmul(x, w_ih, transpose_y=True) + b_ih
        gates = gates + bireme.matmul(h, w_hh, transpose_y=True) + b_hh
        i, f, g, o = bireme.split(gates, 4, axis=-1)
        c = bireme.sigmoid(f) * c + bireme.sigmoid(i) * bireme.tanh(g)
        return bireme.matmul(bireme.sigmoid(o) * bireme.tanh(c), self.weight_ho), c

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
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        super().__init__(input_size, hidden_size, attrs)

    def forward(self, inputs: Tensor, states: Any = None) -> tuple[Tensor, Tensor]:
        if states is None:
            states = self.get_initial_states(inputs, self.state_shape)
        h = rnn_ops.gru_cell(inputs, states, *self._weights())
        return h, h

    @property
    def state_shape(self) -> tuple[int]:
        return (self.hidden_size,)


__all__ = ["GRUCell", "LSTMCell", "RNNCellBase", "SimpleRNNCell"]
