"""What recurrent layers say names the shapes that the user gave, in the user's order."""

from __future__ import annotations

import re

import numpy as np
import pytest

import bireme as paddle
from bireme import nn
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch

LAYERS = [nn.LSTM, nn.GRU, nn.SimpleRNN]
CELLS = [nn.LSTMCell, nn.GRUCell, nn.SimpleRNNCell]


def states(kind, *shape):
    state = paddle.zeros(shape)
    return (state, state) if kind in (nn.LSTM, nn.LSTMCell) else state


@pytest.mark.parametrize("kind", LAYERS)
def test_layers(kind):
    x = paddle.ones([4, 7, 5])
    name = kind.__name__
    for time_major, order in ((False, "batch, time"), (True, "time, batch")):
        with pytest.raises(ShapeMismatch) as caught:
            kind(6, 8, time_major=time_major)(x)
        assert str(caught.value) == (
            f"[{name}] inputs must have shape [{order}, 6] (time_major={time_major}): input_size "
            "is 6. Received: shape [4, 7, 5]"
        )
    for shape in ([4, 5], [4, 7, 5, 1]):
        with pytest.raises(ShapeMismatch, match=re.escape(f"Received: shape {shape}")):
            kind(5, 8)(paddle.ones(shape))
    with pytest.raises(TypeMismatch, match=f"{name}. argument 'inputs' must be a Tensor"):
        kind(5, 8)(np.ones([4, 7, 5], "float32"))
    wanted = r"must have shape \[2, 4, 8\] .num_layers \* directions, batch, hidden.. Received"
    for shape in ([2, 4, 9], [2, 3, 8], [3, 4, 8], [1, 4, 8], [4, 8]):
        with pytest.raises(ShapeMismatch, match=wanted):
            kind(5, 8, num_layers=2)(x, states(kind, *shape))
    with pytest.raises(InvalidArgument, match=r"part\(s\). Received: 3"):
        kind(5, 8)(x, [paddle.zeros([1, 4, 8])] * 3)
    with pytest.raises(ShapeMismatch, match=r"shape \[4\], one.*\[3\], for inputs of .*7, 5\]"):
        kind(5, 8)(x, None, paddle.to_tensor([7, 7, 7]))


@pytest.mark.parametrize("kind", CELLS)
def test_cells(kind):
    name = kind.__name__
    with pytest.raises(ShapeMismatch) as caught:
        kind(6, 8)(paddle.ones([4, 5]))
    assert str(caught.value) == (
        f"[{name}] inputs must have shape [batch, 6]: input_size is 6. Received: shape [4, 5]"
    )
    for shape in ([4, 9], [3, 8], [1, 4, 8]):
        with pytest.raises(ShapeMismatch, match=rf"{name}. states.* must have shape \[4, 8\]"):
            kind(5, 8)(paddle.ones([4, 5]), states(kind, *shape))
    x = paddle.ones([4, 7, 5])
    for layer in (nn.RNN(kind(6, 8)), nn.BiRNN(kind(6, 8), kind(6, 8))):
        with pytest.raises(ShapeMismatch, match=rf"{name}. .*\[batch, time, 6\].*\[4, 7, 5\]"):
            layer(x)
    with pytest.raises(ShapeMismatch, match=rf"{name}. initial_states.* must have shape \[4, 8\]"):
        nn.RNN(kind(5, 8))(x, states(kind, 7, 8))


@pytest.mark.parametrize("kind", LAYERS)
def test_states_of_too_many_layers_are_refused_as_in_paddle(kind, paddle):
    """The others were dropped without a word."""
    real = getattr(paddle.nn, kind.__name__)(5, 8)
    state = paddle.zeros([2, 4, 8])
    given = (state, state) if kind is nn.LSTM else state
    with pytest.raises(ValueError, match="num_layers"):
        real(paddle.ones([4, 7, 5]), given)
