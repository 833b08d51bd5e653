"""Recurrent layers against the real wheel: directions, depths, lengths, states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme

pytestmark = pytest.mark.filterwarnings("ignore:The use of|ignore:.*deprecated")

R = np.random.default_rng(5)
X = R.standard_normal((3, 6, 4)).astype("float32")


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [t for part in value for t in _flat(part)]
    return [value]


def _pair(paddle: Any, name: str, **options: Any) -> tuple[Any, Any]:
    theirs = getattr(paddle.nn, name)(4, 5, **options)
    mine = getattr(bireme.nn, name)(4, 5, **options)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    mine.set_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    assert repr(mine) == repr(theirs)
    return theirs, mine


def _compare(paddle: Any, theirs: Any, mine: Any, *arrays: Any, rtol: float = 2e-4) -> None:
    results = []
    for lib, layer in ((paddle, theirs), (bireme, mine)):
        inputs = [None if a is None else _tensor(lib, a) for a in arrays]
        inputs[0].stop_gradient = False
        outs = _flat(layer(*inputs))
        sum((o * o).sum() for o in outs).backward()
        grads = [inputs[0].grad] + [p.grad for p in layer.parameters()]
        results.append([t.numpy() for t in (*outs, *grads) if t is not None])
    assert len(results[0]) == len(results[1])
    for want, got in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=rtol, atol=2e-5)


def _tensor(lib: Any, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(lib.to_tensor(v) for v in value)
    return lib.to_tensor(value)


@pytest.mark.parametrize("name", ["SimpleRNN", "LSTM", "GRU"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_layers": 2},
        {"direction": "bidirect"},
        {"num_layers": 2, "direction": "bidirectional", "time_major": True},
        {"bias_ih_attr": False},
    ],
    ids=str,
)
def test_layers(paddle: Any, name: str, options: dict[str, Any]) -> None:
    theirs, mine = _pair(paddle, name, **options)
    _compare(paddle, theirs, mine, X)


@pytest.mark.parametrize("name", ["SimpleRNN", "LSTM", "GRU"])
@pytest.mark.parametrize("direction", ["forward", "bidirect"])
def test_lengths_and_initial_states(paddle: Any, name: str, direction: str) -> None:
    theirs, mine = _pair(paddle, name, direction=direction, num_layers=2)
    count = 4 if direction == "bidirect" else 2
    states = [R.standard_normal((count, 3, 5)).astype("float32") for _ in range(2)]
    given = tuple(states) if name == "LSTM" else states[0]
    lengths = np.array([6, 3, 1], "int64")
    _compare(paddle, theirs, mine, X, given, lengths)


def test_relu_activation(paddle: Any) -> None:
    theirs, mine = _pair(paddle, "SimpleRNN", activation="relu")
    _compare(paddle, theirs, mine, X)


def test_projection(paddle: Any) -> None:
    theirs, mine = _pair(paddle, "LSTM", proj_size=3)
    _compare(paddle, theirs, mine, X)


@pytest.mark.parametrize("lengths", [None, np.array([6, 2, 4], "int64")])
@pytest.mark.parametrize("reverse", [False, True])
def test_rnn_of_a_cell(paddle: Any, lengths: Any, reverse: bool) -> None:
    results = []
    for lib in (paddle, bireme):
        cell = lib.nn.GRUCell(4, 5)
        layer = lib.nn.RNN(cell, is_reverse=reverse)
        results.append(layer)
    results[1].set_state_dict({k: v.numpy() for k, v in results[0].state_dict().items()})
    _compare(paddle, results[0], results[1], X, None, lengths)


def test_birnn(paddle: Any) -> None:
    layers = [
        lib.nn.BiRNN(lib.nn.LSTMCell(4, 5), lib.nn.LSTMCell(4, 5)) for lib in (paddle, bireme)
    ]
    layers[1].set_state_dict({k: v.numpy() for k, v in layers[0].state_dict().items()})
    _compare(paddle, layers[0], layers[1], X)


def test_a_cell_of_ones_own() -> None:
    class Sum(bireme.nn.RNNCellBase):
        @property
        def state_shape(self) -> tuple[int]:
            return (4,)

        def forward(self, x: Any, state: Any) -> Any:
            return state + x, state + x

    out, last = bireme.nn.RNN(Sum())(bireme.to_tensor(X))
    np.testing.assert_allclose(out.numpy(), np.cumsum(X, axis=1), rtol=1e-5)
    np.testing.assert_allclose(last.numpy(), X.sum(axis=1), rtol=1e-5, atol=1e-6)


def test_dropout_between_layers_only_in_training() -> None:
    layer = bireme.nn.LSTM(4, 5, num_layers=2, dropout=0.5)
    x = bireme.to_tensor(X)
    layer.eval()
    first, second = layer(x)[0].numpy(), layer(x)[0].numpy()
    np.testing.assert_array_equal(first, second)
    layer.train()
    assert not np.array_equal(layer(x)[0].numpy(), layer(x)[0].numpy())


def test_clear_errors() -> None:
    with pytest.raises(ValueError, match="direction must be"):
        bireme.nn.LSTM(4, 5, direction="sideways")
    with pytest.raises(ValueError, match="hidden_size must be positive"):
        bireme.nn.GRUCell(4, 0)
    with pytest.raises(ValueError, match=r"2 part\(s\)"):
        bireme.nn.LSTM(4, 5)(bireme.to_tensor(X), bireme.zeros([1, 3, 5]))
